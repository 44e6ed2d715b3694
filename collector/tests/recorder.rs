//! The recorder, in the process that records.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    cell::RefCell,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use stepscope_collector::{Context, LaunchInfo, RecordError, Recorder, Settings, cupti::Activity};
use stepscope_traces::{
    CollectorNote, Correlation, Counter, CuptiNote, Group, GroupInfo, Layer, Loss, Membership, MemoryCategory,
    MemoryOperation, MicroBatch, Nanos, Phase, Rank, RankData, RankInfo, Run, RunInfo, STOOD_STILL, Sequence, Span,
    SpanKind, Spans, Stage, State, Step, Stream, TraceError, Window, now,
};
use tempfile::TempDir;

struct Recording {
    #[expect(dead_code, reason = "removed with the test")]
    directory: TempDir,
    path: PathBuf,
    recorder: Recorder,
}

impl Recording {
    fn start(settings: Settings) -> Recording {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        RunInfo::of_this_process("test").create(&path).unwrap();
        let recorder = Recorder::start_with(&path, RankInfo::of_this_process(Rank(0)), settings).unwrap();
        Recording { directory, path, recorder }
    }

    fn finish(self) -> (RankData, Loss) {
        self.recorder.finish().unwrap();
        let run = Run::open(&self.path).unwrap();
        assert_eq!(run.state(), State::Complete);
        let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
        (RankData { spans: of_the_test(&data), ..data }, loss)
    }
}

/// All spans but those that the recorder writes of itself, when a busy machine left it no time.
fn of_the_test(data: &RankData) -> Spans {
    let mut spans = Spans::default();
    let is_of_the_test = |span: &Span| data.names.get(span.name) != Some(STOOD_STILL);
    data.spans.rows().filter(is_of_the_test).for_each(|span| spans.push(&span));
    spans
}

#[test]
fn what_is_recorded_has_its_context() {
    let recording = Recording::start(Settings::default());
    let recorder = &recording.recorder;
    let (matmul, reduce) = (recorder.name("matmul"), recorder.name("reduce"));
    let began = now();
    {
        let _stage = recorder.stage(Stage(1));
        let _step = recorder.step(Step(7));
        {
            let _micro_batch = recorder.micro_batch(MicroBatch(2));
            let _phase = recorder.phase(Phase::Backward);
            let _layer = recorder.layer(Layer(3));
            drop(recorder.span(SpanKind::Kernel, matmul).stream(Stream(1)).flops(64).bytes(32));
            recorder.allocate(0xa0, 512, MemoryCategory::Gradients);
            let context = recorder.context();
            // Another thread works for this one, as a communication stream does.
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _context = recorder.enter(context);
                    let span = recorder.span(SpanKind::AllReduce, reduce);
                    drop(span.stream(Stream(2)).collective(Group(5), Sequence(9)));
                });
            });
        }
        recorder.free(0xa0);
        recorder.count(Counter::Loss, 1.5);
        recorder.count(recorder.counter("my own").unwrap(), 2.5);
    }
    assert_eq!(recorder.context(), Context::default());
    recorder.record(Span::new(SpanKind::Copy, matmul, Nanos(123), Nanos(45)));
    let (data, loss) = recording.finish();
    let ended = now();
    assert!(loss.is_none());

    let find = |kind: SpanKind| data.spans.rows().find(|span| span.kind == kind).unwrap();
    let deepest = Span {
        step: Some(Step(7)),
        micro_batch: Some(MicroBatch(2)),
        phase: Some(Phase::Backward),
        layer: Some(Layer(3)),
        stage: Some(Stage(1)),
        ..Span::new(SpanKind::Kernel, matmul, Nanos(0), Nanos(0))
    };
    let timeless = |span: Span| Span { start_ns: Nanos(0), duration_ns: Nanos(0), ..span };
    let kernel = Span { stream: Some(Stream(1)), flops: Some(64), bytes: Some(32), ..deepest };
    assert_eq!(timeless(find(SpanKind::Kernel)), kernel);
    let (kind, stream, group) = (SpanKind::AllReduce, Some(Stream(2)), Some(Group(5)));
    let collective = Span { kind, name: reduce, stream, group, sequence: Some(Sequence(9)), ..deepest };
    assert_eq!(timeless(find(SpanKind::AllReduce)), collective);
    assert_eq!(find(SpanKind::Copy), Span::new(SpanKind::Copy, matmul, Nanos(123), Nanos(45)));

    // Each annotation holds the ones inside it, and all lie in the time of the test.
    let nesting = [SpanKind::Step, SpanKind::MicroBatch, SpanKind::Phase, SpanKind::Layer, SpanKind::Kernel];
    let mut outer = (began, ended);
    for kind in nesting {
        let inner = find(kind).interval();
        assert!(outer.0 <= inner.0 && inner.1 <= outer.1, "{kind}: {inner:?} in {outer:?}");
        outer = inner;
    }
    assert_eq!(find(SpanKind::Step).micro_batch, None);

    let memory: Vec<_> = data.memory.rows().map(|event| (event.op, event.address, event.bytes, event.layer)).collect();
    let (alloc, free) = (MemoryOperation::Alloc, MemoryOperation::Free);
    assert_eq!(memory, [(alloc, 0xa0, Some(512), Some(Layer(3))), (free, 0xa0, None, None)]);
    let counter = |name: &str| {
        let mut samples = data.counters.rows().filter(|sample| data.names.counter(sample.counter) == Some(name));
        samples.next_back().map(|sample| sample.value)
    };
    assert_eq!(counter("loss"), Some(1.5));
    assert_eq!(counter("my own"), Some(2.5));
    assert_eq!(counter("recorder.dropped_events"), Some(0.0));
    // Five annotations' worth of spans and a copy, two memory events, two counters.
    assert_eq!(counter("recorder.recorded_events"), Some(11.0));
    assert_eq!(data.names.get(matmul), Some("matmul"));
}

