//! How much later an activity could be over without the step being so.

use super::StepGraph;

impl StepGraph {
    /// Of each activity, in their order: how much later it could begin. What the end of the step depends on has none.
    pub(crate) fn slack(&self) -> Vec<i64> {
        let mut latest_end = vec![self.begin + self.length(); self.nodes.len()];
        let mut latest_meeting: Vec<Option<i64>> = vec![None; self.meetings.len()];
        let mut slack = vec![0; self.nodes.len()];
        // What waits for an activity begins after it.
        for (index, node) in self.nodes.iter().enumerate().rev() {
            let latest_start = match node.meeting.map(|meeting| meeting as usize) {
                None => latest_end[index] - node.duration(),
                // Whoever comes last decides for all when they leave.
                Some(number) => *latest_meeting[number].get_or_insert_with(|| {
                    let meeting = &self.meetings[number];
                    let latest =
                        |other: &u32| latest_end[*other as usize] - (self.nodes[*other as usize].end - meeting.last);
                    meeting.nodes.iter().map(latest).min().unwrap_or(node.start)
                }),
            };
            slack[index] = (latest_start - node.start).max(0);
            for before in node.before.iter().flatten() {
                let latest = &mut latest_end[*before as usize];
                *latest = (*latest).min(latest_start - node.lag);
            }
        }
        slack
    }
}
