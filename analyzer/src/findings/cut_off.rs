//! A trace of another tool that ends early.

use stepscope_plan::text;
use stepscope_traces::{RunSource, State};

use super::{Check, Found};
use crate::figures::Analysis;

/// A truncated file: its events are not sorted by time, so anything may be missing anywhere.
pub(super) struct CutOff;

impl Check for CutOff {
    const KIND: &'static str = "cut-off";

    fn find(analysis: &Analysis) -> Option<Found> {
        if analysis.run.state != State::Interrupted {
            return None;
        }
        if analysis.run.source == RunSource::TorchSnapshot {
            return Some(Found {
                share: 1.0,
                summary: "a memory snapshot is truncated: its peak may be larger than what is shown".into(),
                evidence: "events behind its end are missing, and so is what was there before the first one".into(),
                advice: "copy or write the snapshot again".into(),
                ..Found::default()
            });
        }
        if analysis.run.source == RunSource::FlightRecorder {
            return Some(Found {
                share: 1.0,
                summary: "a Flight Recorder dump is truncated: who waits for whom cannot be told".into(),
                evidence:
                    "operations behind its end are missing, so its rank may wait, or have come to what others wait in"
                        .into(),
                advice: "copy the dump again, or analyze the others without it".into(),
                ..Found::default()
            });
        }
        use RunSource::{Kineto, Nsys, Rocprof, Xplane};
        let is_trace = matches!(analysis.run.source, Kineto | Nsys | Rocprof | Xplane);
        is_trace.then(|| Found {
            share: 1.0,
            summary: "a trace is truncated, and it is unknown how much is missing".into(),
            evidence: format!(
                "{} in the job; events in a trace are not sorted by time, so any step may lack some, and idle time may not be real",
                text::counted(analysis.ranks.len() as u64, "rank")
            ),
            advice: "write the trace again, and let it finish".into(),
            ..Found::default()
        })
    }
}
