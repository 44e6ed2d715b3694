//! Which of the kernels of one operation did it: the one that ran longest.
//!
//! For one operation a library may launch a kernel that prepares, one that computes and one that adds up. What
//! [`Recorder::launching`](crate::Recorder::launching) says is of them all, and which one it fits is known when all have
//! run. So what ran under the newest guard of a stream is held back until something else ran there.

use std::cmp::Reverse;

use stepscope_traces::Span;

use super::{repeated::SeenLaunch, streams::CuptiStream};
use crate::launch::{Guard, LaunchInfo};

/// A guard around more than that, a graph perhaps, is about no single kernel; the longest so far gets what it says.
const MOST_HELD: usize = 64;
/// How often streams are looked at before nothing more is expected of a quiet one. A busy job's buffers come full, so that
/// the rest of a group may be in one that comes some tenths of a second later.
const QUIET_LOOKS: u8 = 5;

/// Something that ran.
pub(crate) struct Ran {
    /// Who records it.
    pub(crate) recorder: u64,
    pub(crate) place: CuptiStream,
    /// Under which guard it was launched.
    pub(crate) guard: Option<Guard>,
    /// What the guard says: it comes once, with one of those it may be about.
    pub(crate) info: Option<LaunchInfo>,
    /// What the device says, and where in the training it was launched.
    pub(crate) span: Span,
    /// How it was launched.
    pub(crate) launch: SeenLaunch,
}

/// What is held back, of each stream. They are few, so that looking through them is faster than hashing.
#[derive(Default)]
pub(crate) struct Groups(Vec<Group>);

/// What ran under the newest guard of a stream.
struct Group {
    place: CuptiStream,
    /// Whose guard it is, and which.
    guard: Option<(u64, Guard)>,
    info: Option<LaunchInfo>,
    spans: Vec<(Span, SeenLaunch)>,
    quiet_looks: u8,
}

impl Groups {
    /// Adds what ran next on its stream. Gives `each` what is complete by that, with its recorder.
    pub(crate) fn add(&mut self, ran: Ran, mut each: impl FnMut(u64, &Span, SeenLaunch)) {
        let guard = ran.guard.map(|guard| (ran.recorder, guard));
        let known = self.0.iter().position(|group| group.place == ran.place);
        let index = known.unwrap_or_else(|| {
            self.0.push(Group { place: ran.place, guard: None, info: None, spans: Vec::new(), quiet_looks: 0 });
            self.0.len() - 1
        });
        let group = &mut self.0[index];
        if group.guard != guard || group.spans.len() >= MOST_HELD {
            group.end(&mut each);
            group.guard = guard;
        }
        if guard.is_none() {
            return each(ran.recorder, &ran.span, ran.launch);
        }
        group.info = group.info.or(ran.info);
        group.spans.push((ran.span, ran.launch));
        group.quiet_looks = 0;
    }

    /// Ends the groups to which nothing was added for some calls of this, so that a view of the run does not wait for them.
    pub(crate) fn end_quiet(&mut self, mut each: impl FnMut(u64, &Span, SeenLaunch)) {
        self.0.retain_mut(|group| {
            group.quiet_looks += 1;
            let is_over = group.quiet_looks >= QUIET_LOOKS;
            if is_over {
                group.end(&mut each);
            }
            !is_over
        });
    }

    /// Ends the groups of a recorder.
    pub(crate) fn end(&mut self, recorder: u64, mut each: impl FnMut(u64, &Span, SeenLaunch)) {
        let groups = self.0.iter_mut();
        groups.filter(|group| group.guard.is_some_and(|(of, _)| of == recorder)).for_each(|group| group.end(&mut each));
    }
}

