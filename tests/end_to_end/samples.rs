//! Real runs from an H200, in `traces/samples`: what `analyze` says of them, and that it is what it should be.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::binary::{self, stepscope, text};

pub(crate) const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples");

fn analysis(name: &str) -> Value {
    binary::json(&["analyze", name, "--format", "json"], Path::new(SAMPLES))
}

/// A figure of every step of every rank, but for the one that warms up.
fn of_steps(analysis: &Value, figure: &str) -> Vec<f64> {
    let steps = analysis["steps"].as_array().unwrap().iter().filter(|step| step["step"] != 0);
    steps.map(|step| step[figure].as_f64().unwrap_or_else(|| panic!("{figure} of {step}"))).collect()
}

/// What rank 0 had of a category at its peak.
fn at_peak(analysis: &Value, category: &str) -> f64 {
    analysis["memory"][0]["at_peak"][category].as_f64().unwrap_or(0.0)
}

fn median_step(analysis: &Value) -> f64 {
    analysis["step_time"]["median_ns"].as_f64().unwrap()
}

/// Every sample, in the order of the page that lists them.
pub(crate) const NAMES: [&str; 14] = [
    "single",
    "first-steps",
    "recompute-none",
    "recompute-full",
    "dp2-naive",
    "dp2-bucketed",
    "dp2-zero3",
    "tp2",
    "tp2-sequence-parallel",
    "cp2",
    "dp2-ep2",
    "pp2-gpipe",
    "pp2-1f1b",
    "pp2-zero-bubble",
];

#[test]
fn what_is_said_of_samples_stays_as_it_is() {
    for name in NAMES {
        let output = stepscope(&["analyze", name], Path::new(SAMPLES));
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        insta::assert_snapshot!(name, text(&output.stdout));
    }
}

#[test]
fn samples_are_whole_and_their_figures_add_up() {
    for name in NAMES {
        let analysis = analysis(name);
        assert_eq!(analysis["run"]["state"], "complete", "{name}");
        assert!(analysis["data_loss"].as_object().unwrap().values().all(|lost| *lost == 0), "{name}");
        for figures in analysis["ranks"].as_array().unwrap().iter().chain(analysis["steps"].as_array().unwrap()) {
            let of = |part: &str| figures[part].as_i64().unwrap();
            let parts = of("compute_ns") + of("exposed_communication_ns") + of("exposed_copy_ns") + of("idle_ns");
            assert_eq!(parts, of("span_ns"), "{name}");
        }
        // What is held between steps is what was planned, to the byte; all of it within a few percent.
        for memory in analysis["memory"].as_array().unwrap() {
            for held in ["parameters", "gradients", "optimizer_state"] {
                assert_eq!(memory["at_peak"][held], memory["predicted"][held], "{name}: {held}");
            }
            let planned = memory["predicted"].as_object().unwrap().values().filter_map(Value::as_f64).sum::<f64>();
            let peak = memory["peak_bytes"].as_f64().unwrap();
            assert!((peak / planned - 1.0).abs() < 0.05, "{name}: {peak} where {planned} were planned");
        }
    }
}

#[test]
fn buckets_hide_communication_and_the_naive_way_does_not() {
    let (naive, bucketed) = (analysis("dp2-naive"), analysis("dp2-bucketed"));
    assert!(of_steps(&naive, "overlap").iter().all(|overlap| *overlap < 0.01));
    assert!(of_steps(&bucketed, "overlap").iter().all(|overlap| *overlap > 0.4));
    assert!(median_step(&bucketed) < median_step(&naive));
    assert_eq!(naive["steps"][4]["loss"], bucketed["steps"][4]["loss"]);
}

#[test]
fn shards_are_half_as_large() {
    let (whole, shared) = (analysis("dp2-bucketed"), analysis("dp2-zero3"));
    for category in ["parameters", "gradients", "optimizer_state"] {
        assert_eq!(at_peak(&shared, category), at_peak(&whole, category) / 2.0, "{category}");
    }
    let operations = |analysis: &Value| -> Vec<String> {
        let all = analysis["collectives"].as_array().unwrap().iter();
        all.map(|collective| collective["operation"].as_str().unwrap().to_owned()).collect()
    };
    assert!(
        operations(&shared).contains(&"all_gather".into()) && operations(&shared).contains(&"reduce_scatter".into())
    );
}

