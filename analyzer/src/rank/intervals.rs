//! Stretches of time as sets: union, intersection and difference of sorted intervals that do not touch.

use crate::stored::inside;

/// A set of moments, as intervals that are sorted and do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals(Vec<(i64, i64)>);

inside!(Intervals(Vec<(i64, i64)>));

impl Intervals {
    /// The moments that any of these intervals has; one without length has none.
    pub fn union_of(mut intervals: Vec<(i64, i64)>) -> Intervals {
        // The runs that streams are in are found by the stable sort.
        intervals.sort_by_key(|(start, _)| *start);
        let mut union = Intervals::default();
        for (start, end) in intervals {
            union.push(start, end);
        }
        union
    }

    /// Adds an interval that begins no earlier than the ones before it.
    fn push(&mut self, start: i64, end: i64) {
        match self.0.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ if start < end => self.0.push((start, end)),
            _ => {}
        }
    }

    /// The intervals.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (i64, i64)> + Clone + '_ {
        self.0.iter().copied()
    }

    /// How long they are together.
    pub fn length(&self) -> i64 {
        self.iter().map(|(start, end)| end.saturating_sub(start)).sum()
    }

    /// What both have.
    pub fn and(&self, other: &Intervals) -> Intervals {
        let mut both = Intervals::default();
        let (mut mine, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        while let (Some(&(start, end)), Some(&(other_start, other_end))) = (mine.peek(), theirs.peek()) {
            both.push(start.max(other_start), end.min(other_end));
            if end <= other_end {
                mine.next()
            } else {
                theirs.next()
            };
        }
        both
    }

    /// What this has and the other has not.
    pub fn without(&self, other: &Intervals) -> Intervals {
        let mut left = Intervals::default();
        let mut theirs = other.iter().peekable();
        for (mut start, end) in self.iter() {
            while let Some((_, _)) = theirs.next_if(|(_, other_end)| *other_end <= start) {}
            while let Some(&(other_start, other_end)) = theirs.peek().filter(|(other_start, _)| *other_start < end) {
                left.push(start, other_start.max(start));
                start = other_end;
                if other_end >= end {
                    break;
                }
                theirs.next();
            }
            left.push(start, end.max(start));
        }
        left
    }

    /// What lies between two moments.
    pub fn within(&self, from: i64, to: i64) -> Intervals {
        let first = self.0.partition_point(|(_, end)| *end <= from);
        let clipped = self.0[first..].iter().take_while(|(start, _)| *start < to);
        let clipped = clipped.filter(|_| from < to);
        Intervals(clipped.map(|(start, end)| (*start.max(&from), *end.min(&to))).collect())
    }

    /// The interval that a moment is in, or comes at most so long behind.
    pub fn around(&self, time: i64, apart: i64) -> Option<(i64, i64)> {
        let begun = self.0.partition_point(|(start, _)| *start <= time);
        self.0[..begun].last().copied().filter(|(_, end)| end.saturating_add(apart) >= time)
    }

    /// How much of an interval lies in this set.
    pub fn covered(&self, start: i64, end: i64) -> i64 {
        let first = self.0.partition_point(|(_, other_end)| *other_end <= start);
        let overlapping = self.0[first..].iter().take_while(|(other_start, _)| *other_start < end);
        overlapping.map(|(other_start, other_end)| *other_end.min(&end) - *other_start.max(&start)).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIME: i64 = 40;

    fn any_intervals() -> impl Strategy<Value = Vec<(i64, i64)>> {
        prop::collection::vec((0..TIME, 0..8_i64).prop_map(|(start, length)| (start, (start + length).min(TIME))), 0..9)
    }

    /// Every moment, one by one.
    fn moments(intervals: &[(i64, i64)]) -> Vec<bool> {
        (0..TIME).map(|time| intervals.iter().any(|(start, end)| (*start..*end).contains(&time))).collect()
    }

    fn moments_of(set: &Intervals) -> Vec<bool> {
        let intervals: Vec<(i64, i64)> = set.iter().collect();
        assert!(
            intervals.iter().all(|(start, end)| start < end) && intervals.windows(2).all(|pair| pair[0].1 < pair[1].0)
        );
        moments(&intervals)
    }

    proptest! {
        #[test]
        fn sets_are_what_their_moments_are(one in any_intervals(), two in any_intervals(), from in 0..TIME, to in 0..TIME) {
            let (a, b) = (moments(&one), moments(&two));
            let (one, two) = (Intervals::union_of(one), Intervals::union_of(two));
            prop_assert_eq!(moments_of(&one), a.clone());
            prop_assert_eq!(one.length(), a.iter().filter(|there| **there).count() as i64);
            let pairs = || a.iter().zip(&b);
            prop_assert_eq!(moments_of(&one.and(&two)), pairs().map(|(a, b)| *a && *b).collect::<Vec<_>>());
            prop_assert_eq!(moments_of(&one.without(&two)), pairs().map(|(a, b)| *a && !*b).collect::<Vec<_>>());
            let inside = |time: usize| (from..to).contains(&(time as i64));
            let clipped: Vec<bool> = a.iter().enumerate().map(|(time, there)| *there && inside(time)).collect();
            prop_assert_eq!(one.covered(from, to.max(from)), clipped.iter().filter(|there| **there).count() as i64);
            prop_assert_eq!(moments_of(&one.within(from, to)), clipped);
            let around = one.iter().find(|(start, end)| (*start..=*end + 2).contains(&from));
            prop_assert_eq!(one.around(from, 2).is_some(), around.is_some());
            prop_assert!(one.around(from, 2).is_none_or(|(start, end)| start <= from && from <= end + 2));
        }
    }
}
