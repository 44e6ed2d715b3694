//! cuDNN's attention against the CPU's, where there is a GPU and cuDNN.

use std::{sync::Arc, time::Instant};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DeviceRepr, sys::CUevent_flags};
use half::bf16;
use stepscope_collector::libraries;

use super::{
    AttentionArrays, FusedAttention, Order, Workspace, arguments::parts, graph::Argument, library::Version,
    not_to_be_trusted,
};
use crate::{
    backend::{
        DType, Heads,
        cpu::kernels::{Scratch, attention, attention_backward},
        cuda::array::Array,
    },
    skipped::skipped,
};

/// The largest relative error of a whole tensor: results are rounded to eight bits, and so are probabilities.
const TOLERANCE: f64 = 1e-2;

const SHAPES: [Heads; 7] = [
    shape(2, 256, 4, 4, 64),
    shape(2, 200, 8, 2, 64),
    shape(1, 200, 8, 2, 128),
    shape(2, 384, 4, 1, 128),
    shape(1, 1000, 2, 2, 128),
    shape(3, 65, 2, 1, 32),
    shape(1, 128, 6, 2, 72),
];

const fn shape(batch: usize, sequence: usize, heads: usize, kv_heads: usize, head_dim: usize) -> Heads {
    Heads { batch, sequence, heads, kv_heads, head_dim, causal: true }
}

struct Gpu {
    stream: Arc<CudaStream>,
    attention: FusedAttention,
}

/// A GPU with cuDNN; where there is none, the test ends with a word about it.
fn gpu(order: Order) -> Option<Gpu> {
    let open = || -> Result<Gpu, String> {
        libraries::open(libraries::Library::Cuda).map_err(|error| error.to_string())?;
        let context = CudaContext::new(0).map_err(|error| format!("{error:?}"))?;
        let attention = FusedAttention::open(order).map_err(|error| error.to_string())?;
        Ok(Gpu { stream: context.new_stream().map_err(|error| format!("{error:?}"))?, attention })
    };
    open().inspect_err(|why| skipped("gpu", why)).ok()
}

/// What a test passes, on the device.
struct Tensors {
    qkv: CudaSlice<u16>,
    out: CudaSlice<u16>,
    lse: CudaSlice<f32>,
    d_out: CudaSlice<u16>,
    d_qkv: CudaSlice<u16>,
    workspace: CudaSlice<u32>,
}

#[derive(Debug, PartialEq)]
struct Results {
    out: Vec<u16>,
    lse: Vec<u32>,
    d_qkv: Vec<u16>,
}

impl Gpu {
    /// Uploads the inputs; everything else is not a number.
    fn upload(&self, heads: Heads, qkv: &[bf16], d_out: &[bf16], workspace: Workspace) -> Tensors {
        let bits = |values: &[bf16]| -> Vec<u16> { values.iter().map(|value| value.to_bits()).collect() };
        let words = workspace.forward.max(workspace.backward).div_ceil(4).max(1);
        Tensors {
            qkv: self.stream.clone_htod(&bits(qkv)).unwrap(),
            out: self.stream.clone_htod(&vec![bf16::NAN.to_bits(); d_out.len()]).unwrap(),
            lse: self.stream.clone_htod(&vec![f32::NAN; heads.tokens() * heads.heads]).unwrap(),
            d_out: self.stream.clone_htod(&bits(d_out)).unwrap(),
            d_qkv: self.stream.clone_htod(&vec![bf16::NAN.to_bits(); qkv.len()]).unwrap(),
            workspace: self.stream.clone_htod(&vec![u32::MAX; words]).unwrap(),
        }
    }

    fn array<T: DeviceRepr>(&self, slice: &CudaSlice<T>, dtype: DType) -> Array {
        Array { address: slice.device_ptr(&self.stream).0, elements: slice.len(), dtype }
    }

    fn arrays(&self, tensors: &Tensors) -> AttentionArrays {
        AttentionArrays {
            qkv: self.array(&tensors.qkv, DType::Bf16),
            out: self.array(&tensors.out, DType::Bf16),
            lse: self.array(&tensors.lse, DType::F32),
        }
    }

    fn forward(&self, heads: Heads, tensors: &Tensors) {
        let workspace = self.array(&tensors.workspace, DType::U32);
        self.attention.forward(self.stream.cu_stream(), heads, self.arrays(tensors), workspace).unwrap();
    }

    fn backward(&self, heads: Heads, tensors: &Tensors) {
        let workspace = self.array(&tensors.workspace, DType::U32);
        let gradients = (self.array(&tensors.d_out, DType::Bf16), self.array(&tensors.d_qkv, DType::Bf16));
        self.attention.backward(self.stream.cu_stream(), heads, self.arrays(tensors), gradients, workspace).unwrap();
    }

