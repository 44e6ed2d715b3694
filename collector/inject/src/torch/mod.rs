//! Memory of PyTorch, and where in its training it is: what our module in the program's Python says.
//!
//! The module has PyTorch keep a history of its allocator, and tells when passes of the training begin and end and which
//! blocks are parameters, gradients and optimizer state. A thread of ours reads the history, without Python and its lock,
//! and the library `traces` says what each block is for.
//!
//! | file | idea |
//! |---|---|
//! | `event.rs` | what the module sees, by its numbers |
//! | `steps.rs` | which step and phase the program is in, by what begins and ends |
//! | `told.rs` | what holds on: groups of ranks, the model, what could not be found out |
//! | `asked.rs` | where Python is, when somebody asks since nothing goes on |
//! | `inbox.rs` | what the program's threads leave for ours |
//! | `native.rs` | PyTorch's own function that writes its history, in C++ (`native_elsewhere.rs`, where it cannot be called) |
//! | `catch.rs` | a call of C++ that ends here, whatever it throws |
//! | `profilers.rs` | the program's own profiler, which needs CUPTI for itself |
//! | `follow.rs` | our thread: when it reads, what that costs |
//!
//! A process that is a fork of a recorded one is told that nothing is wanted.

mod asked;
#[cfg(target_arch = "x86_64")]
mod catch;
mod event;
mod follow;
mod inbox;
#[cfg_attr(not(target_arch = "x86_64"), path = "native_elsewhere.rs")]
mod native;
mod profilers;
mod steps;
mod told;

use std::{
    ffi::{CStr, c_char},
    panic::catch_unwind,
    slice,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use stepscope_traces::{CollectorNote, Counter, CounterSample, MemoryCategory, Nanos, Observation, Step, now};

use crate::{nvtx::operators, process, recording::recorder};
use event::Event;

pub(crate) use asked::ask;
pub(crate) use follow::end;
pub(crate) use told::tell;

/// What the module is told: that the history is wanted, operators, anything else that it finds out about a step, and whether the
/// loss is a number.
const HISTORY: u32 = 1;
const OPERATORS: u32 = 2;
const DETAILS: u32 = 4;
const LOSS: u32 = 8;

/// The categories that the module observes, by its numbers.
const CATEGORIES: [MemoryCategory; 3] =
    [MemoryCategory::Parameters, MemoryCategory::Gradients, MemoryCategory::OptimizerState];

/// Whether the module is in this process, and is going to say what PyTorch does.
static EXPECTED: AtomicBool = AtomicBool::new(false);
/// Whether what happens now is to be recorded.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Whether recording rests within its window.
static RESTS: AtomicBool = AtomicBool::new(false);
/// Whether anything but steps and phases is recorded.
static DETAILED: AtomicBool = AtomicBool::new(false);

/// Whether the module is in this process.
pub(crate) fn is_expected() -> bool {
    EXPECTED.load(Acquire)
}

/// Has the history recorded from now on.
pub(crate) fn open_window() {
    RESTS.store(false, Release);
    DETAILED.store(true, Release);
    steps::rest(false);
    follow::window_is_open();
    WANTED.store(is_expected(), Release);
}

/// Says whether only steps and phases are recorded for a while, within a window.
pub(crate) fn rest(rests: bool) {
    if RESTS.load(Acquire) == rests {
        return;
    }
    if rests {
        close_window();
        steps::rest(true);
        RESTS.store(true, Release);
    } else {
        open_window();
    }
}

/// The newest step in which operators were looked at, which takes a while.
pub(crate) fn looked_at() -> Option<Step> {
    steps::looked_at()
}

/// Records what is left of a window, and has the program turn its history off when it comes by. What is left is read here and
/// now, so that the program need not wait for it.
pub(crate) fn close_window() {
    follow::close_window();
    WANTED.store(false, Release);
    DETAILED.store(false, Release);
    RESTS.store(false, Release);
}

fn wishes() -> u32 {
    let wanted = |wish: u32, is_wanted: bool| if is_wanted { wish } else { 0 };
    let is_recording = recorder().is_some();
    wanted(DETAILS, DETAILED.load(Acquire))
        | wanted(LOSS, DETAILED.load(Acquire) || RESTS.load(Acquire))
        | wanted(HISTORY, WANTED.load(Acquire) && follow::is_able())
        | wanted(OPERATORS, is_recording && WANTED.load(Acquire) && steps::wants_operators())
}

/// Runs what Python asks for, if this is the process that is recorded. No panic gets out.
fn for_python<R: Default>(action: impl FnOnce() -> R + std::panic::UnwindSafe) -> R {
    process::be_quiet();
    if process::is_fork() { R::default() } else { catch_unwind(action).unwrap_or_default() }
}

/// Says that PyTorch is imported, before CUDA begins.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_expect() {
    process::be_quiet();
    EXPECTED.store(true, Release);
}

/// Says that CUDA has begun, and which version of PyTorch this is. Tells what is wanted.
///
/// # Safety
///
/// The version is a text of C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_begin(version: *const c_char) -> u32 {
    // SAFETY: as the caller promises.
    let version = unsafe { text(version) };
    for_python(|| {
        follow::begin(version);
        wishes()
    })
}

