//! What repeats in the kernels of a stream.
//!
//! A training step launches the same kernels each time. So a kernel that runs once in every step divides the stream into
//! pieces that are alike. Kernels of a layer, or of a micro-batch, repeat too, but their pieces are not alike: one of them
//! holds the optimizer as well. The step is the shortest piece that is.
//!
//! The rule, in full:
//!
//! - A divider is a kernel name with at least [`LEAST_STEPS`] occurrences, or bursts of them: an optimizer may have several
//!   kernels of one name. A burst begins after a gap of more than half the longest one. The pieces are from each such
//!   place to before the next, and have [`LEAST_KERNELS`] kernels or more in the mean.
//! - Of each name, the usual count in a piece is the one that most pieces have. What a piece has more or less of a name
//!   counts as odd, with that name's mean duration.
//! - From its first place to its last one are at least half of the time of all kernels: before a training, what it needs is
//!   made in pieces that are alike, too.
//! - It divides the stream into steps if no more than [`MOST_ODD`] of the time between its first and its last
//!   place is odd. Warm-up and steps that log something are odd, and short.
//! - Of the dividers that do, those with the most places give the step. Of these, the one that comes first begins it.

use std::{cmp::Reverse, collections::HashMap};

use crate::ids::{NameId, Nanos};

/// Fewer pieces that are alike prove nothing.
const LEAST_STEPS: usize = 4;
/// No step is made of fewer kernels: a stream of one kernel, over and over, has none that can be seen.
const LEAST_KERNELS: usize = 6;
/// The share of time that may be odd.
const MOST_ODD: f64 = 0.002;
/// A step with this share of the kernels of the one before it is whole.
const NEARLY_ALL: f64 = 0.95;
/// As much of a long stream is looked at to find out what divides it. It has some tens of steps.
const LOOKED_AT: usize = 200_000;

/// Where steps begin in a stream of kernels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Repetition {
    /// The kernel that begins each step, by its place in the stream.
    pub(super) starts: Vec<usize>,
    /// The end of the last step: a place in the stream. What comes after that, if anything, is part of a step.
    pub(super) end: usize,
}

/// Finds the steps in the kernels of one stream, in the order in which they ran: the name and the duration of each. `None`
/// when nothing repeats.
pub(super) fn repeated(kernels: &[(NameId, Nanos)]) -> Option<Repetition> {
    let looked_at = &kernels[..kernels.len().min(LOOKED_AT)];
    let beginning = StreamNames::of(looked_at);
    // How long kernels took up to each place.
    let until = looked_at.iter().scan(0, |sum, (_, duration)| {
        *sum += i128::from(duration.0.max(1));
        Some(*sum)
    });
    let until: Vec<i128> = until.collect();
    let is_long = |places: &[usize]| {
        let between = until[places[places.len() - 1]] - until[places[0]];
        until.last().is_some_and(|all| 2 * between >= *all)
    };
    let places = beginning.0.iter().flat_map(|(id, name)| DIVIDERS.map(|divider| (divider(name), *id, divider)));
    let mut dividers: Vec<_> = places.filter(|(places, ..)| may_be_steps(places) && is_long(places)).collect();
    // From the most places on; of as many, the first one first.
    dividers.sort_by_key(|(places, ..)| (Reverse(places.len()), places.first().copied()));
    let (_, id, divider) = dividers.into_iter().find(|(places, ..)| beginning.odd_share(places) <= MOST_ODD)?;
    let all = StreamNames::of(kernels);
    let mut starts = divider(all.0.get(&id)?);
    let end = close(&mut starts, kernels.len());
    Some(Repetition { starts, end })
}

fn may_be_steps(places: &[usize]) -> bool {
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return false };
    places.len() >= LEAST_STEPS && last - first >= LEAST_KERNELS * (places.len() - 1)
}

/// The places of a name that may divide a stream: all, or where bursts of it begin.
const DIVIDERS: [fn(&Name) -> Vec<usize>; 2] = [|name| name.places.clone(), Name::bursts];

