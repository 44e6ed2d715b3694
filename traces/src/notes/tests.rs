//! What any version wrote is read as it was meant, and written again as it was.

use std::fs;

use proptest::prelude::*;
use serde_json::json;
use stepscope_plan::{Model, ModelShape, Zero};

use super::*;
use crate::ids::{Nanos, Rank};

fn read(notes: Value) -> CollectorNotes {
    serde_json::from_value(notes).unwrap()
}

fn written(notes: &CollectorNotes) -> Value {
    serde_json::to_value(notes).unwrap()
}

/// What is read of one note, which is written again as it was.
fn read_one(key: &str, text: &str) -> CollectorNotes {
    let note = json!({ key: text });
    let notes = read(note.clone());
    assert_eq!(written(&notes), note);
    notes
}

#[test]
fn every_sample_is_understood_and_written_as_it_was() {
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/samples");
    let mut ranks = 0;
    for run in fs::read_dir(samples).unwrap().map(|run| run.unwrap().path()).filter(|run| run.is_dir()) {
        for rank in fs::read_dir(run).unwrap().map(|rank| rank.unwrap().path().join("rank.json")) {
            let Ok(text) = fs::read(&rank) else { continue };
            let collector = serde_json::from_slice::<Value>(&text).unwrap()["collector"].clone();
            let notes = read(collector.clone());
            assert_eq!(written(&notes), collector, "{}", rank.display());
            assert!(notes.others.is_empty(), "{}: {:?}", rank.display(), notes.others);
            assert_eq!(notes.cupti, Some(CuptiNote::Recorded { api_version: 130_001 }));
            // Our trainer says more of itself than PyTorch does.
            let (times, attention) = match &notes.torch_memory {
                None => (MemoryTimes::Device, Some(AttentionNote::Cudnn)),
                Some(_) => (MemoryTimes::Host { why: None }, None),
            };
            assert_eq!((notes.memory_times, notes.attention), (Some(times), attention));
            assert_eq!(notes.settings, Some(RecorderSettings { flush_every_ms: 150, queue_bytes: 33_554_432 }));
            ranks += 1;
        }
    }
    assert!(ranks >= 16, "{ranks}");
}

#[test]
fn a_recorded_program_of_pytorch_is_understood() {
    let collector = json!({
        "cupti": "CUPTI, API version 130001",
        "cupti_clock_uncertainty_ns": "77",
        "cupti_least_launch_delay_ns": "4368",
        "cupti_lost_annotations": "0",
        "cupti_unannotated": "122",
        "flush_every_ms": 150,
        "memory_categories": "inferred",
        "memory_times": "the host's",
        "nccl": "operations by NCCL's profiler interface, version 6",
        "peak_flops": "of bf16, assumed",
        "phases": "as PyTorch says; forward is inferred: what comes before backward",
        "program": "python3 megatron.py 2 2 12",
        "queue_bytes": 33_554_432,
        "rank_from": "RANK",
        "source": "injected",
        "torch_memory": "recorded in part: AttributeError: 'DistributedDataParallel' object has no attribute \
                         '_get_ddp_logging_data'",
        "torch_memory_beside_ns": "40700841",
        "torch_memory_cost_ns": "0",
        "torch_memory_gaps": "0",
        "torch_memory_readings": "53",
        "torch_memory_time_ns": "13065086237",
        "torch_version": "2.11.0+cu130",
    });
    let notes = read(collector.clone());
    assert_eq!(written(&notes), collector);
    let why = "AttributeError: 'DistributedDataParallel' object has no attribute '_get_ddp_logging_data'";
    let expected = CollectorNotes {
        source: Some(CollectorSource::Injected),
        settings: Some(RecorderSettings { flush_every_ms: 150, queue_bytes: 33_554_432 }),
        program: Some("python3 megatron.py 2 2 12".into()),
        rank_from: Some(RankFrom::Variable("RANK".into())),
        cupti: Some(CuptiNote::Recorded { api_version: 130_001 }),
        cupti_clock_uncertainty_ns: Some(77),
        cupti_least_launch_delay_ns: Some(4368),
        cupti_unannotated: Some(122),
        cupti_lost_annotations: Some(0),
        nccl: Some(NcclNote { profiler_version: 6 }),
        peak_flops: Some(PeakFlopsFrom::AssumedBf16),
        phases: Some(PhasesFrom::TorchHooks),
        memory_categories: Some(MemoryCategories::Inferred),
        memory_times: Some(MemoryTimes::Host { why: None }),
        torch_memory: Some(TorchNotes {
            cost_ns: Some(0),
            beside_ns: Some(40_700_841),
            time_ns: Some(13_065_086_237),
            readings: Some(53),
            gaps: Some(0),
            version: Some("2.11.0+cu130".into()),
            ..TorchNotes::of_state(TorchMemory::InPart { why: why.into() })
        }),
        ..CollectorNotes::default()
    };
    assert_eq!(notes, expected);
}

