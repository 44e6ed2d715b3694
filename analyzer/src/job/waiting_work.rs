//! What waits for communication: the compute that begins when exposed communication is over.

use std::collections::BTreeMap;

use stepscope_plan::Axis;
use stepscope_traces::{Family, Phase};

use crate::{
    figures::{Class, WaitingWork},
    job::step_graph::{Node, StepGraph},
};

/// The work that waits longest for communication along an axis, in the step of a graph.
pub(crate) fn waiting_work(graph: &StepGraph, axis: Option<Axis>) -> Option<WaitingWork> {
    let mut ranks: Vec<RankWaits> = (0..graph.ranks).map(|_| RankWaits::default()).collect();
    // They are sorted by start.
    for node in &graph.nodes {
        ranks[node.rank as usize].take(node, axis);
    }
    let mut times: BTreeMap<(Option<Phase>, Family), i64> = BTreeMap::new();
    for (work, time) in ranks.into_iter().flat_map(|rank| rank.waited) {
        *times.entry(work).or_default() += time;
    }
    let all: i64 = times.values().sum();
    let ((phase, family), time) = times.into_iter().max_by_key(|(_, time)| *time).filter(|(_, time)| *time > 0)?;
    Some(WaitingWork { phase, family, share: time as f64 / all as f64 })
}

/// What waits on a rank.
#[derive(Default)]
struct RankWaits {
    /// When the compute so far is over, and the communication since then.
    computed: Option<i64>,
    communication: Vec<(i64, i64)>,
    waited: BTreeMap<(Option<Phase>, Family), i64>,
}

impl RankWaits {
    fn take(&mut self, node: &Node, axis: Option<Axis>) {
        match node.class {
            Class::Communication if node.axis == axis => self.communication.push((node.start, node.end)),
            Class::Compute => {
                let from = self.computed.unwrap_or(node.start);
                let last = self.communication.iter().map(|(_, end)| *end).filter(|end| *end <= node.start).max();
                let first = self.communication.iter().map(|(start, _)| *start).min();
                if let (Some(first), Some(last)) = (first, last) {
                    *self.waited.entry((node.phase, node.family)).or_default() += (last - first.max(from)).max(0);
                }
                self.communication.retain(|(_, end)| *end > node.start);
                self.computed = self.computed.max(Some(node.end));
            }
            _ => {}
        }
    }
}
