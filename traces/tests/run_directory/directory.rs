use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};
use stepscope_plan::{Axis, ModelShape, ParallelLayout};
use stepscope_traces::{
    Counter, CounterSample, Group, GroupInfo, Nanos, Rank, RankInfo, RankWriter, Run, RunInfo, SCHEMA_VERSION, State,
    TraceError, Window,
};

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
    let file = directory.path().join("run.json");
    let Err(error) = info.create_or_join(&file) else { panic!("a file is no directory") };
    assert!(error.to_string().ends_with("is not a run directory: it is a file"), "{error}");
}

#[test]
fn a_rank_has_one_writer() {
    let directory = tempfile::tempdir().unwrap();
    RunInfo::of_this_process("test").create(directory.path()).unwrap();
    let writer = RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(3))).unwrap();
    let Err(error) = RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(3))) else {
        panic!("a second writer must be refused");
    };
    assert!(error.to_string().ends_with("rank-00003 already contains a recording"), "{error}");
    assert_eq!(Run::open(directory.path()).unwrap().state(), State::Recording);
    writer.finish().unwrap();
    assert_eq!(Run::open(directory.path()).unwrap().state(), State::Complete);
    assert!(RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(3))).is_err(), "nor afterwards");
}

/// A reader looks whether a recording goes on, which must not keep it from beginning.
#[test]
fn readers_do_not_keep_a_writer_from_its_rank() {
    let directory = tempfile::tempdir().unwrap();
    RunInfo::of_this_process("test").create(directory.path()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    // Returned, so that the writers are there until the last reader has gone.
    let writers = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let run = Run::open(directory.path()).unwrap();
                    let interrupted = run.ranks.iter().find(|rank| rank.state == State::Interrupted);
                    assert!(interrupted.is_none(), "a rank that begins is not one that was interrupted");
                }
            });
        }
        let writers: Vec<_> =
            (0..100).map(|rank| RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(rank)))).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        writers
    });
    let failed: Vec<_> = writers.iter().filter_map(|writer| writer.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn ranks_that_join_at_once_agree_on_one_run() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..50 {
        let path = directory.path().join(format!("{round}"));
        let made = std::thread::scope(|scope| {
            let joining: Vec<_> = (0..4)
                .map(|rank| {
                    let info = RunInfo { name: format!("{rank}"), ..RunInfo::of_this_process("x") };
                    let path = path.clone();
                    scope.spawn(move || {
                        let made = info.create_or_join(&path).unwrap();
                        Run::open(&path).unwrap();
                        made
                    })
                })
                .collect();
            joining.into_iter().map(|rank| rank.join().unwrap()).filter(|made| *made).count()
        });
        assert_eq!(made, 1);
    }
}

#[test]
fn what_was_trained_is_known_again() {
    let directory = tempfile::tempdir().unwrap();
    let written = RunInfo {
        model: Some(ModelShape::preset("gpt2-124m").unwrap()),
        layout: Some(ParallelLayout { dp: 2, pp: 2, micro_batches: 4, ..ParallelLayout::default() }),
        groups: vec![
            GroupInfo { group: Group(0), axis: Axis::World, ranks: (0..4).map(Rank).collect() },
            GroupInfo { group: Group(7), axis: Axis::Embedding, ranks: vec![Rank(0), Rank(2)] },
        ],
        ..RunInfo::of_this_process("test")
    };
    written.create(directory.path()).unwrap();
    assert_eq!(Run::open(directory.path()).unwrap().info, written);

    let file = directory.path().join("run.json");
    let whole: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(whole["groups"][1], json!({ "group": 7, "axis": "embedding", "ranks": [0, 2] }));
    let with = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut changed = whole.clone();
        change(changed.as_object_mut().unwrap());
        fs::write(&file, changed.to_string()).unwrap();
        Run::open(directory.path()).map(|run| run.info)
    };
    // As before these were written.
    let older = with(&|run| run.retain(|key, _| !["model", "layout", "groups"].contains(&key.as_str()))).unwrap();
    assert_eq!((older.model, older.layout, older.groups), (None, None, Vec::new()));
    for (key, inner, value, why) in [
        ("model", "heads", json!(0), "invalid model: heads is 0"),
        ("model", "layers", json!("many"), "invalid type: string \"many\", expected u64"),
        ("layout", "dp", json!(0), "invalid layout: dp is 0"),
        ("layout", "zero", json!(4), "ZeRO stages are 0 to 3, not 4"),
    ] {
        let error = with(&|run| run[key][inner] = value.clone()).unwrap_err();
        assert!(matches!(error, TraceError::Json { .. }) && error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_run_without_all_its_ranks_is_not_complete() {
    let directory = tempfile::tempdir().unwrap();
    RunInfo { world_size: Some(2), ..RunInfo::of_this_process("test") }.create(directory.path()).unwrap();
    let finish = |rank| {
        let mut writer = RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(rank))).unwrap();
        writer.push_counter(&CounterSample { time_ns: Nanos(1), counter: Counter::Loss.id(), value: 1.0 }).unwrap();
        writer.finish().unwrap();
        Run::open(directory.path()).unwrap().state()
    };
    assert_eq!(finish(0), State::Interrupted);
    assert_eq!(finish(1), State::Complete);
    fs::remove_file(directory.path().join("rank-00001/rank.json")).unwrap();
    let run = Run::open(directory.path()).unwrap();
    assert_eq!((run.state(), run.ranks.len()), (State::Interrupted, 2), "a rank that lost its rank.json is a rank");
}

