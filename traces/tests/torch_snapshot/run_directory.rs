use stepscope_traces::{Run, State, Window};

use crate::pickle_writer::{Frames, Snapshot, import};

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
    let imported = snapshot().import();
    imported.write(&path).unwrap();
    let run = Run::open(&path).unwrap();
    assert_eq!(run.info, imported.info);
    assert_eq!(run.state(), State::Complete);
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert!(loss.is_none());
    let rank = &imported.ranks[0];
    assert_eq!(data.memory.rows().collect::<Vec<_>>(), rank.data.memory.rows().collect::<Vec<_>>());
    assert_eq!(data.spans.rows().collect::<Vec<_>>(), rank.data.spans.rows().collect::<Vec<_>>());
    assert_eq!(data.names.get(data.spans.name.get(0)), Some("ProfilerStep#7"));
    assert_eq!(run.ranks[0].info.collector, rank.info.collector);
    assert!(imported.write(&path).is_err(), "a run is never written over");
}

#[test]
fn what_is_lost_of_a_snapshot_is_lost_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let mut bytes = snapshot().pickle();
    bytes.truncate(bytes.len() - 10);
    import(&bytes).unwrap().write(&path).unwrap();
    let run = Run::open(&path).unwrap();
    assert_eq!(run.state(), State::Interrupted);
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert_eq!((data.memory.len(), loss.dropped_events), (3, 1));
}