/// The end of the last step. It is whole if there are nearly as many kernels as in the one before it; otherwise that one is
/// the last. What prepares the next step is missing behind the last one.
fn close(starts: &mut Vec<usize>, end: usize) -> usize {
    match starts.as_slice() {
        [.., before, last] if NEARLY_ALL * (last - before) as f64 <= (end - last) as f64 => {
            (last + (last - before)).min(end)
        }
        _ => starts.pop().unwrap_or(end),
    }
}

/// The names in a stream.
struct StreamNames(HashMap<NameId, Name>);

/// One name, and where it is.
#[derive(Default)]
struct Name {
    places: Vec<usize>,
    total_ns: f64,
}

impl StreamNames {
    fn of(kernels: &[(NameId, Nanos)]) -> StreamNames {
        let mut names: HashMap<NameId, Name> = HashMap::new();
        for (place, (name, duration)) in kernels.iter().enumerate() {
            let name = names.entry(*name).or_default();
            name.places.push(place);
            // What is shorter than the clock can tell took some time all the same.
            name.total_ns += duration.0.max(1) as f64;
        }
        StreamNames(names)
    }

    /// The share of time that is odd in the pieces between these places.
    fn odd_share(&self, starts: &[usize]) -> f64 {
        let (mut odd, mut all) = (0.0, 0.0);
        for name in self.0.values() {
            let counts = name.counts(starts);
            let usual = most_common(&counts);
            let mean_ns = name.total_ns / name.places.len() as f64;
            odd += mean_ns * counts.iter().map(|count| f64::from(count.abs_diff(usual))).sum::<f64>();
            all += mean_ns * counts.iter().map(|count| f64::from(*count)).sum::<f64>();
        }
        if all > 0.0 { odd / all } else { f64::INFINITY }
    }
}

impl Name {
    /// Where it comes after a long time.
    fn bursts(&self) -> Vec<usize> {
        let gaps = || self.places.windows(2).map(|pair| (pair[1] - pair[0], pair[1]));
        let longest = gaps().map(|(gap, _)| gap).max().unwrap_or(0);
        let after_gaps = gaps().filter(|(gap, _)| *gap > longest / 2).map(|(_, place)| place);
        self.places.first().copied().into_iter().chain(after_gaps).collect()
    }

    /// How often it is in each piece, from the least on.
    fn counts(&self, starts: &[usize]) -> Vec<u32> {
        let mut places = self.places.iter().copied().peekable();
        let mut before = |end: usize| std::iter::from_fn(|| places.next_if(|place| *place < end)).count() as u32;
        starts.first().map(|first| before(*first));
        let mut counts: Vec<u32> = starts.iter().skip(1).map(|end| before(*end)).collect();
        counts.sort_unstable();
        counts
    }
}

