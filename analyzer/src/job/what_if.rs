//! How long a step would be without something that costs time, by replaying what its activities waited for.
//!
//! For users, it is defined in `docs/src/metrics.md#what-it-would-win`.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_plan::Axis;
use stepscope_traces::{Family, Phase, Rank};

use crate::{
    figures::{
        Cause, Class, CountedTime, DeviceFigures, HighestClocks, IdleReason, KernelFigures, SpanPlace, WhatIf, Without,
    },
    job::{
        stages::Stages,
        step_graph::{LagKind, Node, StepChange, StepGraph},
        waiting_work::waiting_work,
    },
};

/// A rank is slow from so many times the median on: less is noise.
const SLOW: f64 = 1.03;
/// How many places are told where something costs most.
const MOST_PLACES: usize = 3;
/// Of so much of a family's time the roof must be known.
const LEAST_KNOWN: f64 = 0.5;

/// What is known of the job that is replayed.
pub(crate) struct Replayed<'a> {
    pub(crate) counted: &'a [&'a CountedTime],
    pub(crate) kernels: &'a [KernelFigures],
    pub(crate) stages: Option<&'a Stages>,
    pub(crate) devices: &'a [DeviceFigures],
}

/// The step without each thing that it has.
pub(crate) fn what_if(graph: &StepGraph, job: &Replayed<'_>) -> WhatIf {
    let measured_ns = graph.length();
    let ranks: Vec<Rank> = job.counted.iter().map(|time| time.rank).collect();
    let mut without: Vec<Without> = Vec::new();
    let mut add = |cause: Cause, change: &dyn StepChange, costs: &dyn Fn(&Node) -> Option<(i64, i64)>| {
        let step_ns = graph.replay(change);
        if step_ns < measured_ns {
            let waiting = match cause {
                Cause::Communication { axis } => waiting_work(graph, axis),
                _ => None,
            };
            without.push(Without { cause, step_ns, spans: places(graph, &ranks, costs), waiting });
        }
    };
    let whole = |node: &Node| Some((node.start, node.end));
    let axes: BTreeSet<Option<Axis>> =
        graph.nodes.iter().filter(|node| node.class == Class::Communication).map(|node| node.axis).collect();
    for axis in axes {
        let change = NoCommunication(axis);
        add(Cause::Communication { axis }, &change, &|node| whole(node).filter(|_| change.is_it(node)));
    }
    add(Cause::Copies, &NoCopies, &|node| whole(node).filter(|_| node.class == Class::Copy));
    for reason in IdleReason::ALL {
        let change = NoIdle(reason);
        add(Cause::Idle { reason }, &change, &|node| change.is_it(node).then(|| (node.start - node.lag, node.start)));
    }
    let again = NoRecomputation;
    add(Cause::Recomputation, &again, &|node| whole(node).filter(|_| NoRecomputation::is_it(node)));
    if let Some((slow, factor)) = slow_rank(job) {
        let factors: Vec<f64> = (0..graph.ranks).map(|rank| if rank == slow { factor } else { 1.0 }).collect();
        let of_it = |node: &Node| node.rank as usize == slow && node.class != Class::Communication;
        let cause = Cause::SlowRank { rank: job.counted[slow].rank };
        add(cause, &Faster(factors), &|node| whole(node).filter(|_| of_it(node)));
    }
    if let Some(factors) = to_highest_clock(job) {
        let of_it = |node: &Node| factors[node.rank as usize] < 1.0 && node.class == Class::Compute;
        add(Cause::Clocks, &Faster(factors.clone()), &|node| whole(node).filter(|_| of_it(node)));
    }
    if let Some(factors) = job.stages.and_then(|stages| to_mean_stage(graph, stages)) {
        add(Cause::UnevenStages, &Faster(factors), &|_| None);
    }
    for (family, factor) in to_roof(job.kernels) {
        let change = AtRoof(family, factor);
        add(Cause::Kernels { family }, &change, &|node| whole(node).filter(|_| change.is_it(node)));
    }
    without.sort_by_key(|without| without.step_ns);
    WhatIf { step: graph.step, measured_ns, without }
}