#[test]
fn tensor_ranks_that_share_tokens_keep_less_and_scatter_what_they_sum() {
    let (whole, shared) = (analysis("tp2"), analysis("tp2-sequence-parallel"));
    assert!(at_peak(&shared, "activations") < 0.85 * at_peak(&whole, "activations"));
    let layout = |analysis: &Value| analysis["run"]["layout"]["sequence_parallel"].clone();
    assert_eq!((layout(&whole), layout(&shared)), (false.into(), true.into()));
    for (name, shares) in [("tp2", false), ("tp2-sequence-parallel", true)] {
        // Of a run that does not say it, collectives tell.
        let told = &without_layout(name)["run"]["layout"];
        assert_eq!((&told["tp"], &told["sequence_parallel"]), (&2.into(), &shares.into()), "{name}: {told}");
    }
}

/// How many collectives or messages there were along an axis, and how many bytes were in each.
fn talked(analysis: &Value, axis: &str, operation: &str) -> (u64, u64) {
    let all = analysis["collectives"].as_array().unwrap();
    let of_it = all.iter().find(|one| one["axis"] == axis && one["operation"] == operation);
    let figure = |name: &str| of_it.unwrap_or_else(|| panic!("no {operation} of {axis}"))[name].as_u64().unwrap();
    (figure("count"), figure("bytes") / figure("count"))
}

const COUNTED_STEPS: u64 = 4;

#[test]
fn keys_and_values_go_around_the_ring_and_their_gradients_come_home() {
    let analysis = analysis("cp2");
    // Of two ranks and 16 layers: keys and values once in each pass, their gradients on and home again.
    let messages = COUNTED_STEPS * 2 * 16 * (1 + 1 + 2);
    // Each rank has half of 4,096 tokens, with 8 heads of 64 keys and as many values, in bf16.
    let bytes = 4096 / 2 * 2 * 8 * 64 * 2;
    for operation in ["send", "receive"] {
        assert_eq!(talked(&analysis, "context", operation), (messages, bytes), "{operation}");
    }
    assert_eq!(analysis["run"]["layout"]["cp"], 2);
}

#[test]
fn tokens_go_to_their_experts_and_back_in_both_passes() {
    let analysis = analysis("dp2-ep2");
    // Of 8 layers and two micro-batches.
    assert_eq!(talked(&analysis, "expert", "all_to_all").0, COUNTED_STEPS * 2 * 8 * 4);
    let layers = analysis["experts"]["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 8);
    for layer in layers {
        let shares: f64 = layer["shares"].as_array().unwrap().iter().map(|share| share.as_f64().unwrap()).sum();
        assert!((shares - 1.0).abs() < 1e-12, "{layer}");
    }
    assert!(analysis["experts"]["imbalance"].as_f64().unwrap() > 1.0);
}

/// What is found of a sample that does not say its layout.
fn without_layout(name: &str) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let sample = Path::new(SAMPLES).join(name);
    for rank in ["rank-00000", "rank-00001"] {
        fs::create_dir(directory.path().join(rank)).unwrap();
        for file in fs::read_dir(sample.join(rank)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), directory.path().join(rank).join(file.file_name())).unwrap();
        }
    }
    let mut run: Value = serde_json::from_slice(&fs::read(sample.join("run.json")).unwrap()).unwrap();
    run["layout"] = Value::Null;
    fs::write(directory.path().join("run.json"), run.to_string()).unwrap();
    binary::json(&["analyze", ".", "--format", "json"], directory.path())
}

#[test]
fn gradients_that_are_put_off_fill_the_bubble() {
    let bubble = |name| analysis(name)["pipeline"]["bubble"].as_f64().unwrap();
    assert!(bubble("pp2-zero-bubble") < 0.9 * bubble("pp2-1f1b"));
    for (name, schedule) in [("pp2-gpipe", "gpipe"), ("pp2-1f1b", "1f1b"), ("pp2-zero-bubble", "zero-bubble")] {
        // Of a run that does not say it, what is done of each micro-batch tells.
        let told = &without_layout(name)["pipeline"];
        assert_eq!((&told["schedule"], &told["inferred"]), (&schedule.into(), &true.into()), "{name}: {told}");
    }
}