    fn run(&self, heads: Heads, qkv: &[bf16], d_out: &[bf16], workspace: Workspace) -> Results {
        let tensors = self.upload(heads, qkv, d_out, workspace);
        self.forward(heads, &tensors);
        self.backward(heads, &tensors);
        self.stream.synchronize().unwrap();
        let lse = self.stream.clone_dtoh(&tensors.lse).unwrap();
        Results {
            out: self.stream.clone_dtoh(&tensors.out).unwrap(),
            lse: lse.iter().map(|value| value.to_bits()).collect(),
            d_qkv: self.stream.clone_dtoh(&tensors.d_qkv).unwrap(),
        }
    }

    /// Milliseconds of one of many runs.
    fn time(&self, work: impl Fn()) -> f64 {
        const RUNS: u32 = 50;
        (0..5).for_each(|_| work());
        let event = || self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).unwrap();
        let begin = event();
        (0..RUNS).for_each(|_| work());
        f64::from(begin.elapsed_ms(&event()).unwrap()) / f64::from(RUNS)
    }
}

fn random(seed: u64, count: usize, scale: f64) -> Vec<bf16> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| bf16::from_f64((random.f64() * 2.0 - 1.0) * scale)).collect()
}

/// Queries and keys long enough for scores of some size, and a gradient.
fn inputs(heads: Heads) -> (Vec<bf16>, Vec<bf16>) {
    (random(1, heads.tokens() * heads.qkv_width(), 2.0), random(2, heads.tokens() * heads.out_width(), 1.0))
}

/// What the CPU computes of the same numbers, in single precision: the output, the logarithms, the gradient.
fn expected(heads: Heads, qkv: &[bf16], d_out: &[bf16]) -> [Vec<f32>; 3] {
    let single = |values: &[bf16]| -> Vec<f32> { values.iter().map(|value| value.to_f32()).collect() };
    let (qkv, d_out) = (single(qkv), single(d_out));
    let mut out = vec![0.0; d_out.len()];
    let mut lse = vec![0.0; heads.tokens() * heads.heads];
    let mut d_qkv = vec![0.0; qkv.len()];
    let mut scratch = Scratch::default();
    attention(&heads, &qkv, &mut out, &mut lse, &mut scratch);
    attention_backward(&heads, &qkv, &out, &lse, &d_out, &mut d_qkv, &mut scratch);
    // The CPU keeps the heads of a token together.
    let at = |index: usize| {
        let (row, token) = (index / heads.sequence, index % heads.sequence);
        (row / heads.heads * heads.sequence + token) * heads.heads + row % heads.heads
    };
    let lse = (0..lse.len()).map(|index| lse[at(index)]).collect();
    [out, lse, d_qkv]
}

fn numbers(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|bits| bf16::from_bits(*bits).to_f32()).collect()
}

