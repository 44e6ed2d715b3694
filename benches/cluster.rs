//! What a rank takes when there are many, beside what it takes when there are few: `cargo bench --bench cluster`.
//!
//! What is done for each rank takes as long in a large job as in a small one. What ranks say together must not take more with
//! the square of their number, and must not keep more of each than the next question needs.

mod binary;
mod figures;

use std::{
    error::Error,
    path::{Path, PathBuf},
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

fn main() -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let [few, many] = [FEW, MANY].map(|ranks| job(scratch.path(), ranks));
    let (few, many) = (few?, many?);
    let mut table = Table::default();
    compare(&mut table, "recorded", &few, &many)?;
    for run in [&few, &many] {
        binary::summarize(run)?;
    }
    compare(&mut table, "summarized", &few, &many)?;
    println!("{table}");
    table.end()
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
