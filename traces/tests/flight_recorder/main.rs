//! Reads dumps of PyTorch's Flight Recorder that real jobs wrote on a GPU, when one of their ranks was made to stop.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Damages inputs, and bounds what reading them costs.
#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;

/// Reads bytes as if they were a file.
#[path = "../reads/mod.rs"]
mod reads;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use stepscope_plan::Axis;
use stepscope_traces::{InFlight, Nanos, OperationState, Rank, RankInfo, Run, RunSource, SpanKind, State, Window};
use tempfile::TempDir;

use crate::{fuzz::fuzz, reads::Reads};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/flight_recorder").join(name)
}

fn in_flight(info: &RankInfo) -> &InFlight {
    info.collector.in_flight.as_ref().unwrap()
}

/// A number, the group's name and whether a stack is there, of what a rank waits in.
fn waiting(info: &RankInfo) -> Vec<(u64, &str, bool)> {
    let dump = in_flight(info);
    let name = |group| dump.groups.iter().find(|known| known.group == group).unwrap().name.as_str();
    dump.waiting.iter().map(|one| (one.sequence, name(one.group), !one.stack.is_empty())).collect()
}

#[test]
fn a_folder_of_dumps_is_a_job() {
    let run = Run::of_source(&fixture("loader")).unwrap();
    assert_eq!((run.info.source, run.info.world_size), (RunSource::FlightRecorder, Some(4)));
    let axes: Vec<Axis> = run.info.groups.iter().map(|group| group.axis).collect();
    assert_eq!(axes.iter().filter(|axis| **axis == Axis::Tensor).count(), 2, "{axes:?}");
    // Rank 2 stopped before its sixth collective in tp, and its pair waits in it.
    let found: Vec<_> = run.ranks.iter().map(|rank| waiting(&rank.info)).collect();
    let behind = |group| (21..=24).map(move |number| (number, group, true));
    assert_eq!(found[0], behind("mesh_dp").collect::<Vec<_>>());
    assert!(found[2].is_empty());
    assert_eq!(found[3][0], (6, "mesh_tp", true));
    let asked: Vec<Option<u64>> = in_flight(&run.ranks[2].info).groups.iter().map(|group| group.last_asked).collect();
    assert_eq!(asked, [Some(1), Some(20), Some(5)]);
    let last = in_flight(&run.ranks[2].info).last_completed.as_ref().unwrap();
    assert_eq!((last.name.as_str(), last.sequence), ("all_reduce", 20));
    assert_eq!(last.stack[0], "torch/distributed/distributed_c10d.py:3068 all_reduce");
    assert!(last.stack[2].ends_with("t.py:34 reduce_gradients"), "{:?}", last.stack);
}

#[test]
fn json_says_the_same_without_stacks() {
    let [pickles, json] = ["loader", "loader-json"].map(|name| Run::of_source(&fixture(name)).unwrap());
    for (one, other) in pickles.ranks.iter().zip(&json.ranks) {
        let mut of_pickle = in_flight(&one.info).clone();
        of_pickle.waiting.iter_mut().chain(&mut of_pickle.last_completed).for_each(|one| one.stack.clear());
        assert_eq!(&of_pickle, in_flight(&other.info), "rank {}", one.info.rank);
        assert_eq!(one.info.groups, other.info.groups);
    }
}

#[test]
fn operations_are_ranges_of_the_host() {
    let run = Run::of_source(&fixture("loader")).unwrap();
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert!(loss.is_none());
    assert_eq!(data.spans.len(), 31);
    assert!(data.spans.rows().all(|span| span.kind == SpanKind::Range && span.group.is_some()));
    let last = data.spans.rows().map(|span| span.interval().1).max();
    let pending: Vec<Nanos> = data.spans.rows().rev().take(4).map(|span| span.interval().1).collect();
    assert!(pending.iter().all(|end| Some(*end) == last), "{pending:?} do not end at {last:?}");
    assert_eq!(data.names.get(data.spans.name.get(0)), Some("all_reduce"));
}

