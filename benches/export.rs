//! What an export to Perfetto takes, beside what it may take: `cargo bench --bench export`.
//!
//! Spans a second are those of the whole command, which analyzes a run before it writes it, over the time of its processor.
//! Bytes are those of the file over its spans: with everything, without memory over time, and without arguments too.

mod binary;
mod figures;

use std::{error::Error, fs, path::Path, time::Instant};

use stepscope_traces::{Run, synthetic::Recipe};

use crate::{
    binary::Export,
    figures::{Estimate, Table},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let mut table = Table::default();
    let small = export(scratch.path(), "small", 232)?;
    let large = export(scratch.path(), "large", 11_600)?;
    table.at_least("spans of one rank, per core", "M/s", 2.0, Estimate::exact(large.spans / 1e6 / large.seconds));
    table.at_most("a span, its arguments and memory", "B", 35.0, Estimate::exact(large.bytes / large.spans));
    table.at_most(
        "memory of 50 M spans over that of 1 M",
        "x",
        1.2,
        Estimate::exact(large.megabytes / small.megabytes),
    );
    println!("{table}");
    for Measured { spans, bytes, seconds, wall, megabytes } in [small, large] {
        println!(
            "{:.1} M spans: {:.0} MB, {seconds:.1} s of a core, {wall:.1} s, {megabytes:.0} MB of memory",
            spans / 1e6,
            bytes / 1e6
        );
    }
    Ok(())
}

struct Measured {
    spans: f64,
    bytes: f64,
    /// Of a core.
    seconds: f64,
    wall: f64,
    megabytes: f64,
}

/// Exports a rank of so many steps, all of it.
fn export(scratch: &Path, name: &str, steps: u32) -> Outcome<Measured> {
    let (run, file) = (scratch.join(name), scratch.join(name).with_extension("pftrace"));
    Recipe { steps, micro_batches: 4, layers: 32, kernels_per_layer: 14, ..Recipe::default() }.write(&run)?;
    let spans = Run::open(&run)?.ranks[0].survey()?.spans.rows as f64;
    let began = Instant::now();
    let Export { seconds, megabytes } = binary::export(&run, &file)?;
    let measured = Measured {
        spans,
        bytes: fs::metadata(&file)?.len() as f64,
        seconds,
        wall: began.elapsed().as_secs_f64(),
        megabytes,
    };
    fs::remove_file(file)?;
    fs::remove_dir_all(run)?;
    Ok(measured)
}
