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
    let rejected = json["rejected"].as_array().unwrap();
    assert!(rejected.iter().any(|rejection| rejection["why"] == "80 layers are not divisible by pp 32"));
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
    assert!(stdout.contains("\npredicted: the best of each dp × tp × pp grid, out of "), "{stdout}");
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

#[test]
fn bad_input_gets_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("vision.json");
    fs::write(&file, r#"{"model_type": "clip", "vision_config": {"hidden_size": 768}}"#).unwrap();
    let vision = format!("--model {} --gpu h100 --gpus 8", file.display());
    for (arguments, error) in [
        ("--model gpt5 --gpu h100 --gpus 8", "error: unknown model `gpt5`: not a file, and not one of tiny, gpt2-124m"),
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
