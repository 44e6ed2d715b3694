use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
};

use stepscope_traces::{Counter, CounterId, Run, RunInfo, SpanKind, Window};

use crate::binary::{command, failure, json, stepscope, text};

/// The only run under `runs/`.
fn only_run(directory: &Path) -> PathBuf {
    let runs: Vec<PathBuf> = fs::read_dir(directory.join("runs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].clone()
}

/// The values of a counter, on rank 0.
fn counted(run: &Path, name: &str) -> Vec<f64> {
    let run = Run::open(run).unwrap();
    let (data, _) = run.ranks[0].read(Window::ALL).unwrap();
    let is_named = |id: CounterId| data.names.counter(id) == Some(name);
    data.counters.rows().filter(|sample| is_named(sample.counter)).map(|sample| sample.value).collect()
}

#[test]
fn a_newcomer_trains_and_is_told_what_to_do_next() {
    let directory = tempfile::tempdir().unwrap();
    let output = stepscope(&["train", "--steps", "3"], directory.path());
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.starts_with("trained   tiny for 3 steps in "), "{stdout}");
    assert_eq!(stderr.lines().filter(|line| line.starts_with("step ")).count(), 3, "{stderr}");
    let run = only_run(directory.path());
    let next = stdout.lines().find_map(|line| line.split_once("stepscope ")).unwrap().1;
    let next: Vec<&str> = next.split_whitespace().collect();
    let shown = stepscope(&next, directory.path());
    assert!(text(&shown.stdout).contains("complete"), "{}", text(&shown.stderr));
    let losses = counted(&run, Counter::Loss.word());
    assert!(losses.len() == 3 && losses[2] < losses[0], "{losses:?}");
    assert!(stderr.starts_with("training tiny on "), "{stderr}");
    for (loss, line) in losses.iter().zip(stderr.lines().skip(1)) {
        assert!(line.contains(&format!("loss {loss:.4}")), "{line}");
    }
    assert_eq!(counted(&run, Counter::Tokens.word()), [2048.0; 3]);
    let rates = counted(&run, "learning_rate");
    assert!(rates.len() == 3 && rates.is_sorted() && rates[0] > 0.0, "{rates:?}");
}

#[test]
fn ranks_may_be_processes() {
    let directory = tempfile::tempdir().unwrap();
    let arguments =
        ["train", "--backend", "cpu", "--dp", "2", "--steps", "3", "--micro-batches", "1", "--seq-len", "32"];
    let train = |more: &[&str]| stepscope(&[&arguments[..], more].concat(), directory.path());
    let output = train(&["--processes", "--run", "processes"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.starts_with("trained   tiny for 3 steps in "), "{stdout}");
    assert_eq!(stderr.lines().count(), 4, "what is trained, and three steps: {stderr}");
    assert_eq!(Run::open(&directory.path().join("processes")).unwrap().ranks.len(), 2);
    assert!(train(&["--run", "threads"]).status.success());
    let losses = |run: &str| counted(&directory.path().join(run), Counter::Loss.word());
    assert_eq!(losses("processes"), losses("threads"));
    // What goes wrong is said once.
    let output = train(&["--processes", "--run", "threads"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert_eq!(stderr.matches("error: ").count(), 1, "{stderr}");
    assert!(stderr.contains("threads already contains a recording"), "{stderr}");
}

#[test]
fn a_run_says_what_it_is_of() {
    let directory = tempfile::tempdir().unwrap();
    let file = "model = 'tiny'\nsteps = 1\ndp = 2\nzero = 1\nmicro-batch = 1\nmicro-batches = 2\nseq-len = 16\n\
                schedule = '1f1b'\nprecision = 'fp32'\n";
    fs::write(directory.path().join("run.toml"), file).unwrap();
    // What is said on the command line wins.
    let arguments = ["train", "--config", "run.toml", "--pp", "2", "--zero", "3", "--run", "here"];
    let output = stepscope(&arguments, directory.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = json(&["inspect", "here", "--format", "json"], directory.path());
    assert_eq!(shown["run"]["world_size"], 4);
    assert_eq!(shown["run"]["model"]["name"], "tiny");
    let layout = &shown["run"]["layout"];
    for (field, value) in [("dp", 2), ("tp", 1), ("pp", 2), ("zero", 3), ("micro_batches", 2), ("micro_batch", 1)] {
        assert_eq!(layout[field], value, "{field}");
    }
    assert_eq!(layout["precision"], "fp32");
    // Every collective is in a group that the run describes, at the same number on all its ranks.
    let run = Run::open(&directory.path().join("here")).unwrap();
    let groups = &run.info.groups;
    let mut seen = std::collections::HashMap::new();
    for rank in &run.ranks {
        let (data, _) = rank.read(Window::ALL).unwrap();
        for span in data.spans.rows().filter(|span| span.kind.is_communication()) {
            let group = groups.iter().find(|group| Some(group.group) == span.group).unwrap();
            assert!(group.ranks.contains(&rank.info.rank));
            if !matches!(span.kind, SpanKind::Send | SpanKind::Receive) {
                let first = seen.entry((span.group, span.sequence)).or_insert((span.kind, span.bytes, 0));
                assert_eq!((first.0, first.1), (span.kind, span.bytes));
                first.2 += 1;
                assert!(first.2 <= group.ranks.len());
            }
        }
    }
    assert!(seen.iter().all(|((group, _), (_, _, ranks))| {
        *ranks == groups.iter().find(|info| Some(info.group) == *group).unwrap().ranks.len()
    }));
}

#[test]
fn a_run_goes_on_from_its_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let small = ["--seq-len", "16", "--micro-batch", "1", "--micro-batches", "1"];
    let train = |arguments: &[&str]| {
        let output = stepscope(&[&["train"], arguments, &small].concat(), directory.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    train(&["--steps", "4", "--run", "whole"]);
    let said = train(&["--steps", "2", "--save-every", "2", "--run", "first"]);
    assert!(said.contains("first/checkpoints"), "{said}");
    train(&["--steps", "4", "--resume", "first", "--run", "second"]);
    let losses = |run: &str| counted(&directory.path().join(run), Counter::Loss.word());
    assert_eq!([losses("first"), losses("second")].concat(), losses("whole"));
    let again = [&["train", "--steps", "2", "--resume", "first", "--no-record"], &small[..]].concat();
    let said = failure(&again, directory.path());
    assert!(said.contains("it is at step 2"), "{said}");
}

#[test]
fn what_cannot_be_trained_is_said_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("odd.toml"), "stepz = 3\n").unwrap();
    RunInfo::of_this_process("there").create(&directory.path().join("there")).unwrap();
    for (arguments, why) in [
        ("--tp 3", "8 heads are not divisible by tp 3"),
        ("--pp 9", "8 layers are too few for pp 9"),
        ("--micro-batches 0", "micro-batches is 0"),
        ("--schedule interleaved", "at least 2 stages"),
        ("--model gpt2-124m", "only Llama-style models can be trained"),
        ("--model nothing", "unknown model `nothing`"),
        ("--model llama-405b", " of memory, but this machine has only "),
        ("--dp 100000 --micro-batch 1", "at most 128 can run as threads"),
        ("--steps 0", "--steps must be at least 1"),
        ("--learning-rate NaN", "the learning rate must be positive"),
        ("--precision fp32 --grads bf16", "fp32 parameters need fp32 gradients"),
        ("--data missing.txt", "cannot open missing.txt"),
        ("--config odd.toml", "stepz"),
        ("--config missing.toml", "missing.toml"),
        ("--resume missing", "it does not exist"),
        ("--run there", "there"),
        ("--backend cuda --dp 2", "no GPU found"),
        ("--save-every 0", "--save-every must be at least 1"),
        ("--seq-len 300000 --micro-batch 1", "the built-in text: it has 213394 bytes"),
        ("--micro-batches 16777216 --micro-batch 1", "the maximum is 65536"),
        ("--config /dev/zero", "not a regular file"),
        ("--data /dev/zero", "not a regular file"),
    ] {
        let arguments: Vec<&str> = std::iter::once("train").chain(arguments.split_whitespace()).collect();
        let said = failure(&arguments, directory.path());
        assert!(said.starts_with("error: ") && said.contains(why), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(!directory.path().join("runs").exists(), "{arguments:?}");
    }
}

#[test]
fn training_without_recording_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let output = stepscope(&["train", "--steps", "1", "--no-record", "--seq-len", "16"], directory.path());
    assert!(output.status.success() && text(&output.stdout).contains("not recorded"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_training_that_is_killed_stays_readable() {
    let directory = tempfile::tempdir().unwrap();
    let mut training = command(directory.path())
        .args(["train", "--steps", "100000", "--dp", "2", "--seq-len", "16", "--run", "killed"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(training.stderr.take().unwrap()).lines();
    let steps = lines.map_while(Result::ok).take_while(|line| !line.starts_with("step     20/")).count();
    std::thread::sleep(std::time::Duration::from_millis(400));
    training.kill().unwrap();
    training.wait().unwrap();
    assert_eq!(steps, 20, "the first line says what is trained");
    let shown = json(&["inspect", "killed", "--format", "json"], directory.path());
    assert_eq!(shown["state"], "interrupted");
    assert!(counted(&directory.path().join("killed"), Counter::Loss.word()).len() >= 20);
}
