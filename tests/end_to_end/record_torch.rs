use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    binary::{command, json, stepscope, text},
    skipped::skipped,
};

/// A place with something that passes for PyTorch, whose memory is known. None where there is no Python, or no compiler of C.
struct Program {
    directory: TempDir,
}

impl Program {
    fn new() -> Option<Program> {
        let directory = tempfile::tempdir().unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fake_torch");
        let library = directory.path().join("libtorch_cuda.so");
        let build = ["-shared", "-fPIC", "-O1", "-pthread", "-Wl,-soname,libtorch_cuda.so", "-o"];
        let built = Command::new("cc").args(build).arg(&library).arg(fixture.join("allocator.c")).status();
        let python =
            Command::new("python3").arg("-c").arg("import ctypes, sys; assert sys.version_info >= (3, 8)").status();
        for (what, outcome) in [("C compiler (cc)", &built), ("python3", &python)] {
            if !outcome.as_ref().is_ok_and(|status| status.success()) {
                skipped("tools", &format!("there is no {what}"));
                return None;
            }
        }
        copy(&fixture.join("torch"), &directory.path().join("torch"));
        fs::copy(fixture.join("train.py"), directory.path().join("train.py")).unwrap();
        Some(Program { directory })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// `stepscope record` of the training, with options and variables.
    fn command(&self, options: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = command(self.path());
        command.args(["record", "--run", "run"]).args(options).args(["--", "python3", "train.py"]);
        for variable in ["RANK", "PYTHONPATH", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"] {
            command.env_remove(variable);
        }
        command.envs(variables.iter().copied());
        command
    }

    fn record(&self, options: &[&str], variables: &[(&str, &str)]) -> Output {
        self.command(options, variables).output().unwrap()
    }

    fn memory(&self) -> Value {
        let analysis = json(&["analyze", "run", "--format", "json"], self.path());
        analysis["memory"][0].clone()
    }

    fn rank(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path().join("run/rank-00000/rank.json")).unwrap()).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (source, target): (PathBuf, PathBuf) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() { copy(&source, &target) } else { _ = fs::copy(&source, &target).unwrap() }
    }
}

/// Parameters, their gradients and moments, data that stays, and scratch that a library keeps.
#[track_caller]
fn check_kept(categories: &Value) {
    for (category, bytes) in [("parameters", 1070), ("gradients", 1070), ("optimizer_state", 2140), ("workspace", 999)]
    {
        assert_eq!(categories[category], bytes, "{category} of {categories}");
    }
}

#[test]
fn a_program_that_hangs_says_where_its_threads_are() {
    let Some(program) = Program::new() else { return };
    let options = ["--budget", "none", "--hang-after", "2"];
    let output = program.record(&options, &[("STEPS", "3"), ("WAIT", "8")]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("stepscope: hang: no step has ended for "), "{said}");
    let incidents = json(&["incidents", "run", "--format", "json"], program.path());
    let hang = &incidents["incidents"][0];
    assert_eq!(hang["kind"], "hang", "{incidents:#}");
    let main = &hang["stacks"][0]["python"][0];
    let place = main["calls"][0].as_str().unwrap();
    assert!(main["name"] == "MainThread" && place.ends_with(" <module>") && place.contains("train.py:"), "{hang:#}");
    assert!(hang["evidence"][0].as_str().unwrap().starts_with("rank 0: at "), "{hang:#}");
}

#[test]
fn memory_of_pytorch_is_told_apart() {
    let Some(program) = Program::new() else { return };
    let output = program.record(&[], &[]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "trained True 0\n"), "{said}");
    assert!(
        said.contains("memory    PyTorch memory by category on 1 rank; recording it took ")
            && said.contains(" of one CPU core"),
        "{said}"
    );
    let memory = program.memory();
    check_kept(&memory["at_end"]);
    assert_eq!(
        (&memory["inferred"], &memory["unmatched_events"], &memory["gaps"]),
        (&true.into(), &0.into(), &0.into())
    );
    assert_eq!(memory["at_peak"]["activations"], 804, "{memory}");
    assert_eq!(memory["at_peak"]["inputs"], 64, "{memory}");
    assert_eq!(memory["at_end"]["other"], 5000, "data that stays is none of the model's: {memory}");
    assert_eq!(memory["peak_phase"], "backward");
    let rank = program.rank();
    assert_eq!((&rank["collector"]["torch_memory"], &rank["state"]), (&"recorded".into(), &"complete".into()));
    // What it imitates has no modules below modules, and no profiler: that is said, and the rest is there.
    let failed: Vec<&String> = rank["collector"]["failed_sources"].as_object().unwrap().keys().collect();
    assert_eq!(failed, ["model", "operators"]);
    let report = text(&stepscope(&["analyze", "run"], program.path()).stdout);
    assert!(report.contains("missing   model (rank 0: AttributeError: "), "{report}");
    let inspected = text(&stepscope(&["inspect", "run"], program.path()).stdout);
    assert!(inspected.contains("memory: PyTorch memory by category on 1 rank"), "{inspected}");
    let inspected = json(&["inspect", "run", "--format", "json"], program.path());
    assert_eq!(inspected["ranks"][0]["torch_memory"]["version"], "2.11.0");
}

