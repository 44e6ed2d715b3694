//! What an export to Perfetto takes, beside what it may take: `cargo bench --bench export`.
//!
//! Spans a second are those of a core: of the whole command, which analyzes a run before it writes it, and of what it takes
//! more than an analysis. Bytes are those of the file, over spans: with everything, without the arguments of kernels, and
//! without memory over time too.

mod binary;
mod figures;

use std::{error::Error, fs, path::Path};

use stepscope_traces::{Run, synthetic::Recipe};

use crate::{
    binary::{Taken, export},
    figures::{Estimate, Table},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let (small, large) = (scratch.path().join("small"), scratch.path().join("large"));
    let spans = write(&small, 232)?;
    let mut table = Table::default();
    // One level of detail less each time; a trace of one rank of ours has no launches.
    let (mut sizes, mut limit) = (Vec::new(), u64::MAX);
    let mut first = None;
    while sizes.len() < 3 {
        let (taken, bytes) = measured(&small, limit)?;
        first.get_or_insert(taken);
        sizes.push(bytes as f64 / spans as f64);
        limit = bytes - 1;
    }
    let many = write(&large, 11_600)?;
    let (taken, bytes) = measured(&large, u64::MAX)?;
    let analysis = binary::analyze(&small)?.seconds;
    let rate = |spans: u64, seconds: f64| Estimate::exact(spans as f64 / 1e6 / seconds);
    let small_taken = first.ok_or("nothing was exported")?;
    table.at_least("spans, the whole command", "M/s", 2.0, rate(many, taken.seconds));
    table.at_least("spans, beside the analysis", "M/s", 2.0, rate(spans, small_taken.seconds - analysis));
    for (what, size) in ["a span, with everything", "without arguments", "and without memory"].iter().zip(&sizes) {
        table.at_most(what, "B", 35.0, Estimate::exact(*size));
    }
    let growth = taken.megabytes / small_taken.megabytes;
    table.at_most("memory of 50 M spans over that of 1 M", "x", 1.2, Estimate::exact(growth));
    println!("{table}");
    for (spans, taken) in [(spans, small_taken), (many, taken)] {
        let Taken { seconds, megabytes } = taken;
        println!("{:.1} M spans: {seconds:.1} s of a core, {megabytes:.0} MB of memory", spans as f64 / 1e6);
    }
    println!("{:.0} MB for {:.1} M spans", bytes as f64 / 1e6, many as f64 / 1e6);
    Ok(())
}

/// Writes a run of one rank and so many steps; how many spans it has.
fn write(run: &Path, steps: u32) -> Outcome<u64> {
    Recipe { steps, micro_batches: 4, layers: 32, kernels_per_layer: 14, ..Recipe::default() }.write(run)?;
    Ok(Run::open(run)?.ranks[0].survey()?.spans.rows)
}

/// Exports a run into at most so many bytes; what it took, and how many there are.
fn measured(run: &Path, limit: u64) -> Outcome<(Taken, u64)> {
    let file = run.with_extension("pftrace");
    let taken = export(run, &file, limit)?;
    let bytes = fs::metadata(&file)?.len();
    fs::remove_file(file)?;
    Ok((taken, bytes))
}
