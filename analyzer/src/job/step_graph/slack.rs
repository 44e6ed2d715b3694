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
            let mut latest_start = latest_end[index] - node.duration();
            // Whoever comes last decides for all that wait when they leave.
            if let Some(number) = node.meeting.or(node.left) {
                let meeting = *latest_meeting[number as usize].get_or_insert_with(|| {
                    let meeting = &self.meetings[number as usize];
                    let latest =
                        |other: &u32| latest_end[*other as usize] - (self.nodes[*other as usize].end - meeting.last);
                    let waits = |other: &&u32| self.nodes[**other as usize].meeting == Some(number);
                    meeting.nodes.iter().filter(waits).map(latest).min().unwrap_or(node.start)
                });
                latest_start = if node.left.is_some() { latest_start.min(meeting) } else { meeting };
            }
            slack[index] = (latest_start - node.start).max(0);
            for before in node.before.iter().flatten() {
                let latest = &mut latest_end[*before as usize];
                *latest = (*latest).min(latest_start - node.lag);
            }
        }
        slack
    }
}
