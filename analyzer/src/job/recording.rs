//! What recording cost, where it was kept within a budget.

use stepscope_traces::RankInfo;

use crate::figures::Recording;

/// As ranks say it of themselves, of the one that paid most; none if there was no budget.
pub fn recording<'ranks>(ranks: impl Iterator<Item = &'ranks RankInfo>) -> Option<Recording> {
    let costs = ranks.filter_map(|rank| rank.collector.recording_cost);
    let dearest = costs.max_by(|one, other| {
        let key = |cost: &stepscope_traces::RecordingCost| (cost.average().unwrap_or(-1.0), cost.duty());
        let (one, other) = (key(one), key(other));
        one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
    })?;
    Some(Recording {
        budget: dearest.budget,
        cost_while_on: dearest.while_on.map(|cost| cost.share),
        cost_low: dearest.while_on.map(|cost| cost.low),
        cost_high: dearest.while_on.map(|cost| cost.high),
        duty: dearest.duty(),
        average_cost: dearest.average(),
        steps: dearest.steps,
        recorded_steps: dearest.recorded_steps,
    })
}