#[test]
fn a_dump_may_be_packed_and_numbered_in_another_way() {
    let directory = TempDir::new().unwrap();
    let whole = fs::read(fixture("loader/nccl_trace_rank_3")).unwrap();
    let packed = directory.path().join("hang-dump3.gz");
    let mut gzip = GzEncoder::new(fs::File::create(&packed).unwrap(), Compression::fast());
    gzip.write_all(&whole).unwrap();
    gzip.finish().unwrap();
    let run = Run::of_source(&packed).unwrap();
    assert_eq!((run.ranks[0].info.rank, run.ranks[0].state), (Rank(3), State::Complete));
}

#[test]
fn its_groups_say_which_rank_a_dump_is_of() {
    let directory = TempDir::new().unwrap();
    // Only rank 3 is in all of its groups, whatever the file is called.
    for name in ["dump", "nccl_trace_rank_0"] {
        let path = directory.path().join(name);
        fs::copy(fixture("loader/nccl_trace_rank_3"), &path).unwrap();
        let info = &Run::of_source(&path).unwrap().ranks[0].info;
        assert_eq!((info.rank, info.groups.len()), (Rank(3), 3), "{name}");
    }
}

#[test]
fn what_nobody_describes_is_told_all_the_same() {
    let directory = TempDir::new().unwrap();
    let mut dump: serde_json::Value =
        serde_json::from_slice(&fs::read(fixture("loader-json/nccl_trace_rank_3.json")).unwrap()).unwrap();
    dump["pg_config"] = serde_json::json!({});
    // Its ring holds more time than those of the others, and is of the same job.
    dump["entries"][0]["time_created_ns"] = serde_json::json!(1_794_868_918_496_171_938_i64 - 7_200_000_000_000);
    fs::write(directory.path().join("nccl_trace_rank_3.json"), dump.to_string()).unwrap();
    fs::copy(fixture("loader-json/nccl_trace_rank_2.json"), directory.path().join("nccl_trace_rank_2.json")).unwrap();
    let run = Run::of_source(directory.path()).unwrap();
    assert_eq!(waiting(&run.ranks[1].info)[0], (6, "mesh_tp", false));
}

#[test]
fn a_dump_that_is_cut_off_keeps_what_is_there() {
    let directory = TempDir::new().unwrap();
    let whole = fs::read(fixture("loader/nccl_trace_rank_3")).unwrap();
    let path = directory.path().join("nccl_trace_rank_3");
    fs::write(&path, &whole[..whole.len() - 400]).unwrap();
    let run = Run::of_source(&path).unwrap();
    assert_eq!(run.ranks[0].state, State::Interrupted);
    assert!(!waiting(&run.ranks[0].info).is_empty());
    let json = fs::read(fixture("loader-json/nccl_trace_rank_3.json")).unwrap();
    let path = directory.path().join("cut.json");
    fs::write(&path, &json[..json.len() - 400]).unwrap();
    let error = Run::of_source(&path).err().unwrap().to_string();
    assert!(error.ends_with("a Flight Recorder dump that is truncated"), "{error}");
}

