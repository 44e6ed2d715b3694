//! Watches a job while it runs, and writes down what goes wrong.
//!
//! It is a thread of the process that has started the job, or of one of its ranks. It reads the run as anybody else does; the
//! job knows nothing of it.

use std::{
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use rustix::process::setpriority_process;
use stepscope_analyzer::JobWatch;
use stepscope_collector::quiet_thread;
use stepscope_traces::{IncidentKind, KeptIncident, Run, State};

use super::{
    explain::{self, Happened, MOST_EVIDENCE},
    hang::Question,
    history::History,
};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long it waits for what belongs together: other ranks of a slow step, the end of a job that fails.
const SETTLE: Duration = Duration::from_secs(3);
/// How long after a hang, or after it was written down, ranks may tell of the same slow step.
const SAME_STEP: Duration = Duration::from_secs(10);
/// Where the thread stands among others of its machine: behind.
const NICE: i32 = 10;
/// A job that is slow again and again is not written down for ever.
const MOST_SLOW_STEPS: usize = 200;
/// How many usual steps without any end are a hang, and how long that is at least.
const HANGING_STEPS: u32 = 10;
const SHORTEST_HANG: Duration = Duration::from_secs(60);
/// So many times as long a job may save a checkpoint or evaluate.
const LONGER_ASIDE: u32 = 10;

/// When a job hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HangAfter {
    /// After many times the usual step.
    Usual,
    /// After this time.
    This(Duration),
    /// Nobody can tell: steps may not be recorded.
    Never,
}

/// Watches a job, until it is told that it has ended.
pub(crate) struct Keeper {
    orders: Sender<Order>,
    thread: JoinHandle<Vec<KeptIncident>>,
}

enum Order {
    /// A signal came that is passed on to the job.
    Signal(Signal),
    End(Option<ExitStatus>),
}

impl Keeper {
    /// Begins to watch the job of a run, which may not be there yet. What happens is also told to somebody.
    pub(crate) fn start(
        run: &Path,
        hang_after: HangAfter,
        tell: impl Fn(&KeptIncident) + Send + 'static,
    ) -> std::io::Result<Keeper> {
        let (orders, heard) = channel();
        let mut watch = Watch {
            run: run.to_owned(),
            hang_after,
            tell: Box::new(tell),
            job: None,
            history: None,
            pending: Vec::new(),
            written: Vec::new(),
            cause: None,
            question: None,
            hang: None,
            longest_silence: Duration::ZERO,
            began: Instant::now(),
        };
        // Signals are for the thread that passes them on.
        let thread = quiet_thread::spawn("stepscope-keeper", move || {
            // On Linux that is of this thread alone. The job goes first.
            let _ = setpriority_process(None, NICE);
            watch.run(&heard);
            let written = watch.written.into_iter().map(|(kept, _)| kept);
            written.filter(|kept| kept.incident.kind != IncidentKind::Interrupted).collect()
        })?;
        Ok(Keeper { orders, thread })
    }

    /// Says that a signal is passed on to the job.
    pub(crate) fn signal(&self, signal: Signal) {
        // It only ends when it is told to.
        drop(self.orders.send(Order::Signal(signal)));
    }

    /// Says that the job has ended, and how, if that is known. Tells what happened in all that time.
    pub(crate) fn end(self, status: Option<ExitStatus>) -> Vec<KeptIncident> {
        drop(self.orders.send(Order::End(status)));
        self.thread.join().unwrap_or_default()
    }
}

struct Watch {
    run: PathBuf,
    hang_after: HangAfter,
    tell: Box<dyn Fn(&KeptIncident) + Send>,
    job: Option<JobWatch>,
    /// What every step comes to, where only the last minutes are kept in full.
    history: Option<History>,
    pending: Vec<Pending>,
    /// What is written down, and when that was.
    written: Vec<(KeptIncident, Instant)>,
    /// Until when the end of the job is a consequence of which of those that are written.
    cause: Option<(Instant, usize)>,
    /// What processes were asked, since no step ended, and have not all answered yet.
    question: Option<Question>,
    /// The last hang.
    hang: Option<Hang>,
    /// How long the job once did nothing and then went on.
    longest_silence: Duration,
    began: Instant,
}

/// Something that has happened, and may have more to it.
struct Pending {
    happened: Happened,
    since: Instant,
    /// Where what was recorded around it is kept already.
    kept: Option<KeptIncident>,
}

/// A job that makes no steps.
struct Hang {
    /// Which of those that are written.
    index: usize,
    /// When it went on, if it has.
    went_on: Option<Instant>,
    /// Whether it is told how long the step was.
    is_step_told: bool,
}

