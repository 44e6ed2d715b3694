use std::{cmp::Reverse, path::Path};

use proptest::prelude::*;
use stepscope_plan::{ModelShape, ParallelLayout};
use stepscope_traces::{
    Device, FIRST_NAME, Layer, MemoryEvent, MemoryEvents, MemoryOperation, NameId, Nanos, Phase, Rank, RankInfo,
    RankWriter, Run, Span, SpanKind, Step,
    synthetic::{Clocks, Pipeline, Recipe, Schedule},
};
use stepscope_trainer::{CpuTraining, TrainConfig};
use tempfile::TempDir;

use super::{state::AllocatorState, timeline::MOST_POINTS, *};
use crate::{
    Selection, analyze,
    figures::{Analysis, Block, CallersOverTime, LayerMemory, MemoryPoint},
    rank::device_samples::DeviceSamples,
};

fn event(time: i64, op: MemoryOperation, address: u64) -> MemoryEvent {
    MemoryEvent {
        time_ns: Nanos(time),
        op,
        address,
        bytes: None,
        category: None,
        step: None,
        phase: None,
        layer: None,
        pool: None,
        site: None,
    }
}

fn allocate(time: i64, address: u64, bytes: u64, category: MemoryCategory) -> MemoryEvent {
    MemoryEvent { bytes: Some(bytes), category: Some(category), ..event(time, MemoryOperation::Alloc, address) }
}

fn free(time: i64, address: u64) -> MemoryEvent {
    event(time, MemoryOperation::Free, address)
}

fn reserve(time: i64, address: u64, bytes: u64) -> MemoryEvent {
    MemoryEvent { bytes: Some(bytes), ..event(time, MemoryOperation::Reserve, address) }
}

fn replay<'a>(pieces: impl IntoIterator<Item = &'a [MemoryEvent]>) -> MemoryReplay {
    let mut replay = MemoryReplay::default();
    for piece in pieces {
        let mut events = MemoryEvents::default();
        piece.iter().for_each(|event| events.push(event));
        replay.take(&events);
    }
    replay
}

fn memory_of(events: &[MemoryEvent], windows: &[StepWindow]) -> Option<RankMemory> {
    replay([events]).figures(
        &RunInfo::of_this_process("test"),
        &RankInfo::of_this_process(Rank(3)),
        windows,
        &DeviceSamples::default(),
        &Names::default(),
    )
}

/// Windows from each border to the next.
fn windows(borders: &[i64]) -> Vec<StepWindow> {
    let window = |(step, pair): (usize, &[i64])| StepWindow { step: Step(step as i32), start: pair[0], end: pair[1] };
    borders.windows(2).enumerate().map(window).collect()
}

/// A rank with a bit of everything. What is allocated after each event is beside it.
fn by_hand() -> Vec<MemoryEvent> {
    use MemoryCategory::{Activations, Gradients, Inputs, Parameters, Workspace};
    let at = |step: i32, phase: Phase, layer: Option<i32>, event: MemoryEvent| MemoryEvent {
        step: Some(Step(step)),
        phase: Some(phase),
        layer: layer.map(Layer),
        ..event
    };
    let (forward, backward) = (Phase::Forward, Phase::Backward);
    let unnamed = MemoryEvent { category: None, ..allocate(130, 5, 70, Activations) };
    vec![
        reserve(0, 1, 1000),
        allocate(10, 1, 100, Parameters),                             // 100
        allocate(20, 2, 50, Gradients),                               // 150
        at(0, forward, Some(0), allocate(110, 3, 200, Activations)),  // 350
        at(0, forward, Some(1), allocate(120, 4, 300, Activations)),  // 650
        at(0, forward, None, unnamed),                                // 720, the peak
        free(140, 5),                                                 // 650
        free(150, 4),                                                 // 350
        free(160, 3),                                                 // 150
        at(1, forward, Some(0), allocate(200, 3, 200, Activations)),  // 350, at the border of two steps
        at(1, backward, Some(1), allocate(210, 4, 370, Activations)), // 720 again
        free(220, 4),                                                 // 350
        free(225, 99),                                                // never allocated
        free(230, 3),                                                 // 150
        reserve(240, 7, 500),
        at(2, forward, None, allocate(310, 6, 8, Workspace)), // 158
        event(320, MemoryOperation::Release, 7),
        at(3, forward, None, allocate(410, 6, 40, Workspace)), // 190: the free of the other one is lost
        allocate(420, 7, 0, Workspace),                        // 190
        free(450, 6),                                          // 150, as the last step ends
        allocate(460, 8, 5, Inputs),                           // 155
    ]
}

