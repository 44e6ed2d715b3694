//! What is recorded of a GPU, against CUDA's own events. Without a GPU these say that they were skipped.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    sync::{Mutex, MutexGuard},
};

use cudarc::{
    cupti::sys as cupti,
    driver::{
        CudaEvent,
        sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode},
    },
};
use stepscope_collector::{
    Recorder,
    libraries::{self, Library},
};
use stepscope_plan::{ModelShape, ParallelLayout};
use stepscope_traces::{CuptiNote, MemoryTimes, Rank, RankInfo, Run, RunInfo, Span, SpanKind, Step, Window};

use super::{
    cuda::{CudaTraining, look_for_gpu},
    watch::Watch,
};
use crate::{
    backend::{
        AdamW, AttentionTensors, Backend, DType, Heads, OptimizerTensors, Product, Stream, Tensor,
        cuda::{CudaBackend, Device},
    },
    config::TrainConfig,
    lock::lock,
    skipped::skipped,
};

/// Long ones: the host takes a tenth of a millisecond from the first event to the first launch.
const STEPS: u64 = 8;

/// The GPU, for one test at a time: a profiler has a process to itself.
fn gpu() -> Option<MutexGuard<'static, ()>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    look_for_gpu(1).inspect_err(|why| skipped("gpu", why)).ok()?;
    Some(lock(&ONE_AT_A_TIME))
}

/// A mark in the compute stream, with the device's own time.
fn mark(device: &Device) -> CudaEvent {
    device.stream(Stream::Compute).record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).unwrap()
}

/// Whether it is neither a frame of work nor a call of the host.
fn is_on_device(span: &Span) -> bool {
    !span.kind.is_annotation() && span.kind != SpanKind::Launch
}

fn nanoseconds((from, to): &(CudaEvent, CudaEvent)) -> f64 {
    1e6 * f64::from(from.elapsed_ms(to).unwrap())
}

#[test]
fn a_step_takes_as_long_as_events_around_it_say() {
    let Some(_gpu) = gpu() else { return };
    let model = ModelShape {
        hidden: 2048,
        heads: 16,
        kv_heads: 4,
        head_dim: 128,
        ffn: 7168,
        vocabulary: 32000,
        ..ModelShape::preset("tiny").unwrap()
    };
    let layout = ParallelLayout { micro_batch: 4, sequence_length: 2048, ..ParallelLayout::default() };
    let config = TrainConfig { steps: STEPS, ..TrainConfig::new(model, layout) };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("events").create(&path).unwrap();
    let mut rank = CudaTraining::prepare(&config, None).unwrap().start(Some(&path)).unwrap();
    let between: Vec<(CudaEvent, CudaEvent)> = (0..STEPS)
        .map(|_| {
            let before = mark(rank.backend().device());
            rank.step().unwrap();
            (before, mark(rank.backend().device()))
        })
        .collect();
    rank.unwatch().unwrap();
    let by_events: Vec<f64> = between.iter().map(nanoseconds).collect();
    drop(between);
    rank.finish().unwrap();

    let (data, loss) = Run::open(&path).unwrap().ranks[0].read(Window::ALL).unwrap();
    assert!(loss.is_none(), "{loss:?}");
    let mut windows = BTreeMap::<Step, (i64, i64)>::new();
    // The host's calls, too: events are recorded before the first of them.
    let is_work = |span: &Span| !span.kind.is_annotation();
    for span in data.spans.rows().filter(is_work) {
        let Some(step) = span.step else { continue };
        let (start, end) = span.interval();
        let window = windows.entry(step).or_insert((start.0, end.0));
        *window = (window.0.min(start.0), window.1.max(end.0));
    }
    assert_eq!(windows.len() as u64, STEPS);
    // The first one loads kernels between the event and the work.
    for ((step, (start, end)), events) in windows.into_iter().zip(by_events).skip(1) {
        let recorded = (end - start) as f64;
        eprintln!(
            "step {step}: recorded {:.3} ms, by events {:.3} ms, {:+.3}%",
            recorded / 1e6,
            events / 1e6,
            100.0 * (recorded / events - 1.0)
        );
        assert!((recorded / events - 1.0).abs() < 5e-3, "{recorded} {events}");
    }
}

const REPEATS: usize = 40;

/// The largest operations of a training step, by name, with how many kernels each launches where that is ours to say.
type Operation<'a> = (&'static str, Option<usize>, Box<dyn Fn() + 'a>);

/// Tensors of a layer of 1.1 B parameters, and what goes through it.
struct Layer {
    tokens: Tensor,
    wide: Tensor,
    weight: Tensor,
    gradient: Tensor,
    gate_up: Tensor,
    d_gate_up: Tensor,
    state: [Tensor; 3],
    qkv: Tensor,
    lse: Tensor,
}

