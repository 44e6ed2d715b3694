//! The recorder: what an instrumented program holds.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::Ordering::{Acquire, Relaxed, Release},
    },
    thread::JoinHandle,
};

use stepscope_traces::{
    CollectorNote, CounterId, CounterSample, Device, FIRST_NAME, GpuSlot, Layer, Membership, MemoryCategory,
    MemoryEvent, MemoryOperation, MicroBatch, NameId, Nanos, Phase, RankInfo, RankWriter, RecorderSettings, Span,
    SpanKind, Stage, Step,
};

use crate::{
    context::{Change, Context},
    error::RecordError,
    launch::LaunchInfo,
    launch_notes::{self, MemoryNote},
    lock::lock,
    names::{KnownName, NameBook},
    packed::PackedSpan,
    process_context,
    queue::Event,
    scope::{Entered, Launching, OpenSpan, Scope},
    settings::Settings,
    shared::{Ending, Shared},
    thread_state, writer_thread,
};

/// Records one rank. Clones record the same rank; every method may be called from any thread.
///
/// When the last clone is dropped without [`Recorder::finish`], what was recorded is written and the recording counts
/// as interrupted.
#[derive(Clone)]
pub struct Recorder {
    owner: Option<Arc<Owner>>,
}

impl Recorder {
    /// Begins to record a rank of the run at `run`.
    pub fn start(run: &Path, info: RankInfo) -> Result<Recorder, RecordError> {
        Recorder::start_with(run, info, Settings::default())
    }

    /// Begins to record with other settings.
    pub fn start_with(run: &Path, mut info: RankInfo, settings: Settings) -> Result<Recorder, RecordError> {
        let flush_every_ms = settings.flush_every.as_millis() as u64;
        info.collector.settings = Some(RecorderSettings { flush_every_ms, queue_bytes: settings.queue_bytes as u64 });
        let writer = RankWriter::create(run, info)?;
        let shared = Arc::new(Shared::new(settings));
        let thread = writer_thread::spawn(shared.clone(), run, writer, settings)?;
        let owner = Owner { shared, thread: Mutex::new(Some(thread)) };
        Ok(Recorder { owner: Some(Arc::new(owner)) })
    }

    /// A recorder that records nothing, for a program that is asked not to.
    pub fn disabled() -> Recorder {
        Recorder { owner: None }
    }

    #[inline]
    fn shared(&self) -> Option<&Shared> {
        self.shared_arc().map(|shared| &**shared)
    }

    /// What this recorder's threads share, while it records.
    #[inline]
    pub(crate) fn shared_arc(&self) -> Option<&Arc<Shared>> {
        let shared = &self.owner.as_ref()?.shared;
        shared.is_recording().then_some(shared)
    }

    /// Interns a name; programs keep what it returns. Past a bound, names share one id and are counted.
    pub fn name(&self, text: &str) -> NameId {
        self.names().map_or(FIRST_NAME, |mut names| names.name(text))
    }

    /// Interns the name of a counter. `None` when there are thousands already, or when it is the recorder's own.
    pub fn counter(&self, text: &str) -> Option<CounterId> {
        self.names()?.counter(text)
    }