/// Every thread numbers its spans; what is there and what was dropped must add up.
fn record_on_64_threads(settings: Settings, each: u64) -> (u64, Loss, RankData) {
    let recording = Recording::start(settings);
    let recorder = &recording.recorder;
    let name = recorder.name("kernel");
    thread::scope(|scope| {
        for thread in 0..64 {
            scope.spawn(move || {
                for index in 0..each {
                    let number = thread * each + index;
                    let span = recorder.span(SpanKind::Kernel, name).stream(Stream(thread as u32));
                    drop(span.correlation(Correlation(number)));
                }
            });
        }
    });
    let (data, loss) = recording.finish();
    let mut numbers = data.spans.correlation.numbers().to_vec();
    assert!(data.spans.rows().all(|span| span.correlation.unwrap().0 / each == u64::from(span.stream.unwrap().0)));
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), data.spans.len(), "no span is there twice");
    (64 * each, loss, data)
}

#[test]
fn sixty_four_threads_at_once_lose_nothing_that_fits() {
    // No more than the queues can grow to hold together, so nothing depends on the writer's pace.
    let (recorded, loss, data) = record_on_64_threads(Settings { queue_bytes: 64 << 20, ..Settings::default() }, 1000);
    assert_eq!(data.spans.len() as u64, recorded);
    assert!(loss.is_none());
}

#[test]
fn sixty_four_threads_at_once_count_what_does_not_fit() {
    let settings = Settings { queue_bytes: 256 << 10, ..Settings::default() };
    let (recorded, loss, data) = record_on_64_threads(settings, 20_000);
    assert_eq!(data.spans.len() as u64 + loss.dropped_events, recorded);
    assert!(loss.dropped_events > 0, "so little memory cannot hold so much");
    assert!(!data.spans.is_empty());
}

#[test]
fn many_threads_that_stay_all_get_a_word_in() {
    let recording = Recording::start(Settings::default());
    let recorder = &recording.recorder;
    let name = recorder.name("kernel");
    let all_there = std::sync::Barrier::new(512);
    thread::scope(|scope| {
        for _ in 0..512 {
            scope.spawn(|| {
                all_there.wait();
                (0..50).for_each(|_| drop(recorder.span(SpanKind::Kernel, name)));
                all_there.wait();
            });
        }
    });
    let (data, loss) = recording.finish();
    assert_eq!((data.spans.len(), loss), (512 * 50, Loss::default()));
}

#[test]
fn a_burst_of_one_thread_fits() {
    let recording = Recording::start(Settings::default());
    let name = recording.recorder.name("kernel");
    for number in 0..50_000 {
        recording.recorder.record(Span::new(SpanKind::Kernel, name, Nanos(number), Nanos(1)));
    }
    let (data, loss) = recording.finish();
    assert!(loss.is_none());
    assert!(data.spans.start_ns.numbers().iter().copied().eq(0..50_000), "in the order in which they were recorded");
}

