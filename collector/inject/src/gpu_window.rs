//! What is recorded of the GPU in a window. While the program's own profiler runs, that is nothing: CUPTI is let go of for it,
//! and taken back afterwards, if it can be. While recording rests to cost little, it is nothing, either.

use std::time::{Duration, Instant};

use stepscope_traces::{Nanos, Pauses};

/// How often it is tried to take back what another profiler has. It may let go later.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// CUPTI, as a window needs it.
pub(crate) trait Tracer {
    /// It, attached.
    type Attached;

    /// Attaches it, for the first time in this window or again.
    fn attach(&self, again: bool) -> Attempt<Self::Attached>;

    /// Lets the program's own profiler have it, if it is there.
    fn let_go(&self, attached: Option<Self::Attached>);

    /// Detaches it for a while.
    fn rest(&self, attached: &Self::Attached);

    /// Attaches it again; whether that could be.
    fn go_on(&self, attached: &Self::Attached) -> bool;
}

/// Who wants what of the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Whether the program's own profiler wants CUPTI.
    pub(crate) own_profiler: bool,
    /// Whether recording is to rest.
    pub(crate) rest: bool,
}

/// What became of an attempt to attach CUPTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt<A> {
    /// It is attached.
    Attached(A),
    /// Another profiler has it.
    IsTaken,
    /// It is not there, and is not going to be.
    IsMissing,
}

/// What is recorded of the GPU now.
#[derive(Debug)]
enum State<A> {
    /// Whatever CUPTI tells; nothing, where there is none.
    Recorded { since: Nanos, attached: Option<A> },
    /// Nothing for a while, since recording rests.
    Rests { attached: Option<A> },
    /// The program's own profiler runs.
    Paused { since: Nanos },
    /// It has ended, and keeps CUPTI.
    Kept { since: Nanos, tried: Instant },
}

/// What is recorded of the GPU in a window.
#[derive(Debug)]
pub(crate) struct GpuWindow<T: Tracer> {
    tracer: T,
    state: State<T::Attached>,
    /// Whether it ever was: then it can be again.
    was_attached: bool,
    pub(crate) pauses: Pauses,
}

/// How much of the GPU is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuRecorded {
    All,
    /// Nothing, since recording rests.
    Nothing,
    /// Nothing, for another reason, or nobody can tell.
    Unknown,
}

/// A stretch of time in which the GPU was recorded.
pub(crate) type Stretch = (Nanos, Nanos);

impl<T: Tracer> GpuWindow<T> {
    /// Begins to record, unless the program's own profiler runs. The pauses are those of windows before this one.
    pub(crate) fn open(tracer: T, pauses: Pauses, wishes: Wishes, clock: impl Fn() -> Nanos) -> GpuWindow<T> {
        let mut window = GpuWindow { tracer, state: State::Paused { since: clock() }, was_attached: false, pauses };
        if wishes.own_profiler {
            window.pauses.count += 1;
        } else {
            window.attach(false, None, &clock);
        }
        window
    }

    /// Does what is wished. Tells the stretch that ends with that.
    pub(crate) fn look(&mut self, wishes: Wishes, clock: impl Fn() -> Nanos) -> Option<Stretch> {
        match &mut self.state {
            State::Recorded { since, attached } if wishes.own_profiler => {
                let recorded = (*since, clock());
                self.tracer.let_go(attached.take());
                self.pauses.count += 1;
                self.state = State::Paused { since: recorded.1 };
                return Some(recorded);
            }
            State::Recorded { .. } if wishes.rest => return self.stop(clock),
            State::Rests { attached } if wishes.own_profiler => {
                // It has nothing that is in the way; but it may be asked for again.
                self.tracer.let_go(attached.take());
                self.pauses.count += 1;
                self.state = State::Paused { since: clock() };
            }
            State::Rests { attached } if !wishes.rest => match attached.take() {
                Some(attached) if self.tracer.go_on(&attached) => {
                    self.state = State::Recorded { since: clock(), attached: Some(attached) };
                }
                attached => {
                    self.tracer.let_go(attached);
                    self.attach(true, None, &clock);
                }
            },
            State::Kept { since, .. } if wishes.own_profiler => {
                self.pauses.count += 1;
                self.pauses.missing_since = None;
                self.state = State::Paused { since: *since };
            }
            State::Paused { since } if !wishes.own_profiler => {
                let since = *since;
                if wishes.rest {
                    // Whoever rests takes nothing back.
                    self.add_pause(since, clock());
                    self.state = State::Rests { attached: None };
                } else {
                    self.attach(true, Some(since), &clock);
                }
            }
            State::Kept { .. } if wishes.rest => self.state = State::Rests { attached: None },
            State::Kept { since, tried } if tried.elapsed() >= TRY_EVERY => {
                let since = *since;
                self.attach(true, Some(since), &clock);
            }
            State::Recorded { .. } | State::Rests { .. } | State::Paused { .. } | State::Kept { .. } => {}
        }
        None
    }

