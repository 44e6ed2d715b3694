//! How time goes at each place that ranks run at: GPUs of one index, hosts, switches.
//!
//! For users, it is defined in `docs/src/metrics.md#places`.
//!
//! Each kind of place divides the ranks, and so do switches of one level: sums over its places are those over all ranks. A
//! kind that no rank knows has no places.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_traces::Rank;

use crate::{
    figures::{Partition, PlaceFigures, PlaceKind, Straggler},
    rank::result::RankResult,
};

/// The places of a job by kind, in the order of their first ranks, with the waiting of their ranks.
pub(crate) fn places(ranks: &[RankResult], stragglers: &[Straggler]) -> Vec<PlaceFigures> {
    let waits: BTreeMap<Rank, &Straggler> = stragglers.iter().map(|straggler| (straggler.rank, straggler)).collect();
    let levels = ranks.iter().map(|rank| rank.info.topology.switches.len()).max().unwrap_or(0);
    let has_index = ranks.iter().all(|rank| rank.info.topology.gpu.index.is_some());
    let crowded = hosts_of_several_nodes(ranks);
    let mut places = by(ranks, &waits, (PlaceKind::GpuIndex, None), |rank| {
        let topology = &rank.info.topology;
        let index = if has_index { topology.gpu.index } else { topology.local_rank }?;
        Some(index.to_string())
    });
    places.extend(by(ranks, &waits, (PlaceKind::Host, None), |rank| {
        let node = rank.info.topology.node;
        match (rank.figures.host.as_deref(), node) {
            (Some(host), Some(node)) if crowded.contains(host) => Some(format!("{host}, node {node}")),
            (Some(host), _) => Some(host.to_owned()),
            (None, node) => node.map(|node| format!("node {node}")),
        }
    }));
    for level in 0..levels {
        places.extend(by(ranks, &waits, (PlaceKind::Switch, Some(level as u32)), |rank| {
            rank.info.topology.switches.get(level).cloned()
        }));
    }
    places
}

/// Hosts by whose name ranks of several machines call theirs, as containers may, or several machines that are one.
fn hosts_of_several_nodes(ranks: &[RankResult]) -> BTreeSet<&str> {
    let mut nodes: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for rank in ranks {
        if let Some((host, node)) = rank.figures.host.as_deref().zip(rank.info.topology.node) {
            nodes.entry(host).or_default().insert(node);
        }
    }
    nodes.into_iter().filter(|(_, nodes)| nodes.len() > 1).map(|(host, _)| host).collect()
}

/// The places of one kind, by the name of each rank's.
fn by(
    ranks: &[RankResult],
    waits: &BTreeMap<Rank, &Straggler>,
    (kind, level): (PlaceKind, Option<u32>),
    name_of: impl Fn(&RankResult) -> Option<String>,
) -> Vec<PlaceFigures> {
    let mut places: BTreeMap<Option<String>, PlaceFigures> = BTreeMap::new();
    for rank in ranks {
        let name = name_of(rank);
        let place = places.entry(name.clone()).or_insert_with(|| PlaceFigures {
            kind,
            level,
            name,
            ranks: Vec::new(),
            windows: 0,
            partition: Partition::default(),
            wait_ns: None,
            caused_wait_ns: None,
        });
        place.ranks.push(rank.info.rank);
        place.windows += rank.time.windows;
        place.partition.add_window(&rank.time.partition);
        if let Some(waited) = waits.get(&rank.info.rank) {
            let add = |sum: &mut Option<i64>, more: i64| *sum = Some(sum.unwrap_or(0).saturating_add(more));
            add(&mut place.wait_ns, waited.wait_ns);
            add(&mut place.caused_wait_ns, waited.caused_wait_ns);
        }
    }
    let mut places: Vec<PlaceFigures> = places.into_values().collect();
    places.sort_by_key(|place| (place.name.is_none(), place.ranks.first().copied()));
    let is_known = places.first().is_some_and(|place| place.name.is_some());
    if is_known { places } else { Vec::new() }
}
