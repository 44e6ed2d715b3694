//! Prints where the time of each rank of PyTorch traces goes, told from the imported tables alone: unions of intervals,
//! one moment after another. It shares no code with the analyzer, and so is a check of both.
//!
//! ```sh
//! cargo run --release -p stepscope-traces --example kineto_figures -- TRACES
//! ```

use std::{error::Error, path::PathBuf, time::Instant};

use serde_json::json;
use stepscope_traces::{RankData, Run, Window};

/// Whether compute, communication and copies go on.
const COMPUTE: usize = 0;
const COMMUNICATION: usize = 1;
const COPY: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let source = PathBuf::from(std::env::args_os().nth(1).ok_or("name a trace, or a directory of them")?);
    let began = Instant::now();
    let run = Run::of_source(&source)?;
    let mut ranks = Vec::new();
    for rank in &run.ranks {
        let (data, loss) = rank.read(Window::ALL)?;
        let mut figures = figures(&data);
        figures["rank"] = json!(rank.info.rank);
        figures["loss"] = json!(loss);
        figures["memory_events"] = json!(data.memory.len());
        ranks.push(figures);
    }
    eprintln!("read in {:.2} s", began.elapsed().as_secs_f64());
    println!("{}", serde_json::to_string_pretty(&ranks)?);
    Ok(())
}

fn figures(data: &RankData) -> serde_json::Value {
    // Beginnings and ends of what goes on, in order.
    let mut moments: Vec<(i64, usize, i64)> = Vec::new();
    let mut kernels = 0;
    for span in data.spans.rows() {
        let kind = span.kind;
        let class = if kind.is_communication() {
            COMMUNICATION
        } else if kind.is_copy() {
            COPY
        } else if !kind.is_annotation() && kind.word() == "kernel" {
            COMPUTE
        } else {
            continue;
        };
        kernels += usize::from(class != COPY);
        moments.push((span.start_ns.0, class, 1));
        moments.push((span.start_ns.0 + span.duration_ns.0, class, -1));
    }
    moments.sort_unstable();
    let mut going_on = [0; 3];
    let [mut compute, mut communication, mut overlapped, mut copy, mut exposed_copy, mut idle] = [0; 6];
    for (index, (time, class, change)) in moments.iter().enumerate() {
        going_on[*class] += change;
        let Some(length) = moments.get(index + 1).map(|next| next.0 - time) else { break };
        let [computes, communicates, copies] = going_on.map(|count| count > 0);
        compute += if computes { length } else { 0 };
        communication += if communicates { length } else { 0 };
        overlapped += if computes && communicates { length } else { 0 };
        copy += if copies { length } else { 0 };
        exposed_copy += if copies && !computes && !communicates { length } else { 0 };
        idle += if computes || communicates || copies { 0 } else { length };
    }
    let span = moments.last().map_or(0, |last| last.0 - moments[0].0);
    json!({
        "span_ns": span,
        "compute_ns": compute,
        "communication_ns": communication,
        "overlapped_communication_ns": overlapped,
        "exposed_communication_ns": communication - overlapped,
        "copy_ns": copy,
        "exposed_copy_ns": exposed_copy,
        "idle_ns": idle,
        "kernel_count": kernels,
    })
}