#[test]
fn the_programs_own_profiler_gets_room_and_the_report_says_so() {
    let Some(program) = Program::new() else { return };
    let output = program.record(&[], &[("PROFILE", "1")]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "trained True 0\n"), "{said}");
    let paused = |said: &str| {
        let (_, paused) = said.split_once("recording paused ").unwrap_or_else(|| panic!("{said}"));
        let (paused, _) = paused.split_once(" in all, while the program's own profiler ran\n").unwrap();
        paused.split_once(" times, ").unwrap().0.to_owned()
    };
    assert_eq!(paused(&said), "3", "one needs no room: {said}");
    for command in [["inspect", "run"], ["analyze", "run"]] {
        assert_eq!(paused(&text(&stepscope(&command, program.path()).stdout)), "3");
    }
    let run = &json(&["analyze", "run", "--format", "json"], program.path())["run"];
    let nanos = run["paused"]["paused_ns"].as_u64().unwrap();
    assert!((600_000_000..10_000_000_000).contains(&nanos), "{run}");
    assert_eq!((&run["paused"]["count"], &run["paused"]["ranks_without_kernels"]), (&3.into(), &Value::Array(vec![])));
    check_kept(&program.memory()["at_end"]);
}

#[test]
fn whoever_does_not_want_it_has_nothing_of_it() {
    let Some(program) = Program::new() else { return };
    let output = program.record(&["--no-torch"], &[]);
    assert_eq!(text(&output.stdout), "trained False 0\n", "{}", text(&output.stderr));
    assert_eq!(program.rank()["collector"].get("torch_memory"), None);
    assert_eq!(program.memory(), Value::Null);
}

#[test]
fn a_program_that_ends_badly_has_its_memory_recorded() {
    for (variable, status) in [("RAISE", 1), ("LEAVE", 5)] {
        let Some(program) = Program::new() else { return };
        // Long enough for the history to be read several times.
        let output = program.record(&[], &[(variable, "1"), ("STEPS", "30"), ("WAIT", "0.03")]);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        let memory = program.memory();
        assert_eq!(
            (&memory["at_peak"]["parameters"], &memory["unmatched_events"]),
            (&1070.into(), &0.into()),
            "{variable}"
        );
        assert_eq!(memory["at_peak"]["activations"], 804, "{variable}");
    }
}

#[test]
fn a_window_has_what_was_there_before() {
    let Some(program) = Program::new() else { return };
    let window = ["--after", "0.5", "--duration", "1"];
    let output = program.record(&window, &[("STEPS", "30"), ("WAIT", "0.08")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let memory = program.memory();
    let at_peak = &memory["at_peak"];
    assert_eq!((&at_peak["parameters"], &at_peak["optimizer_state"]), (&1070.into(), &2140.into()), "{memory}");
    assert_eq!((&at_peak["activations"], &memory["unmatched_events"]), (&804.into(), &0.into()), "{memory}");
}

#[test]
fn a_program_that_has_a_history_of_its_own_keeps_it() {
    let Some(program) = Program::new() else { return };
    let output = program.record(&[], &[("OWN_HISTORY", "1")]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("recorded in part: the program keeps a history of its memory itself"), "{said}");
    assert_eq!(program.memory()["at_end"]["parameters"], 1070);
}

#[test]
fn a_sitecustomize_of_the_programs_own_runs() {
    let Some(program) = Program::new() else { return };
    let own = program.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("sitecustomize.py"), "print('its own', __name__)\nHERE = 1\n").unwrap();
    let script = "import sitecustomize, sys\nprint(sitecustomize.HERE, 'torch' in sys.modules)\n";
    let output = command(program.path())
        .args(["record", "--run", "run", "--", "python3", "-c", script])
        .env("PYTHONPATH", &own)
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "its own sitecustomize\n1 False\n", "{}", text(&output.stderr));
}

#[test]
fn pytorch_is_waited_for_until_it_is_there() {
    for variable in ["LOOK_FIRST", "BREAK_IMPORT"] {
        let Some(program) = Program::new() else { return };
        let output = program.record(&[], &[(variable, "1")]);
        assert_eq!(text(&output.stdout), "trained True 0\n", "{variable}: {}", text(&output.stderr));
        check_kept(&program.memory()["at_end"]);
    }
}

#[test]
fn what_pytorch_throws_ends_its_memory_and_not_the_program() {
    for when in ["1", "3"] {
        let Some(program) = Program::new() else { return };
        let output = program.record(&[], &[("THROW", when), ("STEPS", "30"), ("WAIT", "0.03")]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("PyTorch 2.11.0 threw a C++ exception, St9bad_alloc"), "{said}");
        let so_far = if when == "1" { "not recorded: " } else { "recorded in part: " };
        assert!(said.contains(so_far), "{said}");
        assert_eq!(program.rank()["state"], "complete");
    }
}

#[test]
fn a_killed_program_keeps_what_was_read() {
    let Some(program) = Program::new() else { return };
    let mut child = program
        .command(&[], &[("STEPS", "1000"), ("WAIT", "0.03")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let rank = program.path().join("run/rank-00000/memory.arrows");
    let written = || fs::metadata(&rank).map_or(0, |file| file.len());
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    // Beyond the head of the file.
    while written() < 8000 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let pid = program.rank()["pid"].as_i64().unwrap();
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(137));
    let memory = program.memory();
    assert_eq!(
        (&memory["at_peak"]["parameters"], &memory["at_peak"]["activations"]),
        (&1070.into(), &804.into()),
        "{memory}"
    );
}