/// Says that a pass of the training begins or ends, in which optimizer if in one, and how long the module has taken since
/// it last said so. Tells what is wanted.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_mark(event: u32, optimizer: u64, spent_ns: u64) -> u32 {
    let time = now();
    for_python(|| {
        follow::add_cost(spent_ns);
        if let Some(event) = Event::of(event) {
            steps::mark(event, optimizer, time);
        }
        wishes()
    })
}

/// Says that PyTorch names its operators from now on, or does so no more.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_look(on: u32) {
    for_python(|| operators::look(on != 0));
}

/// Says that this thread enters a module, or a function of the program; an empty text is none.
///
/// # Safety
///
/// Both are texts of C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_enter(module: *const c_char, source: *const c_char) {
    // SAFETY: as the caller promises.
    let (module, source) = unsafe { (text(module), text(source)) };
    for_python(|| {
        let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        operators::enter(said(&module).as_deref(), said(&source).as_deref());
    });
}

/// Says that this thread leaves what it entered last, or all of it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_leave(all: u32) {
    for_python(|| operators::leave(all != 0));
}

/// Says which blocks are for what, all of them, as of now.
///
/// # Safety
///
/// There are so many addresses.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_blocks(category: u32, addresses: *const u64, count: usize) {
    let time_ns = now();
    // SAFETY: as the caller promises.
    let addresses = unsafe { numbers(addresses, count) };
    for_python(|| {
        if let Some(category) = CATEGORIES.get(category as usize) {
            inbox::leave(|inbox| inbox.observe(Observation { time_ns, category: *category, addresses }));
        }
    });
}

/// Says how large buffers for communication are.
///
/// # Safety
///
/// There are so many sizes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_buffers(sizes: *const u64, count: usize) {
    // SAFETY: as the caller promises.
    let sizes = unsafe { numbers(sizes, count) };
    for_python(|| inbox::leave(|inbox| inbox.buffers.extend(sizes)));
}

/// Says which device the program trains on.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_device(device: u32) {
    for_python(|| inbox::leave(|inbox| inbox.device = Some(device)));
}

/// Says that the history is on from now on, with so many events at most; or, with none, that it is about to be turned off.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_history(events: u64) {
    for_python(|| if events > 0 { follow::history_is_on(events) } else { follow::history_goes_off() });
}

/// Says that a backward pass is over so many tokens.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_tokens(tokens: f64) {
    for_python(|| told::count_tokens(tokens));
}

/// Says that a backward pass began so long ago from a loss that is no number.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_lost(loss: f64, ago_ns: u64) {
    let time_ns = now() - Nanos(i64::try_from(ago_ns).unwrap_or(i64::MAX));
    for_python(|| {
        let sample = CounterSample { time_ns, counter: Counter::Loss.id(), value: loss };
        recorder().into_iter().for_each(|recorder| recorder.record_counter(sample));
    });
}

/// Says what is trained, in JSON. Tells 1 if it is understood.
///
/// # Safety
///
/// The description has so many bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_model(description: *const c_char, length: usize) -> u32 {
    // SAFETY: as the caller promises.
    let description = unsafe { bytes(description, length) };
    for_python(|| told::say_model(&description).into())
}

/// Says which groups of ranks there are, in JSON. Tells 1 if it is understood.
///
/// # Safety
///
/// The description has so many bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_groups(description: *const c_char, length: usize) -> u32 {
    // SAFETY: as the caller promises.
    let description = unsafe { bytes(description, length) };
    for_python(|| told::say_groups(&description).into())
}

/// Says that a source of knowledge has failed, and why.
///
/// # Safety
///
/// Both are texts of C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_failed(source: *const c_char, why: *const c_char) {
    // SAFETY: as the caller promises.
    let (source, why) = unsafe { (text(source), text(why)) };
    for_python(|| told::fail(source, why));
}

/// Says what the program raises and nobody catches.
///
/// # Safety
///
/// It is a text of C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_raised(what: *const c_char) {
    // SAFETY: as the caller promises.
    let what = unsafe { text(what) };
    for_python(|| recorder().into_iter().for_each(|recorder| recorder.note(CollectorNote::Exception(what.clone()))));
}

/// Says why memory cannot be recorded.
///
/// # Safety
///
/// The reason is a text of C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_torch_refuse(why: *const c_char) {
    // SAFETY: as the caller promises.
    let why = unsafe { text(why) };
    for_python(|| follow::refuse(&why));
}

/// Says that the program is about to end.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_torch_end() {
    for_python(|| {
        asked::end();
        end();
    });
}

/// # Safety
///
/// It is null, or a text of C's.
unsafe fn text(text: *const c_char) -> String {
    const LONGEST: usize = 500;
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    text.chars().take(LONGEST).collect()
}

/// # Safety
///
/// It is null, or has so many bytes.
unsafe fn bytes(text: *const c_char, length: usize) -> String {
    const LONGEST: usize = 1 << 20;
    if text.is_null() || length > LONGEST {
        return String::new();
    }
    // SAFETY: as the caller promises.
    String::from_utf8_lossy(unsafe { slice::from_raw_parts(text.cast::<u8>(), length) }).into_owned()
}

/// # Safety
///
/// It is null, or there are so many numbers.
unsafe fn numbers(numbers: *const u64, count: usize) -> Vec<u64> {
    if numbers.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts(numbers, count) }.to_vec()
}
