//! What is recorded of a GPU, against CUDA's own events. Without a GPU these say that they were skipped.

use std::collections::BTreeMap;

use cudarc::driver::{CudaEvent, sys::CUevent_flags};
use stepscope_collector::Recorder;
use stepscope_plan::{ModelShape, ParallelLayout};
use stepscope_traces::{Rank, RankInfo, Run, RunInfo, Span, Step, Window};

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
};

/// Long ones: the host takes a tenth of a millisecond from the first event to the first launch.
const STEPS: u64 = 8;

fn has_gpu() -> bool {
    look_for_gpu().inspect_err(|why| eprintln!("SKIPPED, nothing was tested on a GPU: {why}")).is_ok()
}

/// A mark in the compute stream, with the device's own time.
fn mark(device: &Device) -> CudaEvent {
    device.stream(Stream::Compute).record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).unwrap()
}

fn nanoseconds((from, to): &(CudaEvent, CudaEvent)) -> f64 {
    1e6 * f64::from(from.elapsed_ms(to).unwrap())
}

#[test]
fn a_step_takes_as_long_as_events_around_it_say() {
    if !has_gpu() {
        return;
    }
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
    let mut rank = CudaTraining::prepare(&config).unwrap().start(Some(&path)).unwrap();
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
const HEADS: Heads = Heads { batch: 16, sequence: 2048, heads: 16, kv_heads: 16, head_dim: 128 };

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
        let product = |rows, columns, inner| Product {
            rows,
            columns,
            inner,
            transpose_a: false,
            transpose_b: false,
            accumulate: false,
        };
        let forward = Product { transpose_b: true, ..product(TOKENS, FFN, HIDDEN) };
        let weight = Product { transpose_a: true, accumulate: true, ..product(HIDDEN, FFN, TOKENS) };
        let adamw = AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1, step: 1 };
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
                    let tensors =
                        OptimizerTensors { gradients, parameters, master: Some(master), first_moment, second_moment };
                    backend.adamw(adamw, tensors);
                }),
            ),
        ]
    }
}

#[test]
fn kernels_take_as_long_as_events_around_them_say() {
    if !has_gpu() {
        return;
    }
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
        let of_operation = |span: &Span| span.step == Some(Step(index as i32)) && !span.kind.is_annotation();
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
