//! What a long trace of PyTorch's profiler takes, beside what it may take: `cargo bench --bench import`.
//!
//! It is a cutting of a real trace, repeated in time, with as many of the host's operators as the real one had; or a whole
//! one, which `STEPSCOPE_KINETO_TRACE` names. Reading it, every analysis of it and the report are one command.

mod binary;
mod figures;

use std::{
    env,
    error::Error,
    fs::{self, File},
    io::{BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use stepscope_traces::{Run, synthetic::repeat_kineto};

use crate::figures::{Estimate, Table};

/// How long the trace is, unpacked: that of five million events.
const BYTES: usize = 1_300_000_000;

/// How long the one is whose operators are compared, and how often.
const LAUNCHERS_BYTES: usize = 300_000_000;
const TRIES: usize = 5;

/// Of the host's operators a tenth is in the cutting.
const LEFT_OUT: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let cutting = || Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/tests/fixtures/kineto/ddp/rank0.json.gz");
    let whole = env::var_os("STEPSCOPE_KINETO_TRACE").map(PathBuf::from);
    let mut trace = String::new();
    MultiGzDecoder::new(File::open(whole.clone().unwrap_or_else(cutting))?).read_to_string(&mut trace)?;
    if whole.is_none() {
        trace = with_operators(&trace);
    }
    let scratch = tempfile::tempdir()?;
    let file = scratch.path().join("rank0.json.gz");
    let mut written =
        Counted { into: GzEncoder::new(BufWriter::new(File::create(&file)?), Compression::fast()), bytes: 0 };
    repeat_kineto(&trace, BYTES.div_ceil(trace.len()).try_into()?, &mut written)?;
    let Counted { into, bytes } = written;
    into.finish()?.flush()?;
    let (megabytes, packed) = (bytes as f64 / 1e6, fs::metadata(&file)?.len() as f64 / 1e6);
    let timed = binary::analysis(&file)?;
    let Estimate { value, low, high } = timed.seconds;
    let rate = Estimate { value: megabytes / value, low: megabytes / high, high: megabytes / low };
    let mut table = Table::default();
    table.at_least("JSON read and analyzed", "MB/s", 450.0, rate);
    table.at_most("all of it", "s", 2.8, timed.seconds);
    table.at_most("all of it, beside gzip -dc | wc -l", "", 1.1, beside_gzip(&file)?);
    let unpacked = scratch.path().join("rank0.json");
    std::io::copy(&mut MultiGzDecoder::new(File::open(&file)?), &mut File::create(&unpacked)?)?;
    table.at_most("the same unpacked", "s", 1.5, binary::analysis(&unpacked)?.seconds);
    fs::remove_file(&unpacked)?;
    table.at_most("memory of a trace", "MB", 500.0, Estimate::exact(timed.megabytes));
    table.at_most("who launched what, beside without", "", 1.3, launchers(scratch.path())?);
    let survey = Run::of_source(&file)?.ranks[0].survey()?;
    if !survey.loss.is_none() {
        return Err(format!("the trace is not what it should be: {:?}", survey.loss).into());
    }
    let spans = survey.spans.rows as f64 / 1e6;
    println!("{table}\n\n{megabytes:.0} MB of JSON, {packed:.0} MB packed, {spans:.1} M spans");
    table.end()
}

/// How much longer it takes than to unpack the file and count its lines, in turns.
fn beside_gzip(file: &Path) -> Result<Estimate, Box<dyn Error>> {
    let ratio = |_| {
        let (ours, plain) = (binary::analysis_once(file)?, binary::lines_of_packed(file)?);
        Ok(ours.as_secs_f64() / plain.as_secs_f64())
    };
    let ratios: Result<Vec<f64>, Box<dyn Error>> = (0..TRIES).map(ratio).collect();
    Ok(Estimate::of(ratios?, |sorted| sorted[sorted.len() / 2]))
}

/// How much longer a trace with shapes and stacks takes than the same without its operators, modules and functions.
fn launchers(scratch: &Path) -> Result<Estimate, Box<dyn Error>> {
    let cutting = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/tests/fixtures/kineto/shapes/rank0.json.gz");
    let mut trace = String::new();
    MultiGzDecoder::new(File::open(cutting)?).read_to_string(&mut trace)?;
    let times = LAUNCHERS_BYTES.div_ceil(trace.len()).try_into()?;
    let (with, without) = (scratch.join("with.json"), scratch.join("without.json"));
    repeat_kineto(&trace, times, &mut BufWriter::new(File::create(&with)?))?;
    // Kinds of events that nobody reads, of the same length.
    let bare = trace.replace("\"cpu_op\"", "\"cpu_no\"").replace("\"python_function\"", "\"python_nonsense\"");
    repeat_kineto(&bare, times, &mut BufWriter::new(File::create(&without)?))?;
    let ratio = |_| Ok(binary::analyze(&with)?.seconds / binary::analyze(&without)?.seconds);
    let ratios: Result<Vec<f64>, Box<dyn Error>> = (0..TRIES).map(ratio).collect();
    Ok(Estimate::of(ratios?, |sorted| sorted[sorted.len() / 2]))
}

/// A cutting with each of its operators as often as it had such ones.
fn with_operators(cutting: &str) -> String {
    let events = cutting.split_inclusive("\n  },");
    let is_operator = |event: &str| event.starts_with("\n  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\"");
    let times = |event: &str| if is_operator(event) { LEFT_OUT } else { 1 };
    events.map(|event| event.repeat(times(event))).collect()
}

/// Counts what goes through it.
struct Counted<W> {
    into: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.into.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.into.flush()
    }
}
