//! What becomes of hand-made records, in a recording.

mod memory_times;

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use stepscope_traces::{
    Counter, Group, Layer, MemoryOperation, Nanos, Phase, Rank, RankData, RankInfo, Run, RunInfo, Sequence, Step,
    Stream, Window, now,
};
use tempfile::TempDir;

use super::{
    super::{
        calls::CallKind,
        latest_kernel::{self, LatestKernel},
        record_form::RecordForm,
        records::{
            self,
            tests::{Page, VERSION_12, VERSION_13, WORK},
        },
    },
    *,
};
use crate::{LaunchInfo, Recorder, Settings, launch_notes, launch_notes::DescribedLaunch};

/// There is one reader of notes at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Recording {
    directory: TempDir,
    recorder: Recorder,
    shared: Arc<Shared>,
    translator: Translator,
    /// Goes with the test.
    alone: MutexGuard<'static, ()>,
}

impl Recording {
    fn start(settings: Settings) -> Recording {
        let alone = crate::lock::lock(&ONE_AT_A_TIME);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        RunInfo::of_this_process("test").create(&path).unwrap();
        let recorder = Recorder::start_with(&path, RankInfo::of_this_process(Rank(0)), settings).unwrap();
        let shared = recorder.shared_arc().unwrap().clone();
        let mut translator = Translator::new();
        assert!(translator.listen(&shared) && !translator.listen(&shared));
        Recording { directory, recorder, shared, translator, alone }
    }

