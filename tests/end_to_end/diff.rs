use std::{fs, path::Path};

use serde_json::Value;
use stepscope_traces::{Nanos, synthetic::Recipe};

use crate::binary::{failure, json, stepscope, text};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples");
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/tests/fixtures");

/// Two runs as JSON, which adds up.
fn diff(base: &str, other: &str, directory: &Path) -> Value {
    let diff = json(&["diff", base, other, "--format", "json"], directory);
    adds_up(&diff);
    diff
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Causes are what they cause.
fn adds_up(diff: &Value) {
    assert_eq!(diff["schema"], 1);
    for key in ["base", "other", "comparable", "why_not", "step_time", "peak_memory", "metrics", "kernels"] {
        assert!(diff.get(key).is_some(), "{key} is missing");
    }
    for (part, unit) in [("step_time", "ns"), ("peak_memory", "bytes")] {
        let part = &diff[part];
        if part.is_null() {
            continue;
        }
        let of = |of: &Value, what: &str| number(&of[format!("{what}_{unit}")]);
        let causes = part["causes"].as_array().unwrap();
        assert_eq!(causes.iter().map(|cause| of(cause, "change")).sum::<i64>(), of(part, "change"));
        assert_eq!(of(part, "other") - of(part, "base"), of(part, "change"));
        assert!(causes.iter().all(|cause| cause["cause"].is_string()));
    }
}

/// What a cause changes, as a share of the base's step or peak; nothing, where there is no such cause.
fn cause(diff: &Value, part: &str, name: &str) -> f64 {
    let unit = if part == "step_time" { "ns" } else { "bytes" };
    let causes = diff[part]["causes"].as_array().unwrap();
    let found =
        causes.iter().filter(|cause| cause["cause"] == name).map(|cause| number(&cause[format!("change_{unit}")]));
    found.sum::<i64>() as f64 / number(&diff[part][format!("base_{unit}")]) as f64
}

fn metric<'a>(diff: &'a Value, name: &str) -> &'a Value {
    let metrics = diff["metrics"].as_array().unwrap();
    metrics.iter().find(|metric| metric["metric"] == name).unwrap_or_else(|| panic!("there is no {name}"))
}

fn fits(shown: &str) {
    for line in shown.lines() {
        assert!(line.chars().count() <= 100 && !line.contains('\u{1b}'), "{line:?}");
    }
}

#[test]
fn what_is_said_of_pairs_of_samples_stays_as_it_is() {
    for (base, other) in [
        ("dp2-naive", "dp2-bucketed"),
        ("recompute-none", "recompute-full"),
        ("pp2-gpipe", "pp2-1f1b"),
        ("dp2-bucketed", "dp2-zero3"),
    ] {
        let output = stepscope(&["diff", base, other], Path::new(SAMPLES));
        assert!(output.status.success(), "{}", text(&output.stderr));
        fits(&text(&output.stdout));
        insta::assert_snapshot!(format!("{base}--{other}"), text(&output.stdout));
        let again = stepscope(&["diff", base, other], Path::new(SAMPLES));
        assert_eq!(text(&again.stdout), text(&output.stdout), "the same each time");
    }
}

#[test]
fn samples_differ_as_theory_says() {
    let here = Path::new(SAMPLES);
    let buckets = diff("dp2-naive", "dp2-bucketed", here);
    assert!(cause(&buckets, "step_time", "exposed all-reduce (dp)") < -0.05);
    assert!(metric(&buckets, "overlap")["change"].as_f64().unwrap() > 0.4);
    assert_eq!(buckets["settings"][0]["setting"], "reduction");
    assert_eq!(number(&buckets["peak_memory"]["change_bytes"]), 0);
    let recompute = diff("recompute-none", "recompute-full", here);
    assert!(cause(&recompute, "step_time", "recomputation") > 0.2);
    assert!(cause(&recompute, "peak_memory", "activations") < -0.2);
    // Some 400 W for some 60,000 tokens a second.
    let energy = metric(&recompute, "energy_per_token");
    assert!((0.002..0.02).contains(&energy["base"].as_f64().unwrap()), "{energy}");
    let shards = diff("dp2-bucketed", "dp2-zero3", here);
    assert!(cause(&shards, "step_time", "exposed all-gather (dp)") > 0.1);
    for category in ["parameters", "gradients", "optimizer state"] {
        let found = shards["peak_memory"]["causes"].as_array().unwrap().iter().find(|cause| cause["cause"] == category);
        let parts = found.unwrap()["parts"].as_array().unwrap();
        assert!(parts.len() == 1 && parts[0]["cause"] == "sharding", "{category}: {parts:?}");
        assert_eq!(parts[0]["change_bytes"], found.unwrap()["change_bytes"], "as was planned, to the byte");
    }
    let schedule = diff("pp2-gpipe", "pp2-1f1b", here);
    assert!(cause(&schedule, "peak_memory", "activations") < -0.15);
    assert_eq!(metric(&schedule, "step_time")["significant"], false);
}

