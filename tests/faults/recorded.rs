use std::path::Path;

use stepscope_traces::{Run, SpanKind, State, Window};

/// What is there of a job with one rank.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) state: State,
    /// Steps from the first one on, of which none is missing.
    pub(crate) steps: u64,
    pub(crate) unreadable_bytes: u64,
    /// Why it ended early, if it says so.
    pub(crate) reason: Option<String>,
}

/// What can be read of the first rank; none, if there is no such rank or run.
pub(crate) fn recorded(run: &Path) -> Option<Recorded> {
    let run = Run::open(run).ok()?;
    let rank = run.ranks.first()?;
    let (data, loss) = rank.read(Window::ALL).ok()?;
    let steps = data.spans.rows().filter(|span| span.kind == SpanKind::Step).filter_map(|span| span.step);
    let steps: Vec<i32> = steps.map(|step| step.0).collect();
    assert!(steps.iter().copied().eq(0..steps.len() as i32), "a step is missing before the last: {steps:?}");
    let (state, reason) = (run.state(), rank.info.reason.clone());
    Some(Recorded { state, steps: steps.len() as u64, unreadable_bytes: loss.unreadable_bytes, reason })
}
