//! The thread that opens and closes windows, and ends the recording with the process.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Condvar, Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use stepscope_collector::{
    injection::{Injection, Moment, Trigger, Windows},
    quiet_thread,
};
use stepscope_traces::{ClockSnapshot, CollectorNote, now};

use crate::{
    exit, other_profiler,
    pace::Pacing,
    place, process,
    recording::recorder,
    session::{Session, Wish},
    step_waiter, torch,
};

/// How often the thread looks at the clock and for a trigger.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a process that ends waits for its recording at most.
const PATIENCE: Duration = Duration::from_secs(3);

static THREAD: OnceLock<Thread> = OnceLock::new();
static ENDING: AtomicBool = AtomicBool::new(false);
/// Whether the thread has recorded all there is.
static ENDED: Mutex<bool> = Mutex::new(false);
static END: Condvar = Condvar::new();

/// Begins to watch this process, as its environment says. What is to be recorded from the beginning is so before this
/// returns.
pub(crate) fn begin() {
    if !process::begin() {
        return;
    }
    let injection = match Injection::of_this_process() {
        Some(Ok(injection)) => injection,
        Some(Err(error)) => return process::complain(&format!("invalid settings: {error}")),
        None => return,
    };
    let pacing = injection.budget.map(|budget| Pacing::new(&injection.run, budget));
    // Then it matters at once that another step begins.
    let awaits_steps = pacing.is_some() || matches!(injection.windows, Windows::Steps { .. });
    let mut watch = Watch {
        session: Session::new(&injection.run, injection.whole_graphs),
        injection,
        pacing,
        began: Instant::now(),
    };
    if watch.wish() != Wish::Nothing {
        let from = now();
        watch.session.open();
        let to = watch.session.recorded();
        watch.pacing.iter_mut().for_each(|pacing| pacing.changed(from, now(), to));
    }
    match quiet_thread::spawn("stepscope-watch", move || watch.run()) {
        Ok(thread) => {
            drop(THREAD.set(thread.thread().clone()));
            other_profiler::wake(thread.thread().clone());
            if awaits_steps {
                step_waiter::wake(thread.thread().clone());
            }
            exit::call_at_exit(end);
        }
        Err(error) => process::complain(&format!("cannot start a thread: {error}")),
    }
}

/// Ends the recording, within bounds. To be called when the process ends.
fn end() {
    let Some(thread) = THREAD.get().filter(|_| !process::is_fork()) else { return };
    ENDING.store(true, Release);
    thread.unpark();
    let ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    drop(END.wait_timeout_while(ended, PATIENCE, |ended| !*ended));
}

struct Watch {
    injection: Injection,
    session: Session,
    /// Keeps what is recorded within a budget, if there is one.
    pacing: Option<Pacing>,
    began: Instant,
}

impl Watch {
    fn wish(&self) -> Wish {
        let trigger = Trigger::find(&self.injection.run);
        if trigger.is_some_and(|trigger| trigger.is_open(ClockSnapshot::take().wall_ns)) {
            return Wish::All;
        }
        let now = Moment { since_start: self.began.elapsed(), step: place::latest_step() };
        match &self.pacing {
            _ if !self.injection.windows.is_open(&now) => Wish::Nothing,
            Some(pacing) if pacing.rests_in(now.step) => Wish::OnlySteps,
            _ => Wish::All,
        }
    }

    /// Records what is to be recorded now.
    fn look(&mut self) {
        let (from, before) = (now(), self.session.recorded());
        self.session.look(self.wish());
        let to = self.session.recorded();
        if let Some(pacing) = self.pacing.as_mut().filter(|_| to != before) {
            pacing.changed(from, now(), to);
        }
    }

    /// Keeps the pace.
    fn pace(&mut self) {
        let Some(pacing) = &mut self.pacing else { return };
        let begun = step_waiter::take_begun();
        let is_new = pacing.look(&begun, torch::looked_at(), ClockSnapshot::take().wall_ns);
        // Where steps say when to record at all, each of them matters.
        let is_by_steps = matches!(self.injection.windows, Windows::Steps { .. });
        if let Some(step) = place::latest_step().filter(|_| !is_by_steps) {
            step_waiter::wake_at(pacing.next_change(step));
        }
        if is_new {
            self.note_cost();
        }
    }

    fn note_cost(&self) {
        if let (Some(pacing), Some(recorder)) = (&self.pacing, recorder()) {
            recorder.note(CollectorNote::RecordingCost(pacing.cost()));
        }
    }

    fn run(mut self) {
        // Whatever happens here, a process that ends does not wait for it in vain.
        drop(catch_unwind(AssertUnwindSafe(|| {
            while !ENDING.load(Acquire) {
                thread::park_timeout(LOOK_EVERY);
                self.pace();
                self.look();
            }
            self.pace();
            self.note_cost();
            self.pacing.iter().for_each(Pacing::end);
            self.session.finish();
        })));
        *ENDED.lock().unwrap_or_else(PoisonError::into_inner) = true;
        END.notify_all();
    }
}
