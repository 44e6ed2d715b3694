//! What a rank takes when there are many, beside what it takes when there are few: `cargo bench --bench cluster`. What a job of
//! some size takes, of small steps and from its summary: `cargo bench --bench cluster -- 16384 1000` (ranks, steps).
//!
//! What is done for each rank takes as long in a large job as in a small one. What ranks say together must not take more with
//! the square of their number, and must not keep more of each than the next question needs.

mod binary;
mod figures;

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    time::Instant,
};

use stepscope_traces::synthetic::{Cluster, Recipe};

use crate::{
    binary::Taken,
    figures::{Estimate, Table},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How often each is done, in turns.
const TRIES: usize = 3;
const FEW: u32 = 32;
const MANY: u32 = 256;

/// Of a job of 16,384 ranks.
const SECONDS_TO_OPEN: f64 = 10.0;
const MEGABYTES_TO_OPEN: f64 = 2000.0;

fn main() -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    // Cargo adds words of its own.
    if let [ranks, steps] = env::args().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()[..] {
        return open(scratch.path(), ranks, steps);
    }
    let [few, many] = [FEW, MANY].map(|ranks| job(scratch.path(), ranks));
    let (few, many) = (few?, many?);
    let mut table = Table::default();
    compare(&mut table, "recorded", &few, &many)?;
    for run in [&few, &many] {
        binary::summarize(run)?;
    }
    compare(&mut table, "summarized", &few, &many)?;
    compare_reports(&mut table, &many)?;
    println!("{table}");
    table.end()
}

/// Opens a job of so many ranks and small steps.
fn open(scratch: &Path, ranks: u32, steps: u32) -> Outcome<()> {
    let path = scratch.join("job");
    let small = Recipe { steps, micro_batches: 1, layers: 1, kernels_per_layer: 1, ..Recipe::default() };
    Recipe { replicas: ranks, waiting: 0.3, ..small }.write(&path)?;
    let summarized = binary::summarize(&path)?;
    println!(
        "summarizing {ranks} ranks of {steps} steps took {:.0} s of one core and {:.0} MB",
        summarized.seconds, summarized.megabytes
    );
    let mut table = Table::default();
    let (mut seconds, mut megabytes) = (Vec::new(), Vec::new());
    for _ in 0..TRIES {
        let began = Instant::now();
        megabytes.push(binary::report(&path)?.megabytes);
        seconds.push(began.elapsed().as_secs_f64());
    }
    let median = |values: Vec<f64>| Estimate::of(values, |sorted| sorted[sorted.len() / 2]);
    table.at_most("its report", "s", SECONDS_TO_OPEN, median(seconds));
    table.at_most("its report: memory", "MB", MEGABYTES_TO_OPEN, median(megabytes));
    println!("{table}");
    table.end()
}

/// The report of a run from the summary of all its ranks, beside everything from those of each.
fn compare_reports(table: &mut Table, run: &Path) -> Outcome<()> {
    let mut ratios = Vec::new();
    for _ in 0..TRIES {
        let (all, each) = (binary::report(run)?, binary::analyze(run)?);
        ratios.push(all.seconds / each.seconds);
    }
    let median = Estimate::of(ratios, |sorted| sorted[sorted.len() / 2]);
    table.at_most(
        &format!("a report of {MANY} ranks from the summary of all over JSON from those of each"),
        "x",
        0.5,
        median,
    );
    Ok(())
}

/// Writes a run of so many ranks.
fn job(scratch: &Path, ranks: u32) -> Outcome<PathBuf> {
    let path = scratch.join(ranks.to_string());
    let cluster = Cluster { ranks_per_host: 8, hosts_per_switch: 16, slow_switch: Some(1) };
    let small = Recipe { steps: 30, micro_batches: 4, layers: 8, kernels_per_layer: 4, ..Recipe::default() };
    Recipe { replicas: ranks, waiting: 0.3, cluster: Some(cluster), ..small }.write(&path)?;
    Ok(path)
}

/// Analyzes both runs in turns.
fn compare(table: &mut Table, called: &str, few: &Path, many: &Path) -> Outcome<()> {
    let (mut ratios, mut seconds, mut megabytes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TRIES {
        let [few, many] = [few, many].map(binary::analyze);
        let (few, many): (Taken, Taken) = (few?, many?);
        ratios.push(many.seconds / f64::from(MANY) / (few.seconds / f64::from(FEW)));
        seconds.push(many.seconds);
        megabytes.push(many.megabytes);
    }
    let median = |values: Vec<f64>| Estimate::of(values, |sorted| sorted[sorted.len() / 2]);
    table.at_most(&format!("a rank of {MANY} over one of {FEW}, {called}"), "x", 1.5, median(ratios));
    table.at_most(&format!("{MANY} ranks, {called}: of one core"), "s", 10.0, median(seconds));
    table.at_most(&format!("{MANY} ranks, {called}: memory"), "MB", 300.0, median(megabytes));
    Ok(())
}
