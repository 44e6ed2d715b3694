use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;

use crate::binary::text;

fn plan(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stepscope")).arg("plan").args(arguments.split_whitespace()).output().unwrap()
}

#[test]
fn json_is_what_the_contract_says() {
    let output = plan("--model llama-70b --gpu h100 --gpus 64 --tokens 15T --format json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["schema"], &json["predicted"]), (&1.into(), &true.into()));
    assert_eq!(json["model"]["name"], "llama-70b");
    assert_eq!(json["model"]["parameters"], 70_553_706_496_u64);
    assert_eq!(json["device"]["name"], "h100-sxm");
    assert_eq!(json["device"]["peak_flops"], 989.4e12);
    assert_eq!(json["assumptions"]["compute_efficiency"], 0.75);
    assert_eq!(json["calibration"], Value::Null);
    let configurations = json["configurations"].as_array().unwrap();
    let mut last = f64::INFINITY;
    for configuration in configurations {
        let layout = &configuration["layout"];
        let size = |axis: &str| layout[axis].as_u64().unwrap();
        assert_eq!(size("dp") * size("tp") * size("pp"), 64);
        assert_eq!(size("dp") * size("micro_batch") * size("micro_batches") * size("sequence_length"), 4_194_304);
        assert!(size("zero") <= 3);
        assert!(["gpipe", "1f1b", "interleaved"].contains(&layout["schedule"].as_str().unwrap()));
        assert!(["none", "selective", "full"].contains(&layout["recompute"].as_str().unwrap()));
        let memory: u64 =
            configuration["memory"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(configuration["memory_bytes"], memory);
        let figure = |name: &str| configuration[name].as_f64().unwrap();
        assert!(figure("tokens_per_second") <= last);
        last = figure("tokens_per_second");
        assert!(figure("step_time_low_ns") < figure("step_time_ns"));
        assert!(figure("step_time_ns") < figure("step_time_high_ns"));
        assert!(figure("tokens_per_second_low") < last && last < figure("tokens_per_second_high"));
        assert_eq!(layout["gradients"], "fp32");
        assert!((figure("step_time_ns") * last / 1e9 / 4_194_304.0 - 1.0).abs() < 1e-9);
        assert!((figure("gpu_days") / (15e12 / last * 64.0 / 86_400.0) - 1.0).abs() < 1e-9);
        assert!(figure("mfu") < 0.75 && figure("bubble") < 1.0 && figure("exposed_communication_ns") >= 0.0);
    }
    assert!(configurations.len() > 10);
    assert!(json["rejected"].is_array());
    let output = plan("--model llama-70b --gpu a10 --gpus 8 --format json");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let why = |rejection: &Value| rejection["why"].as_str().is_some_and(|why| why.contains(" short: needs "));
    assert!(json["rejected"].as_array().unwrap().iter().any(why), "{json:#}");
}

#[test]
fn values_that_are_asked_for_are_kept() {
    let found = json("--model llama-70b --gpu h100 --gpus 64 --tp 4 --pp 4 --zero 1 --schedule 1f1b");
    assert_eq!(found["wanted"]["tp"], 4);
    assert_eq!(found["wanted"]["dp"], Value::Null);
    let layouts: Vec<&Value> =
        found["configurations"].as_array().unwrap().iter().map(|found| &found["layout"]).collect();
    assert!(!layouts.is_empty());
    for layout in layouts {
        assert_eq!((&layout["tp"], &layout["pp"], &layout["zero"]), (&4.into(), &4.into(), &1.into()));
        assert_eq!(layout["schedule"], "1f1b");
    }
    let output = plan("--model llama-70b --gpu h100 --gpus 64 --tp 4 --pp 4");
    assert!(text(&output.stdout).lines().next().unwrap().ends_with(", with --tp 4 --pp 4"), "{}", text(&output.stdout));
    let output = plan("--model llama-70b --gpu h100 --gpus 64 --tp 3");
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("error: no layout of 64 GPUs has --tp 3"), "{said}");
    assert!(said.contains("hint: for example --tp 1, 2, 4 or 8"), "{said}");
    for (arguments, why) in [
        ("--model tiny --gpu h100 --gpus 8 --tp 0", "invalid value '0' for '--tp <N>'"),
        ("--score run --tp 2", "cannot be used with"),
    ] {
        let output = plan(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}

#[test]
fn text_says_what_is_predicted_and_assumed() {
    let output = plan("--model llama-8b --gpu a100 --gpus 8 --seq-len 8192 --efficiency 0.5 --tokens 1T");
    let stdout = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(
        stdout.starts_with("llama-8b, 8.0 B parameters, on 8 × a100-80gb (80 GiB): 4,194,304 tokens per step"),
        "{stdout}"
    );
    assert!(stdout.contains("\npredicted: the best of each grid of ranks, out of "), "{stdout}");
    assert!(stdout.contains("\nassumptions: matrix products reach 50% of 312 TFLOP/s (bf16, dense)"), "{stdout}");
    assert!(stdout.contains("GPU-days") && !stdout.contains('\u{1b}'), "{stdout}");
    let nothing = text(&plan("--model llama-405b --gpu a10 --gpus 2").stdout);
    assert!(nothing.contains("\nno configuration fits\n") && nothing.contains(" GB usable, "), "{nothing}");
}

#[test]
fn any_number_of_gpus_can_share_the_usual_batch() {
    for gpus in [3, 7, 24, 96] {
        let output = plan(&format!("--model llama-8b --gpu h100 --gpus {gpus}"));
        assert!(!text(&output.stdout).contains("no configuration fits"), "{gpus} GPUs: {}", text(&output.stdout));
    }
}

#[test]
fn models_come_from_files_too() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.json");
    let config = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}"#;
    fs::write(&file, config).unwrap();
    let output = plan(&format!("--model {} --gpu h200 --gpus 8 --format json", file.display()));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["model"]["parameters"], 8_030_261_248_u64);
    let file = directory.path().join("mine.toml");
    fs::write(&file, "layers = 4\nhidden = 64\nheads = 4\nffn = 128\nvocabulary = 1000\n").unwrap();
    let output = plan(&format!("--model {} --gpu h200 --gpus 1", file.display()));
    assert!(text(&output.stdout).starts_with("mine, 0.3 M parameters"), "{}", text(&output.stdout));
}