/// Trains a few small steps into a directory.
fn train(directory: &Path, run: &str, arguments: &[&str]) {
    let small = ["train", "--backend", "cpu", "--steps", "5", "--seq-len", "32", "--micro-batch", "1", "--run", run];
    let output = stepscope(&[&small, arguments].concat(), directory);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Times of so short steps on cores that others use say little; what there is and what is not says enough.
#[test]
fn trained_runs_differ_as_theory_says() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let two = |name: &str, base: &[&str], other: &[&str]| {
        let (first, second) = (format!("{name}-base"), format!("{name}-other"));
        train(here, &first, base);
        train(here, &second, other);
        diff(&first, &second, here)
    };
    let buckets = two("reduction", &["--dp", "2", "--reduction", "naive"], &["--dp", "2"]);
    assert!(metric(&buckets, "overlap")["change"].as_f64().unwrap() > 0.0);
    let recompute = two("recompute", &[], &["--recompute", "full"]);
    assert!(cause(&recompute, "step_time", "recomputation") > 0.1);
    assert!(cause(&recompute, "peak_memory", "activations") < 0.0);
    let kernels = recompute["kernels"].as_array().unwrap();
    assert!(kernels.iter().any(|kernel| kernel["cause"] == "recomputation" && kernel["status"] == "new"));
    let shards = two("zero", &["--dp", "2", "--zero", "1"], &["--dp", "2", "--zero", "3"]);
    for category in ["parameters", "gradients"] {
        assert!(cause(&shards, "peak_memory", category) < 0.0, "{category}");
    }
    assert!(cause(&shards, "step_time", "exposed all-gather (dp)") != 0.0);
    let pipeline = ["--pp", "2", "--micro-batches", "8", "--schedule"];
    let schedule = two("schedule", &[&pipeline[..], &["gpipe"]].concat(), &[&pipeline[..], &["1f1b"]].concat());
    assert!(cause(&schedule, "peak_memory", "activations") < 0.0);
    assert!(number(&schedule["step_time"]["causes"][0]["base_ns"]) >= 0);
    // Another number of ranks is compared by rank and in all, and said.
    let ranks = diff("recompute-base", "zero-other", here);
    let notes = ranks["notes"].to_string();
    assert!(notes.contains("one rank vs. 2 ranks") && notes.contains("in recompute-base"), "{notes}");
    metric(&ranks, "tokens_per_second_per_rank");
    metric(&ranks, "peak_memory_of_all_ranks");
    let shown = text(&stepscope(&["diff", "recompute-base", "zero-other"], here).stdout);
    let answer = shown.split("\nchanged").next().unwrap().replace('\n', " ");
    assert!(answer.contains(" per token") && answer.contains("; a step is "), "{shown}");
}

#[test]
fn traces_and_snapshots_of_others_are_compared_too() {
    let here = Path::new(FIXTURES);
    let traces = diff("kineto/ddp", "kineto/gpipe", here);
    // Two ranks of four: what they hand on to each other is known to be communication, and no more.
    assert!(cause(&traces, "step_time", "exposed communication") > 0.1, "{}", traces["step_time"]);
    assert!(cause(&traces, "step_time", "exposed all-reduce (dp)") < 0.0);
    assert!(traces["notes"].to_string().contains("same model"));
    let again = diff("kineto/ddp", "kineto/ddp", here);
    assert_eq!((number(&again["step_time"]["change_ns"]), &again["base"]), (0, &"run 1".into()));
    let memory = diff("ddp-rank0.pickle", "./ddp-rank0.pickle", here);
    assert!(memory["step_time"].is_null() && memory["kernels"] == serde_json::json!([]));
    assert_eq!(number(&memory["peak_memory"]["change_bytes"]), 0);
    let mixed = diff("kineto/ddp", "ddp-rank0.pickle", here);
    assert!(mixed["step_time"].is_null() && mixed["comparable"] == false, "{mixed}");
    let shown = text(&stepscope(&["diff", "kineto/ddp", "ddp-rank0.pickle"], here).stdout);
    assert!(
        shown.starts_with("ddp-rank0.pickle and ddp are not comparable: source differs: ")
            && shown.contains("so time is not compared"),
        "{shown}"
    );
}

