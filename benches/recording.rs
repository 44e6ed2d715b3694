//! What recording and reading cost, beside what they may cost: `cargo bench --bench recording`.

mod figures;

use std::{
    error::Error,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput};
use stepscope_collector::Recorder;
use stepscope_traces::{
    Correlation, Nanos, Rank, RankData, RankInfo, RankWriter, Run, RunInfo, Span, SpanKind, Step, Stream, Window,
    synthetic::{Clocks, Recipe},
};

use crate::figures::{Estimate, Table};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Set in the process that shows how much memory a long recording takes.
const LONG_RECORDING: &str = "STEPSCOPE_BENCH_LONG_RECORDING";

fn main() -> Outcome<()> {
    if let Some(directory) = std::env::var_os(LONG_RECORDING) {
        return record_long(Path::new(&directory));
    }
    let scratch = tempfile::tempdir()?;
    let results = scratch.path().join("criterion");
    let mut criterion = Criterion::default()
        .output_directory(&results)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5))
        .sample_size(30)
        .configure_from_args();

    let training = scratch.path().join("training");
    training_recipe().write(&training)?;
    let run = Run::open(&training)?;
    let survey = run.ranks[0].survey()?;
    let (data, _) = run.ranks[0].read(Window::ALL)?;
    let spans: Vec<Span> = data.spans.rows().collect();

    record_span(&mut criterion, scratch.path())?;
    criterion.benchmark_group("clock").bench_function("read", |bencher| bencher.iter(Instant::now));
    write_spans(&mut criterion, scratch.path(), &spans)?;
    read_spans(&mut criterion, scratch.path(), &spans)?;
    criterion.final_summary();
    if std::env::args().skip(1).any(|argument| !argument.starts_with('-')) {
        println!("some benches were left out, and so is the table");
        return Ok(());
    }

    let span_ns =
        |bench: &str, spans: u64| -> Outcome<Estimate> { criterion_estimate(&results.join(bench), spans as f64) };
    let count = spans.len() as u64;
    let bytes_per_span = survey.spans.bytes as f64 / survey.spans.rows as f64;
    let mut table = Table::default();
    table.at_most("record a span", "ns", 100.0, span_ns("record/span", 1)?);
    table.at_least("write spans, one core", "M/s", 3.0, span_ns("write/spans", count)?.per_second());
    table.at_least("read spans, one core", "M/s", 20.0, span_ns("read/spans", count)?.per_second());
    table.at_most("a span on disk", "bytes", 16.0, Estimate::exact(bytes_per_span));
    table.at_most("recorded until it can be read", "ms", 250.0, follow_delay(scratch.path())?);
    let (memory, recorded) = long_recording(scratch.path())?;
    table.at_most("memory of a recording of 20 M events", "MB", 64.0, memory);
    let clock = span_ns("clock/read", 1)?.value;
    println!("\n{table}\n\nof the 20 M events, {recorded} were recorded; the others were dropped and counted");
    println!("reading the system's clock once took {clock:.1} ns in the same run");
    table.end()
}

/// A training job on one rank, as long as the other figures need it.
fn training_recipe() -> Recipe {
    Recipe {
        steps: 220,
        micro_batches: 4,
        layers: 32,
        kernels_per_layer: 14,
        replicas: 2,
        clocks: Clocks { largest_offset: Nanos(1 << 40), largest_drift: 20_000, largest_wall_error: Nanos(1_000_000) },
        ..Recipe::default()
    }
}

fn start(path: &Path) -> Outcome<Recorder> {
    RunInfo::of_this_process("bench").create(path)?;
    Ok(Recorder::start(path, RankInfo::of_this_process(Rank(0)))?)
}

fn one_span(recorder: &Recorder, name: stepscope_traces::NameId, index: u64) {
    drop(
        recorder
            .span(SpanKind::Kernel, name)
            .stream(Stream(7))
            .correlation(Correlation(index))
            .bytes(index << 10)
            .flops(index << 20),
    );
}

/// Opening and closing a span, on a thread with annotations, while the writer thread runs.
fn record_span(criterion: &mut Criterion, scratch: &Path) -> Outcome<()> {
    const BURST: u64 = 1024;
    let recorder = start(&scratch.join("record"))?;
    let name = recorder.name("kernel");
    criterion.benchmark_group("record").bench_function("span", |bencher| {
        bencher.iter_custom(|spans| {
            let _step = recorder.step(Step(1));
            let mut spent = Duration::ZERO;
            for burst in 0..spans.div_ceil(BURST) {
                let began = Instant::now();
                for index in 0..BURST {
                    one_span(&recorder, name, burst * BURST + index);
                }
                spent += began.elapsed();
                // Let the writer keep up: dropping is cheaper than recording.
                std::thread::sleep(Duration::from_micros(700));
            }
            spent.mul_f64(spans as f64 / (spans.div_ceil(BURST) * BURST) as f64)
        });
    });
    recorder.finish()?;
    let (_, loss) = Run::open(&scratch.join("record"))?.ranks[0].read(Window::ALL)?;
    println!("dropped while measuring: {}\n", loss.dropped_events);
    Ok(())
}

