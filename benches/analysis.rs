//! What an analysis takes, beside what it may take: `cargo bench --bench analysis`.
//!
//! Each is the binary itself, so that its memory is its own.

mod figures;

use std::{
    error::Error,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use stepscope_traces::{Run, synthetic::Recipe};

use crate::figures::{Estimate, Table};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How often each is done.
const TRIES: usize = 3;

fn main() -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let mut table = Table::default();
    let small = analysis(&scratch.path().join("small"), &Recipe { steps: 180, ..rank() })?;
    let large = analysis(&scratch.path().join("large"), &Recipe { steps: 1800, ..rank() })?;
    let wide = analysis(&scratch.path().join("wide"), &Recipe { steps: 90, micro_batches: 8, replicas: 64, ..rank() })?;
    let millions = [&small, &large, &wide].map(|analysis| format!("{:.1} M", analysis.spans as f64 / 1e6)).join(", ");
    let linear = (large.seconds.value / large.spans as f64) / (small.seconds.value / small.spans as f64);
    table.at_most("10 M spans on one rank", "s", 4.0, large.seconds);
    table.at_most("its memory", "MB", 1000.0, Estimate::exact(large.megabytes));
    table.at_most("64 ranks of 1 M spans", "s", 40.0, wide.seconds);
    table.at_most("its memory", "MB", 1000.0, Estimate::exact(wide.megabytes));
    table.at_most("a span of 10 M over one of 1 M", "x", 1.5, Estimate::exact(linear));
    println!("{table}\n\nspans of the three runs: {millions}");
    Ok(())
}

/// A rank of a training job; more steps are more spans.
fn rank() -> Recipe {
    Recipe { micro_batches: 4, layers: 32, kernels_per_layer: 14, ..Recipe::default() }
}

struct Timed {
    spans: u64,
    seconds: Estimate,
    megabytes: f64,
}

fn analysis(path: &Path, recipe: &Recipe) -> Outcome<Timed> {
    recipe.write(path)?;
    let run = Run::open(path)?;
    let spans = run.ranks.iter().map(|rank| Ok(rank.survey()?.spans.rows)).sum::<Outcome<u64>>()?;
    let (mut seconds, mut megabytes) = (Vec::new(), 0.0_f64);
    for _ in 0..TRIES {
        let began = Instant::now();
        let mut analysis = Command::new(env!("CARGO_BIN_EXE_stepscope"));
        analysis.arg("analyze").arg(path).args(["--format", "json"]).stdout(Stdio::null());
        let mut child = analysis.spawn()?;
        megabytes = megabytes.max(peak_while_running(&mut child)?);
        seconds.push(began.elapsed().as_secs_f64());
    }
    Ok(Timed { spans, seconds: Estimate::of(seconds, |sorted| sorted[sorted.len() / 2]), megabytes })
}

/// The most memory a process has had, looked at until it ends.
fn peak_while_running(child: &mut std::process::Child) -> Outcome<f64> {
    let mut peak = 0.0_f64;
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(peak) } else { Err("the analysis failed".into()) };
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
        peak = peak.max(kilobytes * 1024.0 / 1e6);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
