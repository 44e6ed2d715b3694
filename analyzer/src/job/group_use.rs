//! What a group is for, told from its use, where its name does not say so.
//!
//! For users, it is defined in `docs/src/metrics.md#axes`.
//!
//! Of what a group does, messages of at most [`TINY`] bytes are left aside: flags, norms and losses; and evaluation. The first
//! rule that fits says what the rest is for:
//!
//! - Nothing is left, or only broadcasts and barriers: nothing is said. A group of all ranks is about the run as a whole.
//! - At least half is all-to-all: experts. In a group of all ranks that makes at least a quarter of sums, too, nobody knows:
//!   it is about the run as a whole.
//! - The run does not train: nothing is said.
//! - At least half goes from one rank to another: stages of a pipeline, if in a step some rank receives first and another
//!   one sends first; else, where all begin alike, parts of a sequence, which go round in a ring.
//! - At least a quarter of the sums are made in the forward pass: tensor shards. Where no phase is known, all-reduces of one
//!   size, over and over.
//! - Sums are made in the backward pass and around the optimizer: replicas; or, where all ranks are of one pipeline, an
//!   embedding that several stages hold.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_plan::{Axis, Zero};
use stepscope_traces::{Group, GroupInfo, Membership, Phase, Rank, RunInfo, SpanKind, Step};

use crate::{
    job::training::trains,
    rank::{axes::is_hand_over, communication::CommunicationSpan, result::RankResult},
};

/// Messages that are no larger say nothing of what a group is for.
const TINY: u64 = 4096;
/// Where parameters are gathered once a step, gradients are summed at most so often.
const SUMS_PER_GATHER: u64 = 16;
/// As many sums of one size in a step are not of buckets of gradients.
const MANY_ALIKE: usize = 16;

/// The groups of a run with those whose axis follows from their use, if there are any: a run that says how it is spread
/// needs none.
pub(crate) fn groups_by_use(run: &RunInfo, ranks: &[RankResult]) -> Option<Vec<GroupInfo>> {
    if run.layout.is_some() {
        return None;
    }
    let mut named: BTreeMap<Group, GroupInfo> = run.groups.iter().map(|group| (group.group, group.clone())).collect();
    let uses = GroupUse::of_all(ranks);
    let trains = trains(ranks);
    let communicating = || ranks.iter().filter(|rank| !rank.communication.is_empty()).count();
    let all = run.world_size.map_or_else(communicating, |ranks| ranks as usize);
    let mut inferred: Vec<GroupInfo> = Vec::new();
    for (group, used) in uses {
        let is_open = named.get(&group).is_none_or(|group| group.axis == Axis::World);
        let members: Vec<Rank> = match named.get(&group) {
            Some(group) => group.ranks.clone(),
            None => used.members(group, ranks),
        };
        let has_all = members.len() == all;
        // Who talks to whom is to be seen by those alone who do.
        let is_seen = used.users.len() == members.len() || !used.is_of_messages();
        if is_open
            && is_seen
            && members.len() > 1
            && is_whole(run, group, members.len(), ranks)
            && let Some(axis) = used.axis(has_all).filter(|axis| trains || *axis == Axis::Expert)
        {
            inferred.push(GroupInfo { group, axis, ranks: members });
        }
    }
    let pipelines = named.values().chain(&inferred).filter(|group| group.axis == Axis::Pipeline);
    let pipelines: Vec<BTreeSet<Rank>> = pipelines.map(|group| group.ranks.iter().copied().collect()).collect();
    for group in inferred.iter_mut().filter(|group| group.axis == Axis::Data) {
        if pipelines.iter().any(|pipeline| group.ranks.iter().all(|rank| pipeline.contains(rank))) {
            group.axis = Axis::Embedding;
        }
    }
    let news: Vec<GroupInfo> = inferred.into_iter().filter(|group| named.get(&group.group) != Some(group)).collect();
    if news.is_empty() {
        return None;
    }
    named.extend(news.into_iter().map(|group| (group.group, group)));
    Some(named.into_values().collect())
}