    #[allow(unsafe_code)]
    fn read(&mut self, page: &Page) {
        self.translator.read_notes();
        // SAFETY: the names are static.
        unsafe {
            records::read(&page.bytes, &RecordForm::Whole, page.next(), |record| self.translator.translate(record))
        };
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// Of each rank.
    fn finish(mut self) -> Vec<(RankData, RankInfo)> {
        let path = self.path();
        assert!(!self.translator.leave(&self.shared));
        self.recorder.finish().unwrap();
        let ranks = Run::open(&path).unwrap().ranks;
        ranks.into_iter().map(|rank| (rank.read(Window::ALL).unwrap().0, rank.info)).collect()
    }
}

fn work(correlation: u32, start: u64) -> Work {
    Work { start, end: start + 100, correlation, ..WORK }
}

fn dropped(data: &RankData) -> f64 {
    let mut samples = data.counters.rows().filter(|sample| sample.counter == Counter::DroppedEvents.id());
    samples.next_back().unwrap().value
}

#[test]
fn kernels_have_the_place_in_the_training_they_were_launched_in() {
    let mut recording = Recording::start(Settings::default());
    let began = now().0 as u64;
    {
        let recorder = &recording.recorder;
        let _step = recorder.step(Step(3));
        // A number at which launches are timed.
        launch_notes::leave(13, true);
        let _phase = recorder.phase(Phase::Backward);
        let _layer = recorder.layer(Layer(5));
        let info = LaunchInfo { flops: Some(64), name: Some(recorder.name("matmul")), ..LaunchInfo::default() };
        let _launching = recorder.launching(info);
        launch_notes::leave(1, true);
        launch_notes::leave(2, false);
        launch_notes::leave(3, true);
        launch_notes::leave(4, true);
        let collective = LaunchInfo {
            kind: Some(SpanKind::AllReduce),
            bytes: Some(4096),
            collective: Some((Group(7), Some(Sequence(9)))),
            ..LaunchInfo::default()
        };
        drop(recorder.launching(collective));
        let _launching = recorder.launching(collective);
        launch_notes::leave(5, true);
    }
    recording.translator.streams.name(recording.shared.id, WORK.place, Stream(1));
    for lengths in [VERSION_12, VERSION_13] {
        let mut page = Page::default();
        page.kernel(lengths, work(13, began + 1_000_000_000), c"first");
        page.kernel(lengths, work(1, began + 1_000_000_100), c"prepare");
        page.copy(lengths, work(2, began + 1_000_000_200), 512, 1);
        let main = work(3, began + 1_000_000_300);
        page.kernel(lengths, Work { end: main.end + 50, ..main }, c"nvjet");
        page.kernel(lengths, work(4, began + 1_000_000_500), c"reduce_splitk");
        page.kernel(lengths, work(5, began + 1_000_000_600), c"ncclDevKernel_Generic_1");
        page.kernel(lengths, work(6, began + 1_000_000_700), c"ncclDevKernel_Broadcast_RING_LL");
        recording.read(&page);
    }
    let [(data, info)] = recording.finish().try_into().ok().unwrap();
    let spans: Vec<Span> = data.spans.rows().filter(|span| span.correlation.is_some()).collect();
    assert_eq!(spans.len(), 14);
    let told = |span: &Span| (span.kind, data.names.get(span.name).unwrap().to_owned(), span.flops, span.bytes);
    let expected = [
        (SpanKind::Kernel, "first", None, None),
        (SpanKind::Kernel, "prepare", Some(0), None),
        (SpanKind::Copy, "copy_host_to_device", None, Some(512)),
        (SpanKind::Kernel, "matmul", Some(64), None),
        (SpanKind::Kernel, "reduce_splitk", Some(0), None),
        (SpanKind::AllReduce, "ncclDevKernel_Generic_1", None, Some(4096)),
        (SpanKind::Broadcast, "ncclDevKernel_Broadcast_RING_LL", None, None),
    ];
    for (span, (kind, name, flops, bytes)) in spans.iter().zip(expected) {
        assert_eq!(told(span), (kind, name.to_owned(), flops, bytes));
        let duration = if flops == Some(64) { Nanos(150) } else { Nanos(100) };
        assert_eq!((span.stream, span.duration_ns), (Some(Stream(1)), duration));
    }
    let places: Vec<_> = spans.iter().map(|span| (span.step, span.phase, span.layer)).collect();
    let deep = (Some(Step(3)), Some(Phase::Backward), Some(Layer(5)));
    assert_eq!(places[..7], [(Some(Step(3)), None, None), deep, deep, deep, deep, deep, (None, None, None)]);
    assert_eq!((spans[5].group, spans[5].sequence), (Some(Group(7)), Some(Sequence(9))));
    // The second time each is parsed, what is said of one launch is gone and where it was is not.
    assert_eq!(told(&spans[10]).1, "nvjet");
    assert_eq!((spans[10].flops, spans[10].layer), (None, Some(Layer(5))));
    let delay = info.collector.cupti_least_launch_delay_ns.unwrap();
    assert!((0..=1_000_000_000).contains(&delay), "{delay}");
    assert_eq!((info.collector.cupti_unannotated, info.collector.cupti_lost_annotations), (Some(2), Some(0)));
}

#[test]
fn what_is_said_waits_for_the_longest_across_buffers_but_not_for_long() {
    let mut recording = Recording::start(Settings::default());
    let recorder = recording.recorder.clone();
    let launching = recorder.launching(LaunchInfo { flops: Some(64), ..LaunchInfo::default() });
    (1..=3).for_each(|correlation| launch_notes::leave(correlation, true));
    drop(launching);
    for (correlation, duration) in [(1, 10), (2, 30), (3, 90)] {
        let mut page = Page::default();
        let work = work(correlation, 1000 * u64::from(correlation));
        page.kernel(VERSION_13, Work { end: work.start + duration, ..work }, c"part");
        recording.read(&page);
        // After the second one comes a break that is too long.
        (0..correlation * 3).for_each(|_| recording.translator.look_for_quiet_streams());
    }
    let [(data, _)] = recording.finish().try_into().ok().unwrap();
    let flops: Vec<_> = data.spans.rows().map(|span| span.flops).collect();
    assert_eq!(flops, [Some(0), Some(64), None]);
}

#[test]
fn what_is_lost_is_counted_and_what_is_odd_is_skipped() {
    let mut recording = Recording::start(Settings::default());
    let mut page = Page::default();
    page.kernel(VERSION_13, Work { end: 0, ..WORK }, c"still running");
    page.kernel(VERSION_13, Work { start: 0, ..WORK }, c"untimed");
    page.unknown(64);
    page.set(VERSION_13, WORK, 64);
    page.memory(VERSION_13, 1, 3, None);
    recording.read(&page);
    recording.translator.translate(None);
    recording.translator.lose(10);
    let [(data, _)] = recording.finish().try_into().ok().unwrap();
    assert_eq!(dropped(&data), 13.0);
    let [set] = data.spans.rows().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((set.kind, data.names.get(set.name), set.bytes), (SpanKind::Set, Some("memset"), Some(64)));
    assert_eq!(set.stream, Some(Stream(16)), "a stream nobody named");
    let [memory] = data.memory.rows().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((memory.op, memory.address, memory.bytes), (MemoryOperation::Alloc, 0xa000, Some(512)));
}

#[test]
fn kernels_wait_for_room() {
    // Room for hardly more than one short queue.
    let settings = Settings { queue_bytes: 16 << 10, flush_every: Duration::from_millis(20) };
    let mut recording = Recording::start(settings);
    let mut page = Page::default();
    (0..5000).for_each(|correlation| page.kernel(VERSION_12, work(correlation, 1000), c"many"));
    let mut offsets = (0..5000).map(|index| records::Next::At(index * VERSION_12[0]));
    #[allow(unsafe_code)]
    // SAFETY: the name is static.
    unsafe {
        let next = |_| offsets.next().unwrap_or(records::Next::End);
        records::read(&page.bytes, &RecordForm::Whole, next, |record| recording.translator.translate(record));
    }
    let [(data, _)] = recording.finish().try_into().ok().unwrap();
    assert_eq!((data.spans.len(), dropped(&data)), (5000, 0.0));
}

#[test]
fn kernels_of_several_ranks_go_to_the_one_that_launched_them() {
    let mut first = Recording::start(Settings::default());
    let second = Recorder::start(&first.path(), RankInfo::of_this_process(Rank(1))).unwrap();
    let second_shared = second.shared_arc().unwrap().clone();
    assert!(first.translator.listen(&second_shared));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _step = second.step(Step(2));
            launch_notes::leave(1, true);
        });
    });
    let mut page = Page::default();
    page.kernel(VERSION_13, work(1, 1000), c"launched by the second");
    page.kernel(VERSION_13, work(2, 2000), c"on the stream of the second");
    let elsewhere = CuptiStream { context: 9, stream: 9 };
    page.kernel(VERSION_13, Work { place: elsewhere, ..work(3, 3000) }, c"of nobody");
    first.read(&page);
    assert!(first.translator.leave(&second_shared));
    second.finish().unwrap();
    let [first, second] = first.finish().try_into().ok().unwrap();
    let kernels = |(data, _): &(RankData, RankInfo)| {
        let kernels = data.spans.rows().filter(|span| span.kind == SpanKind::Kernel);
        kernels.map(|span| (data.names.get(span.name).unwrap().to_owned(), span.step)).collect::<Vec<_>>()
    };
    assert_eq!(kernels(&first), [("of nobody".to_owned(), None)]);
    let launched = ("launched by the second".to_owned(), Some(Step(2)));
    assert_eq!(kernels(&second), [launched, ("on the stream of the second".to_owned(), None)]);
}