/// The number that is there most often, among sorted ones; the largest of those.
fn most_common(sorted: &[u32]) -> u32 {
    sorted.chunk_by(|a, b| a == b).max_by_key(|equal| equal.len()).and_then(|equal| equal.first().copied()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A stream of letters; capitals take a hundred times as long.
    fn stream(text: &str) -> Vec<(NameId, Nanos)> {
        text.bytes().map(|c| (NameId(c.into()), Nanos(if c.is_ascii_uppercase() { 100_000 } else { 1_000 }))).collect()
    }

    fn starts(text: &str) -> Option<(Vec<usize>, usize)> {
        repeated(&stream(text)).map(|steps| (steps.starts, steps.end))
    }

    #[test]
    fn what_repeats_before_the_training_is_none() {
        let (before, step) = ("uvwxyzw".repeat(9), "abcdEFGhijK");
        let (found, end) = starts(&(before.clone() + &step.repeat(6))).unwrap();
        let begins = (0..6).map(|number| before.len() + number * step.len());
        assert_eq!((found, end), (begins.collect(), before.len() + 6 * step.len()));
    }

    #[test]
    fn what_repeats_is_a_step() {
        assert_eq!(starts(&"eLMhHbO".repeat(5)), Some((vec![0, 7, 14, 21, 28], 35)));
        let begun = format!("iii{}eL", "eLMhHbO".repeat(5));
        assert_eq!(starts(&begun), Some((vec![3, 10, 17, 24, 31], 38)), "before and after is no step");
        let cut = format!("{}eLM", "eLMhHbO".repeat(4));
        assert_eq!(starts(&cut), Some((vec![0, 7, 14, 21], 28)), "the last one is not whole");
    }

    #[test]
    fn the_last_step_may_lack_what_prepares_the_next_one() {
        let step = format!("eL{}O", "MhHb".repeat(10));
        let text = format!("{}{step}", format!("{step}z").repeat(4));
        assert_eq!(starts(&text), Some(((0..5).map(|index| index * 44).collect(), 5 * 44 - 1)));
    }

    #[test]
    fn layers_and_micro_batches_are_no_steps() {
        let layer = "nQaFf";
        let micro_batch = format!("E{}H{}", layer.repeat(8), "gGwW".repeat(8));
        let step = format!("{}OO", micro_batch.repeat(4));
        let found = repeated(&stream(&step.repeat(6))).unwrap();
        // Nothing but the optimizer comes once in a step; so that is where it is divided.
        let before_optimizer = step.len() - 2;
        let expected: Vec<usize> = (0..5).map(|index| before_optimizer + index * step.len()).collect();
        assert_eq!(found.starts, expected);
    }

    #[test]
    fn what_is_rare_and_short_does_not_make_steps_longer() {
        let step = format!("E{}HO", "nQaF".repeat(20));
        let text: String = (0..40).map(|index| format!("{step}{}", if index % 10 == 9 { "ll" } else { "" })).collect();
        let found = repeated(&stream(&text)).unwrap();
        assert_eq!(found.starts.len(), 40);
    }

    #[test]
    fn where_nothing_repeats_there_are_no_steps() {
        assert_eq!(starts(""), None);
        assert_eq!(starts("ABCDEFGH"), None);
        assert_eq!(starts(&"A".repeat(100)), None);
        assert_eq!(starts(&"AB".repeat(100)), None);
        assert_eq!(starts("eLMhHbOeLMhHbO"), None, "twice may be chance");
        let mut random = fastrand::Rng::with_seed(7);
        let noise: String = (0..2000).map(|_| char::from(random.u8(b'A'..=b'Z'))).collect();
        assert_eq!(starts(&noise), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_step_that_begins_with_something_of_its_own_is_found(
            rest in proptest::collection::vec(1_u32..6, LEAST_KERNELS..60),
            steps in LEAST_STEPS..20,
        ) {
            // The first kernel is long enough not to be odd and short.
            let total = rest.len() as i64 * 1_000;
            let step: Vec<_> = std::iter::once((NameId(0), Nanos(total)))
                .chain(rest.iter().map(|name| (NameId(*name), Nanos(1_000))))
                .collect();
            let found = repeated(&step.repeat(steps)).unwrap();
            let expected: Vec<usize> = (0..steps).map(|index| index * step.len()).collect();
            prop_assert_eq!(found.starts, expected);
            prop_assert_eq!(found.end, steps * step.len());
        }

        #[test]
        fn anything_is_divided_in_order_or_not_at_all(
            kernels in proptest::collection::vec((0_u32..4, -5_i64..2_000), 0..200),
        ) {
            let kernels: Vec<_> = kernels.into_iter().map(|(name, duration)| (NameId(name), Nanos(duration))).collect();
            if let Some(found) = repeated(&kernels) {
                prop_assert!(found.starts.is_sorted_by(|a, b| a < b) && found.starts.len() + 1 >= LEAST_STEPS);
                prop_assert!(found.starts.last().is_some_and(|last| *last < found.end) && found.end <= kernels.len());
            }
        }
    }
}
