//! Answers whoever asks where this rank is, since its job does not go on.

use std::path::Path;

use stepscope_traces::{ClockSnapshot, CollectorNote, InFlight, Nanos, StackDump};

use crate::{injection::DumpRequest, lock::lock, native_threads::native_threads, shared::Shared};

/// What is said of a program whose Python does not answer.
const SILENT: &str = "Python does not answer: a thread keeps its lock, in native code perhaps";

/// Looks for questions in a run.
pub(crate) struct Asked<'a> {
    run: &'a Path,
    /// Those until then are answered, or are not for this rank.
    until: Nanos,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(run: &'a Path) -> Asked<'a> {
        Asked { run, until: ClockSnapshot::take().wall_ns }
    }

    /// What to note, if somebody has asked.
    pub(crate) fn look(&mut self, shared: &Shared) -> Vec<CollectorNote> {
        let request = DumpRequest::find(self.run).filter(|request| request.wall_ns > self.until);
        let Some(DumpRequest { wall_ns, is_over }) = request else { return Vec::new() };
        self.until = wall_ns;
        if is_over {
            let (in_flight, nothing) = (CollectorNote::InFlight, InFlight::default);
            let told_by_torch = CollectorNote::FlightRecorder(nothing());
            return vec![in_flight(nothing()), told_by_torch, CollectorNote::StackDump(StackDump::default())];
        }
        let asks_python = lock(&shared.when_asked).as_ref().is_some_and(|ask| ask(wall_ns));
        let dump = StackDump {
            asked_ns: wall_ns,
            python: Vec::new(),
            no_python: asks_python.then(|| SILENT.to_owned()),
            native: native_threads(),
            aside: shared.now_aside(),
        };
        let in_flight = shared.communication.in_flight().map(CollectorNote::InFlight);
        in_flight.into_iter().chain([CollectorNote::StackDump(dump)]).collect()
    }
}
