//! What the dashboard takes, beside what it may take: `cargo bench --bench live`.
//!
//! A frame is drawn of 64 ranks with a million spans each. Then another process writes 200,000 spans a second, and the
//! dashboard follows it.

mod figures;

use std::{
    error::Error,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use stepscope_traces::{
    Correlation, FIRST_NAME, NameId, Nanos, Phase, Rank, RankInfo, RankWriter, RunInfo, Span, SpanKind, Step, Stream,
    now, synthetic::Recipe,
};
use stepscope_tui::{Dashboard, Options, Size, Source, ThemeName, View};

use crate::figures::{Estimate, Table};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Tells this program, as another process, to write a run.
const WRITE: &str = "--write-a-run";
const SIZE: Size = Size { width: 200, height: 60 };
const RANKS: u32 = 8;
const SPANS_A_SECOND: usize = 200_000;
const SPANS_OF_A_STEP: usize = 2_500;
const FLUSH: Duration = Duration::from_millis(100);
const FOLLOWED: Duration = Duration::from_secs(20);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|argument| argument == WRITE) {
        return write_run(Path::new(&arguments[place + 1]));
    }
    let scratch = tempfile::tempdir()?;
    let mut table = Table::default();
    follow(&scratch.path().join("growing"), &mut table)?;
    draw(&scratch.path().join("wide"), &mut table)?;
    println!("{table}");
    Ok(())
}

fn options(run: PathBuf, view: View) -> Options {
    Options { source: Source::Named(vec![run]), view, theme: ThemeName::Dark }
}

/// Draws frames of a large run.
fn draw(run: &Path, table: &mut Table) -> Outcome<()> {
    let layers = Recipe { micro_batches: 8, layers: 32, kernels_per_layer: 14, ..Recipe::default() };
    Recipe { steps: 116, replicas: 64, ..layers }.write(run)?;
    for view in View::ALL {
        let mut dashboard = Dashboard::read(&options(run.to_owned(), *view))?;
        let times = (0..30).map(|_| {
            let began = Instant::now();
            dashboard.frame(SIZE);
            began.elapsed().as_secs_f64() * 1e3
        });
        let times = Estimate::of(times.collect(), |sorted| sorted[sorted.len() / 2]);
        table.at_most(&format!("a frame of {}, 64 x 1 M spans", view.name()), "ms", 16.0, times);
    }
    Ok(())
}

/// Follows a run that another process writes.
fn follow(run: &Path, table: &mut Table) -> Outcome<()> {
    let mut writer = Command::new(std::env::current_exe()?);
    let mut writer = writer.arg(WRITE).arg(run).stdout(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(writer.stdout.take().ok_or("no stdout")?).lines();
    said.next().ok_or("the writer did not begin")??;
    let (send, flushed) = mpsc::channel();
    let listener = thread::spawn(move || {
        for line in said.map_while(Result::ok) {
            let step = line.parse::<i32>();
            if step.is_ok_and(|step| send.send((step, Instant::now())).is_err()) {
                break;
            }
        }
    });
    let cpu =
        || getrusage(UsageWho::RUSAGE_SELF).map(|usage| (usage.user_time() + usage.system_time()).num_microseconds());
    let mut dashboard = Dashboard::follow(options(run.to_owned(), View::Overview))?;
    let (began, cpu_before) = (Instant::now(), cpu()?);
    let (mut waiting, mut late): (Vec<(i32, Instant)>, Vec<f64>) = (Vec::new(), Vec::new());
    while began.elapsed() < FOLLOWED {
        thread::sleep(Duration::from_millis(40));
        waiting.extend(flushed.try_iter());
        if dashboard.take_news() {
            let frame = dashboard.frame(SIZE);
            let newest =
                frame.split("  step ").nth(1).and_then(|rest| rest.split([' ', '\u{1b}']).next()?.parse::<i32>().ok());
            let shown = Instant::now();
            waiting.retain(|(step, when)| {
                let seen = newest >= Some(*step);
                if seen {
                    late.push(shown.duration_since(*when).as_secs_f64() * 1e3);
                }
                !seen
            });
        }
    }
    let share = (cpu()? - cpu_before) as f64 / 1e6 / began.elapsed().as_secs_f64();
    writer.kill()?;
    writer.wait()?;
    listener.join().map_err(|_| "the listener panicked")?;
    let memory = std::fs::read_to_string("/proc/self/status")?;
    let memory = memory.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let megabytes = memory.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) * 1024.0 / 1e6;
    table.at_most("following 200,000 spans/s, of a core", "%", 20.0, Estimate::exact(100.0 * share));
    table.at_most("its memory", "MB", 500.0, Estimate::exact(megabytes));
    table.at_most("from flushed to drawn", "ms", 500.0, Estimate::of(late, |sorted| sorted[sorted.len() * 95 / 100]));
    Ok(())
}