fn bytes_of(categories: &BTreeMap<MemoryCategory, u64>) -> Vec<(&'static str, u64)> {
    categories.iter().map(|(category, bytes)| (category.word(), *bytes)).collect()
}

#[test]
fn a_rank_by_hand() {
    let windows = windows(&[100, 200, 300, 400, 450]);
    let memory = memory_of(&by_hand(), &windows).unwrap();
    assert_eq!((memory.rank, memory.peak_bytes, memory.peak_time_ns), (Rank(3), 720, 130));
    assert_eq!((memory.peak_step, memory.peak_phase), (Some(Step(0)), Some(Phase::Forward)));
    assert_eq!(
        bytes_of(&memory.at_peak),
        [("parameters", 100), ("gradients", 50), ("activations", 500), ("other", 70)]
    );
    assert_eq!(bytes_of(&memory.at_end), [("parameters", 100), ("gradients", 50), ("inputs", 5)]);
    assert_eq!((memory.reserved_peak_bytes, memory.fragmentation_bytes), (Some(1500), Some(1000 - 720)));
    let largest: Vec<_> = memory.largest_at_peak.iter().map(|block| (block.bytes, block.category.word())).collect();
    let expected = [(300, "activations"), (200, "activations"), (100, "parameters"), (70, "other"), (50, "gradients")];
    assert_eq!(largest, expected);
    let (step, phase, layer) = (Some(Step(0)), Some(Phase::Forward), Some(Layer(1)));
    let block = Block { bytes: 300, category: MemoryCategory::Activations, layer, phase, step, stack: Vec::new() };
    assert_eq!(memory.largest_at_peak[0], block);
    let layers: Vec<_> = memory.layers_at_peak.iter().map(|layer| (layer.layer, layer.bytes)).collect();
    assert_eq!(layers, [(None, 220), (Some(Layer(0)), 200), (Some(Layer(1)), 300)]);
    // 150, 150, 158 and 150 at the ends.
    assert_eq!(memory.growth_bytes_per_step, Some(0.0));
    assert_eq!(memory.unmatched_events, 2);
    assert_eq!((memory.predicted, memory.ledger, memory.inferred), (None, None, false));
    // Each event, and what there is as each step begins and after the last.
    let totals: Vec<_> = memory.timeline.iter().map(|point| (point.time_ns, point.total())).collect();
    let begin = [(0, 0), (10, 100), (20, 150), (100, 150), (110, 350), (120, 650), (130, 720), (140, 650), (150, 350)];
    assert_eq!(totals[..9], begin);
    assert_eq!(totals[totals.len() - 5..], [(410, 190), (420, 190), (450, 150), (451, 150), (460, 155)]);
    assert_eq!(totals.len(), 21 + 5);
}

#[test]
fn one_moment_has_no_peak() {
    let at_once = [allocate(5, 1, 100, MemoryCategory::Parameters), allocate(5, 2, 50, MemoryCategory::Inputs)];
    let later = [at_once[0], MemoryEvent { time_ns: Nanos(6), ..at_once[1] }];
    let snapshot = RunInfo { source: RunSource::TorchSnapshot, ..RunInfo::of_this_process("test") };
    for (run, events, one_moment) in [
        (&snapshot, at_once, true),
        (&snapshot, later, false),
        // What we record has a history, however short.
        (&RunInfo::of_this_process("test"), at_once, false),
    ] {
        let rank = RankInfo::of_this_process(Rank(3));
        let memory = replay([&events[..]]).figures(run, &rank, &[], &DeviceSamples::default(), &Names::default());
        assert_eq!(memory.unwrap().one_moment, one_moment, "{events:?}");
    }
}

#[test]
fn nothing_is_said_where_nothing_happened() {
    assert_eq!(memory_of(&[], &windows(&[10, 20])), None);
    assert_eq!(memory_of(&[], &[]), None);
}

#[test]
fn without_steps_all_of_it_is_looked_at() {
    let memory = memory_of(&by_hand(), &[]).unwrap();
    assert_eq!((memory.peak_bytes, memory.peak_time_ns, memory.peak_step), (720, 130, Some(Step(0))));
    assert_eq!((memory.growth_bytes_per_step, memory.timeline.len()), (None, 21));
}

