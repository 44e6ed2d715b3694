//! Places against the plainest count of the same: what files say, rank by rank, without a line of the analyzer's.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;
use stepscope_analyzer::{PlaceFigures, PlaceKind, Selection};
use stepscope_traces::{
    Rank, Run, Step, Window,
    synthetic::{Cluster, Recipe},
};
use tempfile::TempDir;

use crate::support::analyzed;

/// A kind of place, its level of switches, and its name.
type Place = (PlaceKind, Option<u32>, String);

/// What `rank.json` says, read as anybody would.
fn said(run: &Path, rank: Rank) -> Value {
    serde_json::from_slice(&fs::read(run.join(format!("rank-{:05}/rank.json", rank.0))).unwrap()).unwrap()
}

/// Where a rank is, by kind and level.
fn where_it_is(said: &Value) -> Vec<Place> {
    let topology = &said["topology"];
    let mut places = vec![
        (PlaceKind::GpuIndex, None, topology["gpu_index"].to_string()),
        (PlaceKind::Host, None, said["host"].as_str().unwrap().to_owned()),
    ];
    for (level, switch) in (0..).zip(topology["switches"].as_array().unwrap()) {
        places.push((PlaceKind::Switch, Some(level), switch.as_str().unwrap().to_owned()));
    }
    places
}

/// What each rank waits, and what it is waited for, in the steps that count.
fn waits(run: &Run, counts: impl Fn(i32) -> bool) -> BTreeMap<Rank, (i64, i64)> {
    let mut collectives: BTreeMap<_, Vec<(Rank, i64)>> = BTreeMap::new();
    for rank in &run.ranks {
        let (data, _) = rank.read(Window::ALL).unwrap();
        for span in data.spans.rows().filter(|span| span.kind.is_communication() && counts(span.step.unwrap().0)) {
            let key = (span.group.unwrap(), span.sequence.unwrap(), span.kind);
            collectives.entry(key).or_default().push((rank.info.rank, span.duration_ns.0));
        }
    }
    let mut sums: BTreeMap<Rank, (i64, i64)> = BTreeMap::new();
    for parts in collectives.into_values() {
        let least = parts.iter().map(|(_, took)| *took).min().unwrap();
        let last = parts.iter().find(|(_, took)| *took == least).unwrap().0;
        for (rank, took) in parts {
            sums.entry(rank).or_default().0 += took - least;
            sums.entry(last).or_default().1 += took - least;
        }
    }
    sums
}

fn recipe(slow_switch: Option<u32>) -> Recipe {
    let cluster = Cluster { ranks_per_host: 2, hosts_per_switch: 2, slow_switch };
    Recipe {
        replicas: 12,
        steps: 6,
        waiting: 0.3,
        overlap: 0.0,
        kernels_per_layer: 1,
        cluster: Some(cluster),
        ..Recipe::default()
    }
}

#[test]
fn sums_by_place_are_those_of_their_ranks() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run");
    recipe(None).write(&path).unwrap();
    let analysis = analyzed(&directory, &Selection::default());
    let run = Run::open(&path).unwrap();
    let waits = waits(&run, |step| analysis.window.counts(Step(step)));
    let mut expected: BTreeMap<Place, (Vec<Rank>, i64, i64)> = BTreeMap::new();
    for rank in &run.ranks {
        let rank = rank.info.rank;
        for place in where_it_is(&said(&path, rank)) {
            let (ranks, waited, caused) = expected.entry(place).or_default();
            ranks.push(rank);
            (*waited, *caused) = (*waited + waits[&rank].0, *caused + waits[&rank].1);
        }
    }
    assert_eq!(expected.len(), 2 + 6 + 1 + 3, "GPUs, hosts, the switch above, those below it");
    assert_eq!(analysis.places.len(), expected.len());
    for place in &analysis.places {
        let key = (place.kind, place.level, place.name.clone().unwrap());
        let (ranks, waited, caused) = &expected[&key];
        assert_eq!(
            (&place.ranks, place.wait_ns, place.caused_wait_ns),
            (ranks, Some(*waited), Some(*caused)),
            "{key:?}"
        );
        assert!(place.partition.adds_up(), "{place:?}");
    }
    let kinds = [
        (PlaceKind::GpuIndex, None),
        (PlaceKind::Host, None),
        (PlaceKind::Switch, Some(0)),
        (PlaceKind::Switch, Some(1)),
    ];
    for kind in kinds {
        let sum = |of: &dyn Fn(&PlaceFigures) -> i64| -> i64 {
            analysis.places.iter().filter(|place| (place.kind, place.level) == kind).map(of).sum()
        };
        assert_eq!(sum(&|place| place.ranks.len() as i64), 12);
        assert_eq!(
            sum(&|place| place.windows as i64),
            analysis.counted.iter().map(|time| time.windows as i64).sum::<i64>()
        );
        assert_eq!(sum(&|place| place.partition.span_ns), analysis.counted_time().span_ns);
        assert_eq!(sum(&|place| place.partition.compute_ns), analysis.counted_time().compute_ns);
        let all: i64 = waits.values().map(|(waited, _)| waited).sum();
        assert_eq!((sum(&|place| place.wait_ns.unwrap()), sum(&|place| place.caused_wait_ns.unwrap())), (all, all));
    }
}

#[test]
fn others_wait_for_those_below_a_slow_switch() {
    let directory = TempDir::new().unwrap();
    recipe(Some(1)).write(&directory.path().join("run")).unwrap();
    let analysis = analyzed(&directory, &Selection::default());
    let switches = analysis.places.iter().filter(|place| place.level == Some(1));
    let waits: Vec<(&str, bool, bool)> = switches
        .map(|place| {
            let name = place.name.as_deref().unwrap();
            (name, place.wait_ns.unwrap() > 0, place.caused_wait_ns.unwrap() > 0)
        })
        .collect();
    assert_eq!(waits, [("leaf0", true, false), ("leaf1", false, true), ("leaf2", true, false)]);
}