/// Many, so that a kernel takes long beside the pause to the next one.
const TOKENS: usize = 32768;
const HIDDEN: usize = 2048;
const FFN: usize = 7168;
/// Parameters that are updated at once.
const STATE: usize = 4 * HIDDEN * FFN;
const HEADS: Heads = Heads { batch: 16, sequence: 2048, heads: 16, kv_heads: 16, head_dim: 128, causal: true };

impl Layer {
    fn new(backend: &CudaBackend) -> Layer {
        let take = |elements: usize, dtype| {
            let tensor = backend.allocate(elements, dtype, stepscope_traces::MemoryCategory::Other);
            let some = elements.min(1 << 20);
            let values = (0..some).map(|index| ((index * 2_654_435_761) % 1024) as f32 / 1024.0 - 0.5);
            backend.upload(values.collect(), &tensor.slice(0..some));
            for start in (some..elements).step_by(some) {
                let part = start..(start + some).min(elements);
                backend.copy(&tensor.slice(0..part.len()), &tensor.slice(part));
            }
            tensor
        };
        let state = |_| take(STATE, DType::F32);
        Layer {
            tokens: take(TOKENS * HIDDEN, DType::Bf16),
            wide: take(TOKENS * FFN, DType::Bf16),
            weight: take(STATE, DType::Bf16),
            gradient: take(STATE, DType::Bf16),
            gate_up: take(TOKENS * 2 * FFN, DType::Bf16),
            d_gate_up: take(TOKENS * 2 * FFN, DType::Bf16),
            state: [0, 1, 2].map(state),
            qkv: take(TOKENS * 3 * HIDDEN, DType::Bf16),
            lse: take(TOKENS * HEADS.heads, DType::F32),
        }
    }

    fn operations<'a>(&'a self, backend: &'a CudaBackend) -> Vec<Operation<'a>> {
        let forward = Product { transpose_b: true, ..Product::plain(TOKENS, FFN, HIDDEN) };
        let weight = Product { transpose_a: true, accumulate: true, ..Product::plain(HIDDEN, FFN, TOKENS) };
        let adamw = AdamW {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip: None,
            step: 1,
        };
        vec![
            (
                "project",
                None,
                Box::new(move || {
                    backend.matmul(forward, &self.tokens, &self.weight.slice(0..HIDDEN * FFN), &self.wide)
                }),
            ),
            (
                "weight gradient",
                None,
                Box::new(move || {
                    backend.matmul(weight, &self.tokens, &self.wide, &self.gradient.slice(0..HIDDEN * FFN))
                }),
            ),
            ("swiglu", Some(1), Box::new(|| backend.swiglu(&self.gate_up, &self.wide, FFN))),
            (
                "swiglu backward",
                Some(1),
                Box::new(|| backend.swiglu_backward(&self.gate_up, &self.wide, &self.d_gate_up, FFN)),
            ),
            ("attention", None, Box::new(|| backend.attention(HEADS, &self.qkv, &self.tokens, &self.lse))),
            (
                "attention backward",
                None,
                Box::new(|| {
                    let of = AttentionTensors { qkv: &self.qkv, out: &self.tokens, lse: &self.lse };
                    let d_qkv = self.gate_up.slice(0..TOKENS * 3 * HIDDEN);
                    backend.attention_backward(HEADS, of, &self.d_gate_up.slice(0..TOKENS * HIDDEN), &d_qkv);
                }),
            ),
            (
                "adamw",
                Some(1),
                Box::new(move || {
                    let [master, first_moment, second_moment] = self.state.each_ref();
                    let (gradients, parameters) = (&self.gradient, &self.weight);
                    let tensors = OptimizerTensors {
                        gradients,
                        parameters,
                        master: Some(master),
                        first_moment,
                        second_moment,
                        squares: &first_moment.slice(0..1),
                    };
                    backend.adamw(adamw, tensors);
                }),
            ),
        ]
    }
}