#[test]
fn blocks_of_no_bytes_may_share_an_address() {
    let empty = |time| allocate(time, 8, 0, MemoryCategory::Workspace);
    let events = [empty(1), empty(2), free(3, 8), empty(4), free(5, 8), free(6, 8)];
    let memory = memory_of(&events, &[]).unwrap();
    assert_eq!((memory.peak_bytes, memory.unmatched_events), (0, 0));
    assert_eq!((memory.largest_at_peak.len(), memory.layers_at_peak.len()), (0, 0));
}

#[test]
fn ten_blocks_are_shown_the_largest_first() {
    let events: Vec<_> = (0..15)
        .map(|index| allocate(index, 100 - index as u64, 7 + index as u64 / 12, MemoryCategory::Other))
        .collect();
    let memory = memory_of(&events, &[]).unwrap();
    let largest: Vec<u64> = memory.largest_at_peak.iter().map(|block| block.bytes).collect();
    assert_eq!(largest, [8, 8, 8, 7, 7, 7, 7, 7, 7, 7]);
    assert_eq!(memory.layers_at_peak, [LayerMemory { layer: None, bytes: 12 * 7 + 3 * 8 }]);
}

#[test]
fn sizes_beyond_all_memory_are_no_trouble() {
    let huge = |time, address| allocate(time, address, u64::MAX - 1, MemoryCategory::Other);
    let events = [
        reserve(0, 1, u64::MAX),
        reserve(0, 2, u64::MAX),
        allocate(i64::MIN, 3, 5, MemoryCategory::Inputs),
        huge(1, 1),
        huge(2, 2),
        huge(3, 2),
        event(4, MemoryOperation::Release, 1),
        free(i64::MAX, 1),
    ];
    let memory = memory_of(&events, &windows(&[i64::MIN, 2, i64::MAX])).unwrap();
    assert_eq!(memory.peak_bytes, u64::MAX);
    assert_eq!(bytes_of(&memory.at_end), [("inputs", 5)]);
}

/// A block as the plainest replay has it: its address, its size, and what it is for.
type Plain = (u64, u64, MemoryCategory);

/// What is live, and what is reserved, after some events.
fn plainly(events: &[MemoryEvent]) -> (Vec<Plain>, Option<u64>) {
    let (mut live, mut segments, mut reserving) = (Vec::<Plain>::new(), Vec::<(u64, u64)>::new(), false);
    for event in events {
        let (address, bytes) = (event.address, event.bytes.unwrap_or(0));
        match event.op {
            MemoryOperation::Alloc | MemoryOperation::Free => live.retain(|(other, ..)| *other != address),
            MemoryOperation::Reserve | MemoryOperation::Release => segments.retain(|(other, _)| *other != address),
        }
        match event.op {
            MemoryOperation::Alloc => live.push((address, bytes, event.category.unwrap_or(MemoryCategory::Other))),
            MemoryOperation::Reserve => {
                segments.push((address, bytes));
                reserving = true;
            }
            _ => {}
        }
    }
    (live, reserving.then(|| segments.iter().map(|(_, bytes)| bytes).sum()))
}

fn total(live: &[Plain]) -> u64 {
    live.iter().map(|(_, bytes, _)| bytes).sum()
}

fn categories(live: &[Plain]) -> BTreeMap<MemoryCategory, u64> {
    let mut sums = BTreeMap::new();
    for (_, bytes, category) in live.iter().filter(|(_, bytes, _)| *bytes > 0) {
        *sums.entry(*category).or_default() += bytes;
    }
    sums
}

fn any_event() -> impl Strategy<Value = MemoryEvent> {
    let op = prop::sample::select(MemoryOperation::ALL);
    let category = prop::option::of(prop::sample::select(MemoryCategory::ALL));
    (0..60_i64, op, 0..7_u64, prop::option::of(0..50_u64), category, prop::option::of(0..3_i32)).prop_map(
        |(time, op, address, bytes, category, layer)| MemoryEvent {
            bytes,
            category,
            layer: layer.map(Layer),
            ..event(time, op, address)
        },
    )
}

