//! Each step of each rank: where its time goes, how much it trains on, and at which rates.

use std::collections::BTreeMap;

use stepscope_traces::{Rank, Step};

use crate::{
    figures::{StepFigures, StepSummary},
    job::{clock::Alignment, mfu::Rates},
    rank::result::{RankResult, RankStep},
    selection::Selection,
};

/// A rank's step, with where its beginning lies in the clock of all ranks, and at which rates it went.
pub(crate) fn step_figures(rank: Rank, step: &RankStep, align: impl Fn(i64) -> i64, rates: &Rates) -> StepFigures {
    let (window, partition, counters) = step;
    let seconds = partition.span_ns as f64 / 1e9;
    let tokens_per_second = counters.tokens.filter(|_| seconds > 0.0).map(|tokens| tokens / seconds);
    let (mfu, hfu) = rates.at(tokens_per_second);
    StepFigures {
        step: window.step,
        rank,
        start_ns: window.start,
        aligned_start_ns: align(window.start),
        duration_ns: partition.span_ns,
        partition: *partition,
        host_ns: counters.host.map(|host| host.time_ns),
        host_data_ns: counters.host.and_then(|host| host.data_ns),
        loss: counters.loss,
        evaluation_loss: counters.evaluation_loss,
        gradient_noise_scale: counters.noise_scale,
        tokens: counters.tokens,
        tokens_per_second,
        mfu,
        hfu,
        includes: counters.besides.phases(),
    }
}

/// The steps of all ranks, of which some may be asked for.
pub(crate) struct Steps<'a> {
    pub(crate) ranks: &'a [RankResult],
    pub(crate) alignment: &'a Alignment,
    pub(crate) rates: &'a Rates,
    pub(crate) selection: &'a Selection,
}

impl Steps<'_> {
    /// Every step of some ranks, in order.
    pub(crate) fn of_ranks(&self, is_wanted: impl Fn(Rank) -> bool) -> Vec<StepFigures> {
        let wanted = self.ranks.iter().enumerate().filter(|(_, rank)| is_wanted(rank.info.rank));
        let mut steps: Vec<StepFigures> = wanted.flat_map(|(index, rank)| self.of_rank(index, rank)).collect();
        steps.sort_by_key(|step| (step.step, step.rank));
        steps
    }

    /// Every step of the job, in order. There may be far more steps of ranks, which are not kept.
    pub(crate) fn of_job(&self) -> Vec<StepSummary> {
        let mut steps = BTreeMap::new();
        for (index, rank) in self.ranks.iter().enumerate() {
            self.of_rank(index, rank).for_each(|figures| StepSummary::add_to(&mut steps, &figures));
        }
        steps.into_values().collect()
    }

    fn of_rank(&self, index: usize, rank: &RankResult) -> impl Iterator<Item = StepFigures> {
        // Of what is read in part, steps at the edges are there in part.
        let is_asked = |step: Step| self.selection.reads_all() || self.selection.steps.may_have(Some(step));
        let align = move |time| self.alignment.align(index, time);
        let figures = move |step| step_figures(rank.info.rank, step, align, self.rates);
        rank.steps.iter().filter(move |(window, ..)| is_asked(window.step)).map(figures)
    }
}
