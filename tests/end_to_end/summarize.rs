//! Summaries of ranks, by the command line: who makes them, who reads them, and what is said of that.

use std::{fs, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    binary::{command, failure, json, stepscope, text},
    samples::SAMPLES,
};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() {
            copy(&path, &to.join(name))
        } else {
            _ = fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// A sample of two ranks, called `run`.
fn sample(name: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    copy(&Path::new(SAMPLES).join(name), &directory.path().join("run"));
    directory
}

fn remove_recording(run: &Path) {
    for rank in ["rank-00000", "rank-00001"] {
        for entry in fs::read_dir(run.join(rank)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "arrows") {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

#[test]
fn what_commands_say_is_the_same_and_they_say_what_they_read() {
    let directory = sample("pp2-1f1b");
    let at = directory.path();
    let commands: [&[&str]; 5] = [
        &["analyze", "run", "--format", "json"],
        &["analyze", "run"],
        &["analyze", "run", "--format", "html"],
        &["diff", "run", "run", "--format", "json"],
        &["plan", "--score", "run", "--format", "json"],
    ];
    let said = || commands.map(|arguments| stepscope(arguments, at));
    let recorded = said();
    let made = stepscope(&["summarize", "run"], at);
    assert!(made.status.success() && made.stdout.is_empty());
    let told = text(&made.stderr);
    assert!(told.starts_with("summarized  2 ranks: ") && told.contains(" a step; all together: "), "{told}");
    let mut told = Vec::new();
    for (before, after) in recorded.iter().zip(said()) {
        assert!(after.status.success(), "{}", text(&after.stderr));
        assert!(before.stdout == after.stdout);
        told.push(text(&after.stderr).lines().last().unwrap_or_default().to_owned());
        assert!(!text(&before.stderr).contains("summaries"));
    }
    let (of_each, of_all) = ("read from summaries: 2 of 2 ranks", "read from the summary of all 2 ranks");
    assert_eq!(told, [of_each, of_all, of_each, of_each, of_each]);
    remove_recording(&at.join("run"));
    let alone = stepscope(commands[0], at);
    assert_eq!(text(&alone.stdout), text(&recorded[0].stdout));
    let said = failure(&["analyze", "run", "--steps", "2..4"], at);
    assert!(
        said.contains("has only a summary") && said.contains("hint: copy the .arrows files of the rank, too"),
        "{said}"
    );
    assert!(stepscope(&["summarize", "run"], at).status.success(), "they are there");
    let inspected = text(&stepscope(&["inspect", "run"], at).stdout);
    assert!(inspected.contains("summaries: ranks 0-1, "), "{inspected}");
    fs::remove_file(at.join("run/rank-00001/summary.bin")).unwrap();
    let said = text(&stepscope(&["summarize", "run"], at).stderr);
    assert!(said.contains("warning: no summary of rank 1: nothing that was recorded is in "), "{said}");
}

#[test]
fn parts_are_the_whole() {
    let (whole, parts) = (sample("dp2-ep2"), sample("dp2-ep2"));
    let made = json(&["summarize", "run", "--format", "json"], whole.path());
    let ranks = made["ranks"].as_array().unwrap();
    assert_eq!((ranks.len(), &ranks[1]["rank"], &ranks[1]["error"]), (2, &Value::from(1), &Value::Null));
    let bytes = |run: &TempDir, rank: u32| fs::read(run.path().join(format!("run/rank-{rank:05}/summary.bin"))).ok();
    assert_eq!(ranks[1]["bytes"], bytes(&whole, 1).unwrap().len());
    assert!(stepscope(&["summarize", "run", "--ranks", "1"], parts.path()).status.success());
    assert_eq!(bytes(&parts, 0), None);
    assert!(stepscope(&["summarize", "run", "--share", "0/2"], parts.path()).status.success());
    for rank in 0..2 {
        assert_eq!(bytes(&parts, rank), bytes(&whole, rank));
    }
    // As tasks of srun have it.
    fs::remove_file(parts.path().join("run/rank-00001/summary.bin")).unwrap();
    let mut task = command(parts.path());
    task.args(["summarize", "run"]).env("SLURM_STEP_ID", "0").env("SLURM_NTASKS", "3").env("SLURM_PROCID", "1");
    assert!(text(&task.output().unwrap().stderr).starts_with("summarized  1 rank: "));
    assert_eq!(bytes(&parts, 1), bytes(&whole, 1));
}

#[test]
fn a_damaged_summary_is_a_warning() {
    let directory = sample("tp2");
    let at = directory.path();
    let analyze = ["analyze", "run", "--format", "json"];
    let recorded = stepscope(&analyze, at).stdout;
    assert!(stepscope(&["summarize", "run"], at).status.success());
    let path = at.join("run/rank-00001/summary.bin");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let output = stepscope(&analyze, at);
    let said = text(&output.stderr);
    assert!(output.stdout == recorded);
    let warning = "warning: the summary is not used for rank 1: it is damaged; `stepscope summarize` writes it again\n";
    assert!(said.contains(warning) && said.contains("read from summaries: 1 of 2 ranks\n"), "{said}");
}

#[test]
fn there_are_no_summaries_of_what_is_no_run() {
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/tests/fixtures/kineto/ddp");
    let said = failure(&["summarize", traces], Path::new("."));
    assert!(said.contains("has no place for summaries") && said.contains("import"), "{said}");
    let said = failure(&["summarize", "s3://bucket/run"], Path::new("."));
    assert!(said.contains("summaries are not written") && said.contains("import s3://bucket/run"), "{said}");
}