proptest! {
    #[test]
    fn it_is_what_the_plainest_replay_says(
        events in prop::collection::vec(any_event(), 1..60),
        piece in 1..20_usize,
        mut borders in prop::collection::vec(0..70_i64, 2..8),
    ) {
        borders.sort_unstable();
        let windows = windows(&borders);
        let run = RunInfo::of_this_process("test");
        let memory = replay(events.chunks(piece)).figures(&run, &RankInfo::of_this_process(Rank(0)), &windows, &DeviceSamples::default(), &Names::default());

        let mut sorted = events;
        sorted.sort_by_key(|event| event.time_ns);
        // When is looked, and after how many events.
        let moments: Vec<(i64, usize)> =
            sorted.iter().enumerate().map(|(index, event)| (event.time_ns.0, index + 1)).collect();
        prop_assert_eq!(memory.is_some(), !moments.is_empty());
        let Some(memory) = memory else { return Ok(()) };

        let most = moments.iter().map(|(_, after)| total(&plainly(&sorted[..*after]).0)).max();
        let peak = moments.iter().find(|(_, after)| Some(total(&plainly(&sorted[..*after]).0)) == most);
        let &(time, after) = peak.unwrap();
        let (live, reserved) = plainly(&sorted[..after]);
        prop_assert_eq!((memory.peak_bytes, memory.peak_time_ns), (total(&live), time));
        prop_assert_eq!(&memory.at_peak, &categories(&live));
        prop_assert_eq!(memory.at_peak.values().sum::<u64>(), memory.peak_bytes);
        prop_assert_eq!(&memory.at_end, &categories(&plainly(&sorted).0));
        prop_assert_eq!(memory.layers_at_peak.iter().map(|layer| layer.bytes).sum::<u64>(), memory.peak_bytes);
        let mut largest: Vec<u64> = live.iter().map(|(_, bytes, _)| *bytes).filter(|bytes| *bytes > 0).collect();
        largest.sort_unstable_by_key(|bytes| Reverse(*bytes));
        prop_assert_eq!(memory.largest_at_peak.iter().map(|block| block.bytes).collect::<Vec<_>>(), largest);
        prop_assert_eq!(memory.fragmentation_bytes, reserved.and_then(|reserved| reserved.checked_sub(total(&live))));
        let reserved_peak = moments.iter().filter_map(|(_, after)| plainly(&sorted[..*after]).1).max();
        prop_assert_eq!(memory.reserved_peak_bytes, reserved_peak);
        prop_assert_eq!(memory.timeline.iter().map(MemoryPoint::total).max(), Some(memory.peak_bytes));
        for point in &memory.timeline {
            let known = moments.iter().any(|(time, after)| {
                *time == point.time_ns && by_category(&point.bytes) == categories(&plainly(&sorted[..*after]).0)
            });
            prop_assert!(known || windows.iter().any(|window| point.time_ns == window.start
                || point.time_ns == window.end + 1), "{:?}", point);
        }
    }

    #[test]
    fn categories_sum_to_the_total_at_every_event(events in prop::collection::vec(any_event(), 1..80)) {
        let mut replay = replay([events.as_slice()]);
        replay.sort();
        let mut state = AllocatorState::default();
        for event in &replay.events {
            state.apply(event, &replay.places);
            prop_assert_eq!(state.bytes.iter().sum::<u64>(), state.allocated);
            prop_assert_eq!(state.blocks(&replay.places).map(|block| block.bytes).sum::<u64>(), state.allocated);
        }
    }
}

fn analyzed(path: &Path) -> Analysis {
    analyze(&Run::open(path).unwrap(), &Selection::default(), &|_| ()).unwrap()
}

#[test]
fn made_runs_are_told_to_the_byte_and_the_nanosecond() {
    let clocks = Clocks { largest_offset: Nanos(1 << 40), largest_drift: 50_000, largest_wall_error: Nanos(1_000_000) };
    let pipeline = Pipeline { stages: 2, schedule: Schedule::OneForwardOneBackward, chunks: 1, transfer: Nanos(9_000) };
    let recipes = [
        Recipe::default(),
        Recipe { steps: 40, layers: 6, flush_every: Nanos(1_000_000), clocks, ..Recipe::default() },
        Recipe { replicas: 2, micro_batches: 6, pipeline: Some(pipeline), clocks, seed: 5, ..Recipe::default() },
    ];
    for recipe in recipes {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("run");
        let truth = recipe.write(&path).unwrap();
        let analysis = analyzed(&path);
        assert_eq!(analysis.memory.len(), truth.ranks.len());
        for (memory, rank) in analysis.memory.iter().zip(&truth.ranks) {
            let truth = &rank.memory;
            assert_eq!(memory.rank, rank.rank);
            assert_eq!((memory.peak_bytes, memory.peak_time_ns), (truth.peak_bytes, truth.peak_time.0));
            assert_eq!(memory.peak_step, truth.peak_step);
            assert_eq!((&memory.at_peak, &memory.at_end), (&truth.at_peak, &truth.at_end));
            assert_eq!(memory.reserved_peak_bytes, Some(truth.reserved_peak_bytes));
            assert_eq!(memory.fragmentation_bytes, truth.reserved_peak_bytes.checked_sub(truth.peak_bytes));
            assert_eq!(memory.growth_bytes_per_step, Some(0.0), "{recipe:?}");
            assert_eq!((memory.unmatched_events, memory.predicted), (0, None));
            assert_eq!(memory.timeline.iter().map(MemoryPoint::total).max(), Some(truth.peak_bytes));
            assert!(memory.timeline.len() <= MOST_POINTS);
        }
    }
}

