//! Ranges of addresses that an allocator has taken from its device.
//!
//! A segment comes and goes as a whole; one that grows (`expandable_segments`) is mapped and unmapped in any parts. The
//! run directory knows memory that is taken by its address and gives all of it back: so what is left of a range that
//! goes in part is taken again.

use std::collections::BTreeMap;

use super::records::{Action, Event};

/// Disjoint ranges, each by its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Where each ends.
    ends: BTreeMap<u64, u64>,
}

/// What becomes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// So many bytes from an address on are taken.
    Taken(u64, u64),
    /// Returns this many bytes at an address.
    GivenBack(u64, u64),
}

/// What an event does to what is taken from the device.
pub(super) fn range_change(event: &Event) -> Option<Change> {
    match event.action {
        Action::Reserve => Some(Change::Taken(event.address?, event.bytes)),
        Action::Release => Some(Change::GivenBack(event.address?, event.bytes)),
        _ => None,
    }
}

impl Ranges {
    /// Takes a range. What of it was taken already goes back first.
    pub(super) fn take(&mut self, address: u64, bytes: u64, changes: &mut Vec<Change>) {
        self.give_back(address, bytes, changes);
        let end = address.saturating_add(bytes);
        if end > address {
            self.ends.insert(address, end);
            changes.push(Change::Taken(address, end - address));
        }
    }

    /// Gives back what is taken of a range.
    pub(super) fn give_back(&mut self, address: u64, bytes: u64, changes: &mut Vec<Change>) {
        let end = address.saturating_add(bytes);
        while let Some((begin, its_end)) = self.touching(address, end) {
            self.ends.remove(&begin);
            changes.push(Change::GivenBack(begin, its_end - begin));
            for (begin, end) in [(begin, address), (end, its_end)] {
                if begin < end {
                    self.ends.insert(begin, end);
                    changes.push(Change::Taken(begin, end - begin));
                }
            }
        }
    }

    /// Takes a range or gives one back.
    pub(super) fn change(&mut self, change: Change, changes: &mut Vec<Change>) {
        match change {
            Change::Taken(address, bytes) => self.take(address, bytes, changes),
            Change::GivenBack(address, bytes) => self.give_back(address, bytes, changes),
        }
    }

    /// The last range with a part between two addresses.
    fn touching(&self, begin: u64, end: u64) -> Option<(u64, u64)> {
        let (from, to) = self.ends.range(..end).next_back()?;
        (begin < end && *to > begin).then_some((*from, *to))
    }

    /// What of a range is not taken; none of what is taken of it is from now on.
    fn remove_and_tell_the_rest(&mut self, address: u64, bytes: u64, mut rest: impl FnMut(u64, u64)) {
        let mut changes = Vec::new();
        self.give_back(address, bytes, &mut changes);
        let mut end = address.saturating_add(bytes);
        // They come the last first.
        for change in changes {
            if let Change::GivenBack(begin, length) = change {
                let gap = (begin.saturating_add(length)).max(address);
                if gap < end {
                    rest(gap, end);
                }
                end = begin.max(address);
            }
        }
        if address < end {
            rest(address, end);
        }
    }

    /// Adds a range, one with those it meets.
    fn merge(&mut self, mut begin: u64, mut end: u64) {
        while let Some((from, to)) = self.ends.range(..=end).next_back().map(|(from, to)| (*from, *to)) {
            if to < begin {
                break;
            }
            self.ends.remove(&from);
            (begin, end) = (begin.min(from), end.max(to));
        }
        self.ends.insert(begin, end);
    }

    /// What must have been taken before a history began: what went back without having been taken, and what is there
    /// in the end.
    pub(super) fn before(history: impl Iterator<Item = Change>, in_the_end: &[(u64, u64)]) -> Ranges {
        let (mut known, mut before) = (Ranges::default(), Ranges::default());
        let mut changes = Vec::new();
        for change in history {
            match change {
                Change::Taken(address, bytes) => known.take(address, bytes, &mut changes),
                Change::GivenBack(address, bytes) => {
                    known.remove_and_tell_the_rest(address, bytes, |begin, end| before.merge(begin, end));
                }
            }
            changes.clear();
        }
        for (address, bytes) in in_the_end {
            known.remove_and_tell_the_rest(*address, *bytes, |begin, end| before.merge(begin, end));
        }
        before
    }

