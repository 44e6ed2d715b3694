use std::{fs, path::Path};

use crate::binary::{command, failure, stepscope, text};

/// Records a line of shell into `run`: its status, and what it said to stdout and stderr.
fn record(line: &str, directory: &Path) -> (Option<i32>, String, String) {
    let output = stepscope(&["record", "--run", "run", "--", "sh", "-c", line], directory);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_command_keeps_its_words_and_its_status() {
    for (line, status) in [("echo its own; exit 0", 0), ("echo its own; exit 7", 7), ("echo its own; kill -9 $$", 137)]
    {
        let directory = tempfile::tempdir().unwrap();
        let (code, stdout, stderr) = record(line, directory.path());
        assert_eq!((code, stdout.as_str()), (Some(status), "its own\n"), "{stderr}");
        assert!(stderr.contains("recorded  nothing: no process of the command used CUDA"), "{stderr}");
    }
}

#[test]
fn a_command_finds_what_the_driver_nvtx_and_nccl_look_for() {
    let directory = tempfile::tempdir().unwrap();
    let line = "here=$PWD; cd / && test -f \"$CUDA_INJECTION64_PATH\" && test \"$CUDA_INJECTION64_PATH\" = \"$NVTX_INJECTION64_PATH\" \
                && test \"$CUDA_INJECTION64_PATH\" = \"$NCCL_PROFILER_PLUGIN\" \
                && echo \"$STEPSCOPE_INJECTION\" && cat \"$here/run/run.json\"";
    let (code, stdout, stderr) = record(line, directory.path());
    assert_eq!(code, Some(0), "{stderr}");
    let mut said = serde_json::Deserializer::from_str(&stdout).into_iter::<serde_json::Value>();
    let (settings, info) = (said.next().unwrap().unwrap(), said.next().unwrap().unwrap());
    let run = fs::canonicalize(directory.path()).unwrap().join("run");
    assert_eq!(settings["run"].as_str(), run.to_str(), "a full path: the command is elsewhere");
    assert!(!run.exists(), "nothing was recorded, and nothing is left");
    assert_eq!(info["configuration"]["source"], "recorded program");
    assert_eq!(info["configuration"]["program"][0], "sh");
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| failure(arguments, directory.path());
    let missing = refused(&["record", "--run", "run", "--", "no-such-command"]);
    assert!(missing.starts_with("error: command not found: `no-such-command`\nhint: "), "{missing}");
    assert!(!directory.path().join("run").exists(), "nothing is left of what did not begin");
    assert!(refused(&["record", "--duration", "9", "--every", "5", "--", "true"]).contains("--every"));
    fs::create_dir(directory.path().join("run")).unwrap();
    fs::write(directory.path().join("run/run.json"), "{}").unwrap();
    assert!(refused(&["record", "--run", "run", "--", "true"]).contains("already contains a recording"));

    let run = |name: &str, value: &str| {
        let output = command(directory.path()).args(["record", "--", "true"]).env(name, value).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = run("STEPSCOPE_INJECT", "/no/such/library.so");
    assert!(
        code == Some(2) && said.contains("/no/such/library.so, which is not a file") && said.contains("hint: "),
        "{said}"
    );
    let (code, said) = run("NCCL_PROFILER_PLUGIN", "another");
    assert!(code == Some(0), "there is room for two: {said}");
    let (code, said) = run("CUDA_INJECTION64_PATH", "/another/tool.so");
    assert!(code == Some(2) && said.contains("/another/tool.so"), "{said}");
}

#[test]
fn only_recorded_programs_are_triggered() {
    let directory = tempfile::tempdir().unwrap();
    assert!(failure(&["trigger", "nothing"], directory.path()).contains("nothing does not exist"));
    let trigger = format!("{} trigger run --duration 2 && test -f run/trigger.json", env!("CARGO_BIN_EXE_stepscope"));
    let dormant = ["record", "--dormant", "--run", "run", "--", "sh", "-c", &trigger];
    let output = stepscope(&dormant, directory.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("triggered: recording the job for 2 s"), "{}", text(&output.stderr));
    assert!(failure(&["trigger", "run"], directory.path()).contains("run does not exist"), "nothing was recorded");
}