#[test]
fn imported_ranks_are_understood() {
    let kineto = json!({
        "source": "PyTorch profiler (Kineto)",
        "file": "rank0.json.gz",
        "phases": "annotated; elsewhere inferred from which thread launched when",
        "sequence": "as recorded; elsewhere inferred from the order in each step",
        "memory_categories": "unknown",
        "memory_at_start": "inferred from the first totals",
        "peak": "of the device's data sheet, in bf16",
        "lost_of_the_trace": "3 events, 4096 bytes",
    });
    let notes = read(kineto.clone());
    assert_eq!(written(&notes), kineto);
    assert!(notes.others.is_empty(), "{:?}", notes.others);
    assert_eq!((notes.source, notes.phases), (Some(CollectorSource::Kineto), Some(PhasesFrom::KinetoAnnotations)));
    assert_eq!(notes.memory_categories, Some(MemoryCategories::Unknown));
    assert_eq!(notes.lost_of_the_trace, Some(LostOfTrace { events: 3, bytes: 4096 }));
    let snapshot = json!({
        "source": "PyTorch memory snapshot",
        "memory_categories": "inferred",
        "device": "2",
        "blocks_from_before": "4",
        "rounding_bytes_at_end": "60",
        "out_of_memory": {
            "times": 1,
            "time_ns": 5,
            "requested_bytes": 70,
            "free_bytes": 60,
            "stack": ["loss.py:21 cross_entropy_loss"],
            "expandable_segments_would_do": true,
        },
        "unknown_events": "7",
    });
    let notes = read(snapshot.clone());
    assert_eq!(written(&notes), snapshot);
    assert!(notes.others.is_empty(), "{:?}", notes.others);
    assert_eq!((notes.device, notes.blocks_from_before), (Some(2), Some(4)));
    assert_eq!(notes.out_of_memory.map(|shortage| (shortage.time_ns, shortage.free_bytes)), Some((Nanos(5), Some(60))));
    // An earlier version's word for the same.
    let earlier = read(json!({ "source": "torch-snapshot" }));
    assert_eq!(earlier.source, Some(CollectorSource::TorchSnapshot));
}

#[test]
fn reasons_are_told_apart_from_what_they_are_reasons_for() {
    let text = |text: &str| text.to_owned();
    let host = read_one("memory_times", "the host's: CUPTI would not name the stream: not supported");
    let why = Some(text("CUPTI would not name the stream: not supported"));
    assert_eq!(host.memory_times, Some(MemoryTimes::Host { why }));
    let cupti = read_one("cupti", "not recorded: another profiler uses CUPTI in this process");
    let why = text("another profiler uses CUPTI in this process");
    assert_eq!(cupti.cupti, Some(CuptiNote::NotRecorded { why }));
    let nvml = read_one("nvml", "not sampled: no driver");
    assert_eq!(nvml.nvml, Some(NvmlNote::NotSampled { why: text("no driver") }));
    let nvml = read_one("nvml", "not recorded: nvlink.rx (not supported)");
    assert_eq!(nvml.nvml, Some(NvmlNote::LeftOut { counters: text("nvlink.rx (not supported)") }));
    let attention = read_one("attention", "our own, since cuDNN is not there");
    assert_eq!(attention.attention, Some(AttentionNote::OurOwn { why: text("cuDNN is not there") }));
    let streams = read_one("streams", "numbered by CUPTI: not supported");
    assert_eq!(streams.streams, Some(StreamsNote { why: text("not supported") }));
    let torch = read_one("torch_memory", "not recorded: PyTorch 2.0 has no such function").torch_memory.unwrap();
    assert_eq!(torch.state, TorchMemory::NotRecorded { why: text("PyTorch 2.0 has no such function") });
    assert_eq!(read_one("ranks_on_device", "2").ranks_on_device, Some(2));
    assert_eq!(read_one("other_gpus", "7").other_gpus, Some(7));
    assert_eq!(read_one("memory_times_of_host", "3").memory_times_of_host, Some(3));
}

#[test]
fn pauses_are_read() {
    let pauses = |text: &str| read_one("other_profiler", text).other_profiler;
    let paused = Pauses { count: 2, nanos: 3_120_000_000, missing_since: None };
    assert_eq!(pauses("2 times, 3120000000 ns in all"), Some(paused));
    let missing = Pauses { missing_since: Some(Nanos(-7)), ..paused };
    assert_eq!(pauses("2 times, 3120000000 ns in all; no kernels since -7"), Some(missing));
    assert_eq!(pauses("2 times, 3120000000 ns in all; and then"), None);
    assert_eq!(pauses("twice"), None);
}

