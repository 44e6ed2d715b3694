use std::path::{Path, PathBuf};

use serde_json::Value;
use stepscope_traces::{MemoryCategories, MemoryCategory, Rank, Run, RunSource};

use crate::{pickle_writer::Imported, replay::replay, skipped::skipped};

/// Some blocks of a training with DistributedDataParallel, with all their events: cut out of a snapshot of PyTorch 2.11,
/// names shortened and frames of the interpreter left out.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ddp-rank0.pickle")
}

/// Checks a snapshot against the storages that the program itself told at the end, in a file beside it.
fn check(path: &Path) {
    let truth = path.with_extension("truth.json");
    let truth: Value = serde_json::from_slice(&std::fs::read(truth).unwrap()).unwrap();
    let number = |value: &Value| value.as_u64().unwrap();
    let imported = Imported::of(&Run::of_source(path).unwrap());
    assert_eq!(imported.info.source, RunSource::TorchSnapshot);
    let rank = &imported.ranks[0];
    assert!(rank.loss.is_none());
    assert_eq!(rank.info.collector.memory_categories, Some(MemoryCategories::Inferred));
    let replay = replay(&rank.data.memory);
    assert_eq!(replay.peak, number(&truth["peak_bytes"]));
    assert_eq!(replay.end, number(&truth["allocated_now"]));
    for (category, name) in [
        (MemoryCategory::Parameters, "params"),
        (MemoryCategory::Gradients, "grads"),
        (MemoryCategory::OptimizerState, "optimizer"),
    ] {
        let (found, known) = (replay.at_end[&category] as f64, number(&truth["replayed"]["at_end"][name]) as f64);
        // The allocator leaves up to a mebibyte with a block that is not worth cutting; how much that was, it says in the end.
        match truth["allocated_at_end"][name].as_f64() {
            Some(allocated) => assert!((found / allocated - 1.0).abs() < 0.01, "{category}: {found} of {allocated}"),
            None => assert!((1.0..1.04).contains(&(found / known)), "{category}: {found} instead of {known}"),
        }
    }
    // The rest of this training is its buckets, two workspaces of cuBLAS, and the batch.
    assert_eq!(replay.at_end[&MemoryCategory::Communication] / 1_000_000, 374);
    assert_eq!(replay.at_end[&MemoryCategory::Workspace], 2 * (32 << 20));
    assert_eq!(replay.at_end[&MemoryCategory::Inputs], 32768);
    assert_eq!(replay.at_end.get(&MemoryCategory::Activations), None);
    assert_eq!(replay.reserved, 5_335_154_688);
}

#[test]
fn a_snapshot_may_be_packed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank0.pickle.gz");
    let mut packed = flate2::write::GzEncoder::new(std::fs::File::create(&path).unwrap(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &std::fs::read(fixture()).unwrap()).unwrap();
    packed.finish().unwrap();
    let of = |path: &Path| {
        let imported = Imported::of(&Run::of_source(path).unwrap());
        imported.ranks[0].data.memory.rows().collect::<Vec<_>>()
    };
    assert!(of(&path) == of(&fixture()));
}

#[test]
fn a_real_training_is_told_apart() {
    check(&fixture());
}

/// The whole of it, where somebody has it: a snapshot of a training with its truth beside it.
#[test]
fn a_whole_training_is_told_apart() {
    match std::env::var_os("STEPSCOPE_TORCH_SNAPSHOT") {
        Some(path) => check(path.as_ref()),
        None => skipped("files", &"STEPSCOPE_TORCH_SNAPSHOT names no snapshot to check"),
    }
}

#[test]
fn the_rank_is_in_the_name_or_the_first() {
    let directory = tempfile::tempdir().unwrap();
    for (name, rank) in [("rank5.pickle", 5), ("snapshot.pickle", 0)] {
        let path = directory.path().join(name);
        std::fs::copy(fixture(), &path).unwrap();
        assert_eq!(Run::of_source(&path).unwrap().ranks[0].info.rank, Rank(rank));
    }
    let run = Run::of_source(directory.path()).unwrap();
    assert_eq!(run.ranks.iter().map(|rank| rank.info.rank).collect::<Vec<_>>(), [Rank(0), Rank(5)]);
}
