//! How fast the kernels are, at the sizes of a model of about a billion parameters.

use std::time::Instant;

use half::bf16;

use super::{
    super::{super::array::AttentionArrays, OptimizerArrays, Targets},
    Buffer, Gpu, Kernels, Stored, gpu, random,
};
use crate::backend::{AdamW, Direction, Heads, LossWeights};

const TOKENS: usize = 8192;
const WIDTH: usize = 2048;
const FFN: usize = 7168;
const VOCABULARY: usize = 32_000;
const PARAMETERS: usize = 100 << 20;
const REPEATS: u32 = 20;
const WEIGHTS: LossWeights = LossWeights { scale: 1.0, z: 0.0 };

/// Seconds that work takes when it is queued again and again.
fn seconds(gpu: &Gpu, work: impl Fn()) -> f64 {
    work();
    gpu.synchronize();
    let begin = Instant::now();
    for _ in 0..REPEATS {
        work();
    }
    gpu.synchronize();
    begin.elapsed().as_secs_f64() / f64::from(REPEATS)
}

fn streams(gpu: &Gpu, name: &str, bytes: usize, work: impl Fn()) {
    let seconds = seconds(gpu, work);
    println!("{name:>24}: {:8.1} us {:7.0} GB/s", seconds * 1e6, bytes as f64 / seconds / 1e9);
}

fn filled<E: Stored>(gpu: &Gpu, count: usize) -> Buffer {
    let pattern = random::<E>(1, 4096);
    gpu.upload(&pattern.into_iter().cycle().take(count).collect::<Vec<_>>())
}

#[test]
#[ignore = "prints how fast the kernels are; needs a GPU that nobody else uses"]
fn streaming_kernels() {
    let Some(gpu) = gpu() else { return };
    let (stream, kernels) = (gpu.stream(), &gpu.kernels);
    let [x, y, d_y] = [(); 3].map(|()| filled::<bf16>(gpu, TOKENS * WIDTH));
    let weight = filled::<bf16>(gpu, WIDTH);
    let bytes = TOKENS * WIDTH * 2;
    let wide = filled::<f32>(gpu, TOKENS * WIDTH);
    streams(gpu, "convert", 3 * bytes, || kernels.convert(stream, wide.array, y.array).unwrap());
    streams(gpu, "add", 3 * bytes, || kernels.add(stream, x.array, y.array).unwrap());
    streams(gpu, "rms_norm", 2 * bytes, || kernels.rms_norm(stream, x.array, weight.array, y.array).unwrap());
    let d_weight = filled::<f32>(gpu, WIDTH);
    let room = gpu.workspace(Kernels::rms_norm_backward_workspace_bytes(TOKENS, WIDTH));
    streams(gpu, "rms_norm_backward", 4 * bytes, || {
        let arrays = [&x, &weight, &d_y, &y, &d_weight, &room].map(|buffer| buffer.array);
        let [x, weight, d_y, d_x, d_weight, room] = arrays;
        kernels.rms_norm_backward(stream, x, weight, d_y, d_x, d_weight, room).unwrap();
    });
    let heads = Heads { batch: 4, sequence: 2048, heads: 16, kv_heads: 16, head_dim: 128, causal: true };
    let qkv = filled::<bf16>(gpu, heads.tokens() * heads.qkv_width());
    let rotated = heads.tokens() * 2 * heads.out_width() * 2;
    streams(gpu, "rope", 2 * rotated, || kernels.rope(stream, heads, 0, qkv.array, Direction::Forward).unwrap());
    let [gate_up, d_gate_up] = [(); 2].map(|()| filled::<bf16>(gpu, 2 * TOKENS * FFN));
    let product = filled::<bf16>(gpu, TOKENS * FFN);
    let bytes = TOKENS * FFN * 2;
    streams(gpu, "swiglu", 3 * bytes, || kernels.swiglu(stream, gate_up.array, product.array, FFN).unwrap());
    streams(gpu, "swiglu_backward", 5 * bytes, || {
        kernels.swiglu_backward(stream, gate_up.array, product.array, d_gate_up.array, FFN).unwrap();
    });
    let mut random_tokens = fastrand::Rng::with_seed(1);
    for (name, vocabulary) in [("of 32000", VOCABULARY), ("of 256", 256)] {
        let tokens: Vec<u32> = (0..TOKENS).map(|_| random_tokens.u32(0..vocabulary as u32)).collect();
        let tokens = gpu.upload_tokens(&tokens);
        let (table, d_table) = (filled::<bf16>(gpu, vocabulary * WIDTH), filled::<f32>(gpu, vocabulary * WIDTH));
        let bytes = TOKENS * WIDTH * 2;
        streams(gpu, &format!("embedding {name}"), 2 * bytes, || {
            kernels.embedding(stream, tokens.array, table.array, y.array, WIDTH, 0).unwrap();
        });
        streams(gpu, &format!("its gradient {name}"), 5 * bytes, || {
            kernels.embedding_backward(stream, tokens.array, y.array, d_table.array, WIDTH, 0).unwrap();
        });
    }
    cross_entropy(gpu);
    optimizer(gpu);
}