#[test]
fn the_length_of_a_recording_is_no_speed() {
    let shown = text(&stepscope(&["diff", "dp2-naive", "dp2-zero3", "--steps", "all"], Path::new(SAMPLES)).stdout);
    let answer = shown.lines().next().unwrap();
    assert!(
        answer.starts_with("the recording of dp2-zero3 is ") && answer.contains(" than that of dp2-naive"),
        "{shown}"
    );
    assert!(!answer.contains("slower") && !answer.contains("faster"), "{shown}");
}

#[test]
fn a_run_that_hangs_is_named() {
    let dumps = Path::new(FIXTURES).join("flight_recorder");
    let shown = text(&stepscope(&["diff", "size", "loader"], &dumps).stdout);
    assert!(shown.contains("note      loader hangs: rank 2 did not come to all_reduce #6 of mesh_tp"), "{shown}");
    assert!(shown.contains("note      size hangs: all_reduce #21 of mesh_dp"), "{shown}");
}

#[test]
fn limits_decide_how_it_ends() {
    let here = Path::new(SAMPLES);
    let run = |arguments: &[&str]| {
        let output = stepscope(&[&["diff"], arguments].concat(), here);
        (output.status.code(), text(&output.stderr))
    };
    let limits = ["--fail-on", "step_time:+3%", "--fail-on", "mfu:-2%", "--fail-on", "peak_memory:+1%"];
    assert_eq!(run(&[&["recompute-full", "recompute-none"], &limits[..4]].concat()), (Some(0), String::new()));
    let (status, said) = run(&[&["recompute-none", "recompute-full"], &limits[..]].concat());
    assert_eq!(status, Some(1));
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines.len() == 2
            && lines[0].starts_with("failed: step_time of recompute-full: 119.4 ms → 149.2 ms, +25.0% (95% CI: "),
        "{said}"
    );
    assert!(
        lines[0].ends_with(", beyond the limit step_time:+3%") && lines[1].ends_with(", beyond the limit mfu:-2%"),
        "{said}"
    );
    let (status, said) = run(&[&["recompute-full", "recompute-none"], &limits[4..]].concat());
    assert!(
        status == Some(1) && said.starts_with("failed: peak_memory of recompute-none: 24.6 GB → 34.0 GB"),
        "{said}"
    );
    // Beyond the limit, and chance.
    assert_eq!(run(&["pp2-gpipe", "pp2-1f1b", "--fail-on", "step_time:-0.1%"]).0, Some(0));
    for (arguments, why) in [
        ("single tp2 --fail-on step_time:+3%", "sequence length differs: 2048 and 1024"),
        ("single single --fail-on speed:+3%", "unknown metric `speed`; known metrics are step_time, "),
        ("dp2-bucketed dp2-zero3 --fail-on bus_bandwidth.all_gather.dp:-1%", "is not known for both runs"),
        ("single single --fail-on step_time:3", "is not a limit; use METRIC:+3%"),
        ("single", "required arguments were not provided"),
        ("single nowhere", "nowhere does not exist"),
        ("single single --steps 100..", "none of the selected steps was recorded"),
    ] {
        let output = stepscope(&[&["diff"], &arguments.split(' ').collect::<Vec<_>>()[..]].concat(), here);
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains(why) && !said.contains("panicked"),
            "{arguments}: {said}"
        );
    }
}

#[test]
fn several_runs_are_one_table() {
    let here = Path::new(SAMPLES);
    let shown = text(&stepscope(&["diff", "dp2-naive", "dp2-bucketed", "dp2-zero3", "tp2"], here).stdout);
    fits(&shown);
    insta::assert_snapshot!("several-samples", shown);
    let all = json(&["diff", "dp2-naive", "dp2-bucketed", "dp2-zero3", "--format", "json"], here);
    assert_eq!(all["runs"], serde_json::json!(["dp2-naive", "dp2-bucketed", "dp2-zero3"]));
    all["diffs"].as_array().unwrap().iter().for_each(adds_up);
    let speed = metric(&all, "tokens_per_second");
    assert_eq!(speed["best"], serde_json::json!([false, true, false]));
    assert_eq!(all["scaling"], serde_json::json!([]));
    let many: Vec<&str> = ["diff"].into_iter().chain(["single"; 13]).collect();
    fits(&text(&stepscope(&many, here).stdout));
}

