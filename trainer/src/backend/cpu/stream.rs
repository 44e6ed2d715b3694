//! Streams of the CPU: a thread each, which does what it is given, in order.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use stepscope_collector::{Context, Recorder};
use stepscope_traces::{Group, NameId, Sequence, SpanKind};

use crate::{backend::Stream, error::TrainError, lock::lock};

/// How much a stream may be given before the host waits for it.
const QUEUE: usize = 1024;

/// What a span says of the work it times.
#[derive(Clone, Copy)]
pub(crate) struct SpanOf {
    pub(crate) kind: SpanKind,
    pub(crate) name: NameId,
    pub(crate) bytes: u64,
    pub(crate) flops: Option<u64>,
    pub(crate) collective: Option<(Group, Sequence)>,
}

type Work = Box<dyn FnOnce() -> Result<(), TrainError> + Send>;

enum Job {
    Run { context: Context, span: Option<SpanOf>, work: Work },
    Signal(Arc<Signal>),
    Wait(Arc<Signal>),
    Stop,
}

/// A flag that is raised once.
#[derive(Default)]
pub(crate) struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn raise(&self) {
        *lock(&self.raised) = true;
        self.changed.notify_all();
    }

    pub(crate) fn wait(&self) {
        let mut raised = lock(&self.raised);
        while !*raised {
            raised = self.changed.wait(raised).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

/// The streams of a rank. Once work has failed, the rest is skipped and only signals are raised, so that nobody waits
/// for ever.
pub(crate) struct Streams {
    queues: [SyncSender<Job>; Stream::ALL.len()],
    pub(crate) recorder: Recorder,
    failure: Arc<Failure>,
}

/// Whom to tell of a failure.
type Tell = Box<dyn Fn(&TrainError) + Send + Sync>;

#[derive(Default)]
struct Failure {
    first: Mutex<Option<TrainError>>,
    failed: AtomicBool,
    tell: OnceLock<Tell>,
}

impl Failure {
    /// The host may be waiting for the other stream, and that for other ranks: they have to hear of it now.
    fn set(&self, error: TrainError) {
        if let Some(tell) = self.tell.get() {
            tell(&error);
        }
        lock(&self.first).get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

impl Streams {
    /// Starts the threads.
    pub(crate) fn start(recorder: Recorder) -> Result<(Arc<Streams>, Vec<JoinHandle<()>>), TrainError> {
        let failure = Arc::new(Failure::default());
        let mut threads = Vec::new();
        let mut start = |stream: Stream| {
            let (sender, receiver) = sync_channel(QUEUE);
            let (recorder, failure) = (recorder.clone(), failure.clone());
            let name = format!("{stream:?}").to_lowercase();
            let thread = thread::Builder::new().name(name).spawn(move || work(stream, &receiver, &recorder, &failure));
            threads.push(thread.map_err(|error| TrainError::Settings(format!("cannot start a thread: {error}")))?);
            Ok::<_, TrainError>(sender)
        };
        let [compute, communication, messages] = Stream::ALL.map(&mut start);
        let queues = [compute?, communication?, messages?];
        Ok((Arc::new(Streams { queues, recorder, failure }), threads))
    }

    /// Says whom to tell, at once, when work has failed.
    pub(crate) fn on_failure(&self, tell: impl Fn(&TrainError) + Send + Sync + 'static) {
        // The first one is told.
        drop(self.failure.tell.set(Box::new(tell)));
    }

    fn give(&self, stream: Stream, job: Job) {
        // A stream that has been stopped needs nothing any more.
        drop(self.queues[stream as usize].send(job));
    }

    /// Queues work, to be recorded with where this thread is now.
    pub(crate) fn launch(
        &self,
        stream: Stream,
        span: Option<SpanOf>,
        work: impl FnOnce() -> Result<(), TrainError> + Send + 'static,
    ) {
        self.give(stream, Job::Run { context: self.recorder.context(), span, work: Box::new(work) });
    }

    pub(crate) fn signal(&self, stream: Stream) -> Arc<Signal> {
        let signal = Arc::new(Signal::default());
        self.give(stream, Job::Signal(signal.clone()));
        signal
    }

    pub(crate) fn wait(&self, stream: Stream, signal: Arc<Signal>) {
        self.give(stream, Job::Wait(signal));
    }

    /// Waits for all streams.
    pub(crate) fn synchronize(&self) -> Result<(), TrainError> {
        Stream::ALL.map(|stream| self.signal(stream)).iter().for_each(|done| done.wait());
        self.result()
    }

    /// Waits for the compute stream.
    pub(crate) fn synchronize_compute(&self) -> Result<(), TrainError> {
        self.signal(Stream::Compute).wait();
        self.result()
    }

    /// Takes back what was told: whoever asks next hears of it.
    pub(crate) fn tell_later(&self, error: TrainError) {
        if !matches!(error, TrainError::FailedBefore) {
            lock(&self.failure.first).get_or_insert(error);
            self.failure.failed.store(true, Ordering::Release);
        }
    }

    fn result(&self) -> Result<(), TrainError> {
        if self.failure.is_set() {
            let error = lock(&self.failure.first).take();
            return Err(error.unwrap_or(TrainError::FailedBefore));
        }
        Ok(())
    }

    /// Lets all threads end after what they have been given.
    pub(crate) fn stop(&self) {
        Stream::ALL.into_iter().for_each(|stream| self.give(stream, Job::Stop));
    }
}

fn work(stream: Stream, jobs: &Receiver<Job>, recorder: &Recorder, failure: &Failure) {
    let mut job = jobs.recv().ok();
    while let Some(now) = job {
        // Work of one place in the training comes in runs: entering a place once is enough for all of it.
        job = match now {
            Job::Run { context, span, work } => {
                let _place = recorder.enter(context);
                run(stream, span, work, recorder, failure);
                loop {
                    match jobs.recv().ok() {
                        Some(Job::Run { context: next, span, work }) if next == context => {
                            run(stream, span, work, recorder, failure);
                        }
                        other => break other,
                    }
                }
            }
            Job::Signal(signal) => {
                signal.raise();
                jobs.recv().ok()
            }
            Job::Wait(signal) => {
                signal.wait();
                jobs.recv().ok()
            }
            Job::Stop => None,
        };
    }
}

fn run(stream: Stream, span: Option<SpanOf>, work: Work, recorder: &Recorder, failure: &Failure) {
    if failure.is_set() {
        return;
    }
    let open = span.map(|SpanOf { kind, name, bytes, flops, collective }| {
        let mut open = recorder.span(kind, name).stream(stream.number()).bytes(bytes);
        if let Some(flops) = flops {
            open = open.flops(flops);
        }
        match collective {
            Some((group, sequence)) => open.collective(group, sequence),
            None => open,
        }
    });
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(TrainError::panicked(&*panic)));
    drop(open);
    if let Err(error) = result {
        failure.set(error);
    }
}
