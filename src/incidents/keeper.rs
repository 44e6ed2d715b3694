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
use stepscope_analyzer::{JobWatch, Notice};
use stepscope_collector::quiet_thread;
use stepscope_traces::{IncidentKind, KeptIncident, Run, State};

use super::{
    explain::{self, Happened},
    history::History,
    processes,
};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long it waits for what belongs together: other ranks of a slow step, the end of a job that fails.
const SETTLE: Duration = Duration::from_secs(3);
/// Where the thread stands among others of its machine: behind.
const NICE: i32 = 10;
/// A job that goes wrong all the time is not written down for ever.
const MOST_INCIDENTS: usize = 200;
/// How many usual steps without any end are a hang, and how long that is at least.
const HANGING_STEPS: u32 = 10;
const SHORTEST_HANG: Duration = Duration::from_secs(60);

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
        hang_after: Option<Duration>,
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
            is_hanging: None,
            hung: None,
            longest_silence: Duration::ZERO,
            began: Instant::now(),
        };
        // Signals are for the thread that passes them on.
        let thread = quiet_thread::spawn("stepscope-keeper", move || {
            // On Linux that is of this thread alone. The job goes first.
            let _ = setpriority_process(None, NICE);
            watch.run(&heard);
            watch.written.retain(|kept| kept.incident.kind != IncidentKind::Interrupted);
            watch.written
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
    hang_after: Option<Duration>,
    tell: Box<dyn Fn(&KeptIncident) + Send>,
    job: Option<JobWatch>,
    /// What every step comes to, where only the last minutes are kept in full.
    history: Option<History>,
    /// What has happened and is not written down yet.
    pending: Vec<(Happened, Instant)>,
    written: Vec<KeptIncident>,
    /// Until when the end of the job is a consequence of which of those that are written.
    cause: Option<(Instant, usize)>,
    /// In which of those that are written the job hangs, or has last done so.
    is_hanging: Option<usize>,
    hung: Option<usize>,
    /// How long the job once did nothing and then went on.
    longest_silence: Duration,
    began: Instant,
}

impl Watch {
    fn run(&mut self, orders: &Receiver<Order>) {
        loop {
            let order = orders.recv_timeout(LOOK_EVERY);
            self.look();
            match order {
                Ok(Order::Signal(signal)) => self.signal(signal),
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
            let is_bounded = self.job.as_ref().is_some_and(|job| job.run().info.black_box.is_some());
            self.history = is_bounded.then(|| History::of(&self.run).ok()).flatten();
        }
        if let Some(history) = &mut self.history
            && history.go_on().is_err()
        {
            // What is in the way of it now is so later; what goes wrong is written down all the same.
            self.history = None;
        }
        let Some(notices) = self.job.as_mut().and_then(|job| job.look().ok()) else { return };
        for notice in explain::in_order(notices) {
            self.hear(&notice);
        }
    }

    fn hear(&mut self, notice: &Notice) {
        let Some(happened) = Happened::of(notice) else { return };
        if let Some(cause) = self.cause().filter(|_| happened.is_fatal()) {
            return self.add_evidence(cause, format!("then {}", happened.summary));
        }
        // A step that hung is slow, too.
        if let Some(hung) = self.is_hanging.or(self.hung.take()).filter(|_| happened.kind == IncidentKind::SlowStep) {
            return self.add_evidence(hung, happened.summary);
        }
        let is_known = self.is_known(&happened);
        match self.pending.iter_mut().find(|(other, _)| other.goes_with(&happened)) {
            Some((other, _)) => other.add(happened),
            None if is_known => {}
            None => self.pending.push((happened, Instant::now())),
        }
    }

    /// Which of those that are written may be the cause of whatever ends the job now.
    fn cause(&self) -> Option<usize> {
        self.cause.filter(|(until, _)| Instant::now() < *until).map(|(_, index)| index)
    }

    /// Whether a slow step was written down already: ranks may tell of it late.
    fn is_known(&self, happened: &Happened) -> bool {
        let known = self.written.iter().rev().find(|kept| kept.incident.kind == happened.kind);
        known.is_some_and(|kept| happened.step.is_some() && happened.step <= kept.incident.step)
            || (happened.kind == IncidentKind::LossNotFinite && known.is_some())
    }

    fn signal(&mut self, signal: Signal) {
        let happened = match signal {
            Signal::SIGINT => Happened::new(IncidentKind::Interrupted, "the job was interrupted by SIGINT".into()),
            Signal::SIGTERM => Happened::new(IncidentKind::Terminated, "the job was asked to end by SIGTERM".into()),
            _ => return,
        };
        if self.pending.iter().all(|(other, _)| !other.is_fatal()) {
            self.pending.push((happened, Instant::now()));
        }
    }

    /// Looks whether steps still end.
    fn check_for_hang(&mut self) {
        let Some(job) = self.job.as_ref().filter(|job| job.run().state() == State::Recording) else { return };
        let steps = job.last_steps();
        let since = |time: Option<Instant>| time.unwrap_or(self.began).elapsed();
        let usual = job.usual_ns().map(|usual| Duration::from_nanos(usual.unsigned_abs()));
        let patience = self.hang_after.or_else(|| Some((usual? * HANGING_STEPS).max(SHORTEST_HANG)));
        let Some(patience) = patience.map(|patience| patience.max(2 * self.longest_silence)) else { return };
        // A job that evaluates makes no steps, and all of its ranks are heard of.
        let stands = steps.iter().map(|last| since(last.stepped)).min().unwrap_or_default();
        let silence = stands.min(steps.iter().map(|last| since(last.heard)).max().unwrap_or_default());
        match self.is_hanging {
            None if silence >= patience && self.cause().is_none() => {
                let happened = processes::hang(job, stands);
                self.is_hanging = self.write(happened);
            }
            Some(index) if silence < patience => {
                self.hung = self.is_hanging.take();
                self.longest_silence = self.longest_silence.max(patience);
                self.add_evidence(index, "later the job went on by itself".into());
            }
            _ => {}
        }
    }

    /// Writes down what happened so long ago.
    fn settle(&mut self, ago: Duration) {
        let (ready, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|(_, since)| since.elapsed() >= ago);
        self.pending = later;
        for (mut happened, since) in ready {
            if let (Some(job), Some(step)) = (&self.job, happened.step) {
                happened.add_standstills(&job.stood_still(step));
            }
            let consequences = happened.consequences();
            if let (Some(index), Some(consequences)) = (self.write(happened), consequences) {
                self.cause = Some((since + consequences, index));
            }
        }
    }

    fn write(&mut self, happened: Happened) -> Option<usize> {
        if self.written.len() >= MOST_INCIDENTS {
            return None;
        }
        let run = Run::open(&self.run).ok().filter(|run| !run.ranks.is_empty())?;
        // Whatever goes wrong with that, the job is not to hear of it.
        let kept = explain::write(&run, happened).ok()?;
        // Whoever interrupts a job knows.
        if kept.incident.kind != IncidentKind::Interrupted {
            (self.tell)(&kept);
        }
        self.written.push(kept);
        Some(self.written.len() - 1)
    }

    fn add_evidence(&mut self, index: usize, evidence: String) {
        if let Some(kept) = self.written.get_mut(index) {
            kept.incident.evidence.push(evidence);
            drop(kept.write());
        }
    }

    fn end(&mut self, status: Option<ExitStatus>) {
        let ended = status.filter(|status| !status.success()).map(explain::ended);
        if status.is_some_and(|status| status.success()) {
            self.pending.retain(|(happened, _)| happened.kind != IncidentKind::Interrupted);
        }
        let mut is_told = false;
        if let Some(ended) = &ended {
            for (happened, _) in self.pending.iter_mut().filter(|(happened, _)| happened.consequences().is_some()) {
                happened.evidence.push(ended.summary.clone());
                is_told = true;
            }
        }
        self.settle(Duration::ZERO);
        match (ended, self.cause().or(self.is_hanging)) {
            (Some(_), _) if is_told => {}
            (Some(ended), Some(index)) => self.add_evidence(index, ended.summary),
            (Some(ended), None) => _ = self.write(ended),
            (None, _) => {}
        }
    }
}