#[test]
fn annotations_may_be_closed_in_any_order() {
    let recording = Recording::start(Settings::default());
    let recorder = &recording.recorder;
    let name = recorder.name("kernel");
    // The way a trainer keeps its step in a field: the new one is opened before the old one is closed.
    let mut current = None;
    for step in 0..4 {
        drop(current.replace(recorder.step(Step(step))));
        drop(recorder.span(SpanKind::Kernel, name));
    }
    drop(current);
    let (step, phase) = (recorder.step(Step(100)), recorder.phase(Phase::Forward));
    drop(step);
    assert_eq!(recorder.context(), Context { phase: Some(Phase::Forward), ..Context::default() });
    drop(phase);
    assert_eq!(recorder.context(), Context::default());
    let (data, _) = recording.finish();
    let steps = |kind: SpanKind| {
        let spans = data.spans.rows().filter(move |span| span.kind == kind);
        spans.map(|span| span.step.map(|step| step.0)).collect::<Vec<_>>()
    };
    assert_eq!(steps(SpanKind::Kernel), [Some(0), Some(1), Some(2), Some(3)]);
    assert_eq!(steps(SpanKind::Step), [Some(0), Some(1), Some(2), Some(3), Some(100)]);
    let threads = data.spans.rows().filter(|span| span.kind.is_annotation()).map(|span| span.stream);
    assert!(threads.collect::<Vec<_>>().iter().all(|thread| *thread == Some(Stream(0))));
}

#[test]
fn names_by_the_ten_thousand_are_all_written() {
    let recording = Recording::start(Settings::default());
    let ids: Vec<_> = (0..65_000).map(|number| recording.recorder.name(&format!("kernel {number}"))).collect();
    let (data, loss) = recording.finish();
    assert!(loss.is_none());
    assert!(ids.iter().enumerate().all(|(number, id)| data.names.get(*id) == Some(&format!("kernel {number}"))));
}

#[test]
fn a_thread_that_ends_gives_its_queue_back() {
    let settings = Settings { queue_bytes: 2 << 20, ..Settings::default() };
    let recording = Recording::start(settings);
    let name = recording.recorder.name("kernel");
    for _ in 0..500 {
        thread::scope(|scope| {
            scope.spawn(|| drop(recording.recorder.span(SpanKind::Kernel, name)));
        });
        thread::sleep(Duration::from_micros(200));
    }
    let (data, loss) = recording.finish();
    assert_eq!(data.spans.len() as u64 + loss.dropped_events, 500);
    // One queue of a few hundred events each would take ten times the memory there is.
    assert!(data.spans.len() > 400, "{} of 500", data.spans.len());
}

#[test]
fn what_a_thread_leaves_open_ends_with_it() {
    struct AtEnd(Recorder);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            drop(self.0.span(SpanKind::Kernel, self.0.name("kernel")));
        }
    }
    thread_local! {
        // One is there before the thread's queue, and one after it: whichever goes first.
        static BEFORE: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
        static AFTER: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }
    let recording = Recording::start(Settings::default());
    for _ in 0..3 {
        let recorder = recording.recorder.clone();
        let thread = thread::spawn(move || {
            BEFORE.set(Some(AtEnd(recorder.clone())));
            drop(recorder.span(SpanKind::Kernel, recorder.name("kernel")));
            AFTER.set(Some(AtEnd(recorder)));
        });
        thread.join().unwrap();
    }
    let (data, loss) = recording.finish();
    assert_eq!((data.spans.len(), loss.dropped_events), (9, 0));
}

#[test]
fn a_follower_sees_what_was_recorded_before_it_ends() {
    let recording = Recording::start(Settings::default());
    let run = Run::open(&recording.path).unwrap();
    assert_eq!(run.state(), State::Recording);
    let mut follower = run.ranks[0].follow().unwrap();
    let mut data = RankData::default();
    for round in 1..=3 {
        drop(recording.recorder.span(SpanKind::Kernel, recording.recorder.name("kernel")));
        let began = Instant::now();
        while of_the_test(&data).len() < round {
            assert!(began.elapsed() < Duration::from_secs(30), "round {round} never came");
            follower.poll(&mut data).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(data.names.get(of_the_test(&data).name.get(round - 1)), Some("kernel"));
    }
    recording.finish();
}

#[test]
fn a_removed_directory_ends_the_recording_and_not_the_program() {
    let recording = Recording::start(Settings::default());
    let recorder = recording.recorder.clone();
    fs::remove_dir_all(&recording.path).unwrap();
    let name = recorder.name("kernel");
    drop(recorder.span(SpanKind::Kernel, name));
    let error = recording.recorder.finish().unwrap_err();
    assert!(matches!(error, RecordError::Trace(TraceError::Vanished { .. })), "{error}");
    // A clone that is left over does nothing, quietly.
    drop(recorder.span(SpanKind::Kernel, name));
    assert_eq!(recorder.context(), Context::default());
    assert!(matches!(recorder.finish(), Err(RecordError::EndedEarly)));
}

#[test]
fn a_place_that_cannot_be_written_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let start = |path| Recorder::start(path, RankInfo::of_this_process(Rank(0))).err().map(|error| error.to_string());
    assert!(start(&file).unwrap().ends_with("is not a run directory: it is a file"));
    assert!(start(directory.path()).unwrap().ends_with("is not a run directory: it has no run.json"));
}