/// Runs recorded on one H200 each; and a few more, of which times mean nothing.
const TIMED: [&str; 4] = ["single", "first-steps", "recompute-none", "recompute-full"];
const SHARED: [&str; 7] =
    ["dp2-naive", "dp2-bucketed", "dp2-zero3", "tp2", "tp2-sequence-parallel", "pp2-gpipe", "pp2-1f1b"];

fn samples(names: &[&str]) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples/");
    names.iter().map(|name| format!("{folder}{name}")).collect::<Vec<_>>().join(" ")
}

fn json(arguments: &str) -> Value {
    let output = plan(&format!("{arguments} --format json"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn recorded_runs_are_met_within_a_tenth_and_their_memory_within_three_hundredths() {
    let scores = json(&format!("--score {} {}", samples(&TIMED), samples(&SHARED)));
    let runs = scores["runs"].as_array().unwrap();
    assert_eq!(runs.len(), TIMED.len() + SHARED.len());
    for (index, run) in runs.iter().enumerate() {
        let error = |figure: &str| run["score"][figure]["error"].as_f64();
        assert!(error("memory_bytes").unwrap().abs() < 0.03, "{run:#}");
        let memory = run["score"]["memory"].as_object().unwrap();
        let sum = |which: &str| memory.values().map(|figure| figure[which].as_f64().unwrap()).sum::<f64>();
        assert_eq!(sum("measured"), run["score"]["memory_bytes"]["measured"].as_f64().unwrap(), "{run:#}");
        assert_eq!(sum("predicted"), run["score"]["memory_bytes"]["predicted"].as_f64().unwrap(), "{run:#}");
        if index < TIMED.len() {
            for figure in ["step_time_ns", "tokens_per_second", "mfu"] {
                assert!(error(figure).unwrap().abs() < 0.1, "{figure}: {run:#}");
            }
            let step = run["score"]["step_time_ns"]["measured"].as_f64().unwrap();
            let [low, high] = ["low", "high"].map(|end| run["score"][format!("step_time_{end}_ns")].as_f64().unwrap());
            assert!((low..high).contains(&step), "{run:#}");
        } else {
            assert_eq!(run["score"]["step_time_ns"], Value::Null);
            assert_eq!(run["score"]["times_why_not"], "2 ranks share a GPU, so its times are not those of 2 GPUs");
        }
    }
    let summary = &scores["summary"];
    assert_eq!((&summary["step_time"]["runs"], &summary["memory"]["runs"]), (&4.into(), &11.into()));
    let worst = runs.iter().filter_map(|run| run["score"]["step_time_ns"]["error"].as_f64()).map(f64::abs);
    assert_eq!(summary["step_time"]["worst_error"].as_f64(), worst.reduce(f64::max));
}

#[test]
fn assumptions_come_from_some_runs_and_are_held_to_others() {
    for (index, held_out) in TIMED.iter().enumerate() {
        let from: Vec<&str> =
            TIMED.iter().copied().enumerate().filter(|(at, _)| *at != index).map(|(_, run)| run).collect();
        let scores = json(&format!("--from {} --score {}", samples(&from), samples(&[held_out])));
        let run = &scores["runs"][0];
        assert_eq!((&run["calibrated"], &run["used_for_calibration"]), (&true.into(), &false.into()));
        let error = run["score"]["step_time_ns"]["error"].as_f64().unwrap();
        assert!(error.abs() < 0.05, "{held_out}: {error}");
        let measured = scores["calibration"]["measured"].as_array().unwrap();
        let of = |name: &str| measured.iter().find(|measured| measured["name"] == name).unwrap();
        assert_eq!(of("compute_efficiency")["runs"], 3);
        assert_eq!(run["score"]["assumptions"]["compute_efficiency"], of("compute_efficiency")["value"]);
        assert_eq!(run["score"]["assumptions"]["link_bandwidth"], 450e9, "no run shows it");
    }
    let both = json(&format!("--from {} --score {}", samples(&["single"]), samples(&["single", "first-steps"])));
    let used = |index: usize| both["runs"][index]["used_for_calibration"].as_bool().unwrap();
    assert!(used(0) && !used(1));
    assert_eq!(both["summary"]["step_time"]["runs"], 1, "a run is no test of itself");
    assert_eq!(both["summary"]["memory"]["runs"], 2);
}

#[test]
fn what_cannot_be_scored_says_why() {
    let output = plan(&format!("--score {}", samples(&["single", "tp2", "pytorch"])));
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(stdout.contains("\ntp2: times are not scored: 2 ranks share a GPU"), "{stdout}");
    assert!(stdout.contains("\npytorch: not scored: it does not say its model and layout"), "{stdout}");
    assert!(stdout.contains(", over 1 run\n") && stdout.contains(", over 2 runs\n"), "{stdout}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let among_others = plan(&format!("--score {} {}", samples(&["single"]), file.path().display()));
    let stdout = text(&among_others.stdout);
    assert!(among_others.status.success() && stdout.contains(": not scored: "), "{stdout}");
}

#[test]
fn a_search_takes_assumptions_from_runs_of_its_gpu() {
    let from = samples(&["single", "recompute-none", "tp2", "single"]);
    let searched = json(&format!("--model llama-8b --gpu h200 --gpus 8 --from {from}"));
    let calibration = &searched["calibration"];
    assert_eq!((calibration["device"].as_str(), calibration["runs"].as_array().unwrap().len()), (Some("h200"), 2));
    assert!(calibration["unused"][0]["why"].as_str().unwrap().starts_with("2 ranks share a GPU"));
    for measured in calibration["measured"].as_array().unwrap() {
        assert_eq!(searched["assumptions"][measured["name"].as_str().unwrap()], measured["value"]);
        assert!(measured["low"].as_f64() <= measured["value"].as_f64());
        assert!(measured["value"].as_f64() <= measured["high"].as_f64());
    }
    let set = json(&format!("--model llama-8b --gpu h200 --gpus 8 --efficiency 0.5 --from {from}"));
    assert_eq!(set["assumptions"]["compute_efficiency"], 0.5, "what is set counts");
    let said = text(&plan(&format!("--model llama-8b --gpu h200 --gpus 8 --from {from}")).stdout);
    assert!(said.contains("measured from 2 runs on h200; all else is assumed:\n  compute efficiency: "), "{said}");
    for (arguments, error) in [
        ("--model llama-8b --gpu h100 --gpus 8 --from ", "error: the runs of --from were recorded on h200"),
        ("--score /nowhere --from ", "error: "),
    ] {
        let output = plan(&format!("{arguments}{from}"));
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert!(text(&output.stderr).starts_with(error), "{}", text(&output.stderr));
    }
    let shared = plan(&format!("--model llama-8b --gpu h200 --gpus 8 --from {}", samples(&["tp2"])));
    assert!(text(&shared.stderr).starts_with("error: none of the runs of --from shows how fast a GPU is"));
}

#[test]
fn bad_input_gets_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("vision.json");
    fs::write(&file, r#"{"model_type": "clip", "vision_config": {"hidden_size": 768}}"#).unwrap();
    let vision = format!("--model {} --gpu h100 --gpus 8", file.display());
    for (arguments, error) in [
        (
            "--model gpt5 --gpu h100 --gpus 8",
            "error: unknown model `gpt5`: not a file, and not one of tiny, tiny-moe, gpt2-124m",
        ),
        ("--model tiny --gpu tpu --gpus 8", "error: unknown device `tpu`; known devices are a100-40gb"),
        ("--model tiny --gpu h100 --gpus 0", "error: at least one GPU is needed"),
        ("--model tiny --gpu h100 --gpus many", "error: invalid value 'many' for '--gpus <N>'"),
        (
            "--model tiny --gpu h100 --gpus 8 --global-batch 1000",
            "error: a global batch of 1000 tokens is not a multiple",
        ),
        ("--model tiny --gpu h100 --gpus 8 --gpus-per-node 18446744073709551615", "error: a node cannot have 1844"),
        (
            "--model /dev/zero --gpu h100 --gpus 8",
            "error: cannot read a model from /dev/zero: it is not a regular file",
        ),
        ("--model tiny --gpu h100 --gpus 8 --efficiency 2", "error: compute efficiency is 2; it must be between"),
        (
            "--model tiny --gpu h100 --gpus 8 --precision fp32 --grads bf16",
            "error: invalid layout: fp32 parameters need",
        ),
        (
            "--model gpt2-124m --gpu h100 --gpus 8 --seq-len 4096",
            "error: invalid layout: the model has 1024 learned positions, fewer than 4096",
        ),
        (&vision, "error: cannot read a model from "),
    ] {
        let output = plan(arguments);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments}: {stderr}");
        assert!(stderr.starts_with(error), "{arguments}: {stderr}");
    }
    assert!(text(&plan(&vision).stderr).contains("image model"));
}
