use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use stepscope_traces::{RankData, Run, SpanKind, State, Step, Window};

fn child(run: &Path, mode: &str) -> Command {
    let program: PathBuf = Path::new(env!("CARGO_BIN_EXE_stepscope")).with_file_name("examples/recording_child");
    let mut command = Command::new(program);
    command.arg(run).arg(mode).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run_child(run: &Path, mode: &str) -> Output {
    child(run, mode).output().unwrap()
}

/// The next line of the child.
fn said(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

fn read(path: &Path) -> (RankData, State) {
    let run = Run::open(path).unwrap();
    let (data, _) = run.ranks[0].read(Window::ALL).unwrap();
    (data, run.state())
}

/// The steps that are whole: the annotation of a step is recorded when it ends.
fn steps(data: &RankData) -> u64 {
    let steps: Vec<Step> =
        data.spans.rows().filter(|span| span.kind == SpanKind::Step).filter_map(|span| span.step).collect();
    assert!(steps.iter().copied().eq((0..steps.len() as i32).map(Step)), "no step is missing before the last");
    steps.len() as u64
}

fn wait_for_steps(path: &Path, count: u64) {
    let began = Instant::now();
    while steps(&read(path).0) < count {
        assert!(began.elapsed() < Duration::from_secs(60), "{count} steps were recorded a minute ago");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_kill_loses_nothing_that_was_in_the_files() {
    let mut random = fastrand::Rng::with_seed(3);
    for kill in 0..50 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        let mut child = child(&path, "for-ever").spawn().unwrap();
        said(&mut child);
        // The others are killed when nothing may have been written yet.
        if kill % 2 == 0 {
            wait_for_steps(&path, 1);
        }
        std::thread::sleep(Duration::from_micros(random.u64(0..700_000)));
        let (before, _) = read(&path);
        child.kill().unwrap();
        child.wait().unwrap();

        let inspect = Command::new(env!("CARGO_BIN_EXE_stepscope"))
            .args(["inspect", "--format", "json"])
            .arg(&path)
            .output()
            .unwrap();
        let contents: serde_json::Value = serde_json::from_slice(&inspect.stdout).unwrap();
        assert_eq!(contents["state"], "interrupted", "kill {kill}");

        let (kept, seen) = (steps(&read(&path).0), steps(&before));
        assert!(kept >= seen, "kill {kill}: kept {kept} of {seen} steps that were in the files");
    }
}

/// How soon is measured by `cargo bench --bench recording`.
#[test]
fn what_is_recorded_reaches_the_files_before_the_program_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let mut child = child(&path, "idle").spawn().unwrap();
    let recorded: u64 = said(&mut child).trim().parse().unwrap();
    wait_for_steps(&path, recorded);
    child.kill().unwrap();
    child.wait().unwrap();
    let (data, state) = read(&path);
    assert_eq!((steps(&data), state), (recorded, State::Interrupted));
}

#[test]
fn a_run_is_recording_while_it_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let mut child = child(&path, "for-ever").spawn().unwrap();
    said(&mut child);
    assert_eq!(Run::open(&path).unwrap().state(), State::Recording);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(Run::open(&path).unwrap().state(), State::Interrupted);
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let output = run_child(&path, "full-disk");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(42), "{stderr}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "finished: false\n");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("stepscope: recording of rank 0 stopped early: cannot write to "), "{stderr}");
    assert!(stderr.ends_with("; the program continues\n"), "{stderr}");

    let run = Run::open(&path).unwrap();
    assert_eq!(run.state(), State::Interrupted);
    assert!(run.ranks[0].info.reason.as_ref().unwrap().contains("File too large"));
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert!(steps(&data) > 0);
    assert_eq!(loss.unreadable_bytes, 0, "the half-written batch was taken back");
}

#[test]
fn a_panic_leaves_a_readable_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let output = run_child(&path, "panic");
    assert_eq!(output.status.code(), Some(101));
    let (data, state) = read(&path);
    assert_eq!(state, State::Interrupted);
    let last = data.spans.rows().rfind(|span| span.kind == SpanKind::Step);
    assert_eq!(last.unwrap().step, Some(Step(99)), "what was open when it panicked was closed and written");
}

#[test]
fn a_forked_child_records_nothing_and_ends_as_it_wants_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let output = run_child(&path, "fork");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(42), 0), "{stdout}");
    assert!(stdout.contains(", 7)\n") && stdout.ends_with("finished: true\n"), "{stdout}");
    let (data, state) = read(&path);
    assert_eq!(state, State::Complete);
    assert!(steps(&data) > 0, "and no step of the child's is among them");
}

#[test]
fn a_program_that_forgets_to_finish_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let output = run_child(&path, "no-finish");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(42), 0));
    let (data, state) = read(&path);
    assert_eq!(state, State::Interrupted);
    assert!(steps(&data) > 0);
    let reason = Run::open(&path).unwrap().ranks[0].info.reason.clone().unwrap();
    assert!(reason.contains("without calling finish"), "{reason}");
}