/// The length of the difference, relative to that of what is expected. NaN compares as wrong.
fn error(actual: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(actual.len(), expected.len());
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference = square(&mut actual.iter().zip(expected).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    (difference / square(&mut expected.iter().map(|value| f64::from(*value)))).sqrt()
}

/// The part of each row that is queries, keys or values.
fn columns(heads: Heads, qkv: &[f32], part: usize) -> Vec<f32> {
    let first = [0, heads.heads, heads.heads + heads.kv_heads, heads.heads + 2 * heads.kv_heads];
    let range = first[part] * heads.head_dim..first[part + 1] * heads.head_dim;
    qkv.chunks(heads.qkv_width()).flat_map(|row| row[range.clone()].to_vec()).collect()
}

fn check(order: Order) {
    let Some(gpu) = gpu(order) else { return };
    for heads in SHAPES.into_iter().flat_map(|heads| [heads, Heads { causal: false, ..heads }]) {
        let workspace = match gpu.attention.prepare(heads, DType::Bf16) {
            Ok(workspace) => workspace,
            Err(why) => {
                skipped("gpu", &format!("{heads:?}: {why}"));
                continue;
            }
        };
        let (qkv, d_out) = inputs(heads);
        let [out, lse, d_qkv] = expected(heads, &qkv, &d_out);
        let results = gpu.run(heads, &qkv, &d_out, workspace);
        let actual_lse: Vec<f32> = results.lse.iter().map(|bits| f32::from_bits(*bits)).collect();
        let actual_d_qkv = numbers(&results.d_qkv);
        let gradient = |part| error(&columns(heads, &actual_d_qkv, part), &columns(heads, &d_qkv, part));
        let errors = [
            ("out", error(&numbers(&results.out), &out)),
            ("lse", error(&actual_lse, &lse)),
            ("d_queries", gradient(0)),
            ("d_keys", gradient(1)),
            ("d_values", gradient(2)),
        ];
        println!("{heads:?} {order:?} {workspace:?} {errors:.5?}");
        assert!(errors.iter().all(|(_, error)| *error <= TOLERANCE), "{heads:?}: {errors:?}");
    }
}

#[test]
fn queries_keys_and_values_lie_beside_each_other() {
    let heads = shape(2, 3, 4, 2, 8);
    let qkv = Array { address: 4096, elements: 2 * 3 * (4 + 2 + 2) * 8, dtype: DType::Bf16 };
    let parts = |qkv| parts(heads, qkv, [Argument::Query, Argument::Key, Argument::Value]);
    let addresses = parts(qkv).unwrap().map(|(_, address)| address);
    assert_eq!(addresses, [4096, 4096 + 4 * 8 * 2, 4096 + (4 + 2) * 8 * 2]);
    parts(Array { elements: qkv.elements - 1, ..qkv }).unwrap_err();
    parts(Array { dtype: DType::F32, ..qkv }).unwrap_err();
}

#[test]
fn what_older_versions_get_wrong_is_not_asked_of_them() {
    let trusted = |version, sequence| not_to_be_trusted(Version(version), shape(1, sequence, 2, 1, 64)).is_none();
    assert!(trusted(91400, 256) && trusted(91900, 200));
    assert!(!trusted(91400, 200) && !trusted(91900, 1));
    assert_eq!(Version(91002).to_string(), "9.10.2");
}

#[test]
fn results_are_those_of_the_cpu() {
    check(Order::Fixed);
}

#[test]
fn results_in_any_order_are_those_of_the_cpu() {
    check(Order::Any);
}

#[test]
fn two_runs_are_bit_identical() {
    let Some(gpu) = gpu(Order::Fixed) else { return };
    for heads in [shape(2, 1024, 8, 8, 128), shape(2, 1024, 8, 2, 128), shape(1, 640, 8, 2, 64)] {
        let workspace = gpu.attention.prepare(heads, DType::Bf16).unwrap();
        let (qkv, d_out) = inputs(heads);
        let first = gpu.run(heads, &qkv, &d_out, workspace);
        for _ in 0..5 {
            assert!(first == gpu.run(heads, &qkv, &d_out, workspace), "{heads:?}");
        }
    }
}

#[test]
fn what_it_cannot_do_is_refused_with_a_reason() {
    let Some(gpu) = gpu(Order::Fixed) else { return };
    let heads = shape(1, 128, 2, 1, 64);
    let why = gpu.attention.prepare(heads, DType::F32).unwrap_err().to_string();
    assert!(why.contains("bf16"), "{why}");
    for heads in [shape(1, 128, 2, 1, 20), shape(1, 128, 2, 1, 1024), shape(2, 1, 2, 1, 64)] {
        let why = gpu.attention.prepare(heads, DType::Bf16).unwrap_err().to_string();
        println!("{heads:?}: {why}");
        assert_eq!(why, gpu.attention.prepare(heads, DType::Bf16).unwrap_err().to_string());
    }
    let nothing = Array { address: 0, elements: 0, dtype: DType::Bf16 };
    let arrays = AttentionArrays { qkv: nothing, out: nothing, lse: nothing };
    gpu.attention.forward(gpu.stream.cu_stream(), heads, arrays, nothing).unwrap_err();
}

#[test]
#[ignore = "measures"]
fn speed() {
    for order in [Order::Any, Order::Fixed] {
        let Some(gpu) = gpu(order) else { return };
        for heads in [shape(4, 2048, 16, 16, 128), shape(4, 2048, 16, 4, 128), shape(1, 8192, 16, 4, 128)] {
            let begin = Instant::now();
            let workspace = gpu.attention.prepare(heads, DType::Bf16).unwrap();
            let prepared = begin.elapsed();
            let (qkv, d_out) = inputs(heads);
            let tensors = gpu.upload(heads, &qkv, &d_out, workspace);
            let forward = gpu.time(|| gpu.forward(heads, &tensors));
            let backward = gpu.time(|| gpu.backward(heads, &tensors));
            let begin = Instant::now();
            (0..100).for_each(|_| gpu.forward(heads, &tensors));
            let host = begin.elapsed() / 100;
            gpu.stream.synchronize().unwrap();
            // Two products of the lower triangle forward, five backward.
            let flops = 2.0 * (heads.tokens() * heads.sequence * heads.out_width()) as f64;
            println!(
                "{heads:?} {order:?}: forward {forward:.4} ms, {:.0} TFLOP/s; backward {backward:.4} ms, {:.0} TFLOP/s; \
                 {workspace:?} bytes; prepared in {prepared:.1?}; a call takes the host {host:.1?}",
                flops / forward / 1e9,
                2.5 * flops / backward / 1e9,
            );
        }
    }
}
