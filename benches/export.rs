//! What an export to Perfetto or to tables takes, beside what it may take: `cargo bench --bench export`.
//!
//! Tables are written after the whole run was analyzed, so their memory is compared with that of an analysis.
//!
//! Spans a second are those of a core: of the whole command, which analyzes a run before it writes it, and of what it takes
//! more than an analysis. Bytes are those of the whole file, over spans: as it is by default, with all arguments, and
//! without memory over time, which has values and no spans.

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
    let (few, many) = (write(&small, 232)?, write(&large, 11_600)?);
    let (small_taken, default) = measured(&small, None)?;
    let (_, everything) = measured(&small, Some(u64::MAX))?;
    // One level of detail less each time, of those that this run has.
    let (_, without_categories) = measured(&small, Some(default - default / 200))?;
    let (_, without_memory) = measured(&small, Some(without_categories - without_categories / 200))?;
    let (large_taken, large_bytes) = measured(&large, Some(u64::MAX))?;
    let analysis = binary::analyze(&small)?.seconds;
    let rate = |spans: u64, seconds: f64| Estimate::exact(spans as f64 / 1e6 / seconds);
    let mut table = Table::default();
    table.at_least("spans, the whole command", "M/s", 2.0, rate(many, large_taken.seconds));
    table.at_least("spans, beside the analysis", "M/s", 2.0, rate(few, small_taken.seconds - analysis));
    for (what, bytes) in [
        ("a span, without memory over time", without_memory),
        ("and with what is allocated", without_categories),
        ("and with memory by category: default", default),
        ("and with all arguments", everything),
    ] {
        table.at_most(what, "B", 35.0, Estimate::exact(bytes as f64 / few as f64));
    }
    tables(scratch.path(), (&small, few), &mut table)?;
    let growth = large_taken.megabytes / small_taken.megabytes;
    table.at_most("memory of 50 M spans over that of 1 M", "x", 1.2, Estimate::exact(growth));
    println!("{table}");
    for (spans, taken) in [(few, small_taken), (many, large_taken)] {
        let Taken { seconds, megabytes } = taken;
        println!("{:.1} M spans: {seconds:.1} s of a core, {megabytes:.0} MB of memory", spans as f64 / 1e6);
    }
    println!("{:.0} MB for {:.1} M spans with everything", large_bytes as f64 / 1e6, many as f64 / 1e6);
    table.end()
}

/// Exports a small run and one ten times as long as tables.
fn tables(scratch: &Path, (small, few): (&Path, u64), table: &mut Table) -> Outcome<()> {
    let (long, into) = (scratch.join("long"), scratch.join("tables"));
    let many = write(&long, 2_320)?;
    let mut beside = Vec::new();
    for (run, spans) in [(small, few), (&long, many)] {
        let analysis = binary::analyze(run)?;
        let taken = binary::export_tables(run, &into)?;
        let bytes = fs::metadata(into.join("spans/run=synthetic/rank=0/part-0.parquet"))?.len();
        fs::remove_dir_all(&into)?;
        let millions = spans as f64 / 1e6;
        println!(
            "{millions:.1} M spans as tables: {:.0} MB of memory, {:.0} MB of it an analysis; {:.1} bytes of a span",
            taken.megabytes,
            analysis.megabytes,
            bytes as f64 / spans as f64,
        );
        beside.push((taken.megabytes - analysis.megabytes, millions / (taken.seconds - analysis.seconds)));
    }
    table.at_least("spans as tables, beside the analysis", "M/s", 0.5, Estimate::exact(beside[1].1));
    table.at_most("memory of tables, beside the analysis", "MB", 150.0, Estimate::exact(beside[1].0));
    Ok(())
}

/// Writes a run of one rank and so many steps; how many spans it has.
fn write(run: &Path, steps: u32) -> Outcome<u64> {
    Recipe { steps, micro_batches: 4, layers: 32, kernels_per_layer: 14, ..Recipe::default() }.write(run)?;
    Ok(Run::open(run)?.ranks[0].survey()?.spans.rows)
}

/// Exports a run, into at most so many bytes if there is a limit; what it took, and how many there are.
fn measured(run: &Path, limit: Option<u64>) -> Outcome<(Taken, u64)> {
    let file = run.with_extension("pftrace");
    let taken = export(run, &file, limit)?;
    let bytes = fs::metadata(&file)?.len();
    fs::remove_file(file)?;
    Ok((taken, bytes))
}