#[test]
fn a_rank_is_recorded_once() {
    let recording = Recording::start(Settings::default());
    let Err(error) = Recorder::start(&recording.path, RankInfo::of_this_process(Rank(0))) else {
        panic!("a second recorder must be refused");
    };
    assert!(error.to_string().contains("already contains a recording"), "{error}");
    let other = Recorder::start(&recording.path, RankInfo::of_this_process(Rank(1))).unwrap();
    let name = other.name("kernel");
    drop(other.span(SpanKind::Kernel, name));
    other.finish().unwrap();
    let (data, _) = recording.finish();
    assert!(data.spans.is_empty(), "two recorders of one thread keep apart");
}

#[test]
fn a_disabled_recorder_does_nothing() {
    let recorder = Recorder::disabled();
    let _step = recorder.step(Step(1));
    drop(recorder.span(SpanKind::Kernel, recorder.name("kernel")));
    recorder.count(Counter::Loss, 1.0);
    assert_eq!(recorder.context(), Context::default());
    recorder.clone().finish().unwrap();
}

#[test]
fn a_later_note_replaces_one() {
    let recording = Recording::start(Settings::default());
    recording.recorder.note(CollectorNote::OtherGpus(1));
    recording.recorder.note(CollectorNote::OtherGpus(3));
    let path = recording.path.clone();
    recording.recorder.finish().unwrap();
    assert_eq!(Run::open(&path).unwrap().ranks[0].info.collector.other_gpus, Some(3));
}

#[test]
fn with_or_without_kernels_the_recording_goes_on_and_says_so() {
    let recording = Recording::start(Settings::default());
    let recorder = &recording.recorder;
    let why_not = match Activity::start(recorder) {
        Ok(activity) => {
            activity.finish();
            None
        }
        Err(unavailable) => Some(unavailable.to_string()),
    };
    let launching = recorder.launching(LaunchInfo { flops: Some(64), ..LaunchInfo::default() });
    drop(recorder.span(SpanKind::Kernel, recorder.name("matmul")));
    drop(launching);
    let path = recording.path.clone();
    recording.recorder.finish().unwrap();
    let rank = &Run::open(&path).unwrap().ranks[0];
    match (&rank.info.collector.cupti, why_not) {
        (Some(CuptiNote::Recorded { .. }), None) => {}
        (Some(CuptiNote::NotRecorded { why }), Some(why_not)) => assert_eq!(*why, why_not),
        (noted, why_not) => panic!("{noted:?}, {why_not:?}"),
    }
    assert_eq!(of_the_test(&rank.read(Window::ALL).unwrap().0).len(), 1);
}

#[test]
fn a_pause_leaves_out_what_happens_in_it() {
    let run = Recording::start(Settings::default());
    let names = ["before", "within", "after"].map(|name| run.recorder.name(name));
    let record = |name| drop(run.recorder.span(SpanKind::Kernel, name));
    record(names[0]);
    run.recorder.pause();
    record(names[1]);
    run.recorder.resume();
    record(names[2]);
    let (data, _) = run.finish();
    let recorded: Vec<_> = data.spans.rows().map(|span| span.name).collect();
    assert_eq!(recorded, [names[0], names[2]]);
}

#[test]
fn groups_that_ranks_tell_of_are_those_of_the_run() {
    let first = Recording::start(Settings::default());
    let second = Recorder::start(&first.path, RankInfo::of_this_process(Rank(1))).unwrap();
    let member = |group, index| Membership {
        group: Group::hashed(group),
        index: Some(index),
        size: 2,
        name: None,
        ranks: Vec::new(),
    };
    first.recorder.join_group(member(5, 1));
    second.join_group(member(5, 0));
    second.join_group(member(6, 0));
    second.finish().unwrap();
    first.recorder.finish().unwrap();
    let run = Run::open(&first.path).unwrap();
    let [GroupInfo { group, ranks, .. }] = run.info.groups.as_slice() else { panic!("{:?}", run.info.groups) };
    assert_eq!((*group, ranks.as_slice()), (Group::hashed(5), [Rank(1), Rank(0)].as_slice()));
    assert_eq!(run.ranks[1].info.groups.len(), 2, "the other member of one is not there");
}
