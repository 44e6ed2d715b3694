//! Which part of a run a page has room for.

use stepscope_analyzer::{Analysis, RankOverlay, StepFigures};
use stepscope_traces::{Rank, Step};

/// So many ranks are drawn.
const RANKS: usize = 16;
/// Spans that are read to be merged, at most, as far as that can be told.
const READ: u64 = 2_000_000;

/// A part of a run, in the clock all ranks are aligned to.
pub(super) struct Choice {
    pub(super) from: i64,
    pub(super) to: i64,
    /// What is seen first, and kept exact.
    pub(super) first: (i64, i64),
    /// Which steps it is of those that count, if it is not all of them.
    pub(super) steps: Option<(Step, Step)>,
    /// Whether it is less than the whole recording, where there are no steps.
    pub(super) is_cut: bool,
}

/// The ranks that are drawn: of a pipeline the first one of each stage, and then others.
pub(super) fn ranks(analysis: &Analysis, stages: Vec<Rank>) -> Vec<Rank> {
    let mut ranks = stages;
    ranks.truncate(RANKS);
    for rank in &analysis.ranks {
        if ranks.len() < RANKS && !ranks.contains(&rank.rank) {
            ranks.push(rank.rank);
        }
    }
    ranks.sort();
    ranks
}

/// The steps that count, or as many around one as there is room for; without steps the whole recording.
pub(super) fn choose(analysis: &Analysis, ranks: &[&RankOverlay], step: Option<Step>) -> Option<Choice> {
    let extents = || ranks.iter().filter_map(|rank| Some((rank.clock, rank.extent?)));
    let begin = extents().map(|(clock, (first, _))| clock.at(first)).min()?;
    let end = extents().map(|(clock, (_, last))| clock.at(last)).max()?;
    let spans: u64 = ranks.iter().flat_map(|rank| rank.spans).sum();
    let room = (end - begin) as f64 * (READ as f64 / spans.max(1) as f64).min(1.0);
    let Some(place) = step.and_then(|step| place_of(analysis.steps.iter().filter(|figures| figures.step == step)))
    else {
        let to = begin.saturating_add(room as i64);
        return (end > begin).then_some(Choice { from: begin, to, first: (begin, to), steps: None, is_cut: to < end });
    };
    let (mut from, mut to) = place_of(analysis.counted_steps()).unwrap_or(place);
    let mut steps = None;
    if (to - from) as f64 > room {
        let half = ((room as i64) - (place.1 - place.0)).max(0) / 2;
        let near = |figures: &&StepFigures| {
            let (first, last) = placed(figures);
            first >= place.0.saturating_sub(half) && last <= place.1.saturating_add(half)
        };
        let near: Vec<&StepFigures> = analysis.counted_steps().filter(near).collect();
        (from, to) = place_of(near.iter().copied()).unwrap_or(place);
        let numbers = || near.iter().map(|figures| figures.step);
        steps = numbers().min().zip(numbers().max()).or(step.zip(step));
    }
    Some(Choice { from, to, first: place, steps, is_cut: false })
}

fn placed(figures: &StepFigures) -> (i64, i64) {
    (figures.aligned_start_ns, figures.aligned_start_ns.saturating_add(figures.duration_ns))
}

/// From the first beginning to the last end of some steps.
pub(super) fn place_of<'a>(steps: impl Iterator<Item = &'a StepFigures>) -> Option<(i64, i64)> {
    steps.map(placed).reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}
