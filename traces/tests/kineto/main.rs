//! Reads traces of PyTorch's profiler: cuttings of real ones, beside answers of another program, and damaged ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Torn, damaged and hostile traces.
mod damage;

/// Damages inputs, and bounds what reading them costs.
#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;

/// Reads bytes as if they were a file.
#[path = "../reads/mod.rs"]
mod reads;

/// Where time goes, told in another way than the analyzer does.
mod figures;

/// Traces without a device.
mod host;

/// Cuttings of real traces.
mod real;

/// Traces that another tool saved again.
mod resaved;

/// Long traces, which several threads read.
mod shared;

/// What is a trace, and of which rank.
mod sources;

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use stepscope_traces::{Loss, RankData, Run, Window};

/// A cutting of a real trace.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kineto").join(name)
}

/// A cutting as text.
fn text(name: &str) -> String {
    let mut text = String::new();
    GzDecoder::new(fs::File::open(fixture(name)).unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Reads the first rank of a source.
fn read(source: &Path) -> (RankData, Loss) {
    Run::of_source(source).unwrap().ranks[0].read(Window::ALL).unwrap()
}

/// Reads these bytes as the first rank of a source.
fn read_bytes(bytes: &[u8]) -> (RankData, Loss) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.json");
    fs::write(&path, bytes).unwrap();
    read(&path)
}

/// What a trace with these events is.
fn trace_of(events: &str) -> String {
    format!("{{\"schemaVersion\": 1, \"baseTimeNanoseconds\": 1000, \"traceEvents\": [{events}]}}")
}