#[test]
fn where_a_rank_has_its_number_from_is_read() {
    let from = |text: &str| read_one("rank_from", text).rank_from;
    assert_eq!(from("SLURM_PROCID"), Some(RankFrom::Variable("SLURM_PROCID".into())));
    assert_eq!(from("order"), Some(RankFrom::Order));
    let taken = RankFrom::Taken { variable: "RANK".into(), wanted: Rank(0) };
    assert_eq!(from("order, since RANK=0 was taken"), Some(taken));
    assert_eq!(from("order, since RANK=first was taken"), None);
}

#[test]
fn what_is_not_understood_is_kept_as_it_is() {
    let strange = json!({
        "shared_gpu": "2",
        "tool": { "name": "another", "versions": [1, 2] },
        "memory_times": "the hostel's",
        "cupti": 5,
        "flush_every_ms": "often",
        "queue_bytes": 1,
        "torch_version": "2.11.0",
    });
    let notes = read(strange.clone());
    assert_eq!(written(&notes), strange);
    assert_eq!(notes.others.len(), 7);
    assert_eq!((notes.memory_times, notes.cupti, notes.settings, notes.torch_memory), (None, None, None, None));
}

#[test]
fn a_later_note_replaces_an_earlier_one_by_its_keys() {
    let mut notes = read(json!({ "memory_times": "the hostel's", "tool": "another" }));
    notes.add(CollectorNote::MemoryTimes(MemoryTimes::Device));
    notes.add(CollectorNote::Torch(TorchNotes { gaps: Some(2), ..TorchNotes::recorded("2.11.0") }));
    notes.add(CollectorNote::Torch(TorchNotes::of_state(TorchMemory::InPart { why: "no room".into() })));
    let expected = json!({
        "memory_times": "the device's, in order of a stream",
        "tool": "another",
        "torch_memory": "recorded in part: no room",
        "torch_version": "2.11.0",
        "torch_memory_gaps": "2",
    });
    assert_eq!(written(&notes), expected);
    notes.add_all(read(json!({ "memory_times": "the host's", "tool": "a third" })));
    assert_eq!(
        (&notes.memory_times, &notes.others["tool"]),
        (&Some(MemoryTimes::Host { why: None }), &"a third".into())
    );
}

proptest! {
    #[test]
    fn whatever_a_reason_says_comes_back(why in ".*", number in any::<u32>()) {
        let why = || why.clone();
        for note in [
            CollectorNote::MemoryTimes(MemoryTimes::Host { why: Some(why()) }),
            CollectorNote::Cupti(CuptiNote::NotRecorded { why: why() }),
            CollectorNote::Nvml(NvmlNote::NotSampled { why: why() }),
            CollectorNote::Nvml(NvmlNote::LeftOut { counters: why() }),
            CollectorNote::Attention(AttentionNote::OurOwn { why: why() }),
            CollectorNote::Streams(StreamsNote { why: why() }),
            CollectorNote::Torch(TorchNotes::of_state(TorchMemory::InPart { why: why() })),
            CollectorNote::Torch(TorchNotes::of_state(TorchMemory::NotRecorded { why: why() })),
            CollectorNote::RankFrom(RankFrom::Taken { variable: "RANK".into(), wanted: Rank(number) }),
            CollectorNote::RanksOnDevice(number.into()),
            CollectorNote::FailedSources(FailedSources([(why(), why())].into())),
            CollectorNote::ProcessGroups(NamedGroups(vec![NamedGroup { name: why(), ranks: vec![Rank(number)] }])),
        ] {
            let mut notes = CollectorNotes::default();
            notes.add(note);
            prop_assert!(notes.others.is_empty(), "{notes:?}");
            prop_assert_eq!(&read(written(&notes)), &notes);
        }
    }
}

#[test]
fn the_model_of_a_program_is_read_as_it_was_written() {
    let shape = ModelShape::preset("tiny").unwrap();
    let model = ProgramModel { model: Model::Shape(shape), sequence_length: Some(1024), zero: Some(Zero::Two) };
    let mut notes = CollectorNotes::default();
    notes.add(CollectorNote::ProgramModel(model.clone()));
    let on_disk = written(&notes);
    assert_eq!(on_disk["program_model"]["sequence_length"], 1024);
    assert_eq!(read(on_disk.clone()).program_model, Some(model));
    // What cannot be a model stays as it was.
    let mut damaged = on_disk;
    damaged["program_model"]["shape"]["heads"] = json!(0);
    let notes = read(damaged.clone());
    assert_eq!((notes.program_model.is_none(), written(&notes)), (true, damaged));
}
