//! What the end of a step really depends on.

use std::collections::BTreeMap;

use stepscope_traces::Rank;

use super::{LagKind, Node, StepGraph};
use crate::figures::{Class, CriticalPath, PathPart, PathRank, PathShare, PathStretch};

/// A path while it is followed back: its stretches, the last one first, and where it has come to.
struct Following<'a> {
    ranks: &'a [Rank],
    path: Vec<PathStretch>,
    now: i64,
}

impl Following<'_> {
    /// Goes back to a moment, if it is not there yet.
    fn back_to(&mut self, start_ns: i64, node: &Node, part: PathPart) {
        if start_ns < self.now {
            let rank = self.ranks[node.rank as usize];
            self.path.push(PathStretch { rank, start_ns, end_ns: self.now, part });
            self.now = start_ns;
        }
    }
}

/// Goes from the last end of a step back to its first start: by what each activity waited for, and from rank to rank where
/// they met. The stretches are in order, without holes, and as long as the step.
/// `ranks` are those of the graph, in their order.
pub(crate) fn stretches(graph: &StepGraph, ranks: &[Rank]) -> Vec<PathStretch> {
    let Some(mut index) = (0..graph.nodes.len()).max_by_key(|index| graph.nodes[*index].end) else { return Vec::new() };
    let mut following = Following { ranks, path: Vec::new(), now: graph.nodes[index].end };
    // Clocks that are not quite together may let a path go round.
    for _ in 0..=2 * graph.nodes.len() {
        let mut node = &graph.nodes[index];
        let mut begin = node.start;
        if let Some(meeting) = node.meeting.map(|meeting| &graph.meetings[meeting as usize]) {
            // The others had to wait for the last one.
            begin = begin.max(meeting.last);
            if meeting.last_node as usize != index && graph.nodes[meeting.last_node as usize].start < following.now {
                following.back_to(begin, node, on(node));
                index = meeting.last_node as usize;
                node = &graph.nodes[index];
                begin = node.start;
            }
        }
        following.back_to(begin, node, on(node));
        let waited = node.before.iter().flatten().copied().max_by_key(|before| graph.nodes[*before as usize].end);
        let over = waited.map_or(graph.begin, |before| graph.nodes[before as usize].end);
        let lag = match node.lag_on {
            LagKind::Idle(reason) => PathPart::Idle { reason },
            LagKind::Bubble => PathPart::Bubble,
            LagKind::Busy => PathPart::Lag,
        };
        following.back_to(over, node, lag);
        match waited {
            Some(before) => index = before as usize,
            None => break,
        }
    }
    following.back_to(graph.begin, &graph.nodes[index], PathPart::Lag);
    following.path.reverse();
    following.path
}

/// The critical path of a step. `ranks` are those of the graph, in their order.
pub(crate) fn critical_path(graph: &StepGraph, ranks: &[Rank]) -> CriticalPath {
    let stretches = stretches(graph, ranks);
    let (mut parts, mut of_ranks): (BTreeMap<PathPart, (i64, Elsewhere)>, BTreeMap<Rank, i64>) = Default::default();
    for stretch in &stretches {
        let length = stretch.end_ns - stretch.start_ns;
        parts.entry(stretch.part).or_default().0 += length;
        *of_ranks.entry(stretch.rank).or_default() += length;
    }
    for (node, slack) in graph.nodes.iter().zip(graph.slack()).filter(|(_, slack)| *slack > 0) {
        parts.entry(on(node)).or_default().1.0.push((slack, node.duration()));
    }
    let length_ns = graph.length();
    let share = |time_ns: i64| time_ns as f64 / length_ns.max(1) as f64;
    let part = |(part, (time_ns, elsewhere)): (PathPart, (i64, Elsewhere))| {
        let (elsewhere_ns, slack_ns) = elsewhere.time_and_slack();
        PathShare { part, time_ns, share: share(time_ns), elsewhere_ns, slack_ns }
    };
    let mut parts: Vec<PathShare> = parts.into_iter().map(part).collect();
    let mut ranks: Vec<PathRank> =
        of_ranks.into_iter().map(|(rank, time_ns)| PathRank { rank, time_ns, share: share(time_ns) }).collect();
    parts.retain(|part| part.time_ns > 0 || part.elsewhere_ns > 0);
    parts.sort_by_key(|part| (-part.time_ns, -part.elsewhere_ns));
    ranks.sort_by_key(|rank| -rank.time_ns);
    CriticalPath { step: graph.step, length_ns, parts, ranks, stretches }
}

/// The slack and the length of each activity that has slack.
#[derive(Default)]
struct Elsewhere(Vec<(i64, i64)>);

impl Elsewhere {
    /// How long they are together, and the slack of half of that.
    fn time_and_slack(mut self) -> (i64, Option<i64>) {
        let whole: i64 = self.0.iter().map(|(_, length)| length).sum();
        self.0.sort_unstable();
        let mut sum = 0;
        let half = self.0.iter().find(|(_, length)| {
            sum += length;
            2 * sum >= whole
        });
        (whole, half.map(|(slack, _)| *slack))
    }
}

/// What an activity is on the path.
fn on(node: &Node) -> PathPart {
    match node.class {
        Class::Compute => PathPart::Compute { family: node.family },
        Class::Communication => PathPart::Communication { axis: node.axis },
        Class::Copy => PathPart::Copy,
    }
}