#[test]
fn threads_that_say_nothing_are_where_the_process_is() {
    let mut recording = Recording::start(Settings::default());
    let recorder = recording.recorder.clone();
    let on_another_thread = |correlation| {
        std::thread::scope(|scope| {
            scope.spawn(|| launch_notes::leave(correlation, true));
        });
    };
    on_another_thread(1);
    recorder.set_process_context(Some(Step(7)), Some(Phase::Backward));
    on_another_thread(2);
    {
        // This thread says itself in which phase it is.
        let _phase = recorder.phase(Phase::Forward);
        launch_notes::leave(3, true);
    }
    recorder.set_process_context(None, None);
    on_another_thread(4);
    let mut page = Page::default();
    (1..=4).for_each(|correlation| page.kernel(VERSION_13, work(correlation, 1000), c"kernel"));
    recording.read(&page);
    let [(data, _)] = recording.finish().try_into().ok().unwrap();
    let kernels = data.spans.rows().filter(|span| span.kind == SpanKind::Kernel);
    let places: Vec<_> = kernels.map(|span| (span.step, span.phase)).collect();
    let step = Some(Step(7));
    assert_eq!(places, [(None, None), (step, Some(Phase::Backward)), (step, Some(Phase::Forward)), (None, None)]);
}

#[test]
fn what_a_library_says_afterwards_is_said_of_its_kernel() {
    let mut recording = Recording::start(Settings::default());
    let operation = |kind, number| LaunchInfo {
        kind: Some(kind),
        bytes: Some(4096),
        collective: Some((Group(7), number)),
        ..LaunchInfo::default()
    };
    let launch = |correlation, described: Option<LaunchInfo>| {
        // As CUPTI's callback does it, on a thread that says nothing of itself.
        launch_notes::leave(correlation, true);
        latest_kernel::launched(Some(correlation));
        described.into_iter().for_each(|info| LatestKernel::take().unwrap().describe(info));
    };
    launch(1, Some(operation(SpanKind::Receive, Some(Sequence(3)))));
    launch(2, None);
    launch(3, Some(operation(SpanKind::AllToAll, None)));
    launch(4, Some(operation(SpanKind::AllReduce, Some(Sequence(4)))));
    let mut page = Page::default();
    page.kernel(VERSION_13, work(1, 1000), c"ncclDevKernel_SendRecv");
    page.kernel(VERSION_13, work(2, 2000), c"ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    page.kernel(VERSION_13, work(3, 3000), c"ncclDevKernel_SendRecv");
    page.kernel(VERSION_13, work(4, 4000), c"matmul");
    page.kernel(VERSION_13, work(1, 5000), c"ncclDevKernel_SendRecv");
    recording.read(&page);
    let [(data, _)] = recording.finish().try_into().ok().unwrap();
    let told: Vec<_> = data.spans.rows().map(|span| (span.kind, span.bytes, span.group, span.sequence)).collect();
    let (bytes, group) = (Some(4096), Some(Group(7)));
    let expected = [
        (SpanKind::Receive, bytes, group, Some(Sequence(3))),
        (SpanKind::AllReduce, None, None, None),
        (SpanKind::AllToAll, bytes, group, None),
        (SpanKind::Kernel, None, None, None),
        (SpanKind::Communication, None, None, None),
    ];
    assert_eq!(told, expected, "a kernel that computes is not NCCL's, and a word is said once");
}

#[test]
fn a_call_that_is_told_later_was_made_where_the_process_was_then() {
    let mut recording = Recording::start(Settings::default());
    let recorder = &recording.recorder;
    recorder.set_process_context(None, None);
    let before = now();
    recorder.set_process_context(Some(Step(7)), Some(Phase::Backward));
    let first = now();
    recorder.set_process_context(Some(Step(8)), Some(Phase::Forward));
    let second = now();
    let info = LaunchInfo {
        kind: Some(SpanKind::AllReduce),
        collective: Some((Group(7), Some(Sequence(3)))),
        ..LaunchInfo::default()
    };
    launch_notes::leave_operation(DescribedLaunch::LastOf { thread: 5, before: second }, info);
    for (correlation, thread, time) in [(1, 5, before), (2, 5, first), (3, 5, second), (4, 6, second)] {
        let (kind, start) = (CallKind::Driver, time.0.cast_unsigned());
        recording.translator.called(Call { kind, number: 0, start, thread, correlation });
    }
    recorder.set_process_context(None, None);
    recording.translator.read_notes();
    recording.translator.called_until(second);
    let mut page = Page::default();
    (1..=4).for_each(|correlation| page.kernel(VERSION_13, work(correlation, 1000), c"ncclDevKernel_AllReduce"));
    recording.read(&page);
    let [(data, _)] = recording.finish().try_into().ok().unwrap();
    let told: Vec<_> = data.spans.rows().map(|span| (span.step, span.phase, span.sequence)).collect();
    let later = (Some(Step(8)), Some(Phase::Forward));
    let expected = [
        (None, None, None),
        (Some(Step(7)), Some(Phase::Backward), None),
        (later.0, later.1, Some(Sequence(3))),
        (later.0, later.1, None),
    ];
    assert_eq!(told, expected);
}

#[test]
fn what_libraries_hold_is_counted_from_when_it_changed() {
    let mut recording = Recording::start(Settings::default());
    let began = now();
    for local_memory in [100, 160, 120] {
        let work = work(1, began.0.cast_unsigned());
        recording.translator.translate(Some(Record::Kernel {
            work,
            name: c"kernel",
            shape: LaunchShape::default(),
            local_memory,
        }));
    }
    held_memory::with(|held| held.set(Nanos(began.0 + 5), MemoryHolder::Nvshmem, 4096));
    recording.translator.record_held_memory();
    held_memory::with(|held| held.set(Nanos(began.0 + 7), MemoryHolder::Nvshmem, 0));
    recording.translator.record_held_memory();
    let [(data, _)] = recording.finish().try_into().ok().unwrap();
    let named = |name: &str| {
        let samples = data.counters.rows().filter(|sample| data.names.counter(sample.counter) == Some(name));
        samples.map(|sample| (sample.time_ns.0 - began.0, sample.value)).collect::<Vec<_>>()
    };
    assert_eq!(named("memory.nvshmem"), [(5, 4096.0), (7, 0.0)]);
    assert_eq!(named("memory.local"), [(0, 60.0)], "what the first one took was there before it");
    assert!(!named("memory.modules").is_empty(), "somebody looked");
}