#[test]
fn runs_of_more_ranks_have_an_efficiency() {
    let directory = tempfile::tempdir().unwrap();
    for ranks in [1, 2, 4] {
        Recipe { replicas: ranks, ..Recipe::default() }.write(&directory.path().join(format!("dp{ranks}"))).unwrap();
    }
    let all = json(&["diff", "dp4", "dp1", "dp2", "--format", "json"], directory.path());
    let scaling = all["scaling"].as_array().unwrap();
    let of = |key: &str| scaling.iter().map(|point| point[key].as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("ranks"), [1.0, 2.0, 4.0]);
    let (rates, efficiency) = (of("tokens_per_second"), of("efficiency"));
    assert_eq!(efficiency[0], 1.0);
    assert!((efficiency[2] - rates[2] / rates[0] / 4.0).abs() < 1e-12, "{efficiency:?} {rates:?}");
    let page = text(&stepscope(&["diff", "dp4", "dp1", "dp2", "--format", "html"], directory.path()).stdout);
    assert!(page.contains("aria-label=\"Parallel efficiency vs. ranks\""));
}

#[test]
fn html_is_one_file_with_a_waterfall_and_both_timelines() {
    let output = stepscope(&["diff", "dp2-naive", "dp2-bucketed", "--format", "html"], Path::new(SAMPLES));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    for part in [
        "<h1>dp2-bucketed is ",
        "aria-label=\"Change in step time from dp2-naive to dp2-bucketed\"",
        "<h3>dp2-naive: opens at step ",
        "<h3>dp2-bucketed: opens at step ",
        "<button>kernel</button>",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert_eq!(page.matches("<canvas").count(), 2);
    for part in ["http://", "https://", " src=", "<link", "@import", "\"NaN"] {
        assert!(!page.contains(part), "{part} is in it");
    }
}

#[test]
fn markdown_is_made_for_a_comment() {
    let shown = text(
        &stepscope(&["diff", "recompute-none", "recompute-full", "--format", "markdown"], Path::new(SAMPLES)).stdout,
    );
    insta::assert_snapshot!("recompute-as-markdown", shown);
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    for pair in shown.lines().collect::<Vec<_>>().windows(2) {
        if pair.iter().all(|line| line.starts_with('|')) {
            assert_eq!(cells(pair[0]), cells(pair[1]), "{pair:?}");
        }
    }
}

#[test]
fn names_of_others_stay_names() {
    let directory = tempfile::tempdir().unwrap();
    let name = "<script>alert(1)<_script>|x";
    for path in [name, "other"] {
        let gap = Nanos(if path == "other" { 9_000 } else { 3_000 });
        Recipe { largest_gap: gap, ..Recipe::default() }.write(&directory.path().join(path)).unwrap();
    }
    let written =
        |format: &str| text(&stepscope(&["diff", name, "other", "--format", format], directory.path()).stdout);
    assert!(!written("html").contains("<script>alert") && written("html").contains("&lt;script&gt;alert(1)"));
    assert!(!written("markdown").contains("<script>"));
    fits(&written("text"));
}

#[test]
fn a_sweep_trains_a_list_and_shows_it() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let file = "backend = \"cpu\"\nsteps = 9\nseq-len = 16\nmicro-batch = 1\nmicro-batches = 2\n\n[[run]]\nname = \"one\"\n\n\
                [[run]]\ndp = 2\n\n[[run]]\nrecompute = \"full\"\n";
    fs::write(here.join("sweep.toml"), file).unwrap();
    let output = stepscope(&["train", "--sweep", "sweep.toml", "--steps", "4", "--run", "all"], here);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let progress = "training one, run 1 of 3\ntraining dp2, run 2 of 3\ntraining recompute-full, run 3 of 3\n";
    assert_eq!(said, format!("{progress}recorded  3 runs in all\n"));
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" is fastest: ") && words.contains(" uses the least memory: "), "{shown}");
    for part in ["Settings that differ", "recompute-full"] {
        assert!(shown.contains(part), "{part} is missing from {shown}");
    }
    fits(&shown);
    let analysis = json(&["analyze", "all/dp2", "--format", "json"], here);
    assert_eq!((&analysis["run"]["world_size"], analysis["steps"].as_array().unwrap().len()), (&2.into(), 8));
    // What is wrong is said before anything is trained.
    fs::write(here.join("wrong.toml"), "[[run]]\n[[run]]\npp = 9\n").unwrap();
    let said = failure(&["train", "--sweep", "wrong.toml", "--run", "none"], here);
    assert!(said.starts_with("error: run pp9 in wrong.toml: ") && !here.join("none").exists(), "{said}");
    // A run that fails does not keep the others from being trained.
    fs::write(here.join("one.toml"), file.replace("[[run]]\ndp = 2", "[[run]]\nresume = \"nowhere\"")).unwrap();
    let output = stepscope(&["train", "--sweep", "one.toml", "--steps", "2", "--run", "some"], here);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("\nrecorded  2 runs in some\n"), "{said}");
    assert!(
        said.contains("\nfailed: resume-nowhere: ") && said.ends_with("error: 1 of 3 runs failed: resume-nowhere\n"),
        "{said}"
    );
}