/// Whether so many ranks are all that are in a group: as many as ranks say, or all that use it where no rank is missing.
fn is_whole(run: &RunInfo, group: Group, members: usize, ranks: &[RankResult]) -> bool {
    let mut told = ranks.iter().flat_map(|rank| &rank.info.groups).filter(|own| own.group == group).peekable();
    match told.peek() {
        Some(_) => told.all(|own| own.size as usize == members),
        None => {
            run.world_size.is_none_or(|all| all as usize == ranks.len())
                || run.groups.iter().any(|known| known.group == group)
        }
    }
}

/// What replicas share: what their programs say, or else what their collectives tell. Where they sum gradients, that is nothing;
/// parameters, where they gather them in both passes. Where they scatter gradients, or gather as much as a step changes, it is
/// the optimizer's state. Stage 2 looks like stage 1.
pub(crate) fn sharding(ranks: &[RankResult], groups: &[GroupInfo]) -> Option<Zero> {
    if let Some(said) = ranks.iter().find_map(|rank| rank.info.collector.program_model.as_ref()?.zero) {
        return Some(said);
    }
    let replicas: BTreeSet<Group> =
        groups.iter().filter(|group| group.axis.is_of_replicas()).map(|group| group.group).collect();
    let uses = GroupUse::of_all(ranks).into_iter().filter(|(group, _)| replicas.contains(group));
    let (mut scatters, mut sums, mut gathers, mut gathers_in, mut bytes) = (0, 0, 0, [0; 2], [0; 2]);
    for (_, used) in uses {
        scatters += used.scatters;
        sums += used.sums;
        gathers += used.gathers;
        gathers_in[0] += used.forward_gathers;
        gathers_in[1] += used.backward_gathers;
        bytes[0] += used.sum_bytes;
        bytes[1] += used.gather_bytes;
    }
    // Sums are made for each micro-batch, where a step has several.
    let gathers_parameters = gathers > 0 && bytes[1] >= bytes[0] / SUMS_PER_GATHER;
    match (sums, scatters, gathers_in) {
        (0, ..) => None,
        (_, 0, _) if !gathers_parameters => Some(Zero::Off),
        (_, _, [forward, backward]) if forward.min(backward) > 0 => Some(Zero::Three),
        _ => Some(Zero::One),
    }
}

/// Whether tensor ranks share the tokens between matrices: then most of their sums are scattered.
pub(crate) fn shares_tokens(ranks: &[RankResult], groups: &[GroupInfo]) -> Option<bool> {
    let of_tensor = |group: Group| groups.iter().any(|info| info.group == group && info.axis == Axis::Tensor);
    let uses = GroupUse::of_all(ranks).into_iter().filter(|(group, _)| of_tensor(*group));
    let (scatters, sums) =
        uses.fold((0, 0), |(scatters, sums), (_, used)| (scatters + used.scatters, sums + used.sums));
    (sums > 0).then_some(2 * scatters > sums)
}

/// What the ranks of a group do in it together, but for tiny messages.
#[derive(Default)]
struct GroupUse {
    users: BTreeSet<Rank>,
    all_to_all: usize,
    messages: usize,
    /// All-reduces and reduce-scatters, and what of them is in the forward pass or in no phase that is known.
    sums: usize,
    forward_sums: usize,
    sums_in_no_phase: usize,
    sum_bytes: u64,
    scatters: usize,
    gathers: usize,
    gather_bytes: u64,
    forward_gathers: usize,
    backward_gathers: usize,
    /// How often sums of a size are made by a rank in a step, where sizes are known.
    sizes: BTreeMap<(Rank, Option<Step>, u64), usize>,
    /// Of each rank and step, the first message: when, and of which kind.
    first: BTreeMap<(Rank, Option<Step>), (i64, SpanKind)>,
}

impl GroupUse {
    fn of_all(ranks: &[RankResult]) -> BTreeMap<Group, GroupUse> {
        let mut uses: BTreeMap<Group, GroupUse> = BTreeMap::new();
        for rank in ranks {
            for span in &rank.communication {
                if let Some(group) = span.group {
                    uses.entry(group).or_default().add(rank.info.rank, span);
                }
            }
        }
        uses
    }

