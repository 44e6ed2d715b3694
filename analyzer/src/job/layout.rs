//! How a run is spread over ranks: as it says itself, or as its groups and its pipeline tell.
//!
//! For users, it is defined in `docs/src/metrics.md#axes`.
//!
//! Shards, stages, parts of a sequence and experts are as many as their groups have ranks. All ranks that are left are
//! replicas, if groups of replicas have as many. Where ranks do not divide so, nothing is said. Of what does not train, groups
//! say it by their names alone: stages are not told from messages.

use stepscope_plan::{Axis, ParallelLayout};
use stepscope_traces::{GroupInfo, RunInfo};

use crate::{
    figures::RunLayout,
    job::{
        group_use::{sharding, shares_tokens},
        groups::world_size,
        stages::Stages,
        training::trains,
    },
    rank::result::RankResult,
};

/// How a run of so many ranks, of which some were read, is spread over them, if that is known.
pub(crate) fn layout(run: &RunInfo, all: usize, ranks: &[RankResult], stages: Option<&Stages>) -> Option<RunLayout> {
    if let Some(said) = run.layout {
        return Some(said.into());
    }
    let stages = stages.filter(|_| trains(ranks));
    let size = |is_wanted: &dyn Fn(Axis) -> bool| {
        let groups = run.groups.iter().filter(|group| is_wanted(group.axis));
        groups.map(|group: &GroupInfo| group.ranks.len() as u64).max()
    };
    let tp = size(&|axis| matches!(axis, Axis::Tensor | Axis::Sequence));
    let cp = size(&|axis| axis == Axis::Context);
    let ep = size(&|axis| axis == Axis::Expert);
    let pp = stages.map(|stages| stages.count).or_else(|| size(&|axis| axis == Axis::Pipeline));
    let replicas = size(&Axis::is_of_replicas);
    if [tp, cp, pp, replicas].iter().all(Option::is_none) {
        return None;
    }
    let [tp, cp, pp, ep] = [tp, cp, pp, ep].map(|size| size.unwrap_or(1));
    let all = u64::from(world_size(run, all, ranks));
    let one = tp.checked_mul(cp)?.checked_mul(pp)?;
    let dp = (all > 0 && all.is_multiple_of(one)).then_some(all / one)?;
    if dp > 1 && !may_be_replicas(dp, cp, &run.groups) {
        return None;
    }
    let grid = ParallelLayout { dp, cp, tp, pp, ..ParallelLayout::default() };
    let is_there = |(rank, stage): (&RankResult, &u64)| grid.coordinates(rank.info.rank.0.into()).stage == *stage;
    let is_in_order = stages.is_none_or(|stages| ranks.iter().zip(&stages.of_ranks).all(is_there));
    Some(RunLayout {
        dp,
        tp,
        sequence_parallel: if tp > 1 { shares_tokens(ranks, &run.groups) } else { Some(false) },
        pp,
        cp,
        ep,
        zero: if dp * cp > 1 { sharding(ranks, &run.groups) } else { Some(<_>::default()) },
        dp_replicate: None,
        prefetch: None,
        unit_layers: None,
        schedule: stages.map(|stages| stages.schedule),
        chunks: stages.map(|stages| stages.chunks),
        micro_batch: None,
        micro_batches: stages.map(|stages| stages.micro_batches),
        sequence_length: None,
        recompute: None,
        precision: None,
        gradients: None,
        inferred: true,
        said: None,
        grid: is_in_order.then_some(grid),
    })
}

/// Whether so many replicas have groups of as many ranks; or of fewer, where a rank is in two of them, as in shards of a part.
fn may_be_replicas(dp: u64, cp: u64, groups: &[GroupInfo]) -> bool {
    let size = |group: &GroupInfo| match (group.axis, group.ranks.len() as u64) {
        (Axis::DataContext, size) if size.is_multiple_of(cp) => size / cp,
        (_, size) => size,
    };
    let mut of_replicas = groups.iter().filter(|group| group.axis.is_of_replicas());
    let Some(first) = of_replicas.clone().find_map(|group| group.ranks.first()) else { return false };
    let own: Vec<&GroupInfo> = of_replicas.clone().filter(|group| group.ranks.contains(first)).collect();
    let meet_once = |one: &GroupInfo, other: &GroupInfo| {
        one.ranks.iter().filter(|rank| other.ranks.contains(rank)).take(2).count() == 1
    };
    of_replicas.any(|group| size(group) == dp)
        || own.iter().any(|one| own.iter().any(|other| size(one) * size(other) == dp && meet_once(one, other)))
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{Phase, Span, SpanKind};

    use super::*;
    use crate::test_runs::{TestRun, ranks, span, talk};

    /// Sums of one size in a group of both ranks, beside compute of some phase.
    fn layout_of(group: Axis, operation: SpanKind, phase: Option<Phase>) -> Option<(u64, u64)> {
        let sum = |number: i64| {
            let start = 100 * number;
            Span { bytes: Some(1 << 20), ..talk(operation, 0, number as u64, start, start + 50) }
        };
        let compute = Span { phase, ..span(SpanKind::Kernel, 0, 10_000) };
        let spans: Vec<Span> = (0..64).map(sum).chain([compute]).collect();
        let analysis = TestRun::of(&[(0, group, &[0, 1])], &ranks(&[&spans, &spans])).analyze();
        analysis.run.layout.map(|layout| (layout.tp, layout.dp))
    }

    #[test]
    fn what_does_not_train_has_the_layout_that_its_groups_are_named_for() {
        let (sum, scatter) = (SpanKind::AllReduce, SpanKind::ReduceScatter);
        for phase in [Phase::Backward, Phase::Optimizer, Phase::Recompute] {
            assert_eq!(layout_of(Axis::World, sum, Some(phase)), Some((2, 1)), "{phase:?}");
            assert_eq!(layout_of(Axis::World, scatter, Some(phase)), Some((1, 2)), "{phase:?}");
        }
        for phase in [None, Some(Phase::Forward), Some(Phase::Evaluation)] {
            assert_eq!(layout_of(Axis::World, sum, phase), None, "{phase:?}");
            assert_eq!(layout_of(Axis::World, scatter, phase), None, "{phase:?}");
            assert_eq!(layout_of(Axis::Tensor, sum, phase), Some((2, 1)), "{phase:?}");
        }
    }
}
