//! From the peak to what is used of it, and what the end of a step depends on: parts that add up, and what they lead to.

use std::path::Path;

use serde_json::Value;

use crate::{
    binary::{json, stepscope, text},
    samples,
};

/// Runs of ours and traces of others, from the folder of the samples.
const SOURCES: [&str; 15] = [
    "dp2-bucketed",
    "dp2-naive",
    "dp2-zero3",
    "first-steps",
    "pp2-1f1b",
    "pp2-gpipe",
    "pytorch",
    "pytorch-checkpointed",
    "recompute-full",
    "recompute-none",
    "single",
    "tp2",
    "../tests/fixtures/kineto/ddp",
    "../tests/fixtures/kineto/gpipe",
    "../tests/fixtures/kineto/shapes",
];

fn analyzed(source: &str) -> Value {
    json(&["analyze", source, "--format", "json"], Path::new(samples::SAMPLES))
}

fn sum(rows: &Value, key: &str) -> i64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_i64().unwrap()).sum()
}

#[test]
fn parts_add_up_in_every_run() {
    for source in SOURCES {
        let analysis = analyzed(source);
        for rank in analysis["counted"].as_array().unwrap() {
            let of = |key: &str| rank[key].as_i64().unwrap();
            assert_eq!(sum(&rank["families"], "time_ns") + of("recomputation_ns"), of("compute_ns"), "{source}");
            assert_eq!(sum(&rank["idle"], "time_ns"), of("idle_ns"), "{source}");
            let (span, windows) = (of("span_ns"), of("windows"));
            assert_eq!(sum(&rank["waterfall"], "time_ns"), (2 * span + windows) / (2 * windows), "{source}");
        }
        let points: f64 =
            analysis["waterfall"].as_array().unwrap().iter().map(|row| row["points"].as_f64().unwrap()).sum();
        assert!((points - 100.0).abs() < 1e-6, "{source}: {points}");
        let path = &analysis["critical_path"];
        if let Some(length) = path["length_ns"].as_i64() {
            assert_eq!((sum(&path["parts"], "time_ns"), sum(&path["ranks"], "time_ns")), (length, length), "{source}");
        }
    }
}

#[test]
fn the_waterfall_ends_with_mfu() {
    let analysis = analyzed("single");
    let last = analysis["waterfall"].as_array().unwrap().last().unwrap();
    assert_eq!(last["part"], "mfu");
    let mfu = 100.0 * analysis["mfu"]["value"].as_f64().unwrap();
    assert!((last["points"].as_f64().unwrap() / mfu - 1.0).abs() < 1e-6, "{last}");
}

/// Runs of which the largest loss was once not told.
#[test]
fn the_largest_loss_is_the_first_finding() {
    for (source, first) in [
        ("dp2-zero3", "exposed-communication"),
        ("recompute-full", "recomputation"),
        ("pytorch-checkpointed", "recomputation"),
        ("single", "slow-attention"),
        ("pp2-1f1b", "shared-device"),
        ("../tests/fixtures/kineto/shapes", "host-bound"),
    ] {
        assert_eq!(analyzed(source)["findings"][0]["kind"], first, "{source}");
    }
}

/// What removing a cause would win, beside a run of the same without it.
#[test]
fn what_it_would_win_is_what_it_wins() {
    let step = |analysis: &Value| analysis["step_time"]["median_ns"].as_f64().unwrap();
    for (with, without, kind) in [
        ("recompute-full", "recompute-none", "recomputation"),
        ("pytorch-checkpointed", "pytorch", "recomputation"),
        ("dp2-naive", "dp2-bucketed", "exposed-communication"),
    ] {
        let (with_it, without_it) = (analyzed(with), analyzed(without));
        let findings = with_it["findings"].as_array().unwrap();
        let finding = findings.iter().find(|finding| finding["kind"] == kind).unwrap();
        let predicted = finding["step_without_ns"].as_f64().unwrap();
        let off = (predicted - step(&without_it)).abs() / step(&with_it);
        assert!(off <= 0.1, "{with}: {predicted} ns, and {without} takes {} ns", step(&without_it));
    }
}

#[test]
fn a_brief_report_has_ten_lines_at_most() {
    for source in SOURCES {
        let output = stepscope(&["analyze", source, "--brief"], Path::new(samples::SAMPLES));
        let said = text(&output.stdout);
        assert!(output.status.success() && (3..=10).contains(&said.lines().count()), "{source}:\n{said}");
    }
}
