//! Which call launched which activity, by the number that both have.
//!
//! Numbers come again where a trace is long or of several programs, and then the last call that began before the activity
//! launched it. A tracer that numbers nothing writes zeros: where several calls have none, it is no number.

use std::collections::BTreeMap;

use super::{
    annotation::TrainingContext,
    places::{PlaceFinder, Places},
    rows::{Activity, Call},
};
use crate::tables::Span;

/// Sorts calls by what ties them to their work, and by time. Of several inside of each other the outer one launched it.
pub(super) fn sort(calls: &mut Vec<Call>) {
    let key = |call: &Call| (call.correlation, call.start);
    if !calls.is_sorted_by_key(key) {
        // Those of a thread come in order, which a stable sort makes use of; and a number takes less room than a call.
        let mut threads: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        let mut numbers = 0..;
        for calls in calls.chunk_by(|one, next| one.thread == next.thread) {
            threads.entry(calls[0].thread).or_default().extend(numbers.by_ref().take(calls.len()));
        }
        let mut order = threads.into_values().collect::<Vec<_>>().concat();
        order.sort_by_key(|index| key(&calls[*index as usize]));
        *calls = order.iter().map(|index| calls[*index as usize]).collect();
    }
    calls.dedup_by(|call, earlier| {
        let is_same = (call.correlation, call.thread) == (earlier.correlation, earlier.thread) && call.correlation != 0;
        is_same && call.start <= earlier.start + earlier.duration
    });
}

/// Gives every activity the place of its launch; says which call launched it. The calls are sorted.
pub(super) fn join(activities: &mut [Activity], calls: &[Call], places: &Places) -> Vec<Option<u32>> {
    let mut places = PlaceFinder::new(places);
    let numbers_nothing = calls.get(1).is_some_and(|call| call.correlation == 0);
    // What runs next was mostly launched next.
    let mut next = 0;
    let find = |Activity { span, .. }: &mut Activity| {
        if numbers_nothing {
            span.correlation = span.correlation.filter(|id| id.0 != 0);
        }
        let index = launch_of(span, calls, next)?;
        next = index + 1;
        let launched = places.at(calls[index].thread, calls[index].start);
        // What is said of the activity itself is right.
        let own =
            TrainingContext { step: span.step, phase: span.phase, micro_batch: span.micro_batch, stage: span.stage };
        own.within(launched).put(span);
        Some(index as u32)
    };
    activities.iter_mut().map(find).collect()
}

/// Which call launched an activity; `next` is likely to be it.
fn launch_of(span: &Span, calls: &[Call], next: usize) -> Option<usize> {
    let id = span.correlation?.0;
    let is_of = |index: usize| calls.get(index).is_some_and(|call| call.correlation == id);
    let is_the_only_one = is_of(next) && !is_of(next + 1) && next.checked_sub(1).is_none_or(|before| !is_of(before));
    if is_the_only_one {
        return Some(next);
    }
    let after = calls.partition_point(|call| (call.correlation, call.start) <= (id, span.start_ns));
    // Clocks may disagree a little, so that it began before its launch.
    let before = after.checked_sub(1).filter(|before| is_of(*before));
    before.or_else(|| is_of(after).then_some(after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{Correlation, NameId, Nanos, Stream},
        vocabulary::SpanKind,
    };

    fn call(correlation: u64, start: i64, duration: i64) -> Call {
        Call { correlation, start: Nanos(start), duration: Nanos(duration), thread: None, name: NameId(0) }
    }

    fn kernel(correlation: u64, start: i64) -> Activity {
        let span = Span::new(SpanKind::Kernel, NameId(0), Nanos(start), Nanos(5));
        let span = Span { stream: Some(Stream(7)), correlation: Some(Correlation(correlation)), ..span };
        Activity { span, device: None, external: None }
    }

    fn joined(mut calls: Vec<Call>, kernels: &[(u64, i64)]) -> Vec<Option<i64>> {
        sort(&mut calls);
        let mut activities: Vec<_> = kernels.iter().map(|(id, start)| kernel(*id, *start)).collect();
        let places = Places::of(&[], Default::default(), std::iter::empty());
        let launches = join(&mut activities, &calls, &places);
        launches.into_iter().map(|call| call.map(|call| calls[call as usize].start.0)).collect()
    }

    #[test]
    fn the_outer_one_of_calls_inside_of_each_other_launched_it() {
        let calls = vec![call(3, 12, 4), call(3, 10, 9), call(4, 30, 2)];
        assert_eq!(joined(calls, &[(3, 25), (4, 40), (9, 50)]), [Some(10), Some(30), None]);
    }

    #[test]
    fn calls_of_several_threads_are_several() {
        let of_thread = |thread, start| Call { thread: Some(thread), ..call(3, start, 9) };
        assert_eq!(joined(vec![of_thread(1, 10), of_thread(2, 12)], &[(3, 11), (3, 30)]), [Some(10), Some(12)]);
    }

    #[test]
    fn of_a_number_that_comes_again_the_last_call_before_launched_it() {
        let calls = || vec![call(3, 10, 2), call(4, 20, 2), call(3, 100, 2), call(4, 110, 2), call(3, 200, 2)];
        let kernels = [(3, 15), (4, 25), (3, 120), (4, 125), (3, 9), (3, 230), (3, 16)];
        let expected = [10, 20, 100, 110, 10, 200, 10].map(Some);
        assert_eq!(joined(calls(), &kernels), expected);
    }

    #[test]
    fn zeros_that_several_calls_have_tie_nothing() {
        assert_eq!(joined(vec![call(0, 10, 2), call(0, 20, 2)], &[(0, 15), (0, 25)]), [None, None]);
        assert_eq!(joined(vec![call(0, 10, 90), call(0, 20, 2)], &[(0, 15), (0, 25)]), [None, None]);
        assert_eq!(joined(vec![call(0, 10, 2), call(1, 20, 2)], &[(0, 15), (1, 25)]), [Some(10), Some(20)]);
    }
}
