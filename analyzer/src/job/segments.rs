//! The jobs that make up a run, when each of them ran, and why it ended. Time between them is in none.

use stepscope_traces::{KeptIncident, Run, Segment};

use crate::figures::SegmentSummary;

/// All segments of a run of which one is analyzed; none of a run that nobody continues.
pub(crate) fn segments(run: &Run) -> Vec<SegmentSummary> {
    Segment::beside(&run.path).into_iter().filter_map(|segment| summary(segment, run)).collect()
}

fn summary(Segment { number, path }: Segment, analyzed: &Run) -> Option<SegmentSummary> {
    let run = Run::open(&path).ok()?;
    let incidents = KeptIncident::all_of(&path);
    let told = incidents.iter().find(|kept| kept.incident.ended_job).map(|kept| kept.incident.summary.clone());
    Some(SegmentSummary {
        number,
        is_analyzed: path == analyzed.path,
        started: run.info.started.clone(),
        ended_wall_ns: run.ranks.iter().filter_map(|rank| rank.last_heard()).max().map(|time| time.0),
        state: run.state(),
        ended_by: told.or_else(|| run.ranks.iter().find_map(|rank| rank.info.reason.clone())),
        path,
    })
}
