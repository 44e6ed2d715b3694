//! The one thread that writes: drains every thread's queue, flushes on time, and keeps count of what recording costs.

use std::{
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, Release},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use stepscope_traces::{
    ClockSnapshot, Counter, CounterSample, MemoryEvent, Nanos, RankWriter, STOOD_STILL, Span, SpanKind, TraceError, now,
};

use crate::{
    asked::Asked,
    error::RecordError,
    hand_over::{Writer, hand_over},
    lock::lock,
    queue::{Event, QueueCounts, QueueEnd},
    quiet_thread,
    settings::Settings,
    shared::{Ending, Shared},
    ticks::TickMap,
};

/// The longest sleep of the thread.
const NAP: Duration = Duration::from_millis(50);
const COUNT_COSTS_EVERY: Duration = Duration::from_secs(1);
const READ_CLOCKS_EVERY: Duration = Duration::from_secs(10);
/// The thread wakes up in time, unless its process stands still; so much later is told.
const STANDS_STILL: Duration = Duration::from_millis(300);

pub(crate) fn spawn(
    shared: Arc<Shared>,
    run: &Path,
    writer: RankWriter,
    settings: Settings,
) -> Result<JoinHandle<Result<(), RecordError>>, RecordError> {
    let for_thread = shared.clone();
    let (run, rank) = (run.to_owned(), writer.info().rank);
    let body = move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| Drain::new(&for_thread, &run, writer, settings).run()))
            .unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                Err(RecordError::Panicked(text.unwrap_or_default()))
            });
        for_thread.accepting.store(false, Relaxed);
        for_thread.failed.store(outcome.is_err(), Release);
        drop(for_thread.take_new_queues());
        if let Err(error) = &outcome {
            // Not `eprintln!`: a closed stderr must not matter.
            let line = format!("stepscope: recording of rank {rank} stopped early: {error}; the program continues\n");
            drop(std::io::stderr().write_all(line.as_bytes()));
        }
        outcome
    };
    let thread = quiet_thread::spawn("stepscope-writer", body)
        .map_err(|error| RecordError::Panicked(format!("cannot start the writer thread: {error}")))?;
    shared.set_writer(thread.thread().clone());
    Ok(thread)
}

struct Drain<'a> {
    shared: &'a Shared,
    writer: RankWriter,
    settings: Settings,
    asked: Asked<'a>,
    queues: Vec<QueueEnd>,
    costs: Costs,
    ticks: TickMap,
    /// What it takes to read the counter, which a sample does once and recording a span twice.
    read_ns: f64,
}

/// What recording costs, since it began.
#[derive(Default)]
struct Costs {
    recorded: u64,
    /// Of queues whose threads have ended.
    dropped: u64,
    samples: u64,
    sampled_ns: u64,
    busy: Duration,
}

impl Costs {
    fn add(&mut self, counts: &QueueCounts) {
        self.dropped += counts.dropped.load(Relaxed);
        self.samples += counts.samples.load(Relaxed);
        self.sampled_ns += counts.sampled_ns.load(Relaxed);
    }
}