#[test]
fn a_writer_that_just_goes_leaves_an_interrupted_run() {
    let directory = tempfile::tempdir().unwrap();
    RunInfo::of_this_process("test").create(directory.path()).unwrap();
    drop(RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(0))).unwrap());
    assert_eq!(Run::open(directory.path()).unwrap().state(), State::Interrupted);
}

#[test]
fn a_rank_that_was_killed_was_last_heard_of_when_it_counted_something() {
    let directory = tempfile::tempdir().unwrap();
    RunInfo::of_this_process("test").create(directory.path()).unwrap();
    let mut writer = RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(0))).unwrap();
    let begun = Run::open(directory.path()).unwrap().ranks[0].info.clock.snapshots[0];
    let after = |seconds: i64| Nanos(begun.rank_ns.0 + seconds * 1_000_000_000);
    for seconds in [1, 9] {
        let sample = CounterSample { time_ns: after(seconds), counter: Counter::Loss.id(), value: 1.0 };
        writer.push_counter(&sample).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    let run = Run::open(directory.path()).unwrap();
    assert_eq!(run.state(), State::Interrupted);
    assert_eq!(run.ranks[0].last_heard(), Some(Nanos(begun.wall_ns.0 + 9_000_000_000)));
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
fn runs_of_every_schema_that_was_ever_written_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/runs");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let mut schemas = BTreeSet::new();
    for path in paths {
        let run = Run::open(&path).unwrap();
        schemas.insert(run.info.schema);
        for rank in &run.ranks {
            let (data, loss) = rank.read(Window::ALL).unwrap();
            assert!(loss.is_none(), "{}: {loss:?}", path.display());
            let written = rank.info.written.unwrap();
            let read = (data.spans.len(), data.memory.len(), data.counters.len());
            let rows = (written.spans, written.memory, written.counters);
            assert_eq!((read.0 as u64, read.1 as u64, read.2 as u64), rows, "{}", path.display());
        }
    }
    assert!(schemas.into_iter().eq(1..=SCHEMA_VERSION), "there is no fixture of a schema");
}

#[test]
fn a_schema_from_the_future_is_refused() {
    let run = WrittenRun::numbered(1, 1);
    let file = run.path.join("run.json");
    // Nothing but these two need be as it is today.
    fs::write(&file, format!("{{\"schema\": {}, \"stepscope\": \"7.1.0\"}}", SCHEMA_VERSION + 1)).unwrap();
    let error = Run::open(&run.path).unwrap_err();
    assert!(matches!(&error, TraceError::NewerSchema { found: 3, .. }));
    let text = error.to_string();
    assert!(text.contains("schema version 3") && text.contains("7.1.0") && text.contains("up to 2"), "{text}");
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
