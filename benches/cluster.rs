//! What a rank takes when there are many, beside what it takes when there are few: `cargo bench --bench cluster`. What a job of
//! some size takes, of small steps and from its summary: `cargo bench --bench cluster -- 16384 1000` (ranks, steps). What one takes
//! whose ranks have a million spans each, from what was recorded: `cargo bench --bench cluster -- 1024` (ranks).
//!
//! What is done for each rank takes as long in a large job as in a small one. What ranks say together must not take more with
//! the square of their number, and must not keep more of each than the next question needs.

mod binary;
mod figures;

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::{Value, json};
use stepscope_traces::{
    Run,
    synthetic::{Cluster, Recipe},
};

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

/// Of a job of 1,024 ranks with a million spans each, of which so many differ: the others have the same files.
const SECONDS_TO_READ: f64 = 300.0;
const MEGABYTES_TO_READ: f64 = 4000.0;
const DIFFERENT: u32 = 64;

fn main() -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    // Cargo adds words of its own.
    match env::args().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()[..] {
        [ranks, steps] => return open(scratch.path(), ranks, steps),
        [ranks] => return read(scratch.path(), ranks),
        _ => {}
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

/// Reads all that so many ranks recorded, once: that takes minutes.
fn read(scratch: &Path, ranks: u32) -> Outcome<()> {
    let path = scratch.join("job");
    let long = Recipe { steps: 158, micro_batches: 8, layers: 32, kernels_per_layer: 10, ..Recipe::default() };
    Recipe { replicas: ranks.min(DIFFERENT), waiting: 0.3, ..long }.write(&path)?;
    let all: Vec<u32> = (0..ranks).collect();
    change(&path.join("run.json"), |run| {
        run["world_size"] = json!(ranks);
        run["layout"].as_object_mut().into_iter().for_each(|layout| layout["dp"] = json!(ranks));
        run["groups"].as_array_mut().into_iter().flatten().for_each(|group| group["ranks"] = json!(all));
    })?;
    for rank in DIFFERENT..ranks {
        let [from, to] = [rank % DIFFERENT, rank].map(|rank| path.join(format!("rank-{rank:05}")));
        fs::create_dir(&to)?;
        for file in fs::read_dir(&from)? {
            let file = file?;
            fs::hard_link(file.path(), to.join(file.file_name()))?;
        }
        // One of its own.
        let description = to.join("rank.json");
        let text = fs::read(&description)?;
        fs::remove_file(&description)?;
        fs::write(&description, text)?;
        change(&description, |info| info["rank"] = json!(rank))?;
    }
    let spans = Run::open(&path)?.ranks[0].survey()?.spans.rows;
    let began = Instant::now();
    let Taken { seconds, megabytes } = binary::analyze(&path)?;
    let took = began.elapsed().as_secs_f64();
    println!("{ranks} ranks of {spans} spans: {seconds:.0} s of processor time");
    let mut table = Table::default();
    table.at_most("all of it", "s", SECONDS_TO_READ, Estimate::exact(took));
    table.at_most("memory", "MB", MEGABYTES_TO_READ, Estimate::exact(megabytes));
    println!("{table}");
    table.end()
}

/// Changes a file of JSON.
fn change(file: &Path, change: impl FnOnce(&mut Value)) -> Outcome<()> {
    let mut value: Value = serde_json::from_slice(&fs::read(file)?)?;
    change(&mut value);
    Ok(fs::write(file, serde_json::to_vec(&value)?)?)
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
