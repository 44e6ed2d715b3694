//! Where Python is, when somebody asks since the program does not go on.
//!
//! The module has left a function to be called then. A thread of ours calls it and waits for Python's lock, as long as it takes;
//! the function says where Python's threads are, and what PyTorch itself knows of its collectives.

use std::{
    ffi::c_char,
    slice,
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicI64,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use serde::Deserialize;
use stepscope_collector::{Recorder, native_threads, quiet_thread};
use stepscope_traces::{CollectorNote, Nanos, PythonThread, StackDump, in_flight};

use super::{bytes, for_python};
use crate::recording::recorder;

type Ask = extern "C" fn();

/// No dump of PyTorch's is longer.
const LONGEST_DUMP: usize = 64 << 20;

static ASK: Mutex<Option<Ask>> = Mutex::new(None);
/// When the last question was asked.
static ASKED_NS: AtomicI64 = AtomicI64::new(0);
/// Whether a thread of ours asks already.
static ASKING: AtomicBool = AtomicBool::new(false);

/// A thread of Python's: its name, and its calls by function, file and line.
#[derive(Deserialize)]
struct SaidThread(String, Vec<(String, String, u64)>);

/// Asks Python where it is; tells whether it is going to say so, if it can.
pub(crate) fn ask(asked: Nanos) -> bool {
    let Some(ask) = *ASK.lock().unwrap_or_else(PoisonError::into_inner) else { return false };
    ASKED_NS.store(asked.0, Release);
    if !ASKING.swap(true, AcqRel) {
        let asks = quiet_thread::spawn("stepscope-asks", move || {
            ask();
            ASKING.store(false, Release);
        });
        if asks.is_err() {
            ASKING.store(false, Release);
        }
    }
    true
}

/// Nobody is to be asked any more: Python ends.
pub(super) fn end() {
    *ASK.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Says what to call when somebody asks where Python is.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_when_asked(ask: Option<Ask>) {
    for_python(|| *ASK.lock().unwrap_or_else(PoisonError::into_inner) = ask);
}

/// Says where the threads of Python are, in JSON.
///
/// # Safety
///
/// It has so many bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_stacks(threads: *const c_char, length: usize) {
    // SAFETY: as the caller promises.
    let threads = unsafe { bytes(threads, length) };
    for_python(|| {
        let Ok(said) = serde_json::from_str::<Vec<SaidThread>>(&threads) else { return };
        let calls = |SaidThread(name, calls): SaidThread| {
            let calls = calls.iter().map(|(function, file, line)| (function.as_str(), file.as_str(), *line));
            PythonThread::new(&name, calls)
        };
        let dump = StackDump {
            asked_ns: Nanos(ASKED_NS.load(Acquire)),
            python: said.into_iter().map(calls).collect(),
            no_python: None,
            native: native_threads(),
            aside: recorder().and_then(Recorder::aside),
        };
        recorder().into_iter().for_each(|recorder| recorder.note(CollectorNote::StackDump(dump.clone())));
    });
}

/// Says what PyTorch's Flight Recorder knows, in a pickle.
///
/// # Safety
///
/// It has so many bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_in_flight(pickle: *const c_char, length: usize) {
    if pickle.is_null() || length > LONGEST_DUMP {
        return;
    }
    // SAFETY: as the caller promises.
    let pickle = unsafe { slice::from_raw_parts(pickle.cast::<u8>(), length) };
    for_python(|| {
        if let (Some(said), Some(recorder)) = (in_flight(pickle), recorder()) {
            recorder.note(CollectorNote::FlightRecorder(said));
        }
    });
}