#[test]
fn other_versions_are_named() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("nccl_trace_rank_0.json");
    for (version, words) in
        [("\"1.5\"", "of version 1.5; 2.x is read"), ("\"\"", "without a version"), ("7", "cannot be read")]
    {
        fs::write(&path, format!(r#"{{"version": {version}, "pg_config": {{}}, "entries": []}}"#)).unwrap();
        let error = Run::of_source(&path).err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
    }
    // An entry that is none costs only itself.
    fs::write(&path, r#"{"version": "2.5", "pg_config": {}, "entries": [7, {"state": "completed"}]}"#).unwrap();
    let run = Run::of_source(&path).unwrap();
    assert_eq!(run.ranks[0].read(Window::ALL).unwrap().1.unreadable_events, 2);
}

#[test]
fn fuzzed_pickles() {
    let reads = Reads::named("nccl_trace_rank_3");
    fuzz!(vec![fs::read(fixture("loader/nccl_trace_rank_3")).unwrap()], |bytes: &[u8]| reads.read(bytes));
}

#[test]
fn fuzzed_json() {
    let reads = Reads::named("nccl_trace_rank_3.json");
    fuzz!(vec![fs::read(fixture("loader-json/nccl_trace_rank_3.json")).unwrap()], |bytes: &[u8]| reads.read(bytes));
}

/// A rank's dump, changed and put into a folder of its own beside that of rank 2.
fn beside_rank_2(change: impl FnOnce(&mut serde_json::Value)) -> TempDir {
    let directory = TempDir::new().unwrap();
    let read = |name: &str| fs::read(fixture("loader-json").join(name)).unwrap();
    let mut dump: serde_json::Value = serde_json::from_slice(&read("nccl_trace_rank_3.json")).unwrap();
    change(&mut dump);
    fs::write(directory.path().join("nccl_trace_rank_3.json"), dump.to_string()).unwrap();
    fs::write(directory.path().join("nccl_trace_rank_2.json"), read("nccl_trace_rank_2.json")).unwrap();
    directory
}

#[test]
fn dumps_of_two_jobs_are_not_one() {
    // Ten minutes later the same collectives ran again.
    let later = beside_rank_2(|dump| {
        for entry in dump["entries"].as_array_mut().unwrap() {
            for time in ["time_created_ns", "time_discovered_completed_ns"] {
                if let Some(known) = entry[time].as_i64().filter(|known| *known > 0) {
                    entry[time] = (known + 600_000_000_000).into();
                }
            }
        }
    });
    let error = Run::of_source(later.path()).err().unwrap().to_string();
    assert!(error.ends_with("the same collective was over in one before it was called in the other"), "{error}");
    let larger = beside_rank_2(|dump| {
        let groups = dump["pg_config"].as_object_mut().unwrap();
        let world = groups.values_mut().find(|group| group["desc"] == "default_pg").unwrap();
        world["ranks"] = "[0, 1, 2, 3, 4, 5, 6, 7]".into();
    });
    let error = Run::of_source(larger.path()).err().unwrap().to_string();
    assert!(error.contains("not from one job: one has 4 ranks, the other 8"), "{error}");
    // A rank may come to a collective long after the others.
    let late = beside_rank_2(|dump| {
        let first = &mut dump["entries"][0];
        first["time_created_ns"] = (first["time_created_ns"].as_i64().unwrap() - 600_000_000_000).into();
    });
    assert_eq!(Run::of_source(late.path()).unwrap().ranks.len(), 2);
}

#[test]
fn a_dump_of_a_recorder_that_was_off_says_so() {
    let empty = beside_rank_2(|dump| dump["entries"] = serde_json::json!([]));
    let run = Run::of_source(empty.path()).unwrap();
    assert_eq!(run.ranks[0].info.collector.failed_sources, None);
    let missing = run.ranks[1].info.collector.failed_sources.clone().unwrap();
    assert!(missing.0["collectives"].contains("TORCH_NCCL_TRACE_BUFFER_SIZE=2000"), "{missing:?}");
}

#[test]
fn what_has_begun_is_told_from_what_was_only_called() {
    let begun = beside_rank_2(|dump| {
        let entries = dump["entries"].as_array_mut().unwrap();
        let first = entries.iter_mut().find(|entry| entry["state"] == "scheduled").unwrap();
        first["state"] = "started".into();
    });
    let run = Run::of_source(begun.path()).unwrap();
    assert_eq!([0, 1].map(|rank| in_flight(&run.ranks[rank].info).are_starts_known), [false, true]);
    let states: Vec<OperationState> = in_flight(&run.ranks[1].info).waiting.iter().map(|one| one.state).collect();
    assert_eq!(states[..2], [OperationState::Started, OperationState::Scheduled]);
}
