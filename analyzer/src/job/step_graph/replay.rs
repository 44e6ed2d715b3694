//! The step as it would have been.

use super::{Node, StepGraph};

/// What is different in a step that is replayed.
pub(crate) trait StepChange {
    /// How long an activity takes.
    fn duration(&self, node: &Node) -> i64 {
        node.duration()
    }

    /// How long communication takes once all ranks are there.
    fn transfer(&self, _node: &Node, own: i64) -> i64 {
        own
    }

    /// How long after what it waits for it begins.
    fn lag(&self, node: &Node) -> i64 {
        node.lag
    }

    /// Whether nothing waits for it, nor it for other ranks.
    fn is_free(&self, _node: &Node) -> bool {
        false
    }
}

/// A replay: when activities begin and end in it, as far as it has come.
struct Replay<'a> {
    graph: &'a StepGraph,
    change: &'a dyn StepChange,
    starts: Vec<Option<i64>>,
    ends: Vec<Option<i64>>,
}

impl StepGraph {
    /// How long the step takes if something is different.
    pub(crate) fn replay(&self, change: &dyn StepChange) -> i64 {
        let mut replay =
            Replay { graph: self, change, starts: vec![None; self.nodes.len()], ends: vec![None; self.nodes.len()] };
        for (index, node) in self.nodes.iter().enumerate() {
            let over = node.before.iter().flatten().map(|before| replay.end(*before as usize)).max();
            replay.starts[index] = Some(over.unwrap_or(self.begin) + change.lag(node));
        }
        let last = (0..self.nodes.len()).map(|index| replay.end(index)).max();
        last.unwrap_or(self.begin) - self.begin
    }
}

impl Replay<'_> {
    /// When an activity begins. One that clocks put before its turn begins when it did.
    fn start(&self, index: usize) -> i64 {
        self.starts[index].unwrap_or(self.graph.nodes[index].start)
    }

    /// When an activity that has begun is over.
    fn end(&mut self, index: usize) -> i64 {
        if let Some(end) = self.ends[index] {
            return end;
        }
        let end = self.over(index);
        self.ends[index] = Some(end);
        end
    }

    fn over(&self, index: usize) -> i64 {
        let (node, start) = (&self.graph.nodes[index], self.start(index));
        if self.change.is_free(node) {
            return start;
        }
        let Some(meeting) = node.meeting.map(|meeting| &self.graph.meetings[meeting as usize]) else {
            return start + self.change.duration(node);
        };
        let last = meeting.nodes.iter().map(|other| self.start(*other as usize)).max().unwrap_or(start);
        // Ranks do not leave at the same moment: who left later does so again.
        let after = node.end - (meeting.last + meeting.own);
        start.max(last + self.change.transfer(node, meeting.own) + after)
    }
}