/// Where something costs most.
fn places(graph: &StepGraph, ranks: &[Rank], costs: &dyn Fn(&Node) -> Option<(i64, i64)>) -> Vec<SpanPlace> {
    let place = |node: &Node| {
        let (start_ns, end_ns) = costs(node).filter(|(start, end)| start < end)?;
        Some(SpanPlace { rank: ranks[node.rank as usize], start_ns, end_ns })
    };
    let mut places: Vec<SpanPlace> = Vec::new();
    for place in graph.nodes.iter().filter_map(place) {
        let order = |place: &SpanPlace| (place.start_ns - place.end_ns, place.start_ns, place.rank);
        let before = places.partition_point(|other| order(other) <= order(&place));
        if before < MOST_PLACES {
            places.truncate(MOST_PLACES - 1);
            places.insert(before, place);
        }
    }
    places
}

/// Of replicas, nobody waits for it: gradients and parameters can go while others are computed. Along other axes the next
/// kernel needs what comes, and only its way takes no time.
struct NoCommunication(Option<Axis>);

impl NoCommunication {
    fn is_it(&self, node: &Node) -> bool {
        node.class == Class::Communication && node.axis == self.0
    }

    fn can_hide(&self) -> bool {
        self.0.is_none_or(|axis| axis.is_of_replicas() || axis == Axis::World)
    }
}

impl StepChange for NoCommunication {
    fn is_free(&self, node: &Node) -> bool {
        self.is_it(node) && self.can_hide()
    }

    fn transfer(&self, node: &Node, own: i64) -> i64 {
        if self.is_it(node) { 0 } else { own }
    }

    fn duration(&self, node: &Node) -> i64 {
        if self.is_it(node) { 0 } else { node.duration() }
    }
}

struct NoCopies;

impl StepChange for NoCopies {
    fn is_free(&self, node: &Node) -> bool {
        node.class == Class::Copy
    }
}

/// What is idle for a reason is not.
struct NoIdle(IdleReason);

impl NoIdle {
    fn is_it(&self, node: &Node) -> bool {
        node.lag_on == LagKind::Idle(self.0)
    }
}

impl StepChange for NoIdle {
    fn lag(&self, node: &Node) -> i64 {
        if self.is_it(node) { 0 } else { node.lag }
    }
}

struct NoRecomputation;

impl NoRecomputation {
    fn is_it(node: &Node) -> bool {
        node.phase == Some(Phase::Recompute) && node.class != Class::Communication
    }
}

impl StepChange for NoRecomputation {
    fn duration(&self, node: &Node) -> i64 {
        if Self::is_it(node) { 0 } else { node.duration() }
    }

    fn lag(&self, node: &Node) -> i64 {
        if Self::is_it(node) { 0 } else { node.lag }
    }
}

/// What ranks do themselves takes so many times as long.
struct Faster(Vec<f64>);

impl Faster {
    fn scaled(&self, node: &Node, time: i64) -> i64 {
        (time as f64 * self.0[node.rank as usize]).round() as i64
    }
}

impl StepChange for Faster {
    fn duration(&self, node: &Node) -> i64 {
        if node.class == Class::Communication { node.duration() } else { self.scaled(node, node.duration()) }
    }

    fn lag(&self, node: &Node) -> i64 {
        if matches!(node.lag_on, LagKind::Idle(_)) { self.scaled(node, node.lag) } else { node.lag }
    }
}

/// How many times as long each rank takes if nothing holds its clock down; none, where nothing does.
fn to_highest_clock(job: &Replayed<'_>) -> Option<Vec<f64>> {
    let highest = HighestClocks::of(job.devices);
    let devices: BTreeMap<Rank, &DeviceFigures> = job.devices.iter().map(|device| (device.rank, device)).collect();
    let factor = |time: &&CountedTime| Some(devices.get(&time.rank)?.throttling(&highest)?.clock);
    let factors: Vec<f64> = job.counted.iter().map(|time| factor(time).unwrap_or(1.0)).collect();
    factors.iter().any(|factor| *factor < 1.0).then_some(factors)
}