impl<'a> Drain<'a> {
    fn new(shared: &'a Shared, run: &'a Path, writer: RankWriter, settings: Settings) -> Drain<'a> {
        const READS: u32 = 256;
        let began = shared.counter.read();
        let last = (0..READS).fold(began, |_, _| shared.counter.read());
        let read_ns = last.nanos_since(began, &shared.counter) as f64 / f64::from(READS);
        let mut ticks = TickMap::default();
        ticks.anchor(&shared.counter);
        let (asked, queues, costs) = (Asked::new(run), Vec::new(), Costs::default());
        Drain { shared, writer, settings, asked, queues, costs, ticks, read_ns }
    }

    fn run(mut self) -> Result<(), RecordError> {
        match self.drain_until_the_end() {
            Ok(Ending::Complete) => {
                self.writer.add_clock_snapshot(ClockSnapshot::take());
                Ok(self.writer.finish()?)
            }
            Ok(_) => {
                let reason = lock(&self.shared.reason).take();
                let reason = reason.as_deref().unwrap_or("the program dropped its recorder without calling finish");
                Ok(self.writer.interrupt(reason)?)
            }
            Err(error) => {
                // If even this cannot be written, the state is read as interrupted all the same.
                drop(self.writer.interrupt(&error.to_string()));
                Err(error.into())
            }
        }
    }

    fn drain_until_the_end(&mut self) -> Result<Ending, TraceError> {
        let began = Instant::now();
        let (mut flushed, mut counted, mut read_clocks) = (began, began, began);
        let nap = NAP.min(self.settings.flush_every / 4);
        loop {
            let woke = Instant::now();
            // Read before the queues are: what was recorded before the end is then in them.
            let ending = self.shared.ending();
            self.drain()?;
            if ending != Ending::NotYet || counted.elapsed() >= COUNT_COSTS_EVERY {
                self.count_costs()?;
                let answers = self.asked.look(self.shared);
                answers.into_iter().for_each(|note| self.writer.note(note));
                counted = woke;
            }
            if flushed.elapsed() + nap >= self.settings.flush_every {
                self.writer.flush()?;
                flushed = woke;
            }
            if read_clocks.elapsed() >= READ_CLOCKS_EVERY {
                self.writer.add_clock_snapshot(ClockSnapshot::take());
                read_clocks = woke;
            }
            if ending != Ending::NotYet {
                return Ok(ending);
            }
            self.costs.busy += woke.elapsed();
            let lay_down = now();
            thread::park_timeout(nap);
            self.tell_standstill(lay_down, nap)?;
        }
    }

    /// Records how long the process stood still, if the thread slept for longer than it meant to.
    fn tell_standstill(&mut self, lay_down: Nanos, nap: Duration) -> Result<(), TraceError> {
        let slept = now() - lay_down;
        if u128::try_from(slept.0).unwrap_or(0) < (nap + STANDS_STILL).as_nanos() {
            return Ok(());
        }
        let name = self.shared.names().name(STOOD_STILL);
        self.take_names()?;
        self.writer.push_span(&Span::new(SpanKind::Range, name, lay_down, slept))
    }

    /// Moves what the queues hold now into the writer.
    fn drain(&mut self) -> Result<(), TraceError> {
        self.shared.take_notes().into_iter().for_each(|note| self.writer.note(note));
        if let Some(device) = self.shared.take_device() {
            self.writer.set_device(device);
        }
        if let Some(slot) = self.shared.take_gpu_slot() {
            self.writer.set_gpu_slot(slot);
        }
        self.shared.take_memberships().into_iter().for_each(|membership| self.writer.join_group(membership));
        let mut queues = std::mem::take(&mut self.queues);
        let handed_over = hand_over(&mut queues, self);
        self.queues = queues;
        handed_over
    }

    fn count_costs(&mut self) -> Result<(), TraceError> {
        let costs = &self.costs;
        let mut now_costs =
            Costs { dropped: costs.dropped, samples: costs.samples, sampled_ns: costs.sampled_ns, ..Costs::default() };
        self.queues.iter().for_each(|queue| now_costs.add(&queue.counts));
        let dropped = now_costs.dropped + self.shared.dropped.load(Relaxed);
        // What was not sampled is not told.
        let per_event =
            (now_costs.samples > 0).then(|| self.read_ns + now_costs.sampled_ns as f64 / now_costs.samples as f64);
        let values = [
            (Counter::RecordedEvents, Some(costs.recorded as f64)),
            (Counter::DroppedEvents, Some(dropped as f64)),
            (Counter::DroppedNames, Some(self.shared.names().dropped as f64)),
            (Counter::WrittenBytes, Some(self.writer.written_bytes() as f64)),
            (Counter::HotPathTime, per_event.map(|per_event| per_event * costs.recorded as f64)),
            (Counter::WriterTime, Some(costs.busy.as_nanos() as f64)),
        ];
        let time_ns = now();
        for (counter, value) in values {
            if let Some(value) = value {
                self.writer.push_counter(&CounterSample { time_ns, counter: counter.id(), value })?;
            }
        }
        Ok(())
    }
}

impl Writer for Drain<'_> {
    type Queue = QueueEnd;
    type Error = TraceError;

    fn new_queues(&mut self) -> Vec<QueueEnd> {
        self.shared.take_new_queues()
    }

    fn take_names(&mut self) -> Result<(), TraceError> {
        // What is about to be written was recorded before the counter is read here.
        self.ticks.anchor(&self.shared.counter);
        let fresh = self.shared.names().take_fresh();
        fresh.into_iter().try_for_each(|(id, text)| self.writer.push_name(id, &text))
    }

    fn write(&mut self, event: Event) -> Result<(), TraceError> {
        self.costs.recorded += 1;
        match event {
            Event::Span(span) => self.writer.push_span(&span.unpack(&self.ticks)),
            Event::Memory(event) => self.writer.push_memory(&event),
            Event::TickedMemory(event, time) => {
                self.writer.push_memory(&MemoryEvent { time_ns: self.ticks.time(time), ..event })
            }
            Event::Counter(sample) => self.writer.push_counter(&sample),
            Event::TickedCounter(sample, time) => {
                self.writer.push_counter(&CounterSample { time_ns: self.ticks.time(time), ..sample })
            }
        }
    }

    fn ended(&mut self, queue: &QueueEnd) {
        self.costs.add(&queue.counts);
        self.shared.return_queue_memory(queue.bytes);
    }
}
