//! Places whose ranks the others wait for: GPUs of one index, a host, a switch.

use std::{cmp::Reverse, collections::BTreeMap};

use stepscope_plan::text;
use stepscope_traces::Rank;

use super::{
    Found,
    lateness::{Lateness, Why},
    time::{is_core, per_step},
};
use crate::figures::{Analysis, PlaceFigures, PlaceKind};

/// What its ranks cause of all waiting, at least.
const LEAST_BLAME: f64 = 0.8;
/// Ranks beside those that are last are late as well if they wait at most this much of what those elsewhere wait.
const LATE_AS_WELL: f64 = 0.5;

/// The smallest place that explains the waiting: one that has a slow rank, if there is one, whose other ranks are late as well.
pub(super) fn find(analysis: &Analysis, slow: Option<Rank>) -> Option<Found> {
    let mut suspects: Vec<(&PlaceFigures, Lateness)> =
        analysis.places.iter().filter_map(|place| Some((place, late(analysis, place)?))).collect();
    suspects.sort_by_key(|(place, _)| (place.kind, Reverse(place.level)));
    let waits: BTreeMap<Rank, i64> =
        analysis.stragglers.iter().map(|straggler| (straggler.rank, straggler.wait_ns)).collect();
    let mut last: Vec<Rank> = slow.into_iter().collect();
    let mut found = None;
    for (place, lateness) in suspects {
        let is_inside = last.iter().all(|rank| place.ranks.contains(rank)) && last.len() < place.ranks.len();
        if is_inside && (last.is_empty() || rest_is_late(place, &last, &waits)) {
            last.clone_from(&place.ranks);
            found = Some((place, lateness));
        }
    }
    found.map(|(place, lateness)| said(analysis, place, lateness))
}

/// How late a place is, if it is one of several with several ranks, and the others wait for it.
fn late(analysis: &Analysis, place: &PlaceFigures) -> Option<Lateness> {
    let is_one_of_several = place.name.is_some() && (2..analysis.counted.len()).contains(&place.ranks.len());
    let lateness = Lateness::of(analysis, place.ranks.len(), place.caused_wait_ns?, place.wait_ns?)?;
    Some(lateness).filter(|lateness| is_one_of_several && lateness.matters(LEAST_BLAME))
}

/// Whether the ranks of a place that are not the last ones wait little, beside those elsewhere.
fn rest_is_late(place: &PlaceFigures, last: &[Rank], waits: &BTreeMap<Rank, i64>) -> bool {
    let mean = |is_one: &dyn Fn(&Rank) -> bool| {
        let (count, sum) = waits
            .iter()
            .filter(|(rank, _)| is_one(rank))
            .fold((0_u32, 0.0), |(count, sum), (_, wait)| (count + 1, sum + *wait as f64));
        sum / f64::from(count.max(1))
    };
    let is_here = |rank: &Rank| place.ranks.contains(rank);
    mean(&|rank| is_here(rank) && !last.contains(rank)) <= LATE_AS_WELL * mean(&|rank| !is_here(rank))
}

fn said(analysis: &Analysis, place: &PlaceFigures, lateness: Lateness) -> Found {
    let name = analysis.place_name(place);
    let where_they_are = match place.kind {
        PlaceKind::GpuIndex => format!("on {name} of all hosts"),
        PlaceKind::Host => format!("of {name}"),
        PlaceKind::Switch => format!("below {name}"),
    };
    let advice = match place.kind {
        PlaceKind::GpuIndex if is_core(analysis) => {
            format!("check what {name} has in common on all hosts: the cores and the NUMA node that it is pinned to")
        }
        PlaceKind::GpuIndex => format!(
            "check what {name} has in common on all hosts: its PCIe slot (link speed and width), its cooling, and the NUMA \
             node that its processes are pinned to"
        ),
        PlaceKind::Host => {
            format!("check {name}: its clock speeds and temperature, its network, its input data, other processes")
        }
        PlaceKind::Switch => {
            format!("check {name}: errors and congestion on its links; then power and cooling of the hosts below it")
        }
    };
    let why = match Why::of(analysis, &place.ranks) {
        Why::NoMoreWork => "they compute no more than the others".to_owned(),
        Why::Kernels(share) => format!("their kernels take {} longer", text::rough_percent(share)),
        Why::Idle(more) => format!("they are idle {} more{}", text::duration(more), per_step(analysis)),
    };
    let blame = text::rough_percent(lateness.blame);
    Found {
        share: lateness.share,
        summary: format!("the {} ranks {where_they_are} are stragglers: the others wait for them", place.ranks.len()),
        evidence: format!("they cause {blame} of all waiting in collectives; {why}"),
        advice,
        ranks: place.ranks.clone(),
        lost_ns: Some(lateness.lost_ns),
        ..Found::default()
    }
}
