use stepscope_traces::{Run, State, Window};

use crate::pickle_writer::{Frames, Snapshot, file};

const FORWARD: Frames = &[("at::native::silu", "??"), ("forward", "model.py")];

fn snapshot() -> Snapshot {
    let mut s = Snapshot::new();
    s.event("segment_alloc", 0, 1000, FORWARD);
    s.annotate("START", "ProfilerStep#7");
    s.alloc(1, 8, FORWARD);
    s.free(1, 8, FORWARD);
    s.annotate("END", "ProfilerStep#7");
    s
}

#[test]
fn what_is_written_is_what_was_imported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let (_file, source) = file(&snapshot().pickle());
    let imported = Run::of_source(&source).unwrap();
    imported.write_to(&path, &|_| {}).unwrap();
    let run = Run::open(&path).unwrap();
    assert_eq!(run.info, imported.info);
    assert_eq!(run.state(), State::Complete);
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert!(loss.is_none());
    let (same, _) = imported.ranks[0].read(Window::ALL).unwrap();
    assert!(data.memory.rows().eq(same.memory.rows()) && !data.memory.is_empty());
    assert!(data.spans.rows().eq(same.spans.rows()));
    assert_eq!(data.names.get(data.spans.name.get(0)), Some("ProfilerStep#7"));
    assert_eq!(run.ranks[0].info.collector, imported.ranks[0].info.collector);
    assert!(imported.write_to(&path, &|_| {}).is_err(), "a run is never written over");
}

#[test]
fn what_is_lost_of_a_snapshot_is_lost_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let mut bytes = snapshot().pickle();
    bytes.truncate(bytes.len() - 10);
    let (_file, source) = file(&bytes);
    Run::of_source(&source).unwrap().write_to(&path, &|_| {}).unwrap();
    let run = Run::open(&path).unwrap();
    assert_eq!(run.state(), State::Interrupted);
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert_eq!((data.memory.len(), loss.dropped_events), (3, 1));
}