    /// Has it rest, if it is recorded. Tells the stretch that ends with that.
    pub(crate) fn stop(&mut self, clock: impl Fn() -> Nanos) -> Option<Stretch> {
        let State::Recorded { since, attached } = &mut self.state else { return None };
        let recorded = (*since, clock());
        let attached = attached.take();
        attached.iter().for_each(|attached| self.tracer.rest(attached));
        self.state = State::Rests { attached };
        Some(recorded)
    }

    /// Tries to record from now on. There may have been a pause since some time.
    fn attach(&mut self, again: bool, paused_since: Option<Nanos>, clock: &impl Fn() -> Nanos) {
        let asked = clock();
        let since = paused_since.unwrap_or(asked);
        let attached = match self.tracer.attach(again) {
            Attempt::Attached(attached) => Some(attached),
            Attempt::IsMissing if !self.was_attached => None,
            Attempt::IsMissing | Attempt::IsTaken => {
                self.pauses.missing_since = Some(since);
                self.state = State::Kept { since, tried: Instant::now() };
                return;
            }
        };
        self.was_attached |= attached.is_some();
        self.pauses.missing_since = None;
        self.add_pause(since, asked);
        self.state = State::Recorded { since: clock(), attached };
    }

    fn add_pause(&mut self, since: Nanos, until: Nanos) {
        self.pauses.nanos = self.pauses.nanos.saturating_add((until - since).0.max(0).cast_unsigned());
    }

    /// How much of the GPU is recorded now.
    pub(crate) fn recorded(&self) -> GpuRecorded {
        match &self.state {
            State::Recorded { .. } => GpuRecorded::All,
            State::Rests { .. } => GpuRecorded::Nothing,
            State::Paused { .. } | State::Kept { .. } => GpuRecorded::Unknown,
        }
    }