/// Kernels of a family take so many times as long.
struct AtRoof(Family, f64);

impl AtRoof {
    fn is_it(&self, node: &Node) -> bool {
        node.class == Class::Compute && node.family == self.0
    }
}

impl StepChange for AtRoof {
    fn duration(&self, node: &Node) -> i64 {
        let factor = if self.is_it(node) { self.1 } else { 1.0 };
        (node.duration() as f64 * factor).round() as i64
    }
}

/// The rank that has most to do itself of those that do the same, and how much less it would be if it were their median.
/// Stages of a pipeline do different things.
fn slow_rank(job: &Replayed<'_>) -> Option<(usize, f64)> {
    let own = |time: &CountedTime| {
        let parts = &time.partition;
        // The idle time of a stage is that of others.
        let idle = if job.stages.is_some() { 0 } else { parts.idle_ns };
        (parts.compute_ns + parts.exposed_copy_ns + idle) as f64 / time.windows.max(1) as f64
    };
    let mut alike: BTreeMap<u64, Vec<(usize, f64)>> = BTreeMap::new();
    for (index, time) in job.counted.iter().enumerate() {
        let stage = job.stages.and_then(|stages| stages.of_ranks.get(index)).copied().unwrap_or(0);
        alike.entry(stage).or_default().push((index, own(time)));
    }
    let slowest = alike.into_values().filter_map(|mut ranks| {
        ranks.sort_by(|one, other| one.1.total_cmp(&other.1));
        let &(slow, most) = ranks.last()?;
        // Of two ranks the other one says what is usual.
        let usual = ranks[(ranks.len() - 1) / 2].1;
        (ranks.len() > 1 && usual > 0.0 && most > SLOW * usual).then(|| (slow, usual / most))
    });
    slowest.min_by(|one, other| one.1.total_cmp(&other.1))
}

/// How much each rank would have to do if all stages did the same; none, where they do.
fn to_mean_stage(graph: &StepGraph, stages: &Stages) -> Option<Vec<f64>> {
    let is_pass = |phase| matches!(phase, Some(Phase::Forward | Phase::Backward | Phase::Recompute));
    let mut work = vec![0_i64; graph.ranks];
    for node in graph.nodes.iter().filter(|node| node.class == Class::Compute && is_pass(node.phase)) {
        work[node.rank as usize] += node.duration();
    }
    let mut factors = vec![1.0; graph.ranks];
    for members in &stages.pipelines {
        let mean = members.iter().map(|rank| work[*rank] as f64).sum::<f64>() / members.len().max(1) as f64;
        for rank in members.iter().copied().filter(|rank| work[*rank] > 0) {
            factors[rank] = mean / work[rank] as f64;
        }
    }
    factors.iter().any(|factor| *factor < 1.0 / SLOW).then_some(factors)
}

/// How many times as long kernels of each family would take at their roof, where that is known of most of them. What multiplies
/// and does not say how many bytes it moves has the peak for a roof.
fn to_roof(kernels: &[KernelFigures]) -> BTreeMap<Family, f64> {
    let mut times: BTreeMap<Family, [f64; 3]> = BTreeMap::new();
    for kernel in kernels {
        let multiplies = matches!(kernel.family, Family::Matmul | Family::Attention | Family::Convolution);
        let share = kernel.rates.roof_share.or(kernel.rates.peak_share.filter(|_| multiplies));
        let time = kernel.total_ns as f64;
        let [all, known, at_roof] = times.entry(kernel.family).or_default();
        *all += time;
        if let Some(share) = share {
            *known += time;
            *at_roof += time * share.min(1.0);
        }
    }
    let known = times.into_iter().filter(|(_, [all, known, _])| *known > 0.0 && *known >= LEAST_KNOWN * all);
    known.map(|(family, [_, known, at_roof])| (family, at_roof / known)).collect()
}
