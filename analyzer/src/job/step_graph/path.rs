//! What the end of a step really depends on.

use std::collections::BTreeMap;

use stepscope_traces::Rank;

use super::{LagKind, Node, StepGraph};
use crate::figures::{Class, CriticalPath, PathPart, PathRank, PathShare};

/// A stretch of the critical path, and what it was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathStretch {
    /// The place of the rank in the list.
    pub(crate) rank: u32,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) on: PathPart,
}

/// Goes from the last end of a step back to its first start: by what each activity waited for, and from rank to rank where
/// they met. The stretches are in order, without holes, and as long as the step.
pub(crate) fn stretches(graph: &StepGraph) -> Vec<PathStretch> {
    let Some(mut index) = (0..graph.nodes.len()).max_by_key(|index| graph.nodes[*index].end) else { return Vec::new() };
    let mut path: Vec<PathStretch> = Vec::new();
    let mut now = graph.nodes[index].end;
    // Clocks that are not quite together may let a path go round.
    for _ in 0..=2 * graph.nodes.len() {
        let mut node = &graph.nodes[index];
        let mut begin = node.start;
        if let Some(meeting) = node.meeting.map(|meeting| &graph.meetings[meeting as usize]) {
            // The others had to wait for the last one.
            begin = begin.max(meeting.last);
            if meeting.last_node as usize != index && graph.nodes[meeting.last_node as usize].start < now {
                push(&mut path, node, begin.min(now), &mut now, on(node));
                index = meeting.last_node as usize;
                node = &graph.nodes[index];
                begin = node.start;
            }
        }
        push(&mut path, node, begin, &mut now, on(node));
        let waited = node.before.iter().flatten().copied().max_by_key(|before| graph.nodes[*before as usize].end);
        let over = waited.map_or(graph.begin, |before| graph.nodes[before as usize].end);
        let lag = match node.lag_on {
            LagKind::Idle(reason) => PathPart::Idle { reason },
            LagKind::Bubble => PathPart::Bubble,
            LagKind::Busy => PathPart::Lag,
        };
        push(&mut path, node, over, &mut now, lag);
        match waited {
            Some(before) => index = before as usize,
            None => break,
        }
    }
    let first = &graph.nodes[index];
    push(&mut path, first, graph.begin, &mut now, PathPart::Lag);
    path.reverse();
    path
}

/// The critical path of a step. `ranks` are those of the graph, in their order.
pub(crate) fn critical_path(graph: &StepGraph, ranks: &[Rank]) -> CriticalPath {
    let (mut parts, mut of_ranks): (BTreeMap<PathPart, i64>, BTreeMap<Rank, i64>) = Default::default();
    for stretch in stretches(graph) {
        let length = stretch.end - stretch.start;
        *parts.entry(stretch.on).or_default() += length;
        *of_ranks.entry(ranks[stretch.rank as usize]).or_default() += length;
    }
    let length_ns = graph.length();
    let share = |time_ns: i64| time_ns as f64 / length_ns.max(1) as f64;
    let mut parts: Vec<PathShare> =
        parts.into_iter().map(|(part, time_ns)| PathShare { part, time_ns, share: share(time_ns) }).collect();
    let mut ranks: Vec<PathRank> =
        of_ranks.into_iter().map(|(rank, time_ns)| PathRank { rank, time_ns, share: share(time_ns) }).collect();
    parts.sort_by_key(|part| -part.time_ns);
    ranks.sort_by_key(|rank| -rank.time_ns);
    CriticalPath { step: graph.step, length_ns, parts, ranks }
}

/// What an activity is on the path.
fn on(node: &Node) -> PathPart {
    match node.class {
        Class::Compute => PathPart::Compute { family: node.family },
        Class::Communication => PathPart::Communication { axis: node.axis },
        Class::Copy => PathPart::Copy,
    }
}

/// Goes back to a moment, if it is not there yet.
fn push(path: &mut Vec<PathStretch>, node: &Node, to: i64, now: &mut i64, on: PathPart) {
    if to < *now {
        path.push(PathStretch { rank: node.rank, start: to, end: *now, on });
        *now = to;
    }
}
