use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use stepscope_plan::{ModelShape, ParallelLayout, Zero};
use stepscope_traces::{
    Nanos, RunInfo,
    synthetic::{Pipeline, Recipe, Schedule, Truth},
};

use crate::binary::{json, stepscope, text};

/// A directory with a run of four ranks in `runs/one`.
fn workplace() -> (tempfile::TempDir, Truth) {
    let directory = tempfile::tempdir().unwrap();
    let pipeline =
        Pipeline { stages: 2, schedule: Schedule::OneForwardOneBackward, chunks: 1, transfer: Nanos(10_000) };
    let recipe = Recipe { replicas: 2, pipeline: Some(pipeline), ..Recipe::default() };
    let truth = recipe.write(&directory.path().join("runs/one")).unwrap();
    (directory, truth)
}

#[test]
fn json_tells_what_is_there() {
    let (directory, truth) = workplace();
    let contents = json(&["inspect", "runs/one", "--format", "json"], directory.path());
    assert_eq!(contents["schema"], 1);
    assert_eq!(contents["state"], "complete");
    assert_eq!(contents["run"]["world_size"], 4);
    assert_eq!(contents["data_loss"]["dropped_events"], 0);
    let ranks = contents["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 4);
    for (rank, truth) in ranks.iter().zip(&truth.ranks) {
        assert_eq!(rank["rank"], truth.rank.0);
        assert_eq!(rank["tables"]["spans"]["rows"], truth.spans);
        assert_eq!(rank["tables"]["memory"]["rows"], truth.memory_events);
        assert_eq!(rank["tables"]["counters"]["rows"], truth.counter_samples);
        assert_eq!(rank["start_ns"], 0, "memory is allocated before the first step");
        let last = truth.steps.last().unwrap();
        assert!(rank["end_ns"].as_i64().unwrap() >= (last.start + last.figures.span).0);
        let file = directory.path().join(format!("runs/one/rank-{:05}/spans.arrows", truth.rank.0));
        assert_eq!(rank["tables"]["spans"]["bytes"], fs::metadata(file).unwrap().len());
    }
}

#[test]
fn text_lines_up_and_needs_no_colour() {
    let (directory, truth) = workplace();
    let output = stepscope(&["inspect", "runs/one"], directory.path());
    assert!(output.status.success() && output.stderr.is_empty());
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("runs/one  complete\n"), "{stdout}");
    assert!(stdout.contains(", 4 ranks\n"), "{stdout}");
    assert!(!stdout.contains('\u{1b}') && !stdout.contains("lost"), "{stdout}");
    let table: Vec<&str> = stdout.lines().skip_while(|line| !line.starts_with("rank")).collect();
    assert_eq!(table.len(), 1 + truth.ranks.len());
    let ends_of = |line: &str, word: &str| line.find(word).map(|at| at + word.len());
    let thousands = |number: u64| format!("{},{:03}", number / 1000, number % 1000);
    for (line, truth) in table[1..].iter().zip(&truth.ranks) {
        assert_eq!(ends_of(line, &thousands(truth.spans)), ends_of(table[0], "spans"), "{stdout}");
    }
}

#[test]
fn what_was_trained_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let (model, layout) = (ModelShape::preset("tiny").unwrap(), ParallelLayout { dp: 2, ..ParallelLayout::default() });
    let line = |name: &str, model, layout| {
        RunInfo { model, layout, ..RunInfo::of_this_process(name) }.create(&directory.path().join(name)).unwrap();
        let output = stepscope(&["inspect", name], directory.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let stdout = text(&output.stdout);
        let line = stdout.lines().find(|line| line.contains("model") || line.contains("layout"));
        line.unwrap_or_default().to_owned()
    };
    let sharded = ParallelLayout { zero: Zero::One, ..layout };
    let both = "  model     tiny, 1.7 M parameters   layout  dp 2 · tp 1 · pp 1 · zero 1 · bf16";
    assert_eq!(line("both", Some(model.clone()), Some(sharded)), both);
    assert_eq!(line("one", Some(model.clone()), None), "  model     tiny, 1.7 M parameters");
    assert_eq!(line("other", None, Some(layout)), "  layout    dp 2 · tp 1 · pp 1 · zero 0 · bf16");
    assert_eq!(line("none", None, None), "");
    let run = &json(&["inspect", "both", "--format", "json"], directory.path())["run"];
    assert_eq!(serde_json::from_value::<ModelShape>(run["model"].clone()).unwrap(), model);
    assert_eq!(serde_json::from_value::<ParallelLayout>(run["layout"].clone()).unwrap(), sharded);
}