    /// Ends it. Tells the stretch that ends with that, and gives CUPTI to whoever ends it.
    pub(crate) fn end(mut self, now: Nanos) -> (Option<Stretch>, Option<T::Attached>, Pauses) {
        let (stretch, attached) = match self.state {
            State::Recorded { since, attached } => (Some((since, now)), attached),
            State::Rests { attached } => (None, attached),
            State::Paused { since } => {
                self.add_pause(since, now);
                (None, None)
            }
            State::Kept { .. } => (None, None),
        };
        (stretch, attached, self.pauses)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// CUPTI, of which another profiler may keep hold.
    #[derive(Default)]
    struct Fake {
        is_kept: Cell<bool>,
        is_missing: bool,
        is_attached: Cell<bool>,
        /// How often it was detached for a while.
        rests: Cell<u32>,
    }

    impl Tracer for &Fake {
        type Attached = ();

        fn attach(&self, _: bool) -> Attempt<()> {
            match (self.is_missing, self.is_kept.get()) {
                (true, _) => Attempt::IsMissing,
                (false, true) => Attempt::IsTaken,
                (false, false) => {
                    assert!(!self.is_attached.replace(true), "it is attached once");
                    Attempt::Attached(())
                }
            }
        }

        fn let_go(&self, attached: Option<()>) {
            assert!(attached.is_some() || !self.is_attached.get());
            self.is_attached.set(false);
        }

        fn rest(&self, (): &()) {
            assert!(self.is_attached.replace(false));
            self.rests.set(self.rests.get() + 1);
        }

        fn go_on(&self, (): &()) -> bool {
            !self.is_kept.get() && !self.is_attached.replace(true)
        }
    }

    /// What `look` is told, but for the rest.
    fn wanted(own_profiler: bool) -> Wishes {
        Wishes { own_profiler, rest: false }
    }

    fn opened(fake: &Fake, is_wanted: bool) -> GpuWindow<&Fake> {
        GpuWindow::open(fake, Pauses::default(), wanted(is_wanted), || Nanos(100))
    }

    fn pauses(count: u64, nanos: u64, missing_since: Option<i64>) -> Pauses {
        Pauses { count, nanos, missing_since: missing_since.map(Nanos) }
    }

    #[test]
    fn two_profiles_one_after_the_other_are_two_pauses() {
        let fake = Fake::default();
        let mut window = opened(&fake, false);
        assert!(fake.is_attached.get() && window.look(wanted(false), || Nanos(110)).is_none());
        assert_eq!(window.look(wanted(true), || Nanos(120)), Some((Nanos(100), Nanos(120))));
        assert!(!fake.is_attached.get());
        assert_eq!(window.look(wanted(true), || Nanos(130)), None, "it runs on");
        assert_eq!(window.look(wanted(false), || Nanos(150)), None);
        assert!(fake.is_attached.get());
        assert_eq!(window.look(wanted(true), || Nanos(160)), Some((Nanos(150), Nanos(160))));
        assert_eq!(window.look(wanted(false), || Nanos(165)), None);
        let (stretch, attached, paused) = window.end(Nanos(200));
        assert_eq!((stretch, attached), (Some((Nanos(165), Nanos(200))), Some(())));
        assert_eq!(paused, pauses(2, 30 + 5, None));
    }

    #[test]
    fn what_rests_is_in_no_stretch_and_goes_on() {
        let (rest, on) = (Wishes { rest: true, ..Wishes::default() }, Wishes::default());
        let fake = Fake::default();
        let mut window = opened(&fake, false);
        assert_eq!(window.look(rest, || Nanos(120)), Some((Nanos(100), Nanos(120))));
        assert_eq!((window.look(rest, || Nanos(130)), fake.rests.get(), fake.is_attached.get()), (None, 1, false));
        assert_eq!((window.look(on, || Nanos(140)), fake.is_attached.get()), (None, true));
        assert_eq!(window.look(rest, || Nanos(150)), Some((Nanos(140), Nanos(150))));
        assert_eq!(window.look(wanted(true), || Nanos(160)), None, "the program's own profiler comes while it rests");
        assert_eq!(window.look(rest, || Nanos(170)), None);
        assert!(!fake.is_attached.get() && window.recorded() == GpuRecorded::Nothing, "it still rests");
        assert_eq!((window.look(on, || Nanos(172)), window.recorded()), (None, GpuRecorded::All), "it is taken back");
        assert_eq!(window.stop(|| Nanos(175)), Some((Nanos(172), Nanos(175))), "and rests again");
        assert_eq!(window.stop(|| Nanos(176)), None);
        fake.is_kept.set(true);
        assert_eq!(window.look(on, || Nanos(180)), None);
        assert_eq!(window.pauses, pauses(1, 10, Some(180)), "somebody else has it now");
        let (stretch, attached, _) = window.end(Nanos(190));
        assert_eq!((stretch, attached), (None, None));
    }

    #[test]
    fn a_profiler_that_runs_already_is_waited_for() {
        let fake = Fake::default();
        let mut window = opened(&fake, true);
        assert!(!fake.is_attached.get());
        window.look(wanted(false), || Nanos(140));
        assert!(fake.is_attached.get());
        assert_eq!(window.end(Nanos(150)), (Some((Nanos(140), Nanos(150))), Some(()), pauses(1, 40, None)));
        let ended_before_it = opened(&Fake::default(), true).end(Nanos(130));
        assert_eq!(ended_before_it, (None, None, pauses(1, 30, None)));
    }

    #[test]
    fn what_is_not_given_back_is_said_and_tried_again() {
        let fake = Fake::default();
        let mut window = opened(&fake, false);
        window.look(wanted(true), || Nanos(120));
        fake.is_kept.set(true);
        window.look(wanted(false), || Nanos(150));
        assert_eq!((window.pauses, window.look(wanted(false), || Nanos(160))), (pauses(1, 0, Some(120)), None));
        window.look(wanted(true), || Nanos(170));
        assert_eq!(window.pauses, pauses(2, 0, None), "its time is that of the next pause");
        window.look(wanted(false), || Nanos(180));
        assert_eq!(window.pauses, pauses(2, 0, Some(120)));
        fake.is_kept.set(false);
        window.look(wanted(false), || Nanos(190));
        assert!(!fake.is_attached.get(), "not that often");
        if let State::Kept { tried, .. } = &mut window.state {
            *tried -= TRY_EVERY;
        }
        window.look(wanted(false), || Nanos(200));
        assert!(fake.is_attached.get());
        assert_eq!(window.pauses, pauses(2, 80, None));
    }

    #[test]
    fn without_cupti_windows_are_windows_all_the_same() {
        let fake = Fake { is_missing: true, ..Fake::default() };
        let mut window = opened(&fake, false);
        assert_eq!(window.look(wanted(true), || Nanos(120)), Some((Nanos(100), Nanos(120))));
        window.look(wanted(false), || Nanos(140));
        assert_eq!(window.end(Nanos(150)), (Some((Nanos(140), Nanos(150))), None, pauses(1, 20, None)));
    }

    #[test]
    fn a_window_that_ends_while_cupti_is_kept_has_no_more() {
        let fake = Fake::default();
        fake.is_kept.set(true);
        let window = opened(&fake, false);
        assert_eq!(window.end(Nanos(150)), (None, None, pauses(0, 0, Some(100))));
    }
}
