//! A recording of which only the last minutes are kept, for as many events as a job has in days, and those who watch it:
//! `cargo bench --bench black_box`.

mod figures;

use std::{
    error::Error,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use stepscope_analyzer::{JobWatch, LiveRun};
use stepscope_collector::Recorder;
use stepscope_traces::{
    Counter, MemoryCategory, Rank, RankInfo, RingBounds, Run, RunInfo, SpanKind, Step, Stream, Window,
};

use crate::figures::{Estimate, Table};

type Outcome<T> = Result<T, Box<dyn Error>>;

const EVENTS: u64 = 40_000_000;
const KERNELS_PER_STEP: u64 = 1000;
/// A job of one rank of that size has an hour or more of it in there.
const BOUNDS: RingBounds = RingBounds { keep_seconds: 36_000.0, max_bytes: 64_000_000 };

fn main() -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let path = scratch.path().join("run");
    RunInfo { black_box: Some(BOUNDS), ..RunInfo::of_this_process("bench") }.create(&path)?;
    let recorder = Recorder::start(&path, RankInfo::of_this_process(Rank(0)))?;
    let ended = AtomicBool::new(false);
    let (samples, records, noticed) = thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&path, &ended).map_err(|error| error.to_string()));
        let measuring = scope.spawn(|| measure(&path, &ended));
        let recorded = record(&recorder);
        ended.store(true, Relaxed);
        recorded.map_err(|error| error.to_string())?;
        let (records, noticed) = watching.join().map_err(|_| "the watch panicked")??;
        Ok::<_, Box<dyn Error>>((measuring.join().map_err(|_| "measuring panicked")?, records, noticed))
    })?;
    recorder.finish()?;
    let run = Run::open(&path)?;
    let (data, loss) = run.ranks[0].read(Window::ALL)?;
    // When a quarter of it was done, all there is to be held is.
    let (early, late) = samples.split_at(samples.len() / 4);
    let most = |samples: &[Sample], of: fn(&Sample) -> f64| samples.iter().map(of).fold(0.0, f64::max);
    let more = |of: fn(&Sample) -> f64| Estimate::exact(most(late, of) / most(early, of));
    let mut table = Table::default();
    table.at_most("disk, of what it may take", "", 1.05, Estimate::exact(most(&samples, |sample| sample.disk) / 64e6));
    table.at_most("memory, with all who watch", "MB", 256.0, Estimate::exact(most(&samples, |sample| sample.memory)));
    table.at_most("memory, later against early", "", 1.15, more(|sample| sample.memory));
    table.at_most("open files, later against early", "", 1.2, more(|sample| sample.files));
    table.at_most("threads, later against early", "", 1.0, more(|sample| sample.threads));
    println!("\n{table}\n");
    println!(
        "{EVENTS} events were recorded, {} of them are kept, {} were dropped; {records} steps are told of, {noticed} things noticed",
        data.spans.len(),
        loss.dropped_events
    );
    Ok(())
}

/// Steps as a training has them, slower than the writer writes.
fn record(recorder: &Recorder) -> Outcome<()> {
    let name = recorder.name("kernel");
    for step in 0..EVENTS / (KERNELS_PER_STEP + 4) {
        let scope = recorder.step(Step(i32::try_from(step)?));
        recorder.allocate(step, 1 << 20, MemoryCategory::Activations);
        for index in 0..KERNELS_PER_STEP {
            drop(recorder.span(SpanKind::Kernel, name).stream(Stream(7)).bytes(index << 10));
        }
        recorder.free(step);
        recorder.count(Counter::Loss, 1.0 + 1.0 / (step + 1) as f64);
        drop(scope);
        thread::sleep(Duration::from_micros(600));
    }
    Ok(())
}

/// Watches it as `stepscope record` does; how many steps were told of, and how much was noticed.
fn watch(path: &Path, ended: &AtomicBool) -> Outcome<(usize, usize)> {
    let (mut job, mut live) = (JobWatch::open(path)?, LiveRun::open(path)?);
    live.keep_records();
    let (mut records, mut noticed) = (0, 0);
    loop {
        let is_over = ended.load(Relaxed);
        noticed += job.look()?.len();
        live.look()?;
        while live.read()? {}
        records += live.take_records().len();
        if is_over {
            return Ok((records, noticed));
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
    let mut said = Instant::now();
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
        if said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            println!("{:.0} MB of memory, {:.1} MB on disk, {files} files", sample.memory, sample.disk / 1e6);
        }
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
