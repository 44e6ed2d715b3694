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
    starts: Vec<i64>,
    ends: Vec<Option<i64>>,
    /// When the last one comes to each meeting of which all have begun.
    met: Vec<Option<i64>>,
}

impl StepGraph {
    /// How long the step takes if something is different.
    pub(crate) fn replay(&self, change: &dyn StepChange) -> i64 {
        let mut replay = Replay {
            graph: self,
            change,
            starts: Vec::with_capacity(self.nodes.len()),
            ends: vec![None; self.nodes.len()],
            met: vec![None; self.meetings.len()],
        };
        for node in &self.nodes {
            let over = node.before.iter().flatten().map(|before| replay.end(*before as usize)).max();
            replay.starts.push(over.unwrap_or(self.begin) + change.lag(node));
        }
        let last = (0..self.nodes.len()).map(|index| replay.end(index)).max();
        last.unwrap_or(self.begin) - self.begin
    }
}

impl Replay<'_> {
    /// When an activity begins. One that clocks put before its turn begins when it did.
    fn start(&self, index: usize) -> i64 {
        self.starts.get(index).copied().unwrap_or(self.graph.nodes[index].start)
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

    fn over(&mut self, index: usize) -> i64 {
        let (node, start) = (&self.graph.nodes[index], self.start(index));
        if self.change.is_free(node) {
            return start;
        }
        let Some(number) = node.meeting.map(|meeting| meeting as usize) else {
            return start + self.change.duration(node);
        };
        let (meeting, last) = (&self.graph.meetings[number], self.last(number).unwrap_or(start));
        // Ranks do not leave at the same moment: who left later does so again.
        let after = node.end - (meeting.last + meeting.own);
        start.max(last + self.change.transfer(node, meeting.own) + after)
    }

    /// When the last one comes to a meeting. Each of its ranks asks for that, so of many it is found once.
    fn last(&mut self, number: usize) -> Option<i64> {
        let meeting = &self.graph.meetings[number];
        let have_begun = (meeting.newest as usize) < self.starts.len();
        let last = self.met[number].or_else(|| meeting.nodes.iter().map(|node| self.start(*node as usize)).max());
        if have_begun {
            self.met[number] = last;
        }
        last
    }
}
