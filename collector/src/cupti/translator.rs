//! Turns what CUPTI says into what a recording holds: records and notes of launches in, spans out.

use std::{
    ffi::{CStr, CString},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use stepscope_traces::{
    CollectorNote, Correlation, CounterSample, MemoryHolder, MemoryTimes, Nanos, OperatorsFrom, Span, SpanKind, now,
};

use super::{
    blocking_calls,
    calls::{Call, Calls},
    clock::CuptiClock,
    groups::{Groups, Ran},
    held_memory,
    join::Launches,
    memory::{MemoryChange, Pools},
    memory_order::MemoryOrder,
    modules,
    names::KernelNames,
    records::{Record, Work},
    repeated::{LaunchShape, Repeated, SeenLaunch},
    streams::{CuptiStream, Streams},
    thread_order::Settled,
};
use crate::{
    launch_notes::{CallNote, DescribedLaunch, Heard, LaunchNote, NoteReader},
    packed::PackedSpan,
    process_context,
    queue::Event,
    shared::Shared,
    thread_state::{self, Launched},
};

/// Turns records into spans of the recorders that listen.
pub(crate) struct Translator {
    listeners: Vec<Arc<Shared>>,
    notes: NoteReader,
    launches: Launches,
    calls: Calls,
    groups: Groups,
    repeated: Repeated,
    pub(crate) streams: Streams,
    pub(crate) clock: CuptiClock,
    names: KernelNames,
    pools: Pools,
    memory_order: MemoryOrder,
    /// What was set aside for the first kernel, and for the one that took most.
    local_memory: Option<(u64, u64)>,
}

impl Translator {
    pub(crate) fn new() -> Translator {
        Translator {
            listeners: Vec::new(),
            notes: NoteReader::new(),
            launches: Launches::default(),
            calls: Calls::default(),
            groups: Groups::default(),
            repeated: Repeated::default(),
            streams: Streams::default(),
            clock: CuptiClock::default(),
            names: KernelNames::default(),
            pools: Pools::default(),
            memory_order: MemoryOrder::new(),
            local_memory: None,
        }
    }

    /// Adds a recorder, unless it is there already.
    pub(crate) fn listen(&mut self, shared: &Arc<Shared>) -> bool {
        let is_new = self.listeners.iter().all(|listener| listener.id != shared.id);
        if is_new {
            self.listeners.push(shared.clone());
            held_memory::with(|held| held.tell_all(now()));
            shared.launches.watched.store(true, Relaxed);
        }
        is_new
    }

    /// Removes a recorder and notes there how well things went; says whether another one is left.
    pub(crate) fn leave(&mut self, shared: &Shared) -> bool {
        self.end_order(shared);
        let Translator { groups, repeated, listeners, .. } = self;
        groups.end(shared.id, |recorder, span, launch| record(listeners, repeated, recorder, span, launch));
        shared.launches.watched.store(false, Relaxed);
        if let Some(delay) = shared.launches.least_delay() {
            shared.note(CollectorNote::CuptiLeastLaunchDelay(delay.0));
        }
        shared.note(CollectorNote::CuptiClockUncertainty(self.clock.uncertainty().0));
        shared.note(CollectorNote::CuptiUnannotated(shared.launches.unannotated.load(Relaxed)));
        shared.note(CollectorNote::CuptiLostAnnotations(self.notes.lost()));
        self.listeners.retain(|listener| listener.id != shared.id);
        self.streams.forget(shared.id);
        !self.listeners.is_empty()
    }

    /// Forgets launches and clocks: CUPTI is let go of, and its numbers begin anew.
    pub(crate) fn forget_launches(&mut self) {
        self.launches = Launches::default();
        self.calls = Calls::default();
        self.clock = CuptiClock::default();
    }

    /// Whether this is the only listener.
    pub(crate) fn has_only(&self, shared: &Shared) -> bool {
        self.listeners.iter().all(|listener| listener.id == shared.id)
    }

    /// Places the memory events of a recorder between launches on this stream, from now on.
    pub(crate) fn order_memory(&mut self, shared: &Shared, place: CuptiStream) {
        self.memory_order.by(shared.id, place);
        shared.launches.order_memory.store(true, Relaxed);
        shared.note(CollectorNote::MemoryTimes(MemoryTimes::Device));
    }

    /// Records the memory events of a recorder that still wait, and leaves later ones to it.
    pub(crate) fn end_order(&mut self, shared: &Shared) {
        if shared.launches.order_memory.swap(false, Relaxed) {
            self.read_notes();
            self.memory_order.end(shared.id, |settled| record_settled(&self.listeners, shared.id, settled));
            let by_host = shared.launches.memory_by_host.load(Relaxed);
            shared.note(CollectorNote::MemoryTimesOfHost(by_host));
        }
    }

    /// Takes the notes of launches. To be called between getting a buffer and reading it, so that the launches of all its
    /// records are known.
    pub(crate) fn read_notes(&mut self) {
        let Translator { notes, launches, calls, memory_order, listeners, .. } = self;
        memory_order.read_clocks();
        notes.read(|thread, heard| match heard {
            Heard::Launch(note) => launches.add(note, memory_order.launched(thread, note.launched.recorder)),
            Heard::Operation(note) => match note.launch {
                DescribedLaunch::Numbered(correlation) => launches.describe(correlation, note.info),
                DescribedLaunch::LastOf { thread, before } => calls.describe(thread, before, note.info),
            },
            Heard::Memory(note) => memory_order.add(thread, &note),
            Heard::Call(note) => record_call(listeners, &note),
            Heard::PassedBy => {
                memory_order.passed_by(thread, |recorder, settled| record_settled(listeners, recorder, settled));
            }
            Heard::Ended => memory_order.thread_ended(thread),
        });
    }

    /// Takes a call of which CUPTI tells only now: the process was then where it said it was.
    pub(crate) fn called(&mut self, call: Call) {
        let time = self.clock.time(call.start);
        self.calls.add(call, time);
        if let Some((recorder, place)) = process_context::at(time) {
            let launched = Launched { recorder, context: place.context(), guard: None, info: None, position: None };
            let note = LaunchNote { correlation: call.correlation, time: Some(time), launched };
            self.launches.add(note, None);
        }
    }

    /// Says that all calls up to a time are known.
    pub(crate) fn called_until(&mut self, time: Nanos) {
        let Translator { calls, launches, .. } = self;
        calls.settle(time, |correlation, info| launches.describe(correlation, info));
    }

    /// Records the memory events whose time is known by now. To be called after records have been read.
    pub(crate) fn settle_memory(&mut self) {
        let Translator { memory_order, listeners, .. } = self;
        memory_order.settle(|recorder, settled| record_settled(listeners, recorder, settled));
    }

    /// Counts lost records. Their owner is unknown, so every recording reports that it may lack them.
    pub(crate) fn lose(&self, records: u64) {
        self.listeners.iter().for_each(|listener| {
            listener.dropped.fetch_add(records, Relaxed);
        });
    }

    /// Records what was held back in case there is more to come, and nothing came for long. To be called regularly.
    pub(crate) fn look_for_quiet_streams(&mut self) {
        let Translator { groups, repeated, listeners, .. } = self;
        groups.end_quiet(|recorder, span, launch| record(listeners, repeated, recorder, span, launch));
        self.memory_order.look();
        self.settle_memory();
    }

    /// Records what a record says; `None` is one that could not be read.
    pub(crate) fn translate(&mut self, record: Option<Record<'_>>) {
        match record {
            Some(Record::Kernel { work, name, shape, local_memory }) => {
                self.reserve_for_kernel(&work, name, local_memory);
                self.work(work, name, (None, shape), |kind| kind);
            }
            Some(Record::Copy { work, bytes, direction }) => {
                self.work(work, copy_name(direction), (Some(bytes), LaunchShape::default()), |_| SpanKind::Copy);
            }
            Some(Record::Set { work, bytes }) => {
                self.work(work, c"memset", (Some(bytes), LaunchShape::default()), |_| SpanKind::Set);
            }
            Some(Record::Graph { work, number }) => {
                let name = CString::new(format!("CUDA graph {number}")).unwrap_or_default();
                self.work(work, &name, (None, LaunchShape::default()), |kind| kind);
            }
            Some(Record::Memory(change)) => self.memory(change),
            // Calls are taken before anything else of a buffer.
            Some(Record::Call(_) | Record::Other) => {}
            None => self.lose(1),
        }
    }

    /// What runs has a name, which says what kind it is if nothing else does.
    fn work(
        &mut self,
        work: Work,
        name: &CStr,
        (bytes, shape): (Option<u64>, LaunchShape),
        kind: impl Fn(SpanKind) -> SpanKind,
    ) {
        // CUPTI had no memory to time it with, or it has not ended.
        if work.start == 0 || work.end < work.start {
            return self.lose(1);
        }
        let is_kernel = bytes.is_none();
        let (start, end) = (self.clock.time(work.start), self.clock.time(work.end));
        let launch = self.launches.find(work.correlation, is_kernel);
        if let Some(position) = launch.and_then(|launch| launch.position) {
            self.memory_order.ran(position, Some((work.place, start, end)));
        }
        let note = launch.map(|launch| launch.note);
        let Some(listener) = listener(&self.listeners, &self.streams, note.as_ref(), Some(work.place)) else { return };
        let (name, named_kind) = self.names.look_up(listener, name);
        let mut span = Span {
            stream: Some(self.streams.number(listener.id, work.place)),
            correlation: Some(Correlation(u64::from(work.correlation))),
            bytes,
            ..Span::new(kind(named_kind), name, start, end - start)
        };
        match &note {
            Some(note) => {
                note.launched.context.apply(&mut span);
                if let Some(launched) = note.time {
                    listener.launches.add_delay(start - launched);
                }
            }
            None => {
                listener.launches.unannotated.fetch_add(1, Relaxed);
            }
        }
        // A kernel that was launched without a word may have been taken for another's: this is only said of NCCL's.
        if let Some(operation) = self.launches.operation(work.correlation).filter(|_| span.kind.is_communication()) {
            operation.apply(&mut span);
        }
        let (guard, info) = note.map_or((None, None), |note| (note.launched.guard, note.launched.info));
        let launch = SeenLaunch { shape, position: note.and_then(|note| note.launched.position) };
        let ran = Ran { recorder: listener.id, place: work.place, guard, info, span, launch };
        let Translator { groups, repeated, listeners, .. } = self;
        groups.add(ran, |recorder, span, launch| record(listeners, repeated, recorder, span, launch));
    }

    /// What a kernel took of the device's memory when it ran first: its code, and stacks, which are set aside for good.
    fn reserve_for_kernel(&mut self, work: &Work, name: &CStr, local_memory: u64) {
        let Some(listener) = self.listeners.first() else { return };
        // What is set aside for the first kernel was there before it, as a part of the context.
        let (first, most) = self.local_memory.get_or_insert((local_memory, local_memory));
        if local_memory > *most {
            *most = local_memory;
            let (time, grown) = (self.clock.time(work.start), local_memory.saturating_sub(*first));
            held_memory::with(|held| {
                held.set(time, MemoryHolder::LocalMemory, grown.max(held.sum(MemoryHolder::LocalMemory)))
            });
        }
        if !self.names.has(listener, name) {
            modules::ran(self.clock.time(work.start), name.to_bytes());
        }
    }

    /// Records what changed in the memory that libraries hold. It is the process's, so the first recorder's.
    pub(crate) fn record_held_memory(&self) {
        let Some(listener) = self.listeners.first().filter(|listener| !listener.paused.load(Relaxed)) else { return };
        for change in held_memory::with(held_memory::HeldMemory::take_changes) {
            let counter = listener.names().counter(change.holder.counter());
            let sample =
                counter.map(|counter| CounterSample { time_ns: change.time, counter, value: change.bytes as f64 });
            sample.into_iter().for_each(|sample| thread_state::push_waiting(listener, Event::Counter(sample)));
        }
    }

    fn memory(&mut self, change: MemoryChange) {
        let launch = self.launches.find(change.correlation, false);
        if let Some(position) = launch.and_then(|launch| launch.position) {
            self.memory_order.ran(position, None);
        }
        let note = launch.map(|launch| launch.note);
        let Some(listener) = listener(&self.listeners, &self.streams, note.as_ref(), change.place) else { return };
        let context = note.map(|note| note.launched.context).unwrap_or_default();
        for event in self.pools.events(&change, self.clock.time(change.time), &context) {
            if !listener.paused.load(Relaxed) {
                thread_state::push_waiting(listener, Event::Memory(event));
            }
        }
    }
}

/// Whose a record is: the recorder's whose thread launched it, else the one's whose stream it ran on.
fn listener<'a>(
    listeners: &'a [Arc<Shared>],
    streams: &Streams,
    note: Option<&LaunchNote>,
    place: Option<CuptiStream>,
) -> Option<&'a Arc<Shared>> {
    let by_id = |id: u64| listeners.iter().find(|listener| listener.id == id);
    let launcher = note.and_then(|note| by_id(note.launched.recorder));
    let owner = || by_id(streams.owner(place?)?);
    launcher.or_else(owner).or(listeners.first())
}

