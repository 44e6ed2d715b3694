//! A trace of another tool that ends early.

use stepscope_traces::{RunSource, State};

use super::{Check, Found};
use crate::figures::Analysis;

/// A file that was cut off: its events are in no order of time, so anything may be missing anywhere.
pub(super) struct CutOff;

impl Check for CutOff {
    const KIND: &'static str = "cut-off";

    fn find(analysis: &Analysis) -> Option<Found> {
        let is_cut_off = analysis.run.source == RunSource::Kineto && analysis.run.state == State::Interrupted;
        is_cut_off.then(|| Found {
            share: 1.0,
            what: "a trace is cut off, and how much of it is missing is not known".into(),
            evidence: format!(
                "of {} ranks; events are in no order of time there, so every step may lack some, and idle time may be none",
                analysis.ranks.len()
            ),
            advice: "write it again, and let it finish".into(),
        })
    }
}
