//! Why a rank's device is idle.
//!
//! For users, it is defined in `docs/src/metrics.md#why-a-device-is-idle`.
//!
//! Each stretch in which nothing runs is taken apart: what of it the recorder takes, or the program evaluates, saves a
//! checkpoint, waits for data, takes memory, is slow to launch or waits for the device, has that reason. The rest has one
//! reason: where what runs next was launched in it, launches come late; where it was launched before, it was in its queue
//! already. Where it is not known which call launched it, any launch in the stretch counts, and what the host waited for all the
//! time was in its queue; else, where the last thing before was a copy to the host, it is synchronization.
//!
//! A host that is held up while the device still works is less far ahead when it goes on, by as much time as it was held up.
//! So much of the launches that come late then, and soon after, is due to that, and no more.

use stepscope_traces::Names;

use crate::{
    figures::{Class, IdleReason, IdleShare},
    rank::{
        activity::Activities,
        host_calls::{HostCalls, LaunchFinder},
        intervals::Intervals,
    },
};

/// So soon after it was held up the host may not be ahead of the device again, in nanoseconds.
const CATCHING_UP: i64 = 300_000;
/// Clocks of host and device may be so far apart. A shorter break does not tell that the device had nothing to do.
const APART: i64 = 5_000;

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
            (IdleReason::SlowLaunch, &host.slow_launches),
            (IdleReason::Synchronization, &host.waits),
        ];
        let mut stretches = Vec::new();
        // When what ran so far began without a break to speak of and is over, and what was over last.
        let mut covered: Option<(i64, i64, usize)> = None;
        let mut behind: Option<Behind> = None;
        let mut launches = LaunchFinder::new(&host.launches);
        for (index, activity) in activities.items.iter().enumerate() {
            let idle = covered.filter(|(_, end, _)| *end < activity.start);
            if let Some((busy_from, end, last)) = idle {
                let copies_to_host = || {
                    let last = &activities.items[last];
                    activities.place(last).class == Class::Copy && is_to_host(names.get(last.name).unwrap_or_default())
                };
                let stretch = (end, activity.start);
                let rest = rest(host, stretch, launches.time_of(activity.call, activity.start), copies_to_host);
                // A host that waits for what was launched already delays nothing, nor does one that waits for room in the queue.
                let said = if rest == IdleReason::Queue { &said[..said.len() - 2] } else { &said };
                behind = Behind::at(said, busy_from, end).or(behind.filter(|behind| behind.is_near(end)));
                add(&mut stretches, stretch, said, rest, behind.as_mut());
            }
            covered = Some(match covered {
                Some((from, end, last)) if activity.end <= end => (from, end, last),
                Some((from, end, _)) if activity.start - end < APART => (from, activity.end, index),
                _ => (activity.start, activity.end, index),
            });
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

/// A host that was held up, and is not ahead of the device again.
struct Behind {
    by: IdleReason,
    /// When the last stretch was over that is due to it.
    over: i64,
    /// So much of what comes late is due to it yet.
    left: i64,
}

impl Behind {
    /// By what the host is held up when nothing runs any more, if it is, and how long it has been since the device began to
    /// work.
    fn at(said: &[(IdleReason, &Intervals)], busy_from: i64, time: i64) -> Option<Behind> {
        let holding = said.iter().filter(|(reason, _)| reason.holds_up_the_host());
        let held_for = |(start, end): (i64, i64)| end.min(time) - start.max(busy_from);
        let mut held = holding.filter_map(|(by, times)| Some((*by, held_for(times.around(time, APART)?))));
        held.find(|(_, left)| *left > 0).map(|(by, left)| Behind { by, over: time, left })
    }

    fn is_near(&self, time: i64) -> bool {
        time.saturating_sub(self.over) < CATCHING_UP
    }
}

/// Why what is left of a stretch is idle, if it is known when what ends it was launched.
fn rest(
    host: &HostCalls,
    (start, end): (i64, i64),
    launched: Option<i64>,
    copies_to_host: impl Fn() -> bool,
) -> IdleReason {
    match launched {
        Some(time) if time >= start => IdleReason::Launches,
        Some(_) => IdleReason::Queue,
        None if host.launches.any_in(start, end) => IdleReason::Launches,
        None if host.waits.covered(start, end) == end - start => IdleReason::Queue,
        None if copies_to_host() => IdleReason::Synchronization,
        None => IdleReason::Unknown,
    }
}

/// Adds a stretch in pieces: those for which there is a reason of their own, and the rest. What comes late in that may be due to
/// what the host is behind by.
fn add(
    stretches: &mut Vec<IdleStretch>,
    (start, end): (i64, i64),
    said: &[(IdleReason, &Intervals)],
    rest: IdleReason,
    behind: Option<&mut Behind>,
) {
    let from = stretches.len();
    let mut left = Intervals::union_of(vec![(start, end)]);
    for (reason, times) in said.iter().filter(|(_, times)| times.covered(start, end) > 0) {
        let times = times.within(start, end);
        stretches.extend(left.and(&times).iter().map(|(start, end)| (start, end, *reason)));
        left = left.without(&times);
    }
    let is_late = matches!(rest, IdleReason::Launches | IdleReason::Unknown);
    let mut behind = behind.filter(|_| is_late);
    for (start, end) in left.iter() {
        let mut from = start;
        if let Some(behind) = &mut behind {
            from = end.min(start.saturating_add(behind.left));
            behind.left -= from - start;
            stretches.extend((start < from).then_some((start, from, behind.by)));
        }
        stretches.extend((from < end).then_some((from, end, rest)));
    }
    if let Some(behind) = behind {
        behind.over = end;
    }
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
    use crate::{
        rank::{
            activity::Call,
            host_calls::{self, LaunchCall},
        },
        test_runs::span,
    };

    use IdleReason::{Allocation, Checkpoint, Input, Launches, Queue, SlowLaunch, Synchronization, Unknown};

    /// All times are in microseconds.
    const US: i64 = 1_000;

    fn intervals(times: &[(i64, i64)]) -> Intervals {
        Intervals::union_of(times.iter().map(|(start, end)| (start * US, end * US)).collect())
    }

    fn launches(times: &[i64]) -> host_calls::Launches {
        called(&times.iter().map(|time| (0, *time)).collect::<Vec<_>>())
    }

    /// Launches of which the calls have numbers.
    fn called(launches: &[(u32, i64)]) -> host_calls::Launches {
        let launch = |(call, time): &(u32, i64)| LaunchCall { call: Call::numbered(*call), time: time * US };
        host_calls::Launches::of(launches.iter().map(launch).collect())
    }

    /// Kernels from 0 to 10, from 100 to 110, and from 200 on.
    fn activities(second: SpanKind) -> Activities {
        let mut spans = Spans::default();
        for (kind, start) in [(SpanKind::Kernel, 0), (second, 100), (SpanKind::Kernel, 200)] {
            spans.push(&Span { name: FIRST_NAME, ..span(kind, start * US, (start + 10) * US) });
        }
        let mut activities = Activities::new(&[]);
        activities.take(&spans);
        activities.sort();
        activities
    }

    fn reasons(second: SpanKind, name: &str, host: &HostCalls, data: &[(i64, i64)]) -> Vec<IdleStretch> {
        let mut names = Names::default();
        names.extend([(FIRST_NAME, name)]);
        let data = intervals(data);
        let mut reasons = IdleReasons::of(&activities(second), host, &data, &names);
        let mut all = Vec::new();
        // In pieces, as the sweep shows them.
        for (start, end) in [(10, 60), (60, 100), (110, 200)] {
            let mut show = |(start, end, reason): IdleStretch| all.push((start / US, end / US, reason));
            reasons.between(start * US, end * US, &mut show);
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
            (110, 150, Unknown),
            (150, 200, Input),
        ];
        assert_eq!(said, expected);
        let checkpoints = intervals(&[(0, 25)]);
        let allocations = intervals(&[(20, 40)]);
        let host = HostCalls { checkpoints, allocations, ..none() };
        let first: Vec<IdleStretch> = reasons(SpanKind::Kernel, "", &host, &[(22, 35)]).into_iter().take(3).collect();
        assert_eq!(first, [(10, 25, Checkpoint), (25, 35, Input), (35, 40, Allocation)]);
    }

    #[test]
    fn a_host_that_waited_or_launches_late_is_told_from_a_full_queue() {
        let of = |stretches: Vec<IdleStretch>| stretches.into_iter().map(|stretch| stretch.2).collect::<Vec<_>>();
        let host = HostCalls { launches: launches(&[5, 150]), waits: intervals(&[(-9, -5)]), ..none() };
        assert_eq!(of(reasons(SpanKind::Kernel, "", &host, &[])), [Unknown, Unknown, Launches]);
        // The call that launched it took long, of which 5 were hidden: that much less it is ahead.
        let slow_launches = intervals(&[(5, 100)]);
        let host = HostCalls { launches: launches(&[95, 150]), slow_launches, ..host };
        assert_eq!(of(reasons(SpanKind::Kernel, "", &host, &[])), [SlowLaunch, SlowLaunch, SlowLaunch, Launches]);
        // What the host waits for was launched before.
        let waits = intervals(&[(5, 104)]);
        assert_eq!(of(reasons(SpanKind::Kernel, "", &HostCalls { waits, ..none() }, &[])), [Queue, Queue, Unknown]);
    }

    #[test]
    fn what_was_launched_before_is_late_whatever_else_is_launched_meanwhile() {
        let of = |launches: &[(u32, i64)]| {
            let host = HostCalls { launches: called(launches), ..none() };
            let mut activities = activities(SpanKind::Kernel);
            activities.items.iter_mut().zip(1..).for_each(|(activity, call)| activity.call = Call::numbered(call));
            let mut reasons = IdleReasons::of(&activities, &host, &Intervals::default(), &Names::default());
            let mut all = Vec::new();
            reasons.between(10 * US, 200 * US, |(start, end, reason)| all.push((start / US, end / US, reason)));
            all.into_iter()
                .filter(|(start, ..)| [10, 110].contains(start))
                .map(|(.., reason)| reason)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[(1, -5), (2, -4), (3, -3), (4, 50), (5, 150)]), [Queue, Queue]);
        assert_eq!(of(&[(1, -5), (2, 50), (3, -3), (5, 150)]), [Launches, Queue]);
        // A graph is launched once, and numbers may come again.
        assert_eq!(of(&[(2, -900), (3, -800), (2, 20), (3, 120), (3, 300)]), [Launches, Launches]);
        // Whose launch is not known may be any.
        assert_eq!(of(&[(1, -5), (4, 50)]), [Launches, Unknown]);
    }

    #[test]
    fn a_host_is_behind_by_no_more_than_it_was_held_up() {
        let host =
            |waits: &[(i64, i64)]| HostCalls { launches: launches(&[-50, 50, 150]), waits: intervals(waits), ..none() };
        // It waited for 4 while the device worked, and for 20 after that.
        let said = reasons(SpanKind::Kernel, "", &host(&[(6, 30)]), &[]);
        let expected = [
            (10, 30, Synchronization),
            (30, 34, Synchronization),
            (34, 60, Launches),
            (60, 100, Launches),
            (110, 200, Launches),
        ];
        assert_eq!(said, expected);
        // The device worked for 10 before that, so the host was no further ahead.
        assert_eq!(reasons(SpanKind::Kernel, "", &host(&[(-90, 30)]), &[])[1], (30, 40, Synchronization));
        // What does not touch the end of the work delays nothing else.
        let said = reasons(SpanKind::Kernel, "", &host(&[(20, 30)]), &[]);
        assert_eq!(said[..3], [(10, 20, Launches), (20, 30, Synchronization), (30, 60, Launches)]);
        // The second stretch begins soon after the first, which took half of it.
        let waits = intervals(&[(105, 300)]);
        let late = HostCalls { launches: launches(&[150]), waits: Intervals::default(), ..none() };
        let late = HostCalls { allocations: waits, ..late };
        assert_eq!(reasons(SpanKind::Kernel, "", &late, &[]).last(), Some(&(110, 200, Allocation)));
    }

    #[test]
    fn a_host_catches_up_over_several_stretches() {
        let mut behind = Behind { by: Synchronization, over: 0, left: 30 };
        let mut stretches = Vec::new();
        for start in [0, 100, 200] {
            add(&mut stretches, (start, start + 20), &[], Launches, Some(&mut behind));
        }
        let expected =
            [(0, 20, Synchronization), (100, 110, Synchronization), (110, 120, Launches), (200, 220, Launches)];
        assert_eq!(stretches, expected);
        assert!(behind.is_near(200_000) && !behind.is_near(400_000));
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
        let data = intervals(&[(20, 90)]);
        let reasons = IdleReasons::of(&activities(SpanKind::Kernel), &none(), &data, &names);
        assert_eq!([0, 100, 200, 105].map(|time| reasons.before(time * US)), [None, Some(Input), Some(Unknown), None]);
    }
}