    /// Every range: where it begins, and how long it is.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ends.iter().map(|(begin, end)| (*begin, end - begin))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::Config};

    use super::*;

    #[test]
    fn a_part_that_goes_leaves_the_rest_taken() {
        let mut ranges = Ranges::default();
        let mut changes = Vec::new();
        ranges.take(100, 50, &mut changes);
        ranges.give_back(110, 10, &mut changes);
        ranges.give_back(0, 105, &mut changes);
        let expected = [
            Change::Taken(100, 50),
            Change::GivenBack(100, 50),
            Change::Taken(100, 10),
            Change::Taken(120, 30),
            Change::GivenBack(100, 10),
            Change::Taken(105, 5),
        ];
        assert_eq!(changes, expected);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(105, 5), (120, 30)]);
    }

    #[test]
    fn what_was_there_before_is_what_a_history_lacks() {
        let history = [Change::Taken(100, 50), Change::GivenBack(120, 60), Change::GivenBack(100, 20)];
        let before = Ranges::before(history.into_iter(), &[(100, 20), (300, 10), (310, 5)]);
        assert_eq!(before.iter().collect::<Vec<_>>(), [(100, 20), (150, 30), (300, 15)]);
    }

    fn changes() -> impl Strategy<Value = Vec<(bool, u64, u64)>> {
        prop::collection::vec((any::<bool>(), 0..64_u64, 0..20_u64), 0..40)
    }

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

        #[test]
        fn ranges_are_sets_of_addresses(steps in changes()) {
            let (mut ranges, mut bytes) = (Ranges::default(), [false; 128]);
            let mut told = std::collections::BTreeMap::new();
            for (takes, address, length) in steps {
                let mut changes = Vec::new();
                match takes {
                    true => ranges.take(address, length, &mut changes),
                    false => ranges.give_back(address, length, &mut changes),
                }
                bytes[address as usize..(address + length) as usize].fill(takes);
                for change in changes {
                    match change {
                        Change::Taken(address, length) => prop_assert_eq!(told.insert(address, length), None),
                        Change::GivenBack(address, length) => prop_assert_eq!(told.remove(&address), Some(length)),
                    }
                }
                prop_assert_eq!(&ranges.iter().collect::<std::collections::BTreeMap<_, _>>(), &told);
                let mut covered = [false; 128];
                ranges.iter().for_each(|(begin, length)| covered[begin as usize..(begin + length) as usize].fill(true));
                prop_assert_eq!(covered, bytes);
            }
        }

        #[test]
        fn a_history_from_what_was_before_ends_with_what_is_there(start in changes(), steps in changes()) {
            let mut nothing = Vec::new();
            let apply = |ranges: &mut Ranges, steps: &[(bool, u64, u64)], told: &mut Vec<Change>| {
                for (takes, address, length) in steps {
                    match takes {
                        true => ranges.take(*address, *length, told),
                        false => ranges.give_back(*address, *length, told),
                    }
                }
            };
            let mut truth = Ranges::default();
            apply(&mut truth, &start, &mut nothing);
            let mut history = Vec::new();
            apply(&mut truth, &steps, &mut history);
            let in_the_end: Vec<_> = truth.iter().collect();
            let mut again = Ranges::before(history.iter().copied(), &in_the_end);
            for change in history {
                match change {
                    Change::Taken(address, length) => again.take(address, length, &mut nothing),
                    Change::GivenBack(address, length) => again.give_back(address, length, &mut nothing),
                }
            }
            for (address, length) in truth.iter() {
                let mut rest = again.clone();
                let mut missing = 0;
                rest.remove_and_tell_the_rest(address, length, |begin, end| missing += end - begin);
                prop_assert_eq!(missing, 0);
            }
        }
    }
}