#[test]
fn recomputation_takes_time_and_saves_memory() {
    let (none, full) = (analysis("recompute-none"), analysis("recompute-full"));
    assert!(at_peak(&full, "activations") < 0.3 * at_peak(&none, "activations"));
    assert!(median_step(&full) > 1.15 * median_step(&none));
    let (mfu, hfu) = (full["mfu"]["value"].as_f64().unwrap(), full["mfu"]["hfu"].as_f64().unwrap());
    assert!(hfu > 1.2 * mfu, "{mfu} {hfu}");
    assert_eq!(none["steps"][4]["loss"], full["steps"][4]["loss"]);
}

#[test]
fn stages_have_bubbles_and_gpipe_keeps_more() {
    let (gpipe, one) = (analysis("pp2-gpipe"), analysis("pp2-1f1b"));
    for pipeline in [&gpipe["pipeline"], &one["pipeline"]] {
        assert_eq!((&pipeline["stages"], &pipeline["micro_batches"]), (&2.into(), &8.into()));
        let (bubble, ideal) = (pipeline["bubble"].as_f64().unwrap(), pipeline["ideal_bubble"].as_f64().unwrap());
        assert!((ideal - 1.0 / 9.0).abs() < 1e-9 && (bubble - ideal).abs() < 0.03, "{bubble}");
    }
    assert!(at_peak(&gpipe, "activations") > 3.0 * at_peak(&one, "activations"));
}

#[test]
fn ranks_that_shared_a_gpu_say_so() {
    for (name, ranks) in [("single", Value::Null), ("tp2", 2.into())] {
        assert_eq!(analysis(name)["run"]["ranks_on_a_device"], ranks, "{name}");
    }
    let output = stepscope(&["analyze", "tp2"], Path::new(SAMPLES));
    assert!(text(&output.stdout).contains("shared by 2 ranks, so times do not reflect 2 GPUs"));
}

/// A sample whose model only its program says, with what it says of sequences.
fn told_by_the_program(directory: &Path, sequence_length: Value) {
    let sample = Path::new(SAMPLES).join("single");
    let rank = directory.join("rank-00000");
    fs::create_dir_all(&rank).unwrap();
    for table in ["counters", "memory", "spans", "strings"] {
        let name = format!("{table}.arrows");
        fs::write(rank.join(&name), fs::read(sample.join("rank-00000").join(&name)).unwrap()).unwrap();
    }
    let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let mut run = read(&sample.join("run.json"));
    let mut info = read(&sample.join("rank-00000/rank.json"));
    run["layout"] = Value::Null;
    let shape = run["model"].take();
    info["collector"]["program_model"] = json!({ "shape": shape, "sequence_length": sequence_length });
    fs::write(directory.join("run.json"), run.to_string()).unwrap();
    fs::write(rank.join("rank.json"), info.to_string()).unwrap();
}

#[test]
fn a_model_that_the_program_says_gives_the_same_mfu_as_one_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let report = || {
        let report = text(&stepscope(&["analyze", "."], directory.path()).stdout);
        report.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let of_run = analysis("single");
    told_by_the_program(directory.path(), of_run["run"]["layout"]["sequence_length"].clone());
    let of_program = binary::json(&["analyze", ".", "--format", "json"], directory.path());
    assert_eq!((&of_run["mfu"]["model_from"], &of_program["mfu"]["model_from"]), (&"run".into(), &"program".into()));
    assert_eq!(of_program["mfu"]["value"], of_run["mfu"]["value"]);
    assert_eq!(of_program["run"]["model"], of_run["run"]["model"]);
    assert!(of_program["mfu"]["hfu"].is_null(), "nobody says whether anything is computed again");
    let said = report();
    assert!(said.contains("per rank, model from the program)"), "{said}");
    told_by_the_program(directory.path(), Value::Null);
    let said = report();
    assert!(said.contains("per rank, FLOPs from the shapes of its operators)"), "{said}");
}
