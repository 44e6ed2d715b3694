//! What the largest callers had allocated over time.
//!
//! A caller is a line of the program with what its memory is for, as in the table of the peak. The largest are those that had
//! most at once, whenever that was.

use std::{cmp::Reverse, collections::BTreeMap};

use stepscope_traces::{NameId, Names};

use super::{
    blocks::stack,
    state::{AllocationPlace, AllocatorState, Event},
    timeline::Timeline,
};
use crate::figures::{CallerInTime, CallersOverTime, MemoryPoint, caller};

/// Plays all events once more; nothing where nobody is known.
pub(super) fn callers_over_time(
    events: &[Event],
    places: &[AllocationPlace],
    names: &Names,
) -> Option<CallersOverTime> {
    if places.iter().all(|place| place.site.is_none()) {
        return None;
    }
    let (callers, caller_of_place) = callers_of(places, names);
    let mut most = vec![0; callers.len()];
    play(events, places, &caller_of_place, vec![0_u64; callers.len()], |_, sums, grown| {
        grown.into_iter().for_each(|caller| most[caller] = most[caller].max(sums[caller]));
    });
    let mut order: Vec<usize> = (0..callers.len()).collect();
    order.sort_by_key(|caller| Reverse(most[*caller]));
    order.truncate(CallersOverTime::MOST);

    let mut parts = vec![CallersOverTime::MOST; callers.len()];
    order.iter().enumerate().for_each(|(part, caller)| parts[*caller] = part);
    let part_of_place: Vec<usize> = caller_of_place.iter().map(|caller| parts[*caller]).collect();
    let mut timeline = Timeline::default();
    play(events, places, &part_of_place, [0; CallersOverTime::MOST + 1], |time_ns, bytes, _| {
        timeline.add(MemoryPoint { time_ns, bytes: *bytes }, bytes.iter().sum());
    });
    let callers = order.into_iter().map(|caller| callers[caller].clone()).collect();
    Some(CallersOverTime { callers, points: timeline.finish() })
}

/// All callers, and which of them each place has.
fn callers_of(places: &[AllocationPlace], names: &Names) -> (Vec<CallerInTime>, Vec<usize>) {
    let mut numbers: BTreeMap<CallerInTime, usize> = BTreeMap::new();
    // There are more places than stacks: each step has its own.
    let mut of_site: BTreeMap<Option<NameId>, Option<String>> = BTreeMap::new();
    let of_place = places.iter().map(|place| {
        let of_stack = || caller(&stack(place.site, names)).map(str::to_owned);
        let caller = of_site.entry(place.site).or_insert_with(of_stack).clone();
        let caller = CallerInTime { caller, category: place.category };
        let next = numbers.len();
        *numbers.entry(caller).or_insert(next)
    });
    let of_place = of_place.collect();
    let mut callers: Vec<(CallerInTime, usize)> = numbers.into_iter().collect();
    callers.sort_by_key(|(_, number)| *number);
    (callers.into_iter().map(|(caller, _)| caller).collect(), of_place)
}

/// Plays events and looks at what each part has after each of them: when that was, all of them, and which of them has grown.
fn play<Sums: AsRef<[u64]> + AsMut<[u64]>>(
    events: &[Event],
    places: &[AllocationPlace],
    part_of_place: &[usize],
    mut sums: Sums,
    mut look: impl FnMut(i64, &Sums, Option<usize>),
) {
    let mut state = AllocatorState::default();
    for event in events {
        let change = state.apply(event, places);
        if let Some(gone) = change.gone {
            sums.as_mut()[part_of_place[gone.place as usize]] -= gone.bytes;
        }
        let grown = change.come.map(|come| {
            let part = part_of_place[come.place as usize];
            sums.as_mut()[part] += come.bytes;
            part
        });
        look(event.time, &sums, grown);
    }
}