/// Writes a run, as fast as it is to be, and says which step it has come to.
fn write_run(run: &Path) -> Outcome<()> {
    let mut info = RunInfo::of_this_process("growing");
    info.world_size = Some(RANKS);
    info.create(run)?;
    let mut writers = (0..RANKS)
        .map(|rank| RankWriter::create(run, RankInfo::of_this_process(Rank(rank))))
        .collect::<Result<Vec<_>, _>>()?;
    for writer in &mut writers {
        (0..40).try_for_each(|name| writer.push_name(NameId(FIRST_NAME.0 + name), &format!("kernel_{name}")))?;
    }
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "begun")?;
    stdout.flush()?;
    let (began, origin) = (Instant::now(), now().0);
    let length = 1_000_000_000 * i64::from(RANKS) / SPANS_A_SECOND as i64;
    let (mut written, mut told) = (0_usize, None);
    loop {
        thread::sleep(FLUSH);
        let due = (began.elapsed().as_secs_f64() * SPANS_A_SECOND as f64) as usize / RANKS as usize;
        for writer in &mut writers {
            (written..due).try_for_each(|index| {
                writer
                    .push_span(&span(index, origin, length))
                    .and_then(|()| annotation(index, origin, length).map_or(Ok(()), |span| writer.push_span(&span)))
            })?;
            writer.flush()?;
        }
        written = due;
        let step = due.saturating_sub(1) / SPANS_OF_A_STEP;
        if told != Some(step) {
            writeln!(stdout, "{step}")?;
            stdout.flush()?;
            told = Some(step);
        }
    }
}

fn span(index: usize, origin: i64, length: i64) -> Span {
    let kind = if index % 10 == 9 { SpanKind::AllReduce } else { SpanKind::Kernel };
    let name = NameId(FIRST_NAME.0 + (index % 40) as u32);
    let start = Nanos(origin + index as i64 * length);
    Span {
        step: Some(Step((index / SPANS_OF_A_STEP) as i32)),
        stream: Some(Stream(u32::from(kind != SpanKind::Kernel))),
        phase: Some(if index % SPANS_OF_A_STEP < SPANS_OF_A_STEP / 3 { Phase::Forward } else { Phase::Backward }),
        correlation: Some(Correlation(index as u64)),
        ..Span::new(kind, name, start, Nanos(length * 9 / 10))
    }
}

/// The annotation of a step, after its last span.
fn annotation(index: usize, origin: i64, length: i64) -> Option<Span> {
    let last = (index + 1).is_multiple_of(SPANS_OF_A_STEP);
    let first = (index + 1 - SPANS_OF_A_STEP.min(index + 1)) as i64;
    let step = Some(Step((index / SPANS_OF_A_STEP) as i32));
    let span =
        Span::new(SpanKind::Step, FIRST_NAME, Nanos(origin + first * length), Nanos(length * SPANS_OF_A_STEP as i64));
    last.then_some(Span { step, ..span })
}
