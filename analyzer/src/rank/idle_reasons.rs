//! Why a rank's device is idle.
//!
//! For users, it is defined in `docs/src/metrics.md#why-a-device-is-idle`.
//!
//! Each stretch in which nothing runs is taken apart: what of it the recorder takes, or the program evaluates, saves a
//! checkpoint, waits for data or takes memory, has that reason. The rest has one reason. Where the host was waiting for the device when the stretch began, or,
//! where its calls are not known, the last thing before it was a copy to the host, it is synchronization; where something was
//! launched in it, launches come late; where launches are known and none was, what runs next was in its queue already. Launches
//! that come late in a stretch that is mostly due to something else, or soon after that or synchronization, are due to it, too:
//! the host has to get ahead again.

use stepscope_traces::Names;

use crate::{
    figures::{Class, IdleReason, IdleShare},
    rank::{activity::Activities, host_calls::HostCalls, intervals::Intervals},
};

/// So soon after it was held up the host may not be ahead of the device again, in nanoseconds.
const CATCHING_UP: i64 = 300_000;

/// A stretch of idle time and its reason.
pub(crate) type IdleStretch = (i64, i64, IdleReason);

/// Idle time with its reasons, by time.
#[derive(Default)]
pub(crate) struct IdleReasons {
    stretches: Vec<IdleStretch>,
    /// How many of them are over.
    over: usize,
}

impl IdleReasons {
    /// Those of a rank. Activities are sorted by start; `data` is when the program waits for data.
    pub(crate) fn of(activities: &Activities, host: &HostCalls, data: &Intervals, names: &Names) -> IdleReasons {
        let said = [
            (IdleReason::Recording, &host.recording),
            (IdleReason::Checkpoint, &host.checkpoints),
            (IdleReason::Evaluation, &host.evaluation),
            (IdleReason::Input, data),
            (IdleReason::Allocation, &host.allocations),
        ];
        let mut stretches = Vec::new();
        // When what ran so far is over, and what was over last.
        let mut covered: Option<(i64, usize)> = None;
        // When the last stretch was over in which the host was held up, and by what.
        let mut held_up: Option<(i64, IdleReason)> = None;
        for (index, activity) in activities.items.iter().enumerate() {
            if let Some((end, last)) = covered.filter(|(end, _)| *end < activity.start) {
                let copies_to_host = || {
                    let last = &activities.items[last];
                    activities.place(last).class == Class::Copy && is_to_host(names.get(last.name).unwrap_or_default())
                };
                let mut rest = rest(host, end, activity.start, copies_to_host);
                let before = held_up.filter(|(over, _)| end.saturating_sub(*over) < CATCHING_UP);
                let said_by = mostly(&said, end, activity.start);
                let by = said_by.or(before.map(|(_, reason)| reason));
                // Where launches are not known, nobody sees that the host is still behind.
                let is_known = said_by.is_some() || rest != IdleReason::Unknown;
                if let (IdleReason::Launches | IdleReason::Unknown, Some(by)) = (rest, by) {
                    rest = by;
                }
                if let Some(by) = said_by.or(Some(rest)).filter(|by| is_known && by.holds_up_the_host()) {
                    held_up = Some((activity.start, by));
                }
                add(&mut stretches, (end, activity.start), &said, rest);
            }
            if covered.is_none_or(|(end, _)| activity.end > end) {
                covered = Some((activity.end, index));
            }
        }
        IdleReasons { stretches, over: 0 }
    }

    /// Why nothing ran before a moment, if nothing did: what most of that time is due to.
    pub(crate) fn before(&self, time: i64) -> Option<IdleReason> {
        let last = self.stretches.partition_point(|(_, end, _)| *end <= time);
        let mut times = IdleTimes::default();
        let mut from = time;
        for (start, end, reason) in self.stretches[..last].iter().rev() {
            if *end != from {
                break;
            }
            times.add((*start, *end, *reason));
            from = *start;
        }
        times.shares().into_iter().max_by_key(|share| share.time_ns).map(|share| share.reason)
    }

    /// The idle time between two moments, piece by piece. Moments come in order.
    pub(crate) fn between(&mut self, start: i64, end: i64, mut show: impl FnMut(IdleStretch)) {
        self.over += self.stretches[self.over..].iter().take_while(|(_, over, _)| *over <= start).count();
        let mut from = start;
        for (first, last, reason) in self.stretches[self.over..].iter().take_while(|(first, ..)| *first < end) {
            let (first, last) = (*first.max(&start), *last.min(&end));
            if from < first {
                show((from, first, IdleReason::Unknown));
            }
            show((first, last, *reason));
            from = last;
        }
        if from < end {
            show((from, end, IdleReason::Unknown));
        }
    }
}

/// What most of a stretch is due to, by what the program says.
fn mostly(said: &[(IdleReason, &Intervals)], start: i64, end: i64) -> Option<IdleReason> {
    said.iter().find(|(_, times)| 2 * times.covered(start, end) > end - start).map(|(reason, _)| *reason)
}

/// Why what is left of a stretch is idle.
fn rest(host: &HostCalls, start: i64, end: i64, copies_to_host: impl Fn() -> bool) -> IdleReason {
    if host.waits_at(start) {
        IdleReason::Synchronization
    } else if host.launches_in(start, end) {
        IdleReason::Launches
    } else if !host.launches.is_empty() {
        IdleReason::Queue
    } else if copies_to_host() {
        IdleReason::Synchronization
    } else {
        IdleReason::Unknown
    }
}