/// The writer alone: rows to compressed batches in a file.
fn write_spans(criterion: &mut Criterion, scratch: &Path, spans: &[Span]) -> Outcome<()> {
    let path = scratch.join("write");
    let mut group = criterion.benchmark_group("write");
    group.throughput(Throughput::Elements(spans.len() as u64));
    group.bench_function("spans", |bencher| {
        bencher.iter_custom(|times| {
            let written = (0..times).map(|_| match write_run(&path, spans) {
                Ok(spent) => {
                    drop(fs::remove_dir_all(&path));
                    spent
                }
                Err(error) => panic!("cannot write: {error}"),
            });
            written.sum()
        });
    });
    Ok(())
}

/// Writes a run and tells how long its rank took.
fn write_run(path: &Path, spans: &[Span]) -> Outcome<Duration> {
    RunInfo::of_this_process("bench").create(path)?;
    let began = Instant::now();
    let mut writer = RankWriter::create(path, RankInfo::of_this_process(Rank(0)))?;
    // As often as a recording of this pace is flushed.
    for batch in spans.chunks(8192) {
        batch.iter().try_for_each(|span| writer.push_span(span))?;
        writer.flush()?;
    }
    writer.finish()?;
    Ok(began.elapsed())
}

/// Files to tables whose memory has been used before, as when one window is read after another.
fn read_spans(criterion: &mut Criterion, scratch: &Path, spans: &[Span]) -> Outcome<()> {
    let path = scratch.join("read");
    write_run(&path, spans)?;
    let run = Run::open(&path)?;
    let mut data = RankData::default();
    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Elements(spans.len() as u64));
    group.bench_function("spans", |bencher| {
        bencher.iter(|| {
            data.clear();
            if let Err(error) = run.ranks[0].follow().and_then(|mut follower| follower.poll(&mut data)) {
                panic!("cannot read: {error}");
            }
            assert_eq!(data.spans.len(), spans.len());
        });
    });
    Ok(())
}

/// How long it takes from recording a span until a follower has it.
fn follow_delay(scratch: &Path) -> Outcome<Estimate> {
    let path = scratch.join("follow");
    let recorder = start(&path)?;
    let name = recorder.name("kernel");
    let mut follower = Run::open(&path)?.ranks[0].follow()?;
    let mut delays = Vec::new();
    for index in 0..30 {
        let mut data = RankData::default();
        let began = Instant::now();
        one_span(&recorder, name, index);
        while data.spans.is_empty() {
            follower.poll(&mut data)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        delays.push(began.elapsed().as_secs_f64() * 1e3);
    }
    recorder.finish()?;
    Ok(Estimate::of(delays, |sorted| sorted[sorted.len() - 1]))
}

/// Records as fast as it can for a while, and prints the most memory the process had.
fn record_long(path: &Path) -> Outcome<()> {
    const EVENTS: u64 = 20_000_000;
    let recorder = start(path)?;
    let name = recorder.name("kernel");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for index in 0..EVENTS / 4 {
                    one_span(&recorder, name, index);
                    // Faster than the writer on average, so that queues grow as far as they may.
                    if index % 1024 == 0 {
                        std::thread::sleep(Duration::from_micros(300));
                    }
                }
            });
        }
    });
    recorder.finish()?;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    println!("{}", peak.trim().trim_end_matches(" kB"));
    Ok(())
}

/// The memory it takes, and how many events are in the files.
fn long_recording(scratch: &Path) -> Outcome<(Estimate, u64)> {
    let path = scratch.join("long");
    let output = Command::new(std::env::current_exe()?).env(LONG_RECORDING, &path).output()?;
    let kilobytes: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    let recorded = Run::open(&path)?.ranks[0].survey()?.spans.rows;
    Ok((Estimate::exact(kilobytes * 1024.0 / 1e6), recorded))
}

/// Nanoseconds for one item, from what criterion found for all of them.
fn criterion_estimate(bench: &Path, items: f64) -> Outcome<Estimate> {
    let estimates = fs::read(bench.join("new/estimates.json"))?;
    let median = &serde_json::from_slice::<serde_json::Value>(&estimates)?["median"];
    let number = |value: &serde_json::Value| value.as_f64().map(|value| value / items).ok_or("not an estimate");
    let interval = &median["confidence_interval"];
    let (low, high) = (number(&interval["lower_bound"])?, number(&interval["upper_bound"])?);
    Ok(Estimate { value: number(&median["point_estimate"])?, low, high })
}
