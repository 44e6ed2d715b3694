//! What is missing from a run: ranks, its end, events.

use stepscope_analyzer::{Analysis, Overlay};
use stepscope_plan::text;
use stepscope_traces::{Loss, Rank, Run, State};

/// So many ranks are named.
const MOST_NAMED: usize = 8;

/// Which ranks a run should have and does not, if any.
pub(super) fn words(run: &Run) -> Option<String> {
    let expected = run.info.world_size?;
    let there = run.ranks.iter().filter(|rank| rank.info.rank.0 < expected).count() as u64;
    let missing = u64::from(expected).saturating_sub(there);
    let named: Vec<String> = (0..expected)
        .map(Rank)
        .filter(|rank| run.rank(*rank).is_none())
        .take(MOST_NAMED)
        .map(|rank| rank.to_string())
        .collect();
    let more = if missing > MOST_NAMED as u64 { " and more" } else { "" };
    (missing > 0).then(|| format!("{} of {expected}: {}{more}", text::counted(missing, "rank"), named.join(", ")))
}

/// What is to be said of it, a line for each. What was written covers only what is there.
pub(super) fn lines(run: &Run, analysis: &Analysis, overlay: &Overlay, covers: &str) -> Vec<(&'static str, String)> {
    let missing = words(run).map(|ranks| ("missing", format!("{ranks}; their side of collectives is not shown")));
    let state = match analysis.run.state {
        State::Complete => None,
        State::Recording => Some(("state", format!("still recording; {covers} what there is so far"))),
        State::Interrupted => interrupted(overlay, covers).map(|ranks| ("state", ranks)),
    };
    let mut lost = Loss::default();
    overlay.ranks.iter().for_each(|rank| lost += rank.loss);
    let lost = (!lost.is_none()).then(|| ("lost", lost.words()));
    [state, lost, missing].into_iter().flatten().collect()
}

/// Which ranks were interrupted, and why, where one says so; none, where the run is so only for the ranks that are missing.
fn interrupted(overlay: &Overlay, covers: &str) -> Option<String> {
    let ranks: Vec<_> = overlay.ranks.iter().filter(|rank| rank.state == State::Interrupted).collect();
    let named = ranks.iter().take(MOST_NAMED).map(|rank| rank.rank.to_string()).collect::<Vec<_>>().join(", ");
    let more = if ranks.len() > MOST_NAMED { " and more" } else { "" };
    let reason = ranks.iter().find_map(|rank| rank.info.reason.as_deref());
    let reason = reason.map(|reason| format!(" ({})", text::printable(reason))).unwrap_or_default();
    (!ranks.is_empty())
        .then(|| format!("interrupted on rank {named}{more}{reason}; {covers} what was recorded until then"))
}
