use std::collections::BTreeMap;

use stepscope_plan::{Axis, Traffic};
use stepscope_traces::{RankData, SpanKind, Step};
use stepscope_trainer::{TrainConfig, comm::Groups};

use crate::support::{layouts, recorded};

/// What one rank sent, or took part in, along each axis in the second step: how often, and how many bytes.
pub(crate) fn measured(config: &TrainConfig, data: &RankData) -> BTreeMap<(Axis, &'static str), f64> {
    let groups = Groups::describe(&config.layout);
    let mut bytes = BTreeMap::new();
    for span in data.spans.rows().filter(|span| span.step == Some(Step(1))) {
        let operation = match span.kind {
            SpanKind::AllReduce => "all_reduce",
            SpanKind::AllGather => "all_gather",
            SpanKind::ReduceScatter => "reduce_scatter",
            SpanKind::AllToAll => "all_to_all",
            SpanKind::Send => "send",
            _ => continue,
        };
        let group = span.group.unwrap();
        let axis = groups.iter().find(|info| info.group == group).unwrap().axis;
        if axis.is_single() || axis == config.layout.replica_axis() {
            *bytes.entry((axis, operation)).or_default() += span.bytes.unwrap() as f64;
        }
    }
    bytes
}

#[test]
fn every_layout_sends_what_was_planned() {
    for (name, config) in layouts() {
        let config = TrainConfig { steps: 2, ..config };
        for (rank, data) in recorded(&config).iter().enumerate() {
            let stage = config.layout.coordinates(rank as u64).stage;
            assert_eq!(measured(&config, data), planned(&config, stage), "{name}, rank {rank}");
        }
    }
}

/// What a rank of a stage should send, or take part in.
pub(crate) fn planned(config: &TrainConfig, stage: u64) -> BTreeMap<(Axis, &'static str), f64> {
    let mut planned = BTreeMap::new();
    for traffic in Traffic::of_stage(&config.model, &config.layout, stage) {
        *planned.entry((traffic.axis, traffic.operation)).or_default() += traffic.bytes;
    }
    planned
}
