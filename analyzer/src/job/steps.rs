//! Each step of each rank: where its time goes, how much it trains on, and at which rates.

use stepscope_traces::{Rank, Step};

use crate::{
    figures::StepFigures,
    job::{clock::Alignment, mfu::Rates},
    rank::result::{RankResult, RankStep},
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

/// Every step of every rank that is asked for, in order.
pub(crate) fn steps(
    ranks: &[RankResult],
    alignment: &Alignment,
    rates: &Rates,
    is_asked: impl Fn(Step) -> bool,
) -> Vec<StepFigures> {
    let of_rank = |(index, rank): (usize, &RankResult)| {
        let number = rank.info.rank;
        let figures = |step| step_figures(number, step, |time| alignment.align(index, time), rates);
        rank.steps.iter().filter(|(window, ..)| is_asked(window.step)).map(figures).collect::<Vec<_>>()
    };
    let mut steps: Vec<StepFigures> = ranks.iter().enumerate().flat_map(of_rank).collect();
    steps.sort_by_key(|step| (step.step, step.rank));
    steps
}