/// Adds a stretch in pieces: those for which there is a reason of their own, and the rest.
fn add(
    stretches: &mut Vec<IdleStretch>,
    (start, end): (i64, i64),
    said: &[(IdleReason, &Intervals)],
    rest: IdleReason,
) {
    let from = stretches.len();
    let mut left = Intervals::default();
    for (reason, times) in said.iter().filter(|(_, times)| times.covered(start, end) > 0) {
        if left == Intervals::default() && stretches.len() == from {
            left = Intervals::union_of(vec![(start, end)]);
        }
        stretches.extend(left.and(times).iter().map(|(start, end)| (start, end, *reason)));
        left = left.without(times);
    }
    if stretches.len() == from {
        stretches.push((start, end, rest));
        return;
    }
    stretches.extend(left.iter().map(|(start, end)| (start, end, rest)));
    stretches[from..].sort_unstable_by_key(|(start, ..)| *start);
}

/// Whether a copy brings something to the host, by its name.
fn is_to_host(name: &str) -> bool {
    name.contains("DtoH") || name.contains("Device -> Pageable") || name.contains("Device -> Pinned")
}

/// Idle time by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdleTimes([i64; IdleReason::ALL.len()]);

impl IdleTimes {
    pub(crate) fn add(&mut self, (start, end, reason): IdleStretch) {
        self.0[reason as usize] += end - start;
    }

    pub(crate) fn shares(&self) -> Vec<IdleShare> {
        let shares = IdleReason::ALL.iter().zip(self.0).filter(|(_, time_ns)| *time_ns != 0);
        shares.map(|(reason, time_ns)| IdleShare { reason: *reason, time_ns }).collect()
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{FIRST_NAME, Span, SpanKind, Spans};

    use super::*;
    use crate::test_runs::span;

    use IdleReason::{Allocation, Checkpoint, Input, Launches, Queue, Synchronization, Unknown};

    /// Kernels from 0 to 10, from 100 to 110, and from 200 on.
    fn activities(second: SpanKind) -> Activities {
        let mut spans = Spans::default();
        for (kind, start) in [(SpanKind::Kernel, 0), (second, 100), (SpanKind::Kernel, 200)] {
            spans.push(&Span { name: FIRST_NAME, ..span(kind, start, start + 10) });
        }
        let mut activities = Activities::new(&[]);
        activities.take(&spans);
        activities.sort();
        activities
    }

    fn reasons(second: SpanKind, name: &str, host: &HostCalls, data: &[(i64, i64)]) -> Vec<IdleStretch> {
        let mut names = Names::default();
        names.extend([(FIRST_NAME, name)]);
        let data = Intervals::union_of(data.to_vec());
        let mut reasons = IdleReasons::of(&activities(second), host, &data, &names);
        let mut all = Vec::new();
        // In pieces, as the sweep shows them.
        for (start, end) in [(10, 60), (60, 100), (110, 200)] {
            reasons.between(start, end, |stretch| all.push(stretch));
        }
        all
    }

    fn none() -> HostCalls {
        HostCalls::default()
    }

    #[test]
    fn what_the_program_says_is_the_reason_and_the_rest_has_one() {
        let said = reasons(SpanKind::Kernel, "", &none(), &[(20, 30), (150, 500)]);
        let expected = [
            (10, 20, Unknown),
            (20, 30, Input),
            (30, 60, Unknown),
            (60, 100, Unknown),
            // Within a moment of the wait before it.
            (110, 150, Input),
            (150, 200, Input),
        ];
        assert_eq!(said, expected);
        let checkpoints = Intervals::union_of(vec![(0, 25)]);
        let allocations = Intervals::union_of(vec![(20, 40)]);
        let host = HostCalls { checkpoints, allocations, ..none() };
        let first: Vec<IdleStretch> = reasons(SpanKind::Kernel, "", &host, &[(22, 35)]).into_iter().take(3).collect();
        assert_eq!(first, [(10, 25, Checkpoint), (25, 35, Input), (35, 40, Allocation)]);
    }

    #[test]
    fn a_host_that_waited_or_launches_late_is_told_from_a_full_queue() {
        let apart = 1_000_000;
        let host = HostCalls { launches: vec![5, 150], waits: vec![(-apart, -apart / 2)], ..none() };
        let said = reasons(SpanKind::Kernel, "", &host, &[]);
        assert_eq!(said.iter().map(|stretch| stretch.2).collect::<Vec<_>>(), [Queue, Queue, Launches]);
        let host = HostCalls { launches: vec![5, 150], waits: vec![(5, 12)], ..none() };
        let said = reasons(SpanKind::Kernel, "", &host, &[]);
        assert_eq!(said[0].2, Synchronization);
        assert_eq!(said[2].2, Synchronization, "the host is not ahead yet");
    }

    #[test]
    fn without_calls_a_copy_to_the_host_is_synchronization() {
        let said = |name| reasons(SpanKind::Copy, name, &none(), &[])[2].2;
        assert_eq!(said("Memcpy DtoH (Device -> Pageable)"), Synchronization);
        assert_eq!(said("Memcpy HtoD (Pinned -> Device)"), Unknown);
    }

    #[test]
    fn what_ends_idle_time_knows_its_reason() {
        let mut names = Names::default();
        names.extend([(FIRST_NAME, "")]);
        let data = Intervals::union_of(vec![(20, 90)]);
        let reasons = IdleReasons::of(&activities(SpanKind::Kernel), &none(), &data, &names);
        assert_eq!([0, 100, 200, 105].map(|time| reasons.before(time)), [None, Some(Input), Some(Input), None]);
    }
}
