//! How much of a run is analyzed: all of it, unless that would take more memory than an export may.
//!
//! An analysis holds some 60 bytes for each span of a rank, and what is written holds none. Of ranks with very many spans the
//! beginning is analyzed; where steps are chosen, those.

use std::collections::BTreeMap;

use anyhow::Result;
use stepscope_analyzer::{AnalysisError, Selection, StepChoice, StepRange};
use stepscope_plan::text;
use stepscope_traces::{Nanos, Rank, RankDirectory, Run, RunSource, Step, TraceError, Window};

/// At most this many spans of a rank are analyzed.
const MOST_SPANS: u64 = 1_500_000;

/// How much of a run is analyzed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reach {
    /// All of it, or of what was chosen.
    All,
    /// Its beginning: this share of its time.
    Beginning(f64),
}

impl Reach {
    /// In words.
    pub(super) fn words(self) -> String {
        match self {
            Reach::All => "all".into(),
            Reach::Beginning(share) => format!("the first {} of the time", text::percent(share)),
        }
    }
}

/// Bounds what is analyzed of chosen ranks.
pub(super) fn bound(run: &Run, selection: &mut Selection) -> Result<Reach> {
    // A trace of another tool is in memory as a whole.
    if run.info.source != RunSource::Stepscope {
        return Ok(Reach::All);
    }
    let chosen = |rank: &&RankDirectory| selection.ranks.is_empty() || selection.ranks.contains(&rank.info.rank);
    let mut times: BTreeMap<Rank, (Nanos, Nanos)> = BTreeMap::new();
    let mut most = 0;
    for rank in run.ranks.iter().filter(chosen) {
        let spans = rank.survey()?.spans;
        most = most.max(spans.rows);
        times.extend(spans.time.map(|time| (rank.info.rank, time)));
    }
    if most <= MOST_SPANS {
        return Ok(Reach::All);
    }
    if let StepChoice::Range(steps) = selection.steps {
        let mut recorded: Option<(Step, Step)> = None;
        let mut windows = BTreeMap::new();
        for rank in run.ranks.iter().filter(chosen) {
            windows.extend(around(rank, steps, &mut recorded)?.map(|window| (rank.info.rank, window)));
        }
        if windows.is_empty() {
            return Err(AnalysisError::NoSuchSteps { recorded }.into());
        }
        for rank in run.ranks.iter().filter(chosen).map(|rank| rank.info.rank) {
            selection.windows.insert(rank, windows.get(&rank).copied().unwrap_or(Window::NONE));
        }
        return Ok(Reach::All);
    }
    let share = MOST_SPANS as f64 / most as f64;
    for (rank, (from, to)) in times {
        let length = ((to - from).0 as f64 * share) as i64;
        selection.windows.insert(rank, Window { from: Nanos(i64::MIN), to: from + Nanos(length) });
    }
    Ok(Reach::Beginning(share))
}

/// Where chosen steps of a rank lie, if it has any. Takes notice of the first and the last of all that there are.
fn around(
    rank: &RankDirectory,
    steps: StepRange,
    recorded: &mut Option<(Step, Step)>,
) -> Result<Option<Window>, TraceError> {
    let mut hull: Option<Window> = None;
    let take = |_: &_, spans: &stepscope_traces::Spans| {
        for row in 0..spans.len() {
            let Some(step) = spans.step.get(row) else { continue };
            *recorded = Some(recorded.map_or((step, step), |(first, last)| (first.min(step), last.max(step))));
            if !steps.has(Some(step)) {
                continue;
            }
            let (start, duration) = (spans.start_ns.get(row), spans.duration_ns.get(row));
            let end = start + duration + Nanos(1);
            hull = Some(hull.map_or(Window { from: start, to: end }, |hull| Window {
                from: hull.from.min(start),
                to: hull.to.max(end),
            }));
        }
    };
    rank.read_in_pieces(Window::ALL, take, |_| {})?;
    Ok(hull)
}