fn cross_entropy(gpu: &Gpu) {
    let (stream, kernels) = (gpu.stream(), &gpu.kernels);
    let tokens: Vec<u32> = (0..TOKENS as u32).collect();
    let tokens = gpu.upload_tokens(&tokens);
    let targets = Targets { tokens: tokens.array, first: 0 };
    let [logits, d_logits] = [(); 2].map(|()| filled::<bf16>(gpu, TOKENS * VOCABULARY));
    let (maxima, sums, total) = (filled::<f32>(gpu, TOKENS), filled::<f32>(gpu, 2 * TOKENS), filled::<f32>(gpu, 1));
    let bytes = TOKENS * VOCABULARY * 2;
    streams(gpu, "row_maxima", bytes, || kernels.row_maxima(stream, logits.array, maxima.array).unwrap());
    streams(gpu, "row_sums", bytes, || {
        kernels.row_sums(stream, logits.array, targets, maxima.array, sums.array).unwrap();
    });
    streams(gpu, "loss", 12 * TOKENS, || kernels.loss(stream, maxima.array, sums.array, WEIGHTS, total.array).unwrap());
    streams(gpu, "loss_backward", 2 * bytes, || {
        let row = (maxima.array, sums.array);
        kernels.loss_backward(stream, logits.array, targets, row, WEIGHTS, d_logits.array).unwrap();
    });
}

fn optimizer(gpu: &Gpu) {
    let (stream, kernels) = (gpu.stream(), &gpu.kernels);
    let [gradients, master, first, second] = [(); 4].map(|()| filled::<f32>(gpu, PARAMETERS));
    let parameters = filled::<bf16>(gpu, PARAMETERS);
    let settings = AdamW {
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.1,
        clip: Some(1.0),
        step: 1,
    };
    let squares = filled::<f32>(gpu, 1);
    let arrays = OptimizerArrays {
        gradients: gradients.array,
        parameters: parameters.array,
        master: Some(master.array),
        first_moment: first.array,
        second_moment: second.array,
        squares: squares.array,
    };
    streams(gpu, "adamw", 30 * PARAMETERS, || kernels.adamw(stream, settings, arrays).unwrap());
    let (total, room) = (filled::<f32>(gpu, 1), gpu.workspace(Kernels::sum_of_squares_workspace_bytes(PARAMETERS)));
    streams(gpu, "sum of squares", 4 * PARAMETERS, || {
        kernels.add_sum_of_squares(stream, gradients.array, total.array, room.array).unwrap();
    });
}

#[test]
#[ignore = "prints how fast the kernels are; needs a GPU that nobody else uses"]
fn attention() {
    let Some(gpu) = gpu() else { return };
    for (kv_heads, head_dim) in [(16, 128), (4, 128), (16, 64)] {
        attention_of::<bf16>(gpu, Heads { batch: 4, sequence: 2048, heads: 16, kv_heads, head_dim, causal: true });
    }
    attention_of::<f32>(gpu, Heads { batch: 4, sequence: 2048, heads: 16, kv_heads: 16, head_dim: 128, causal: true });
}

fn attention_of<E: Stored>(gpu: &Gpu, heads: Heads) {
    let (stream, kernels) = (gpu.stream(), &gpu.kernels);
    let [qkv, d_qkv] = [(); 2].map(|()| filled::<E>(gpu, heads.tokens() * heads.qkv_width()));
    let [out, d_out] = [(); 2].map(|()| filled::<E>(gpu, heads.tokens() * heads.out_width()));
    let lse = filled::<f32>(gpu, heads.tokens() * heads.heads);
    let room = gpu.workspace(Kernels::attention_backward_workspace_bytes(heads));
    let of = AttentionArrays { qkv: qkv.array, out: out.array, lse: lse.array };
    // Of a product of all queries with the keys they see.
    let pairs = heads.sequence * (heads.sequence + 1) / 2;
    let flops = (2 * heads.batch * heads.heads * pairs * heads.head_dim) as f64;
    let report = |name: &str, products: f64, seconds: f64| {
        println!(
            "{name:>24}: {:8.1} us {:7.1} TFLOP/s {:?} {heads:?}",
            seconds * 1e6,
            products * flops / seconds / 1e12,
            E::DTYPE
        );
    };
    let forward = seconds(gpu, || kernels.attention(stream, heads, of).unwrap());
    report("attention", 2.0, forward);
    let backward = seconds(gpu, || {
        kernels.attention_backward(stream, heads, of, d_out.array, d_qkv.array, room.array).unwrap();
    });
    report("attention_backward", 5.0, backward);
}

#[test]
#[ignore = "prints how long the kernels take to load; needs a GPU"]
fn loading() {
    let Some(gpu) = gpu() else { return };
    let directory = tempfile::tempdir().unwrap();
    for name in ["compiled and loaded", "loaded from the cache"] {
        let begin = Instant::now();
        gpu.load_kernels(Some(directory.path().into()));
        println!("{name:>24}: {:8.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    }
}
