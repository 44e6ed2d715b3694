//! The passes of one step: which micro-batch went through each rank when.

use std::collections::HashSet;

use stepscope_plan::Schedule;
use stepscope_traces::{Nanos, Rank, Run, Step, Window};

use crate::{
    detail::rank_spans::RankSpans,
    error::AnalysisError,
    figures::StepFigures,
    rank::work::{Pass, WorkItem},
};

/// The passes that a rank made in a step. Times are nanoseconds since it began on the first rank to begin it, in the clock all
/// ranks are aligned to.
#[derive(Clone, Debug, PartialEq)]
pub struct RankWork {
    /// Which rank.
    pub rank: Rank,
    /// Its passes, by time.
    pub items: Vec<WorkItem>,
}

/// Reads the passes of one step again. `figures` has where the step lies on each rank that is wanted; those of other steps are
/// left out.
pub fn step_passes(run: &Run, step: Step, figures: &[StepFigures]) -> Result<Vec<RankWork>, AnalysisError> {
    let figures: Vec<&StepFigures> = figures.iter().filter(|figures| figures.step == step).collect();
    let begin = figures.iter().map(|figures| figures.aligned_start_ns).min().unwrap_or(0);
    let mut work = Vec::new();
    for figures in figures {
        let Some(directory) = run.rank(figures.rank) else { continue };
        let (from, to) = (figures.start_ns, figures.start_ns.saturating_add(figures.duration_ns));
        let window = Window { from: Nanos(from), to: Nanos(to) };
        let Some(spans) = RankSpans::read(directory, window, Window::NONE, 1, usize::MAX)?.spans else { continue };
        work.push(RankWork::of(&spans, figures, begin));
    }
    Ok(work)
}

impl RankWork {
    /// The passes of a rank in a step, in nanoseconds since a time of the clock all ranks are aligned to.
    pub fn of(spans: &RankSpans, figures: &StepFigures, begin: i64) -> RankWork {
        let place = placed_in(figures, begin);
        let items = spans.work().into_iter().filter(|item| item.step == figures.step);
        let items = items.map(|item| WorkItem { start: place(item.start), end: place(item.end), ..item }).collect();
        RankWork { rank: figures.rank, items }
    }

    /// Tells the gradients of weights from backward passes where a schedule puts them off: a stage comes back to a micro-batch for
    /// them. Where it goes on to them at once, both are one.
    pub fn with_weights(mut self, schedule: Schedule) -> RankWork {
        let mut been_back = HashSet::new();
        let backward = self.items.iter_mut().filter(|item| item.pass == Pass::Backward);
        for item in backward.filter(|_| schedule == Schedule::ZeroBubble) {
            if !been_back.insert(item.micro_batch) {
                item.pass = Pass::Weights;
            }
        }
        self
    }
}

/// Times of a rank, clipped to its step, since a time of the clock all ranks are aligned to.
fn placed_in(figures: &StepFigures, begin: i64) -> impl Fn(i64) -> i64 {
    let (from, to) = (figures.start_ns, figures.start_ns.saturating_add(figures.duration_ns));
    let shift = figures.aligned_start_ns.saturating_sub(from);
    move |time: i64| time.clamp(from, to).saturating_add(shift).saturating_sub(begin)
}

#[cfg(test)]
mod tests {
    use stepscope_traces::MicroBatch;

    use super::*;

    #[test]
    fn a_stage_comes_back_for_the_gradients_of_weights() {
        let item = |micro_batch, pass| WorkItem {
            step: Step(3),
            micro_batch: MicroBatch(micro_batch),
            pass,
            start: 0,
            end: 1,
        };
        let items =
            [(0, Pass::Backward), (1, Pass::Forward), (1, Pass::Backward), (0, Pass::Backward), (1, Pass::Backward)];
        let work = RankWork { rank: Rank(1), items: items.map(|(micro_batch, pass)| item(micro_batch, pass)).to_vec() };
        let passes =
            |schedule| work.clone().with_weights(schedule).items.iter().map(|item| item.pass).collect::<Vec<_>>();
        let told = [Pass::Backward, Pass::Forward, Pass::Backward, Pass::Weights, Pass::Weights];
        assert_eq!(passes(Schedule::ZeroBubble), told);
        assert_eq!(passes(Schedule::Interleaved), items.map(|(_, pass)| pass), "another chunk");
    }
}
