//! What the dashboard takes, beside what it may take: `cargo bench --bench live`.
//!
//! A frame is drawn of 64 ranks with a million spans each. Another process writes 200,000 spans a second, or 1,024 ranks, and the
//! dashboard follows it. And a training is watched by another process, which is held every other while.

mod figures;
mod live_run;

use std::{
    error::Error,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        resource::{UsageWho, getrusage},
        signal::{Signal, kill},
        time::TimeValLike,
    },
    unistd::Pid,
};
use stepscope_collector::Recorder;
use stepscope_plan::{ModelShape, ParallelLayout};
use stepscope_traces::{Rank, RankInfo, RunInfo, synthetic::Recipe};
use stepscope_trainer::{
    Dataset, RankParts, TrainConfig, TrainingRank,
    backend::cpu::CpuBackend,
    comm::local::{LocalCommunicator, LocalWorld},
};
use stepscope_tui::{Dashboard, Options, Size, Source, ThemeName, View};

use crate::{
    figures::{Estimate, Table},
    live_run::{FAST, Growth, WIDE},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Tells this program, as another process, to write a run, or to watch one.
const WRITE: &str = "--write-a-run";
const WRITE_WIDE: &str = "--write-a-wide-run";
const WATCH: &str = "--watch-a-run";
const SIZE: Size = Size { width: 200, height: 60 };
/// How long a run is followed once that has filled what is kept of it.
const STEADILY: Duration = Duration::from_secs(15);
/// How often it is looked for something new, as on a terminal.
const PATIENCE: Duration = Duration::from_millis(40);
/// Steps of a training that is watched, or not, in turns; and how many of such turns.
const STEPS_OF_A_TURN: usize = 3;
const TURNS: usize = 30;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let told_to = |what: &str| arguments.iter().position(|argument| argument == what).map(|at| &arguments[at + 1]);
    if let Some(run) = told_to(WRITE) {
        return live_run::write(Path::new(run), FAST);
    }
    if let Some(run) = told_to(WRITE_WIDE) {
        return live_run::write(Path::new(run), WIDE);
    }
    if let Some(run) = told_to(WATCH) {
        return watch(Path::new(run));
    }
    let scratch = tempfile::tempdir()?;
    let mut table = Table::default();
    follow(&scratch.path().join("live"), (WRITE, FAST), &mut table)?;
    follow(&scratch.path().join("large"), (WRITE_WIDE, WIDE), &mut table)?;
    train(&scratch.path().join("training"), &mut table)?;
    draw(&scratch.path().join("wide"), &mut table)?;
    println!("{table}");
    table.end()
}

fn options(run: &Path) -> Options {
    Options { source: Source::Named(vec![run.to_owned()]), view: Some(View::Overview), theme: ThemeName::Dark }
}

/// This program as another process, told to do something with a run.
fn another(what: &str, run: &Path) -> Outcome<Child> {
    Ok(Command::new(std::env::current_exe()?).arg(what).arg(run).stdout(Stdio::piped()).spawn()?)
}

/// Draws frames of a large run, and presses keys.
fn draw(run: &Path, table: &mut Table) -> Outcome<()> {
    let layers = Recipe { micro_batches: 8, layers: 32, kernels_per_layer: 14, ..Recipe::default() };
    Recipe { steps: 116, replicas: 64, ..layers }.write(run)?;
    let mut dashboard = Dashboard::read(&options(run))?;
    let mut pressed = Vec::new();
    for view in View::ALL {
        dashboard.show(*view);
        let frame = |dashboard: &mut Dashboard, key: Option<char>| {
            let began = Instant::now();
            key.into_iter().for_each(|key| dashboard.press(key));
            dashboard.frame(SIZE);
            began.elapsed().as_secs_f64() * 1e3
        };
        let times: Vec<f64> = (0..30).map(|_| frame(&mut dashboard, None)).collect();
        let times = Estimate::of(times, |sorted| sorted[sorted.len() / 2]);
        table.at_most(&format!("a frame of {}, 64 x 1 M spans", view.name()), "ms", 16.0, times);
        pressed.extend("hhl+-jks]][g? G".chars().map(|key| frame(&mut dashboard, Some(key))));
    }
    let pressed = Estimate::of(pressed, |sorted| sorted[sorted.len() - 1]);
    table.at_most("from a key to its frame, the slowest", "ms", 50.0, pressed);
    Ok(())
}

