//! The one recording of this process.

use std::sync::OnceLock;

use stepscope_collector::Recorder;

/// There from the first window on.
static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// The recording of this process, if it has begun.
pub(crate) fn recorder() -> Option<&'static Recorder> {
    RECORDER.get()
}

/// Makes a recording the one of this process, unless there is one.
pub(crate) fn begin(recorder: Recorder) -> &'static Recorder {
    RECORDER.get_or_init(|| recorder)
}
