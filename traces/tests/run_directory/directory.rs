use std::fs;

use stepscope_traces::{Rank, RankInfo, RankWriter, Run, RunInfo, SCHEMA_VERSION, State, TraceError};

use crate::events::WrittenRun;

#[test]
fn a_run_is_made_once_and_can_be_joined() {
    let directory = tempfile::tempdir().unwrap();
    let info = RunInfo::of_this_process("test");
    info.create(directory.path()).unwrap();
    assert!(matches!(info.create(directory.path()), Err(TraceError::AlreadyRecorded { .. })));
    assert!(!info.create_or_join(directory.path()).unwrap());
    let run = Run::open(directory.path()).unwrap();
    assert_eq!(run.info, info);
    assert_eq!(run.state(), State::Interrupted, "nobody recorded anything");
    let left_over: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left_over, ["run.json"]);
}

#[test]
fn a_rank_has_one_writer() {
    let directory = tempfile::tempdir().unwrap();
    RunInfo::of_this_process("test").create(directory.path()).unwrap();
    let writer = RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(3))).unwrap();
    let Err(error) = RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(3))) else {
        panic!("a second writer must be refused");
    };
    assert!(error.to_string().ends_with("rank-00003 already holds a recording"), "{error}");
    assert_eq!(Run::open(directory.path()).unwrap().state(), State::Recording);
    writer.finish().unwrap();
    assert_eq!(Run::open(directory.path()).unwrap().state(), State::Complete);
    assert!(RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(3))).is_err(), "nor afterwards");
}

#[test]
fn a_writer_that_just_goes_leaves_an_interrupted_run() {
    let directory = tempfile::tempdir().unwrap();
    RunInfo::of_this_process("test").create(directory.path()).unwrap();
    drop(RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(0))).unwrap());
    assert_eq!(Run::open(directory.path()).unwrap().state(), State::Interrupted);
}

#[test]
fn a_removed_directory_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("test").create(&path).unwrap();
    let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
    fs::remove_dir_all(&path).unwrap();
    assert!(matches!(writer.flush(), Err(TraceError::Vanished { .. })));
}

#[test]
fn a_schema_from_the_future_is_refused() {
    let run = WrittenRun::numbered(1, 1);
    let file = run.path.join("run.json");
    // Nothing but these two need be as it is today.
    fs::write(&file, format!("{{\"schema\": {}, \"stepscope\": \"7.1.0\"}}", SCHEMA_VERSION + 1)).unwrap();
    let error = Run::open(&run.path).unwrap_err();
    assert!(matches!(&error, TraceError::NewerSchema { found: 2, .. }));
    let text = error.to_string();
    assert!(text.contains("schema version 2") && text.contains("7.1.0") && text.contains("up to 1"), "{text}");
}

#[test]
fn what_is_not_a_run_is_called_so() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("nowhere");
    assert!(matches!(Run::open(&nowhere), Err(TraceError::Missing { .. })));
    assert!(matches!(Run::open(directory.path()), Err(TraceError::NotARun { .. })));
    let file = directory.path().join("trace.json");
    fs::write(&file, "{}").unwrap();
    assert!(matches!(Run::open(&file), Err(TraceError::NotARun { .. })));
    fs::write(directory.path().join("run.json"), "{}").unwrap();
    assert!(matches!(Run::open(directory.path()), Err(TraceError::Json { .. })));
}

#[test]
fn the_newest_run_is_the_one_that_began_last() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Run::newest_under(directory.path()), None);
    for (name, started) in [("b", "2026-01-01T00:00:00Z"), ("a", "2026-02-01T00:00:00Z"), ("c", "2025-12-31T00:00:00Z")]
    {
        let info = RunInfo { started: started.into(), ..RunInfo::of_this_process(name) };
        info.create(&directory.path().join(name)).unwrap();
    }
    assert_eq!(Run::newest_under(directory.path()), Some(directory.path().join("a")));
}