impl Watch {
    fn run(&mut self, orders: &Receiver<Order>) {
        loop {
            let order = orders.recv_timeout(LOOK_EVERY);
            // What a signal does is a consequence of it.
            if let Ok(Order::Signal(signal)) = order {
                self.signal(signal);
            }
            self.look();
            match order {
                Ok(Order::Signal(_)) => {}
                Ok(Order::End(status)) => return self.end(status),
                Err(RecvTimeoutError::Timeout) => self.check_for_hang(),
                Err(RecvTimeoutError::Disconnected) => return self.end(None),
            }
            self.settle(SETTLE);
        }
    }

    fn look(&mut self) {
        if self.job.is_none() {
            self.job = JobWatch::open(&self.run).ok();
            let bounds = self.job.as_ref().and_then(|job| job.run().info.black_box);
            self.history = bounds.and_then(|bounds| History::of(&self.run, bounds.history_bytes()).ok());
        }
        if let Some((notices, ranks)) =
            self.job.as_mut().and_then(|job| Some((job.look().ok()?, job.run().ranks.len())))
        {
            explain::in_order(notices, ranks).into_iter().for_each(|happened| self.hear(happened));
        }
        if let Some(history) = &mut self.history {
            // What is in the way of it, a full disk perhaps, may not be later.
            drop(history.go_on());
        }
    }

    fn hear(&mut self, happened: Happened) {
        if let Some(cause) = self.cause().or(self.hanging()).filter(|_| happened.is_fatal()) {
            return self.add_evidence(cause, format!("then {}", happened.summary));
        }
        if happened.kind == IncidentKind::SlowStep && self.is_of_hang(&happened) {
            return;
        }
        let is_known = self.is_known(&happened);
        match self.pending.iter_mut().find(|pending| pending.happened.goes_with(&happened)) {
            Some(pending) => pending.happened.add(happened),
            None if is_known => {}
            None => self.await_more(happened),
        }
    }

    /// Keeps what was recorded around something, and waits for more that belongs to it.
    fn await_more(&mut self, happened: Happened) {
        let slow_steps = self.written.iter().filter(|(kept, _)| kept.incident.kind == IncidentKind::SlowStep).count();
        if happened.kind == IncidentKind::SlowStep && slow_steps >= MOST_SLOW_STEPS {
            return;
        }
        // Whoever interrupts a job may not end it.
        let is_kept = happened.kind != IncidentKind::Interrupted;
        let kept = is_kept.then(|| explain::keep(&self.open()?, &happened).ok()).flatten();
        self.pending.push(Pending { happened, since: Instant::now(), kept });
    }

    /// The run, if anything was recorded.
    fn open(&self) -> Option<Run> {
        Run::open(&self.run).ok().filter(|run| !run.ranks.is_empty())
    }

    /// Which of those that are written may be the cause of whatever ends the job now.
    fn cause(&self) -> Option<usize> {
        self.cause.filter(|(until, _)| Instant::now() < *until).map(|(_, index)| index)
    }

    /// The hang that goes on.
    fn hanging(&self) -> Option<usize> {
        self.hang.as_ref().filter(|hang| hang.went_on.is_none()).map(|hang| hang.index)
    }

    /// Whether a slow step is one that hung. Then how long it took is told with the hang.
    fn is_of_hang(&mut self, happened: &Happened) -> bool {
        let is_of_it = |hang: &&mut Hang| hang.went_on.is_none_or(|when| when.elapsed() < SAME_STEP);
        let Some(hang) = self.hang.as_mut().filter(is_of_it) else { return false };
        let (index, is_told) = (hang.index, std::mem::replace(&mut hang.is_step_told, true));
        if !is_told {
            self.add_evidence(index, happened.summary.clone());
        }
        self.job.iter_mut().for_each(JobWatch::forgive);
        true
    }

    /// Whether it was written down already: ranks may tell of the same step late, and a loss that is none stays so.
    fn is_known(&self, happened: &Happened) -> bool {
        let mut same = self.written.iter().filter(|(kept, _)| kept.incident.kind == happened.kind);
        match happened.kind {
            IncidentKind::SlowStep => {
                same.any(|(kept, when)| happened.is_at(kept.incident.step) && when.elapsed() < SAME_STEP)
            }
            kind => kind == IncidentKind::LossNotFinite && same.next().is_some(),
        }
    }

    fn signal(&mut self, signal: Signal) {
        let happened = match signal {
            Signal::SIGINT => Happened::new(IncidentKind::Interrupted, "the job was interrupted by SIGINT".into()),
            Signal::SIGTERM => Happened::new(IncidentKind::Terminated, "the job was asked to end by SIGTERM".into()),
            _ => return,
        };
        if let Some(hang) = self.hanging() {
            // Whoever waits for a job that hangs ends it.
            return self.add_evidence(hang, format!("then {}", happened.summary));
        }
        if self.cause().is_none() && self.pending.iter().all(|pending| !pending.happened.is_fatal()) {
            self.await_more(happened);
        }
    }