impl Group {
    /// Lets go of what it holds.
    fn end(&mut self, each: &mut impl FnMut(u64, &Span, SeenLaunch)) {
        if let Some(info) = self.info.take() {
            let meant = self.spans.iter_mut().map(|(span, _)| span).filter(|span| info.is_for(!span.kind.is_copy()));
            // The first of those that take as long. The others have no FLOPs that are not counted with it.
            let mut meant: Vec<&mut Span> = meant.collect();
            meant.iter_mut().for_each(|span| span.flops = span.flops.or(info.flops.map(|_| 0)));
            if let Some(longest) = meant.into_iter().min_by_key(|span| Reverse(span.duration_ns)) {
                info.apply(longest);
            }
        }
        if let Some((recorder, _)) = self.guard.take() {
            self.spans.drain(..).for_each(|(span, launch)| each(recorder, &span, launch));
        }
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{NameId, Nanos, SpanKind};

    use super::*;

    const RECORDER: u64 = 3;
    const HERE: CuptiStream = CuptiStream { context: 1, stream: 7 };
    const ELSEWHERE: CuptiStream = CuptiStream { context: 1, stream: 8 };
    const INFO: LaunchInfo =
        LaunchInfo { kind: None, name: Some(NameId(99)), bytes: None, flops: Some(64), collective: None };

    /// Groups, and what they let go of: start, name, FLOPs.
    #[derive(Default)]
    struct Checked {
        groups: Groups,
        seen: Vec<(i64, u32, Option<u64>)>,
        time: i64,
    }

    impl Checked {
        fn ran(
            &mut self,
            place: CuptiStream,
            kind: SpanKind,
            guard: Option<u32>,
            info: Option<LaunchInfo>,
            duration: i64,
        ) {
            let span = Span::new(kind, NameId(1), Nanos(self.time), Nanos(duration));
            self.time += 1;
            let ran = Ran {
                recorder: RECORDER,
                place,
                guard: guard.map(Guard::before_first),
                info,
                span,
                launch: SeenLaunch::default(),
            };
            self.groups.add(ran, see(&mut self.seen));
        }

        fn kernel(&mut self, place: CuptiStream, guard: u32, info: Option<LaunchInfo>, duration: i64) {
            self.ran(place, SpanKind::Kernel, Some(guard), info, duration);
        }

        fn look(&mut self) {
            self.groups.end_quiet(see(&mut self.seen));
        }

        fn end(mut self) -> Vec<(i64, u32, Option<u64>)> {
            self.groups.end(RECORDER + 1, |_, _, _| panic!("nothing is of another recorder"));
            self.groups.end(RECORDER, see(&mut self.seen));
            self.seen
        }
    }

    fn see(seen: &mut Vec<(i64, u32, Option<u64>)>) -> impl FnMut(u64, &Span, SeenLaunch) {
        |recorder, span, _| {
            assert_eq!(recorder, RECORDER);
            seen.push((span.start_ns.0, span.name.0, span.flops));
        }
    }

    #[test]
    fn the_longest_of_a_guard_gets_what_it_says() {
        let mut checked = Checked::default();
        checked.kernel(HERE, 1, Some(INFO), 5);
        checked.kernel(HERE, 1, None, 100);
        checked.kernel(HERE, 1, None, 100);
        checked.kernel(HERE, 1, None, 7);
        assert_eq!(checked.seen, []);
        checked.kernel(HERE, 2, Some(INFO), 1);
        assert_eq!(checked.seen, [(0, 1, Some(0)), (1, 99, Some(64)), (2, 1, Some(0)), (3, 1, Some(0))]);
        // The rest of an outer guard, after an inner one: what it says has been told.
        checked.kernel(HERE, 1, None, 1000);
        assert_eq!(checked.seen[4..], [(4, 99, Some(64))]);
        checked.ran(HERE, SpanKind::Kernel, None, None, 1000);
        assert_eq!(checked.seen[5..], [(5, 1, None), (6, 1, None)], "what has no guard does not wait");
        assert_eq!(checked.end().len(), 7);
    }

    #[test]
    fn copies_between_keep_their_place_and_get_what_is_meant_for_copies() {
        let copied = LaunchInfo { kind: Some(SpanKind::Copy), ..INFO };
        for (info, described) in [(INFO, 2), (copied, 1)] {
            let mut checked = Checked::default();
            checked.kernel(HERE, 1, Some(info).filter(|info| info.is_for(true)), 5);
            checked.ran(HERE, SpanKind::Copy, Some(1), Some(info).filter(|info| info.is_for(false)), 500);
            checked.kernel(HERE, 1, None, 100);
            let expected: Vec<_> = (0..3)
                .map(|at| match at {
                    at if at == described => (at, 99, Some(64)),
                    // A copy is not meant where a kernel is, and the other way round.
                    0 if described == 2 => (0, 1, Some(0)),
                    at => (at, 1, None),
                })
                .collect();
            assert_eq!(checked.end(), expected);
        }
    }

    #[test]
    fn streams_do_not_end_each_others_groups() {
        let mut checked = Checked::default();
        for duration in [1, 3, 2] {
            let info = (duration == 1).then_some(INFO);
            checked.kernel(HERE, 1, info, duration);
            checked.kernel(ELSEWHERE, 2, info, 10 - duration);
        }
        assert_eq!(checked.seen, []);
        let mut seen = checked.end();
        seen.sort();
        let (plain, described) = (|at| (at, 1, Some(0)), |at| (at, 99, Some(64)));
        assert_eq!(seen, [plain(0), described(1), described(2), plain(3), plain(4), plain(5)]);
    }

    #[test]
    fn a_quiet_stream_is_not_waited_for() {
        let mut checked = Checked::default();
        checked.kernel(HERE, 1, Some(INFO), 5);
        checked.look();
        checked.kernel(HERE, 1, None, 9);
        (1..QUIET_LOOKS).for_each(|_| checked.look());
        assert_eq!(checked.seen, []);
        checked.look();
        assert_eq!(checked.seen, [(0, 1, Some(0)), (1, 99, Some(64))]);
        assert!(checked.groups.0.is_empty(), "a stream that is gone takes no memory");
        checked.kernel(HERE, 1, None, 100);
        assert_eq!(checked.end()[2..], [(2, 1, None)]);
    }

    #[test]
    fn a_graph_under_a_guard_is_not_held_back_as_a_whole() {
        let mut checked = Checked::default();
        for kernel in 0..10_000 {
            checked.kernel(HERE, 1, (kernel == 0).then_some(INFO), kernel);
            assert!(checked.time as usize - checked.seen.len() <= MOST_HELD);
        }
        let seen = checked.end();
        assert!(seen.iter().map(|(at, ..)| *at).eq(0..10_000), "in order");
        let described: Vec<_> = seen.iter().filter(|(.., flops)| flops.is_some_and(|flops| flops > 0)).collect();
        assert_eq!(described, [&(MOST_HELD as i64 - 1, 99, Some(64))]);
    }
}
