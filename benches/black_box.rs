//! A recording of which only the last minutes are kept, for as many events as a job has in days, and those who watch it:
//! `cargo bench --bench black_box`.

mod figures;

use std::{
    error::Error,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use stepscope_analyzer::{JobWatch, LiveRun};
use stepscope_collector::Recorder;
use stepscope_traces::{
    Counter, MemoryCategory, Rank, RankInfo, RingBounds, Run, RunInfo, SpanKind, Step, Stream, Window,
};

use crate::figures::{Estimate, Table};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// As many as a job of days has, recorded as fast as they can be; and what those who watch it take at the pace of a real job.
const PARTS: [Part; 2] = [
    Part { what: "40 M events", steps: 40_000, pause: Duration::from_millis(1), has_history: false },
    Part { what: "5 M, with history", steps: 5_000, pause: Duration::from_millis(8), has_history: true },
];
const KERNELS_PER_STEP: u64 = 1000;
const BOUNDS: RingBounds = RingBounds { keep_seconds: 36_000.0, max_bytes: 64_000_000 };

struct Part {
    what: &'static str,
    steps: u64,
    /// How long after a step the next one begins.
    pause: Duration,
    /// Whether it is kept what each step comes to.
    has_history: bool,
}

fn main() -> Outcome<()> {
    let mut table = Table::default();
    let mut lines = Vec::new();
    for part in &PARTS {
        lines.push(part.run(&mut table)?);
    }
    println!("\n{table}\n\n{}", lines.join("\n"));
    table.end()
}

impl Part {
    fn run(&self, table: &mut Table) -> Outcome<String> {
        let scratch = tempfile::tempdir()?;
        let path = scratch.path().join("run");
        RunInfo { black_box: Some(BOUNDS), ..RunInfo::of_this_process("bench") }.create(&path)?;
        let recorder = Recorder::start(&path, RankInfo::of_this_process(Rank(0)))?;
        let ended = AtomicBool::new(false);
        let (samples, told) = thread::scope(|scope| {
            let watching = scope.spawn(|| watch(&path, &ended, self.has_history).map_err(|error| error.to_string()));
            let measuring = scope.spawn(|| measure(&path, &ended));
            let recorded = self.record(&recorder);
            ended.store(true, Relaxed);
            recorded.map_err(|error| error.to_string())?;
            let told = watching.join().map_err(|_| "the watch panicked")??;
            Ok::<_, Box<dyn Error>>((measuring.join().map_err(|_| "measuring panicked")?, told))
        })?;
        recorder.finish()?;
        let (data, loss) = Run::open(&path)?.ranks[0].read(Window::ALL)?;
        // When a quarter of it was done, all there is to be held is.
        let (early, late) = samples.split_at(samples.len() / 4);
        let most = |samples: &[Sample], of: fn(&Sample) -> f64| samples.iter().map(of).fold(0.0, f64::max);
        let more = |of: fn(&Sample) -> f64| Estimate::exact(most(late, of) / most(early, of));
        let named = |what: &str| format!("{}: {what}", self.what);
        let disk = most(&samples, |sample| sample.disk) / BOUNDS.max_bytes as f64;
        table.at_most(&named("disk of its bound"), "", 1.05, Estimate::exact(disk));
        table.at_most(&named("memory"), "MB", 128.0, Estimate::exact(most(&samples, |sample| sample.memory)));
        table.at_most(&named("memory, later/early"), "", 1.15, more(|sample| sample.memory));
        table.at_most(&named("files, later/early"), "", 1.2, more(|sample| sample.files));
        table.at_most(&named("threads, later/early"), "", 1.0, more(|sample| sample.threads));
        Ok(format!(
            "{}: {} spans are kept, {} events were dropped; {told} steps are told of",
            self.what,
            data.spans.len(),
            loss.dropped_events
        ))
    }

    /// Steps as a training has them.
    fn record(&self, recorder: &Recorder) -> Outcome<()> {
        let name = recorder.name("kernel");
        for step in 0..self.steps {
            let scope = recorder.step(Step(i32::try_from(step)?));
            recorder.allocate(step, 1 << 20, MemoryCategory::Activations);
            for index in 0..KERNELS_PER_STEP {
                drop(recorder.span(SpanKind::Kernel, name).stream(Stream(7)).bytes(index << 10));
            }
            recorder.free(step);
            recorder.count(Counter::Loss, 1.0 + 1.0 / (step + 1) as f64);
            drop(scope);
            thread::sleep(self.pause);
        }
        Ok(())
    }
}

/// Watches it as `stepscope record` does; how many steps were told of.
fn watch(path: &Path, ended: &AtomicBool, has_history: bool) -> Outcome<usize> {
    let mut job = JobWatch::open(path)?;
    let mut live = has_history.then(|| LiveRun::open(path)).transpose()?;
    live.iter_mut().for_each(LiveRun::keep_records);
    let mut told = 0;
    loop {
        let is_over = ended.load(Relaxed);
        job.look()?;
        if let Some(live) = &mut live {
            live.look()?;
            while live.read()? {}
            told += live.take_records().len();
        }
        if is_over {
            return Ok(told);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// What the process and the run take at a moment.
struct Sample {
    memory: f64,
    files: f64,
    threads: f64,
    disk: f64,
}

fn measure(path: &Path, ended: &AtomicBool) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !ended.load(Relaxed) {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0)
        };
        let files = fs::read_dir("/proc/self/fd").map_or(0, |files| files.count());
        let sample = Sample {
            memory: number("VmRSS:") * 1024.0 / 1e6,
            files: files as f64,
            threads: number("Threads:"),
            disk: size(path) as f64,
        };
        samples.push(sample);
        thread::sleep(Duration::from_millis(500));
    }
    samples
}

/// What a directory takes.
fn size(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    entries.map(|entry| if entry.is_dir() { size(&entry) } else { entry.metadata().map_or(0, |file| file.len()) }).sum()
}