#[test]
fn the_newest_run_is_the_default() {
    let (directory, _) = workplace();
    let contents = json(&["inspect", "--format", "json"], directory.path());
    assert_eq!(contents["path"], "runs/one");
}

#[test]
fn loss_is_shown() {
    let (directory, truth) = workplace();
    let file = directory.path().join("runs/one/rank-00002/spans.arrows");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let contents = json(&["inspect", "runs/one", "--format", "json"], directory.path());
    let rank = &contents["ranks"][2];
    let lost = rank["data_loss"]["unreadable_events"].as_u64().unwrap();
    assert!(lost > 0);
    assert_eq!(rank["tables"]["spans"]["rows"].as_u64().unwrap() + lost, truth.ranks[2].spans);
    assert_eq!(contents["data_loss"], rank["data_loss"], "the other ranks lost nothing");
    let stdout = text(&stepscope(&["inspect", "runs/one"], directory.path()).stdout);
    assert!(stdout.contains("lost on rank 2: ") && stdout.contains(" bytes unreadable ("), "{stdout}");
}

#[test]
fn missing_ranks_are_shown() {
    let (directory, _) = workplace();
    fs::remove_dir_all(directory.path().join("runs/one/rank-00001")).unwrap();
    let stdout = text(&stepscope(&["inspect", "runs/one"], directory.path()).stdout);
    assert!(stdout.starts_with("runs/one  interrupted\n") && stdout.contains(", 3 of 4 ranks\n"), "{stdout}");
}

#[test]
fn the_size_of_a_file_of_several_ranks_is_said_once() {
    let directory = tempfile::tempdir().unwrap();
    let dispatch = |gpu: u64| {
        let info = serde_json::json!({ "agent_id": { "handle": gpu }, "queue_id": { "handle": 3 }, "kernel_id": 1 });
        serde_json::json!({ "start_timestamp": 1_000, "end_timestamp": 1_500, "thread_id": 7,
            "correlation_id": { "internal": gpu }, "dispatch_info": info })
    };
    let agent = |gpu: u64| serde_json::json!({ "id": { "handle": gpu }, "type": 2, "node_id": gpu });
    let process = serde_json::json!({
        "metadata": { "pid": 7 }, "agents": [agent(10), agent(11)],
        "kernel_symbols": [{ "kernel_id": 1, "formatted_kernel_name": "add" }],
        "buffer_records": { "kernel_dispatch": [dispatch(10), dispatch(11)] },
    });
    let whole = serde_json::json!({ "rocprofiler-sdk-tool": [process] }).to_string();
    fs::write(directory.path().join("7_results.json"), &whole).unwrap();
    let shown = text(&stepscope(&["inspect", "7_results.json"], directory.path()).stdout);
    let sizes: Vec<&str> = shown.lines().rev().take(2).filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(sizes, ["-", "B"], "{shown}");
}

#[test]
fn files_that_are_not_read_are_told_beside_those_that_are() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/tests/fixtures/kineto/ddp/rank0.json.gz");
    fs::copy(fixture, here.join("rank0.json.gz")).unwrap();
    fs::write(here.join("rank1.json"), "").unwrap();
    fs::write(here.join("notes.txt"), "nothing of use").unwrap();
    for command in ["inspect", "analyze"] {
        let output = stepscope(&[command, "."], here);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(text(&output.stderr), "warning: ./rank1.json is nothing that stepscope reads: it is empty\n");
    }
    let frame = text(&stepscope(&["live", "--once", "."], here).stdout);
    assert!(frame.contains("./rank1.json is nothing that stepscope reads: it is empty"), "{frame}");
}