/// A run of some steps of a microsecond, each of which leaves some bytes behind.
fn leaking(path: &Path, steps: i32, leak: u64) {
    RunInfo::of_this_process("leak").create(path).unwrap();
    let mut writer = RankWriter::create(path, RankInfo::of_this_process(Rank(0))).unwrap();
    let name = NameId(1000);
    writer.push_name(name, "gemm").unwrap();
    for step in 0..steps {
        let start = 1000 * i64::from(step);
        let span = Span::new(SpanKind::Kernel, name, Nanos(start), Nanos(900));
        writer.push_span(&Span { step: Some(Step(step)), ..span }).unwrap();
        // The first step makes what stays.
        let stays = allocate(start + 100, 1, 10_000, MemoryCategory::OptimizerState);
        let scratch = allocate(start + 200, 2, 5_000 + 7 * (step as u64 % 3), MemoryCategory::Workspace);
        let left = allocate(start + 300, 1000 + step as u64, leak, MemoryCategory::Activations);
        let events = [stays, scratch, left, free(start + 950, 2)];
        events.iter().skip(usize::from(step > 0)).for_each(|event| writer.push_memory(event).unwrap());
    }
    writer.finish().unwrap();
}

#[test]
fn a_leak_is_found_to_the_byte() {
    for (steps, leak, growth) in [(3, 48, None), (4, 48, Some(48.0)), (50, 1, Some(1.0)), (50, 0, Some(0.0))] {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("run");
        leaking(&path, steps, leak);
        assert_eq!(analyzed(&path).memory[0].growth_bytes_per_step, growth, "{steps} steps, {leak} bytes");
    }
}

#[test]
fn a_trained_model_has_the_memory_that_was_predicted() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run");
    let layout = ParallelLayout { pp: 2, micro_batches: 2, sequence_length: 32, ..ParallelLayout::default() };
    let model = ModelShape::preset("tiny").unwrap();
    let config = TrainConfig { steps: 6, ..TrainConfig::new(model.clone(), layout) };
    let info = RunInfo { model: Some(model), layout: Some(layout), ..RunInfo::of_this_process("trained") };
    info.create(&path).unwrap();
    CpuTraining::prepare(&config).unwrap().run(Some(&path), &|_| ()).unwrap();
    for memory in analyzed(&path).memory {
        let predicted = memory.predicted.unwrap();
        let measured = |category| memory.at_peak.get(&category).copied();
        assert_eq!(measured(MemoryCategory::Parameters), Some(predicted.parameters));
        assert_eq!(measured(MemoryCategory::Gradients), Some(predicted.gradients));
        assert_eq!(measured(MemoryCategory::OptimizerState), Some(predicted.optimizer_state));
        assert_eq!((memory.growth_bytes_per_step, memory.unmatched_events), (Some(0.0), 0));
    }
}

#[test]
fn libraries_take_some_of_a_gpu() {
    let mut run = RunInfo::of_this_process("test");
    (run.model, run.layout) = (Some(ModelShape::preset("tiny").unwrap()), Some(ParallelLayout::default()));
    let mut rank = RankInfo::of_this_process(Rank(0));
    let mut predicted_on = |device: Device| {
        rank.device = Some(device);
        predicted(&run, &rank).unwrap().total()
    };
    let gpu = Device { name: "NVIDIA H200".into(), memory_bytes: None, peak_flops: None };
    assert_eq!(predicted_on(gpu) - predicted_on(Device::core("a CPU", None, 1.0)), 32 << 20);
}

