//! How much an allocator had taken from its device, at any time.

/// Of more changes than this only every second one is kept.
const MOST_CHANGES: usize = 1 << 16;

/// What was taken from the device, from when on.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReservedTimeline {
    changes: Vec<(i64, u64)>,
}

impl ReservedTimeline {
    /// Takes what is reserved at a time, which is not before those that it was told of.
    pub(super) fn look(&mut self, time: i64, reserved: u64) {
        match self.changes.last_mut() {
            Some((_, last)) if *last == reserved => {}
            Some((same, last)) if *same == time => *last = reserved,
            _ => self.changes.push((time, reserved)),
        }
        if self.changes.len() >= MOST_CHANGES {
            let mut is_kept = false;
            self.changes.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    /// What was reserved at a time.
    pub(crate) fn at(&self, time: i64) -> u64 {
        let after = self.changes.partition_point(|(change, _)| *change <= time);
        after.checked_sub(1).map_or(0, |last| self.changes[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_holds_until_it_changes() {
        let mut timeline = ReservedTimeline::default();
        for (time, reserved) in [(10, 5), (20, 5), (30, 8), (30, 9), (40, 2)] {
            timeline.look(time, reserved);
        }
        assert_eq!([9, 10, 29, 30, 39, 40, 99].map(|time| timeline.at(time)), [0, 5, 5, 9, 9, 2, 2]);
    }

    #[test]
    fn many_changes_are_thinned() {
        let mut timeline = ReservedTimeline::default();
        let many = 3 * MOST_CHANGES as i64;
        (0..many).for_each(|time| timeline.look(time, time as u64));
        assert!(timeline.changes.len() < MOST_CHANGES);
        assert!(timeline.at(many / 2).abs_diff(many as u64 / 2) <= 16);
    }
}