    /// Looks whether steps still end.
    fn check_for_hang(&mut self) {
        let Some(job) = self.job.as_ref().filter(|job| job.run().state() == State::Recording) else { return };
        let steps = job.last_steps();
        let since = |time: Option<Instant>| time.unwrap_or(self.began).elapsed();
        let usual = job.usual_ns().map(|usual| Duration::from_nanos(usual.unsigned_abs()));
        let patience = match self.hang_after {
            HangAfter::Usual => usual.map(|usual| (usual * HANGING_STEPS).max(SHORTEST_HANG)),
            HangAfter::This(time) => Some(time),
            HangAfter::Never => None,
        };
        let Some(patience) = patience.map(|patience| patience.max(2 * self.longest_silence)) else { return };
        // A job that evaluates makes no steps, and all of its ranks are heard of.
        let stands = steps.iter().map(|last| since(last.stepped)).min().unwrap_or_default();
        let silence = stands.min(steps.iter().map(|last| since(last.heard)).max().unwrap_or_default());
        let has_cause = self.cause().is_some();
        match self.hang.as_mut().filter(|hang| hang.went_on.is_none()) {
            None if silence >= patience && !has_cause => {
                let question = self.question.get_or_insert_with(|| Question::ask(&self.run));
                let is_aside = question.aside(job.run()).next().is_some();
                if question.is_answered(job.run()) && (!is_aside || silence >= patience * LONGER_ASIDE) {
                    let happened = question.happened(job, stands);
                    self.question = None;
                    let written = self.write(happened, None);
                    self.hang = written.map(|index| Hang { index, went_on: None, is_step_told: false });
                }
            }
            None if self.question.take().is_some() => Question::withdraw(&self.run),
            Some(hang) if silence < patience => {
                hang.went_on = Some(Instant::now());
                let index = hang.index;
                Question::withdraw(&self.run);
                self.longest_silence = self.longest_silence.max(patience);
                // Whoever reads only this much knows that it is over.
                if let Some((kept, _)) = self.written.get_mut(index) {
                    kept.incident.summary += "; then the job went on";
                    drop(kept.write());
                }
            }
            _ => {}
        }
    }

    /// Writes down what happened so long ago.
    fn settle(&mut self, ago: Duration) {
        let is_ready = |pending: &Pending| pending.since.elapsed() >= ago;
        let (ready, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending).into_iter().partition(is_ready);
        self.pending = later;
        for Pending { mut happened, since, kept } in ready {
            if let (Some(job), Some(step)) = (&self.job, happened.step) {
                happened.add_standstills(&job.stood_still(step));
            }
            let consequences = happened.consequences();
            if let (Some(index), Some(consequences)) = (self.write(happened, kept), consequences) {
                self.cause = Some((since + consequences, index));
            }
        }
    }

    fn write(&mut self, happened: Happened, kept: Option<KeptIncident>) -> Option<usize> {
        // Whatever goes wrong with that, the job is not to hear of it.
        let kept = explain::write(&self.open()?, happened, kept).ok()?;
        // Whoever interrupts a job knows.
        if kept.incident.kind != IncidentKind::Interrupted {
            (self.tell)(&kept);
        }
        self.written.push((kept, Instant::now()));
        Some(self.written.len() - 1)
    }

    fn add_evidence(&mut self, index: usize, evidence: String) {
        if let Some((kept, _)) = self.written.get_mut(index)
            && kept.incident.evidence.len() < MOST_EVIDENCE
            && !kept.incident.evidence.contains(&evidence)
        {
            kept.incident.evidence.push(evidence);
            drop(kept.write());
        }
    }

    fn end(&mut self, status: Option<ExitStatus>) {
        let ended = status.filter(|status| !status.success()).map(explain::ended);
        if ended.is_none() {
            self.pending.retain(|pending| pending.happened.kind != IncidentKind::Interrupted);
        }
        let mut is_told = false;
        if let Some(ended) = &ended {
            for Pending { happened, .. } in
                self.pending.iter_mut().filter(|pending| pending.happened.consequences().is_some())
            {
                happened.evidence.push(ended.summary.clone());
                happened.ended_job = true;
                is_told = true;
            }
        }
        self.settle(Duration::ZERO);
        match (ended, self.cause().or(self.hanging())) {
            (Some(_), _) if is_told => {}
            (Some(ended), Some(index)) => {
                // However much is said of it already.
                if let Some((kept, _)) = self.written.get_mut(index) {
                    kept.incident.ended_job = true;
                    kept.incident.evidence.push(ended.summary.clone());
                    drop(kept.write());
                }
            }
            (Some(ended), None) => _ = self.write(ended, None),
            (None, _) => {}
        }
        // Last: nobody has to wait for it to know what happened.
        self.history.take().into_iter().for_each(|history| drop(history.end()));
    }
}