    fn add(&mut self, rank: Rank, span: &CommunicationSpan) {
        self.users.insert(rank);
        if span.bytes.is_some_and(|bytes| bytes <= TINY) || span.phase == Some(Phase::Evaluation) {
            return;
        }
        let is_forward = usize::from(span.phase == Some(Phase::Forward));
        match span.operation {
            SpanKind::AllToAll => self.all_to_all += 1,
            SpanKind::AllReduce | SpanKind::ReduceScatter => {
                self.sums += 1;
                self.sum_bytes += span.bytes.unwrap_or(0);
                self.scatters += usize::from(span.operation == SpanKind::ReduceScatter);
                self.forward_sums += is_forward;
                self.sums_in_no_phase += usize::from(span.phase.is_none());
                if let Some(bytes) = span.bytes {
                    *self.sizes.entry((rank, span.step, bytes)).or_default() += 1;
                }
            }
            SpanKind::AllGather => {
                self.gathers += 1;
                self.gather_bytes += span.bytes.unwrap_or(0);
                self.forward_gathers += is_forward;
                self.backward_gathers += usize::from(span.phase == Some(Phase::Backward));
            }
            operation if is_hand_over(operation) => {
                self.messages += 1;
                let first = self.first.entry((rank, span.step)).or_insert((span.start, operation));
                *first = (*first).min((span.start, operation));
            }
            _ => {}
        }
    }

    /// Who is in it, as far as that is known: as ranks say themselves, of others too, or else who used it.
    fn members(&self, group: Group, ranks: &[RankResult]) -> Vec<Rank> {
        let said = ranks.iter().flat_map(|rank| {
            let own = rank.info.groups.iter().filter(move |membership| membership.group == group);
            let listed = |membership: &'_ Membership| (0..).zip(membership.ranks.clone()).collect::<Vec<_>>();
            let seen = |membership: &Membership| membership.index.map(|index| (index, rank.info.rank));
            own.flat_map(move |membership| listed(membership).into_iter().chain(seen(membership)))
        });
        let said: BTreeMap<u32, Rank> = said.collect();
        if said.is_empty() { self.users.iter().copied().collect() } else { said.into_values().collect() }
    }

    fn operations(&self) -> usize {
        self.all_to_all + self.messages + self.sums + self.gathers
    }

    /// Whether at least half of it goes from one rank to another.
    fn is_of_messages(&self) -> bool {
        2 * self.messages >= self.operations()
    }

    fn axis(&self, has_all_ranks: bool) -> Option<Axis> {
        let all = self.operations();
        if all == 0 {
            None
        } else if 2 * self.all_to_all >= all {
            let is_mixed = has_all_ranks && 4 * self.sums >= all;
            Some(if is_mixed { Axis::World } else { Axis::Expert })
        } else if self.is_of_messages() {
            // A group of all ranks is of stages only as far as messages go.
            let kinds: BTreeSet<SpanKind> = self.first.values().map(|(_, kind)| *kind).collect();
            let is_pipeline = kinds.contains(&SpanKind::Receive) && kinds.len() > 1;
            let pipeline = if has_all_ranks { Axis::World } else { Axis::Pipeline };
            Some(if is_pipeline { pipeline } else { Axis::Context })
        } else if self.sums_are_of_shards() {
            Some(Axis::Tensor)
        } else {
            Some(Axis::Data)
        }
    }

    fn sums_are_of_shards(&self) -> bool {
        if self.sums_in_no_phase < self.sums {
            return 4 * self.forward_sums >= self.sums - self.sums_in_no_phase && self.forward_sums > 0;
        }
        if self.scatters > 0 {
            return false;
        }
        let most = self.sizes.values().max().copied().unwrap_or(0);
        let steps: BTreeSet<_> = self.sizes.keys().map(|(rank, step, _)| (*rank, *step)).collect();
        most >= MANY_ALIKE && most * steps.len() * 10 >= self.sums * 9
    }
}