/// Sends a span to the recorder it is of, unless that records nothing for now.
fn record(listeners: &[Arc<Shared>], repeated: &mut Repeated, recorder: u64, span: &Span, launch: SeenLaunch) {
    let listener = listeners.iter().find(|listener| listener.id == recorder);
    if let Some(listener) = listener.filter(|listener| !listener.paused.load(Relaxed)) {
        let mut span = *span;
        if repeated.complete(recorder, &mut span, launch) {
            listener.launches.origins_inferred.call_once(|| {
                listener.note(CollectorNote::Operators(OperatorsFrom::SampledSteps));
            });
        }
        thread_state::push_waiting(listener, Event::Span(PackedSpan::timed(&span)));
    }
}

/// Sends a call to the recorder its thread worked for, unless that records nothing for now.
fn record_call(listeners: &[Arc<Shared>], note: &CallNote) {
    let listener = listeners.iter().find(|listener| listener.id == note.recorder);
    if let Some(listener) = listener.filter(|listener| !listener.paused.load(Relaxed)) {
        let span = blocking_calls::span(note, listener);
        thread_state::push_waiting(listener, Event::Span(PackedSpan::timed(&span)));
    }
}

/// Sends a memory event to the recorder that took it, even if that has paused since: its other half may come later.
fn record_settled(listeners: &[Arc<Shared>], recorder: u64, settled: Settled) {
    if let Some(listener) = listeners.iter().find(|listener| listener.id == recorder) {
        listener.launches.memory_by_host.fetch_add(u64::from(settled.by_host), Relaxed);
        thread_state::push_waiting(listener, Event::Memory(settled.event));
    }
}

/// The name of a copy, from where to where.
fn copy_name(direction: u8) -> &'static CStr {
    match direction {
        1 => c"copy_host_to_device",
        2 => c"copy_device_to_host",
        3 => c"copy_host_to_array",
        4 => c"copy_array_to_host",
        5 => c"copy_array_to_array",
        6 => c"copy_array_to_device",
        7 => c"copy_device_to_array",
        8 => c"copy_device_to_device",
        9 => c"copy_host_to_host",
        10 => c"copy_peer_to_peer",
        _ => c"copy",
    }
}

#[cfg(test)]
mod tests;
