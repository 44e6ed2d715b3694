use std::fs;

use crate::binary::{command, json, stepscope, text};

#[test]
fn any_machine_gets_an_answer() {
    let directory = tempfile::tempdir().unwrap();
    let output = stepscope(&["doctor"], directory.path());
    assert!(output.status.success() && output.stderr.is_empty());
    let said = text(&output.stdout);
    assert!(!said.contains('\u{1b}'), "{said}");

    let report = json(&["doctor", "--format", "json"], directory.path());
    assert_eq!(report["schema"], 1);
    let without = report["cpu_default"].as_bool().unwrap();
    assert_eq!(said.contains("`stepscope train` runs on the CPU"), without, "{said}");
    let libraries = report["libraries"].as_array().unwrap();
    let names: Vec<&str> = libraries.iter().map(|library| library["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["CUDA driver", "NVML", "CUPTI", "NVRTC", "cuBLASLt", "cuBLAS", "cuDNN", "NCCL"]);
    for library in libraries {
        assert_ne!(library["path"].is_null(), library["missing"].is_null(), "{library}");
        assert_eq!(library["missing"].is_null(), library["hint"].is_null(), "{library}");
    }
    for gpu in report["gpus"].as_array().unwrap() {
        assert!(gpu["name"].is_string() && gpu["readings"].is_array() && gpu["left_out"].is_array(), "{gpu}");
    }
}

#[test]
fn a_library_that_does_not_load_is_told_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("libnccl.so.2"), "no library").unwrap();
    let mut doctor = command(directory.path());
    let output = doctor.args(["doctor"]).env("STEPSCOPE_CUDA_LIBRARIES", directory.path()).output().unwrap();
    assert!(output.status.success());
    let said = text(&output.stdout);
    let line = said.lines().find(|line| line.contains("NCCL")).unwrap();
    // There may be another one that does.
    assert!(line.starts_with("NCCL  ") || line.contains("NCCL fails to load: "), "{said}");
}