/// Follows a run that another process writes.
fn follow(run: &Path, (write, growth): (&str, Growth), table: &mut Table) -> Outcome<()> {
    let mut writer = another(write, run)?;
    let mut said = BufReader::new(writer.stdout.take().ok_or("no stdout")?).lines();
    said.next().ok_or("the writer did not begin")??;
    let (send, flushed) = mpsc::channel();
    let listener = thread::spawn(move || {
        for line in said.map_while(Result::ok) {
            if line.parse::<i32>().is_ok_and(|step| send.send((step, Instant::now())).is_err()) {
                break;
            }
        }
    });
    let mut dashboard = Dashboard::follow(options(run))?;
    let (began, cpu_before) = (Instant::now(), processor_time()?);
    let (mut waiting, mut late): (Vec<(i32, Instant)>, Vec<f64>) = (Vec::new(), Vec::new());
    let Growth { ranks, spans_a_second, steady, .. } = growth;
    let mut filled = None;
    while began.elapsed() < steady + STEADILY {
        thread::sleep(PATIENCE);
        waiting.extend(flushed.try_iter());
        if dashboard.take_news() {
            let newest = newest_step(&dashboard.frame(SIZE));
            let shown = Instant::now();
            waiting.retain(|(step, when)| {
                let seen = newest >= Some(*step);
                if seen {
                    late.push(shown.duration_since(*when).as_secs_f64() * 1e3);
                }
                !seen
            });
        }
        if began.elapsed() > steady && filled.is_none() {
            filled = Some(megabytes_in_use()?);
        }
    }
    let share = (processor_time()? - cpu_before) as f64 / 1e6 / began.elapsed().as_secs_f64();
    let grown = megabytes_in_use()? / filled.ok_or("it was never filled")?;
    writer.kill()?;
    writer.wait()?;
    listener.join().map_err(|_| "the listener panicked")?;
    let cost = format!("following {ranks} ranks and {spans_a_second} spans/s, of a core");
    table.at_most(&cost, "%", 20.0, Estimate::exact(100.0 * share));
    table.at_most("its memory at the end, over when it was filled", "x", 1.1, Estimate::exact(grown));
    table.at_most("its memory at the end", "MB", 500.0, Estimate::exact(megabytes_in_use()?));
    table.at_most("from flushed to drawn", "ms", 500.0, Estimate::of(late, |sorted| sorted[sorted.len() * 95 / 100]));
    Ok(())
}

/// The step that a frame says is being made.
fn newest_step(frame: &str) -> Option<i32> {
    frame.split("  step ").nth(1)?.split([' ', '\u{1b}']).next()?.parse().ok()
}

fn processor_time() -> Outcome<i64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds())
}

fn megabytes_in_use() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(resident.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0 / 1e6)
}

/// Watches a run until it is ended, as a terminal would show it.
fn watch(run: &Path) -> Outcome<()> {
    let mut dashboard = Dashboard::follow(options(run))?;
    loop {
        thread::sleep(PATIENCE);
        if dashboard.take_news() {
            std::hint::black_box(dashboard.frame(SIZE));
        }
    }
}

/// Trains, watched and not, in turns.
fn train(run: &Path, table: &mut Table) -> Outcome<()> {
    let layout = ParallelLayout { micro_batch: 4, micro_batches: 4, sequence_length: 128, ..ParallelLayout::default() };
    let config = TrainConfig::new(ModelShape::preset("tiny")?, layout);
    RunInfo::of_this_process("training").create(run)?;
    let recorder = Recorder::start(run, RankInfo::of_this_process(Rank(0)))?;
    let backend = Arc::new(CpuBackend::start(recorder.clone())?);
    let communicator = Arc::new(LocalCommunicator::new(Arc::new(LocalWorld::default()), Rank(0), backend.clone()));
    let parts = RankParts { backend, communicator, recorder: recorder.clone() };
    let (mut rank, data) = (TrainingRank::new(&config, Rank(0), parts)?, Dataset::built_in());
    let mut steps = |count: usize| -> Outcome<f64> {
        let times = (0..count).map(|_| Ok(rank.step(&data)?.duration.as_secs_f64())).collect::<Outcome<Vec<f64>>>()?;
        Ok(Estimate::of(times, |sorted| sorted[sorted.len() / 2]).value)
    };
    steps(3)?;
    let mut watcher = another(WATCH, run)?;
    let process = Pid::from_raw(watcher.id().cast_signed());
    let (mut ratios, mut same) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let watched = steps(STEPS_OF_A_TURN)?;
        kill(process, Signal::SIGSTOP)?;
        let (alone, again) = (steps(STEPS_OF_A_TURN)?, steps(STEPS_OF_A_TURN)?);
        kill(process, Signal::SIGCONT)?;
        // The first turn reads all that there was.
        if turn > 0 {
            ratios.push(watched / alone);
            same.push(again / alone);
        }
    }
    watcher.kill()?;
    watcher.wait()?;
    drop(rank);
    recorder.finish()?;
    let median = |ratios: Vec<f64>| Estimate::of(ratios, |sorted| sorted[sorted.len() / 2]);
    table.at_most("a watched step over one that is not", "x", 1.01, median(ratios));
    table.at_most("two that are not, in the same way", "x", 1.01, median(same));
    Ok(())
}