#[test]
fn kernels_take_as_long_as_events_around_them_say() {
    let Some(_gpu) = gpu() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("kernels").create(&path).unwrap();
    let recorder = Recorder::start(&path, RankInfo::of_this_process(Rank(0))).unwrap();
    let device = Device::open(0).unwrap();
    let watch = Watch::start(&recorder, &device);
    let backend = CudaBackend::start(device, recorder.clone(), false).unwrap();
    let layer = Layer::new(&backend);
    let operations = layer.operations(&backend);
    let by_events: Vec<f64> = operations
        .iter()
        .enumerate()
        .map(|(index, (.., run))| {
            (0..3).for_each(|_| run());
            let _step = recorder.step(Step(index as i32));
            let before = mark(backend.device());
            (0..REPEATS).for_each(|_| run());
            let between = (before, mark(backend.device()));
            backend.synchronize().unwrap();
            nanoseconds(&between)
        })
        .collect();
    watch.finish();
    let known: Vec<_> = operations.iter().map(|(name, kernels, _)| (*name, *kernels)).collect();
    drop(operations);
    drop((layer, backend));
    recorder.finish().unwrap();

    let (data, loss) = Run::open(&path).unwrap().ranks[0].read(Window::ALL).unwrap();
    assert!(loss.is_none(), "{loss:?}");
    for (index, ((name, kernels), events)) in known.into_iter().zip(by_events).enumerate() {
        let of_operation = |span: &Span| span.step == Some(Step(index as i32)) && is_on_device(span);
        let spans: Vec<Span> = data.spans.rows().filter(of_operation).collect();
        let recorded: i64 = spans.iter().map(|span| span.duration_ns.0).sum();
        let change = recorded as f64 / events - 1.0;
        let each = recorded as f64 / 1e3 / REPEATS as f64;
        eprintln!(
            "{name}: {} kernels, {each:.2} µs each time, {:+.2}% of what events say",
            spans.len(),
            100.0 * change
        );
        assert!(change.abs() < 2e-2, "{name}: {recorded} {events}");
        assert!(spans.len().is_multiple_of(REPEATS), "{name}: {} kernels", spans.len());
        assert!(kernels.is_none_or(|kernels| spans.len() == kernels * REPEATS), "{name}: {} kernels", spans.len());
    }
}

#[test]
fn kernels_of_a_graph_are_those_of_the_step_that_launches_it() {
    let Some(_gpu) = gpu() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("graph").create(&path).unwrap();
    let recorder = Recorder::start(&path, RankInfo::of_this_process(Rank(0))).unwrap();
    let device = Device::open(0).unwrap();
    let watch = Watch::start(&recorder, &device);
    let backend = CudaBackend::start(device, recorder.clone(), false).unwrap();
    let take = |elements| backend.allocate(elements, DType::Bf16, stepscope_traces::MemoryCategory::Other);
    let (gate_up, product) = (take(2 << 20), take(1 << 20));
    backend.zero(&gate_up);
    let run = || backend.swiglu(&gate_up, &product, 1024);
    // Kernels are compiled before a graph is made of them.
    run();
    backend.synchronize().unwrap();
    let stream = backend.device().stream(Stream::Compute);
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    (0..3).for_each(|_| run());
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().unwrap();
    for step in 0..5 {
        let _step = recorder.step(Step(step));
        graph.launch().unwrap();
    }
    backend.synchronize().unwrap();
    watch.finish();
    drop((graph, gate_up, product));
    drop(backend);
    recorder.finish().unwrap();
    let (data, loss) = Run::open(&path).unwrap().ranks[0].read(Window::ALL).unwrap();
    assert!(loss.is_none(), "{loss:?}");
    for step in 0..5 {
        let of_step = |span: &Span| span.step == Some(Step(step)) && span.kind == SpanKind::Kernel;
        assert_eq!(data.spans.rows().filter(of_step).count(), 3, "step {step}");
    }
}

#[test]
#[allow(unsafe_code)]
fn where_another_profiler_is_kernels_are_left_out_and_that_is_said() {
    let Some(_gpu) = gpu() else { return };
    if let Err(why) = libraries::open(Library::Cupti) {
        skipped("cuda-libraries", &why);
        return;
    }
    unsafe extern "C" fn nothing(_: *mut c_void, _: cupti::CUpti_CallbackDomain, _: u32, _: *const c_void) {}
    let mut other = std::ptr::null_mut();
    // SAFETY: the callback does nothing, and goes before the test does.
    let subscribed = unsafe { cupti::cuptiSubscribe(&mut other, Some(nothing), std::ptr::null_mut()) };
    assert_eq!(subscribed, cupti::CUptiResult::CUPTI_SUCCESS);
    let layout = ParallelLayout { micro_batch: 1, sequence_length: 32, ..ParallelLayout::default() };
    let config = TrainConfig { steps: 2, ..TrainConfig::new(ModelShape::preset("tiny").unwrap(), layout) };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("without").create(&path).unwrap();
    CudaTraining::prepare(&config, None).unwrap().run(Some(&path), &|_| {}).unwrap();
    // SAFETY: the subscriber that was made here, which nobody else lets go of.
    unsafe { cupti::cuptiUnsubscribe(other) };
    let run = Run::open(&path).unwrap();
    let notes = &run.ranks[0].info.collector;
    let Some(CuptiNote::NotRecorded { why }) = &notes.cupti else { panic!("{:?}", notes.cupti) };
    assert!(why.contains("another profiler"), "{why}");
    assert!(matches!(notes.memory_times, Some(MemoryTimes::Host { .. })));
    let (data, _) = run.ranks[0].read(Window::ALL).unwrap();
    assert_eq!(data.spans.rows().filter(|span| span.kind == SpanKind::Step).count(), 2);
    assert!(!data.memory.is_empty() && data.spans.rows().all(|span| span.kind != SpanKind::Kernel));
}