#[test]
fn a_layout_that_does_not_fit_predicts_nothing() {
    let mut run = RunInfo::of_this_process("test");
    run.model = Some(ModelShape::preset("tiny").unwrap());
    let [rank, no_rank] = [0, 1].map(|rank| RankInfo::of_this_process(Rank(rank)));
    assert_eq!(predicted(&run, &rank), None);
    for (layout, fits) in [
        (ParallelLayout::default(), true),
        (ParallelLayout { tp: 3, ..ParallelLayout::default() }, false),
        (ParallelLayout { dp: 0, ..ParallelLayout::default() }, false),
    ] {
        run.layout = Some(layout);
        assert_eq!(predicted(&run, &rank).is_some(), fits, "{layout:?}");
        assert_eq!(predicted(&run, &no_rank), None, "there is no such rank");
    }
}

/// What callers had over time is what categories had, and the largest are told whenever they had it.
#[test]
fn callers_over_time_add_up() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("test").create(&path).unwrap();
    let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
    let name = |caller: u64| NameId(FIRST_NAME.0 + caller as u32);
    let module = "torch/nn/modules/module.py:1 _call_impl";
    for caller in 0..12 {
        writer.push_name(name(caller), &format!("{module}\nline.py:{caller} f\nmain.py:1 main")).unwrap();
    }
    let by = |caller: u64, event: MemoryEvent| MemoryEvent { site: Some(name(caller)), ..event };
    // The last caller has most, and not at the peak.
    writer.push_memory(&by(11, allocate(1, 99, 500, MemoryCategory::Workspace))).unwrap();
    writer.push_memory(&free(2, 99)).unwrap();
    for caller in 0..11 {
        let event = allocate(10 + caller as i64, caller, 100 + caller, MemoryCategory::Activations);
        writer.push_memory(&by(caller, event)).unwrap();
    }
    writer.push_memory(&allocate(30, 50, 1, MemoryCategory::Parameters)).unwrap();
    writer.finish().unwrap();
    let memory = analyzed(&path).memory.remove(0);
    let callers = memory.callers_over_time.unwrap();
    let lines: Vec<_> = callers.callers.iter().map(|caller| caller.caller.as_deref().unwrap()).collect();
    assert_eq!(lines.len(), CallersOverTime::MOST);
    assert_eq!(lines[..3], ["line.py:11 f", "line.py:10 f", "line.py:9 f"]);
    assert_eq!(callers.callers[0].category, MemoryCategory::Workspace);
    let told: Vec<_> = callers.points.iter().map(|point| (point.time_ns, point.total())).collect();
    let known: Vec<_> = memory.timeline.iter().map(|point| (point.time_ns, point.total())).collect();
    assert_eq!(told, known);
    let last = callers.points.last().unwrap().bytes;
    assert_eq!((last[0], last[1], last[CallersOverTime::MOST]), (0, 110, 100 + 101 + 102 + 1), "and nobody knows");
}

#[test]
fn without_callers_there_are_none_over_time() {
    let memory = memory_of(&by_hand(), &windows(&[100, 200, 300, 400, 450])).unwrap();
    assert_eq!((memory.callers_over_time, memory.sites_at_peak), (None, Vec::new()));
}

#[test]
fn what_an_allocator_says_it_held_counts_more_than_what_the_table_has() {
    let events = [allocate(1, 16, 100, MemoryCategory::Activations), free(2, 16)];
    let mut info = RankInfo::of_this_process(Rank(3));
    let held = HeldMemory { allocated_bytes: [(MemoryCategory::Activations, 100)].into(), reserved_bytes: 130 };
    let note = |held| OutOfMemory {
        times: 1,
        time_ns: Nanos(3),
        requested_bytes: 50,
        free_bytes: Some(20),
        stack: Vec::new(),
        held,
        expandable_segments_would_do: None,
    };
    let mut shortage = |held| {
        info.collector.out_of_memory = Some(note(held));
        let (run, device) = (RunInfo::of_this_process("test"), DeviceSamples::default());
        let memory = replay([&events[..]]).figures(&run, &info, &[], &device, &Names::default()).unwrap();
        memory.out_of_memory.unwrap()
    };
    let said = shortage(Some(held));
    assert_eq!((said.at.get(&MemoryCategory::Activations), said.reserved_unused_bytes), (Some(&100), Some(30)));
    assert_eq!(shortage(None).at.values().sum::<u64>(), 0);
}
