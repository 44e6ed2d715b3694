//! The thread that samples a device.

use std::{
    collections::HashMap,
    io, mem,
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use stepscope_traces::CounterId;

use super::{
    claim::{Claim, ProcessClaim},
    devices::{self, DeviceSelector, NvmlUnavailable},
    gauges::{Gauges, LeftOut},
    readings,
};
use crate::{Recorder, quiet_thread};

/// How often the memory of the process is sampled while its context is made.
const EARLY_EVERY: Duration = Duration::from_millis(10);
/// For how long after it has any, and how long that is waited for.
const EARLY_FOR: Duration = Duration::from_secs(1);
const EARLY_WAIT: Duration = Duration::from_secs(10);

/// Samples one device into a run until it is dropped. It is to be finished before its recorder is.
pub struct Sampler {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<LeftOut>>>,
    /// The process that samples; a forked child does not have the thread.
    process: u32,
}

impl Sampler {
    /// Begins to sample a device into the run at `run`. Where another process does so already, it samples what this one has
    /// of the device; `None` when another rank of this process does. The first sample is taken before this returns: what
    /// is in use before anything else is.
    pub fn start(
        run: &Path,
        recorder: &Recorder,
        selector: &DeviceSelector,
        every: Duration,
    ) -> Result<Option<Sampler>, NvmlUnavailable> {
        let device = devices::find(selector)?;
        let host = nix::unistd::gethostname().unwrap_or_default();
        let uuid = device.uuid().map_err(NvmlUnavailable::Failed)?;
        recorder.set_gpu_slot(devices::slot(&device));
        let Some(process) = ProcessClaim::take(&uuid) else { return Ok(None) };
        let claim = Claim::take(run, &host.to_string_lossy(), &uuid)?;
        let early = readings::of_process(devices::find(selector)?);
        let gauges = if claim.is_some() { readings::of(device) } else { readings::of_process(device) };
        Ok(Some(Sampler::spawn(recorder.clone(), gauges, early, every, (claim, process))?))
    }

    fn spawn(
        recorder: Recorder,
        gauges: Gauges,
        early: Gauges,
        every: Duration,
        claim: impl Send + 'static,
    ) -> io::Result<Sampler> {
        let ending = Arc::new(AtomicBool::new(false));
        let ended = ending.clone();
        let mut sampling = Sampling { recorder, gauges, counters: HashMap::new() };
        sampling.take();
        let early = Early { gauges: early, began: Instant::now(), first: None };
        let body = move || {
            let _claim = claim;
            sampling.go_on(every, early, &ended)
        };
        let thread = quiet_thread::spawn("stepscope-nvml", body)?;
        Ok(Sampler { ending, thread: Some(thread), process: process::id() })
    }

    /// Stops, and tells what the device or its driver did not have.
    pub fn finish(mut self) -> Vec<LeftOut> {
        self.end()
    }

    fn end(&mut self) -> Vec<LeftOut> {
        let Some(thread) = self.thread.take() else { return Vec::new() };
        if self.process != process::id() {
            mem::forget(thread);
            return Vec::new();
        }
        self.ending.store(true, Relaxed);
        thread.thread().unpark();
        // If it panicked, that was said on stderr; the job goes on.
        thread.join().unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// The ids of counters, where there was room for them.
type CounterIds = HashMap<&'static str, Option<CounterId>>;

/// What is read, and where it goes.
struct Sampling {
    recorder: Recorder,
    gauges: Gauges,
    counters: CounterIds,
}

impl Sampling {
    fn take(&mut self) {
        let Sampling { recorder, gauges, counters } = self;
        record(recorder, counters, gauges);
    }

    /// Takes the samples after the first one.
    fn go_on(mut self, every: Duration, mut early: Early, ended: &AtomicBool) -> Vec<LeftOut> {
        let mut pace = Pace::new(Instant::now(), every);
        loop {
            let next = pace.next(Instant::now());
            while !ended.load(Relaxed) && Instant::now() < next {
                let wait = next.saturating_duration_since(Instant::now());
                if early.is_over() {
                    thread::park_timeout(wait);
                } else {
                    thread::park_timeout(wait.min(EARLY_EVERY));
                    early.take(&self.recorder, &mut self.counters);
                }
            }
            if ended.load(Relaxed) || self.gauges.is_empty() {
                return self.gauges.left_out();
            }
            self.take();
        }
    }
}

/// Reads, and records what there is. Says whether there was anything.
fn record(recorder: &Recorder, counters: &mut CounterIds, gauges: &mut Gauges) -> bool {
    let mut is_any = false;
    gauges.read(|reading, value| {
        is_any = true;
        let counter = *counters.entry(reading.name).or_insert_with(|| recorder.counter(reading.name));
        if let Some(counter) = counter {
            recorder.count(counter, value);
        }
    });
    is_any
}

/// What the process has while its context is made, which takes less than the time between two samples.
struct Early {
    gauges: Gauges,
    began: Instant,
    /// When it had something first.
    first: Option<Instant>,
}

impl Early {
    fn take(&mut self, recorder: &Recorder, counters: &mut CounterIds) {
        if record(recorder, counters, &mut self.gauges) {
            self.first.get_or_insert_with(Instant::now);
        }
    }

    /// Whether the context is there, or none is to be expected.
    fn is_over(&self) -> bool {
        let is_long = |since: Instant, limit: Duration| since.elapsed() >= limit;
        self.gauges.is_empty()
            || self.first.map_or_else(|| is_long(self.began, EARLY_WAIT), |first| is_long(first, EARLY_FOR))
    }
}

/// Moments at equal distances. Those that have passed are skipped, so that being late once is not being late for ever.
struct Pace {
    next: Instant,
    every: Duration,
}

impl Pace {
    fn new(now: Instant, every: Duration) -> Pace {
        Pace { next: now, every: every.max(Duration::from_millis(1)) }
    }

    fn next(&mut self, now: Instant) -> Instant {
        let passed = now.saturating_duration_since(self.next).as_nanos() / self.every.as_nanos();
        self.next += self.every * (1 + u32::try_from(passed).unwrap_or(u32::MAX - 1));
        self.next
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{Rank, RankInfo, Run, RunInfo, Window};

    use super::{
        super::gauges::{Failure, Gauge, Reading},
        *,
    };

    #[test]
    fn what_was_missed_is_skipped() {
        let began = Instant::now();
        let after = |milliseconds| began + Duration::from_millis(milliseconds);
        let mut pace = Pace::new(began, Duration::from_millis(100));
        assert_eq!(pace.next(after(3)), after(100));
        assert_eq!(pace.next(after(130)), after(200));
        assert_eq!(pace.next(after(470)), after(500));
        assert_eq!(pace.next(after(500)), after(600));
    }

    #[test]
    fn a_sampler_records_counters_until_it_is_finished() {
        const READINGS: [Reading; 2] =
            [Reading { name: "test.here", unit: "", meaning: "" }, Reading { name: "test.not", unit: "", meaning: "" }];
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        RunInfo::of_this_process("test").create(&path).unwrap();
        let recorder = Recorder::start(&path, RankInfo::of_this_process(Rank(0))).unwrap();
        let mut value = 0.0;
        let read = move || {
            value += 1.0;
            Ok(vec![Ok(value), Err(Failure::ForGood("not supported".into()))])
        };
        let gauges = Gauges::new(vec![Gauge::new(&READINGS, read)]);
        let claim = Claim::take(&path, "node", "GPU-1").unwrap().unwrap();
        let early = Gauges::new(Vec::new());
        let sampler = Sampler::spawn(recorder.clone(), gauges, early, Duration::from_millis(5), claim).unwrap();
        assert!(Claim::take(&path, "node", "GPU-1").unwrap().is_none());
        thread::sleep(Duration::from_millis(100));
        assert_eq!(sampler.finish(), [LeftOut { name: "test.not", reason: "not supported".into() }]);
        assert!(Claim::take(&path, "node", "GPU-1").unwrap().is_some());
        recorder.finish().unwrap();

        let run = Run::open(&path).unwrap();
        let (data, _) = run.ranks[0].read(Window::ALL).unwrap();
        let named = |name: &str| {
            let samples = data.counters.rows().filter(|sample| data.names.counter(sample.counter) == Some(name));
            samples.map(|sample| sample.value).collect::<Vec<f64>>()
        };
        let values = named("test.here");
        assert!(values.len() > 2 && values.is_sorted(), "{values:?}");
        assert!(named("test.not").is_empty());
    }
}
