//! Reads profiles of XLA that are made here, field by field, and damaged ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Torn, damaged and hostile profiles.
mod damage;

/// Profiles of GPUs.
mod gpu;

#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;

/// Reads bytes as if they were a file.
#[path = "../reads/mod.rs"]
mod reads;

/// What is a profile and what is not.
mod sources;

/// Profiles of TPUs.
mod tpu;

/// Writes profiles.
mod writer;

use std::{fs, path::Path};

use stepscope_traces::{RankData, Run, Window};
use tempfile::TempDir;

/// A run of these bytes.
fn run_of(bytes: &[u8]) -> (TempDir, Run) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("host.xplane.pb");
    fs::write(&path, bytes).unwrap();
    let run = Run::of_source(&path).unwrap();
    (directory, run)
}

/// What is wrong with these bytes.
fn error_of(bytes: &[u8], path: &Path) -> String {
    fs::write(path, bytes).unwrap();
    let error = Run::of_source(path).unwrap_err().to_string();
    error.split_once("it is ").map_or(error.clone(), |(_, what)| what.to_owned())
}

fn data_of(run: &Run, rank: usize) -> RankData {
    run.ranks[rank].read(Window::ALL).unwrap().0
}

/// Each span in a few words: kind, name, start, duration, step, and what launched it.
fn told(data: &RankData) -> Vec<String> {
    let text = |id| data.names.get(id).unwrap_or("?").replace('\t', "|");
    let tell = |span: stepscope_traces::Span| {
        let mut words = vec![span.kind.to_string(), text(span.name), format!("{}+{}", span.start_ns, span.duration_ns)];
        words.extend(span.stream.map(|stream| format!("on {stream}")));
        words.extend(span.step.map(|step| format!("step {step}")));
        words.extend(span.phase.map(|phase| phase.to_string()));
        words.extend(span.bytes.map(|bytes| format!("{bytes} B")));
        words.extend(span.flops.map(|flops| format!("{flops} FLOP")));
        words.extend(span.origin.map(|origin| format!("by {}", text(origin))));
        words.join(", ")
    };
    data.spans.rows().map(tell).collect()
}