    fn names(&self) -> Option<MutexGuard<'_, NameBook>> {
        // The lock of a forked child may have been held by a thread that the child does not have.
        self.shared().filter(|shared| !shared.is_forked()).map(Shared::names)
    }

    /// Opens a step on this thread.
    pub fn step(&self, step: Step) -> Scope<'_> {
        self.annotate(SpanKind::Step, KnownName::Step, Change::Step(step))
    }

    /// Opens a micro-batch on this thread.
    pub fn micro_batch(&self, micro_batch: MicroBatch) -> Scope<'_> {
        self.annotate(SpanKind::MicroBatch, KnownName::MicroBatch, Change::MicroBatch(micro_batch))
    }

    /// Opens a phase on this thread.
    pub fn phase(&self, phase: Phase) -> Scope<'_> {
        self.annotate(SpanKind::Phase, KnownName::Phase(phase), Change::Phase(phase))
    }

    /// What the rank does instead of training now: evaluation, or a checkpoint.
    pub fn aside(&self) -> Option<Phase> {
        self.shared().and_then(Shared::now_aside)
    }

    /// Opens a layer on this thread.
    pub fn layer(&self, layer: Layer) -> Scope<'_> {
        self.annotate(SpanKind::Layer, KnownName::Layer, Change::Layer(layer))
    }

    /// Opens a range the program names itself.
    pub fn range(&self, name: NameId) -> Scope<'_> {
        Scope::open(self.shared(), SpanKind::Range, name, Change::Nothing)
    }

    fn annotate(&self, kind: SpanKind, name: KnownName, change: Change) -> Scope<'_> {
        Scope::open(self.shared(), kind, name.id(), change)
    }

    /// Says which pipeline stage this thread works for, until the guard is dropped.
    pub fn stage(&self, stage: Stage) -> Entered<'_> {
        Entered::open(self.shared(), Change::Stage(stage)).0
    }

    /// Says who launches what this thread launches until the guard is dropped: a name that is the text of an origin.
    pub fn launched_by(&self, origin: NameId) -> Entered<'_> {
        Entered::open(self.shared(), Change::Origin(origin)).0
    }

    /// Where in the training this thread is: to be handed to a thread that works for it.
    pub fn context(&self) -> Context {
        self.shared().map(thread_state::context).unwrap_or_default()
    }

    /// Puts this thread where another one is, until the guard is dropped.
    pub fn enter(&self, context: Context) -> Entered<'_> {
        Entered::open(self.shared(), Change::Everything(context)).0
    }

    /// Describes what this thread launches on the device until the guard is dropped. Of several kernels the one that
    /// runs longest gets the description. Costs next to nothing while kernels are not recorded.
    #[inline]
    pub fn launching(&self, info: LaunchInfo) -> Launching<'_> {
        if let (Some(kind), Some((group, Some(sequence)))) = (info.kind, info.collective) {
            let shared = self.shared().filter(|shared| !shared.is_forked());
            shared.into_iter().for_each(|shared| shared.communication.ask(kind, group, sequence));
        }
        Launching::open(self.shared().filter(|shared| shared.launches.watched.load(Relaxed)), info)
    }

    /// Notes in the run how this rank is recorded, or why something is not. A later note of the same kind replaces it.
    pub fn note(&self, note: CollectorNote) {
        if let Some(shared) = self.shared() {
            shared.note(note);
        }
    }

    /// Says what else to ask when somebody asks where this rank is, since its job does not go on. It is told when that was asked,
    /// and tells whether Python is going to note where it is; it takes no time.
    pub fn when_asked(&self, ask: impl Fn(Nanos) -> bool + Send + 'static) {
        if let Some(owner) = &self.owner {
            *lock(&owner.shared.when_asked) = Some(Box::new(ask));
        }
    }

    /// Says what this rank computes on, for a program that learns it after it began to record.
    pub fn set_device(&self, device: Device) {
        if let Some(shared) = self.shared() {
            shared.set_device(device);
        }
    }

    /// Says where this rank's GPU is in its machine.
    pub(crate) fn set_gpu_slot(&self, slot: GpuSlot) {
        if let Some(shared) = self.shared() {
            shared.set_gpu_slot(slot);
        }
    }

    /// Adds this rank to a group that was not known when the run began.
    pub fn join_group(&self, membership: Membership) {
        if let Some(shared) = self.shared() {
            shared.join_group(membership);
        }
    }

    /// Says where the whole process is: a step, or nowhere, and the phase of it. This holds for what is launched on threads
    /// that do not say themselves, such as those that a framework has for its backward pass.
    pub fn set_process_context(&self, step: Option<Step>, phase: Option<Phase>) {
        if let Some(shared) = self.shared() {
            process_context::set(shared.id, step, phase);
        }
    }

    /// Opens a span now; it ends when it is dropped.
    #[inline]
    pub fn span(&self, kind: SpanKind, name: NameId) -> OpenSpan<'_> {
        OpenSpan::open(self.shared(), kind, name)
    }

    /// Records a span that was timed elsewhere, as it is.
    #[inline]
    pub fn record(&self, span: Span) {
        if let Some(shared) = self.shared() {
            thread_state::push(shared, |_, _| Event::Span(PackedSpan::timed(&span)));
        }
    }

    /// Records that a block was handed out.
    pub fn allocate(&self, address: u64, bytes: u64, category: MemoryCategory) {
        self.memory(MemoryOperation::Alloc, address, Some(bytes), Some(category));
    }

    /// Records that a block came back.
    pub fn free(&self, address: u64) {
        self.memory(MemoryOperation::Free, address, None, None);
    }

    /// Records that the allocator took memory from the device.
    pub fn reserve(&self, address: u64, bytes: u64) {
        self.memory(MemoryOperation::Reserve, address, Some(bytes), None);
    }

    /// Records that the allocator gave memory back to the device.
    pub fn release(&self, address: u64) {
        self.memory(MemoryOperation::Release, address, None, None);
    }

    fn memory(&self, op: MemoryOperation, address: u64, bytes: Option<u64>, category: Option<MemoryCategory>) {
        let Some(shared) = self.shared() else { return };
        let event = |context: &Context| {
            let (&Context { step, phase, layer, .. }, time_ns, pool) = (context, Nanos(0), None);
            MemoryEvent { time_ns, op, address, bytes, category, step, phase, layer, pool, site: None }
        };
        if shared.launches.order_memory.load(Relaxed) {
            let (time, event) = (shared.counter.read(), event(&thread_state::context(shared)));
            if launch_notes::leave_memory(MemoryNote { recorder: shared.id, time, event }) {
                return;
            }
            shared.launches.memory_by_host.fetch_add(1, Relaxed);
        }
        let time = shared.counter.read();
        thread_state::push(shared, |context, _| Event::TickedMemory(event(context), time));
    }

    /// Records a memory event that was timed elsewhere, as it is.
    pub fn record_memory(&self, event: MemoryEvent) {
        if let Some(shared) = self.shared() {
            thread_state::push(shared, |_, _| Event::Memory(event));
        }
    }

    /// Records memory events that were timed elsewhere, as they are, and waits for room: for threads that may wait.
    pub fn record_memory_waiting(&self, events: impl IntoIterator<Item = MemoryEvent>) {
        if let Some(shared) = self.shared() {
            events.into_iter().for_each(|event| thread_state::push_waiting(shared, Event::Memory(event)));
        }
    }

    /// Records a counter's value, now.
    pub fn count(&self, counter: impl Into<CounterId>, value: f64) {
        if let Some(shared) = self.shared() {
            let time = shared.counter.read();
            let sample = CounterSample { time_ns: Nanos(0), counter: counter.into(), value };
            thread_state::push(shared, |_, _| Event::TickedCounter(sample, time));
        }
    }

    /// Records a counter's value that was timed elsewhere, as it is.
    pub fn record_counter(&self, sample: CounterSample) {
        if let Some(shared) = self.shared() {
            thread_state::push(shared, |_, _| Event::Counter(sample));
        }
    }

    /// Records nothing, for every clone, until [`Recorder::resume`]. What memory is allocated and freed in between is not
    /// known later, so a program pauses where it holds what it will hold then: between steps.
    pub fn pause(&self) {
        self.owner.iter().for_each(|owner| owner.shared.paused.store(true, Release));
    }

    /// Records again.
    pub fn resume(&self) {
        self.owner.iter().for_each(|owner| owner.shared.paused.store(false, Release));
    }

    /// Says why the program is about to end; a recording that is not finished then says so too.
    pub fn fail(&self, why: &str) {
        let shared = self.owner.iter().map(|owner| &owner.shared).find(|shared| !shared.is_forked());
        shared.into_iter().for_each(|shared| *lock(&shared.reason) = Some(why.to_owned()));
    }

    /// Writes everything and ends the recording, for every clone, as one that was cut off: the program ends, and says why.
    pub fn abandon(self, why: &str) {
        self.fail(why);
        // The writer thread has said on stderr what went wrong, if anything did.
        drop(self.owner.map(|owner| owner.end(Ending::Abandoned)));
    }

    /// Writes everything and ends the recording, for every clone; what is recorded later is ignored. Tells why, if the
    /// recording is not whole.
    pub fn finish(self) -> Result<(), RecordError> {
        self.owner.map_or(Ok(()), |owner| owner.end(Ending::Complete))
    }
}

/// Ends the recording when the last recorder goes.
struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Result<(), RecordError>>>>,
}

impl Owner {
    fn end(&self, ending: Ending) -> Result<(), RecordError> {
        if self.shared.is_forked() {
            // The child has no such thread, and its handle may by now mean another one.
            let handle = self.thread.try_lock().ok().and_then(|mut thread| thread.take());
            std::mem::forget(handle);
            return Ok(());
        }
        // Not under the lock: it sends events, for which the writer makes room.
        let before_end = lock(&self.shared.launches.before_end).take();
        before_end.into_iter().for_each(|hand_over| hand_over());
        match lock(&self.thread).take() {
            Some(thread) => {
                // In this order: the last drain then comes after the last event.
                self.shared.accepting.store(false, Release);
                self.shared.ending.store(ending as u8, Release);
                thread.thread().unpark();
                thread.join().unwrap_or_else(|_| Err(RecordError::Panicked("the writer thread has stopped".into())))
            }
            None if self.shared.failed.load(Acquire) => Err(RecordError::EndedEarly),
            None => Ok(()),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The writer thread has said on stderr what went wrong, if anything did.
        drop(self.end(Ending::Abandoned));
    }
}