#[test]
fn what_is_no_run_gets_an_error_and_a_hint() {
    let (directory, _) = workplace();
    let here = directory.path();
    fs::write(here.join("notes.txt"), "nothing of use").unwrap();
    fs::create_dir(here.join("empty")).unwrap();
    fs::create_dir(here.join("future")).unwrap();
    fs::write(here.join("future/run.json"), "{\"schema\": 9, \"stepscope\": \"4.0.0\"}").unwrap();
    fs::create_dir(here.join("broken")).unwrap();
    fs::write(here.join("broken/run.json"), "{\"schema\": 1,").unwrap();
    for folder in ["profiles/d", "profiles/c", "profiles/b", "profiles/a", "one-profile/a"] {
        fs::create_dir_all(here.join(folder)).unwrap();
        fs::write(here.join(folder).join("trace.json"), "{\"schemaVersion\": 1, \"traceEvents\": []}").unwrap();
    }
    let a_run = "hint: a run directory contains a run.json";
    let no_run = |path: &str| {
        let why = "it has no run.json, and contains no trace, profile or memory snapshot";
        format!("error: {path} is not a run directory: {why}")
    };
    for (source, error, hint) in [
        ("nowhere", "error: nowhere does not exist", "hint: the newest run here is runs/one"),
        (
            "notes.txt",
            "error: notes.txt is nothing that stepscope reads: it is text, not JSON",
            "hint: torch.profiler, torch.cuda.memory._dump_snapshot, nsys export --type sqlite, jax.profiler.trace, rocprofv3 \
             and PyTorch's Flight Recorder write files that are read",
        ),
        ("empty", &no_run("empty"), a_run),
        ("runs", &no_run("runs"), "hint: the newest run in it is runs/one"),
        ("one-profile", &no_run("one-profile"), "hint: its folder one-profile/a holds traces"),
        (
            "profiles",
            &no_run("profiles"),
            "hint: name one of its folders that hold traces: profiles/a, profiles/b, profiles/c and others",
        ),
        ("runs/one/rank-00000", &no_run("runs/one/rank-00000"), "hint: it is part of the run runs/one"),
        (
            "future",
            "error: future has schema version 9 (written by stepscope 4.0.0); this stepscope reads versions up to 2",
            "hint: use stepscope 4.0.0 or newer",
        ),
        (
            "broken",
            "error: cannot parse broken/run.json: EOF while parsing a value at line 1 column 13",
            "hint: broken/run.json is damaged; the .arrows files of its ranks open in any Arrow reader",
        ),
    ] {
        let output = stepscope(&["inspect", source], here);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert_eq!(text(&output.stderr), format!("{error}\n{hint}\n"), "{source}");
    }
    let mut run: Value = serde_json::from_slice(&fs::read(here.join("runs/one/run.json")).unwrap()).unwrap();
    run["model"] = serde_json::json!({ "name": "half a model", "layers": 2 });
    fs::write(here.join("broken/run.json"), run.to_string()).unwrap();
    let output = stepscope(&["inspect", "broken"], here);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let error = "error: cannot parse broken/run.json: missing field `hidden` at line 1 column ";
    assert!(text(&output.stderr).starts_with(error), "{}", text(&output.stderr));
    let output = stepscope(&["inspect"], &here.join("empty"));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(text(&output.stderr).starts_with("error: there is no run under runs/"));
}

/// Pipes and devices in place of files are refused, not waited for; the other ranks are shown all the same.
#[test]
fn what_is_no_plain_file_is_not_read() {
    let (directory, truth) = workplace();
    let rank = directory.path().join("runs/one/rank-00001");
    fs::remove_file(rank.join("spans.arrows")).unwrap();
    nix::unistd::mkfifo(&rank.join("spans.arrows"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let stdout = text(&stepscope(&["inspect", "runs/one"], directory.path()).stdout);
    assert!(
        stdout.contains("rank 1: cannot open runs/one/rank-00001/spans.arrows: it is not a regular file\n"),
        "{stdout}"
    );
    let contents = json(&["inspect", "runs/one", "--format", "json"], directory.path());
    assert_eq!(contents["ranks"][2]["tables"]["spans"]["rows"], truth.ranks[2].spans);

    fs::remove_file(directory.path().join("runs/one/run.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", directory.path().join("runs/one/run.json")).unwrap();
    let output = stepscope(&["inspect", "runs/one"], directory.path());
    assert_eq!(text(&output.stderr), "error: cannot read runs/one/run.json: it is not a regular file\n");
}

#[test]
fn a_closed_pipe_is_success() {
    let (directory, _) = workplace();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepscope"))
        .args(["inspect", "runs/one", "--format", "json"])
        .current_dir(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}
