use half::bf16;

use super::{super::super::array::AttentionArrays, Gpu, Kernels, Stored, assert_near, gpu, random, twice};
use crate::backend::{
    Heads,
    cpu::kernels::{self, Scratch},
};

/// The CPU has a row for every token, the GPU one for every head.
fn by_heads(heads: Heads, lse: &[f32]) -> Vec<f32> {
    let place =
        |(batch, head, position): (usize, usize, usize)| lse[(batch * heads.sequence + position) * heads.heads + head];
    let rows = (0..heads.batch).flat_map(|batch| (0..heads.heads).map(move |head| (batch, head)));
    rows.flat_map(|(batch, head)| (0..heads.sequence).map(move |position| (batch, head, position))).map(place).collect()
}

fn attends<E: Stored>(gpu: &Gpu, heads: Heads, misaligned: bool) {
    let (outs, rows) = (heads.tokens() * heads.out_width(), heads.tokens() * heads.heads);
    let spread = |number: &E| E::narrow(number.widen() * 2.0);
    let qkv: Vec<E> = random::<E>(1, heads.tokens() * heads.qkv_width()).iter().map(spread).collect();
    let d_out = random::<E>(2, outs);
    let (mut out, mut lse, mut d_qkv) = (vec![E::default(); outs], vec![0.0; rows], vec![E::default(); qkv.len()]);
    kernels::attention(&heads, &qkv, &mut out, &mut lse, &mut Scratch::default());
    kernels::attention_backward(&heads, &qkv, &out, &lse, &d_out, &mut d_qkv, &mut Scratch::default());

    let upload = |values: &[E]| if misaligned { gpu.upload_misaligned(values) } else { gpu.upload(values) };
    let (actual_out, actual_lse, actual_d_qkv) = twice(|| {
        let (qkv, d_out, out_room) = (upload(&qkv), upload(&d_out), gpu.poisoned::<E>(outs));
        let (lse_room, d_qkv_room) = (gpu.poisoned::<f32>(rows), gpu.poisoned::<E>(d_qkv.len()));
        let workspace = gpu.workspace(Kernels::attention_backward_workspace_bytes(heads));
        let of = AttentionArrays { qkv: qkv.array, out: out_room.array, lse: lse_room.array };
        gpu.kernels.attention(gpu.stream(), heads, of).unwrap();
        let (into, room) = (d_qkv_room.array, workspace.array);
        gpu.kernels.attention_backward(gpu.stream(), heads, of, d_out.array, into, room).unwrap();
        (gpu.download::<E>(&out_room), gpu.download::<f32>(&lse_room), gpu.download::<E>(&d_qkv_room))
    });
    assert_near(&format!("the result of {heads:?}"), &actual_out, &out);
    assert_near(&format!("the logarithms of {heads:?}"), &actual_lse, &by_heads(heads, &lse));
    let width = heads.head_dim;
    let parts = [(0, heads.heads), (heads.heads, heads.kv_heads), (heads.heads + heads.kv_heads, heads.kv_heads)];
    for ((begin, count), name) in parts.into_iter().zip(["queries", "keys", "values"]) {
        let part = |rows: &[E]| -> Vec<E> {
            let rows = rows.chunks_exact(heads.qkv_width());
            rows.flat_map(|row| row[begin * width..(begin + count) * width].to_vec()).collect()
        };
        // With one key there is nothing to choose, and the gradients of queries and keys are nothing but rounding.
        if heads.sequence > 1 || name == "values" {
            assert_near(&format!("the gradient of {name} of {heads:?}"), &part(&actual_d_qkv), &part(&d_qkv));
        }
    }
}

fn shape(batch: usize, sequence: usize, heads: usize, kv_heads: usize, head_dim: usize) -> Heads {
    Heads { batch, sequence, heads, kv_heads, head_dim, causal: true }
}

fn causal_or_not(heads: Heads) -> [Heads; 2] {
    [heads, Heads { causal: false, ..heads }]
}

/// Tiles that are not full, groups of queries, and widths that are not whole steps or whole pieces.
fn shapes() -> [Heads; 14] {
    [
        shape(1, 1, 1, 1, 16),
        shape(2, 33, 2, 1, 16),
        shape(1, 64, 4, 4, 32),
        shape(2, 65, 6, 2, 48),
        shape(1, 200, 4, 1, 64),
        shape(2, 300, 2, 2, 64),
        shape(2, 129, 2, 2, 80),
        shape(1, 127, 3, 3, 96),
        shape(2, 300, 4, 2, 128),
        shape(1, 513, 2, 1, 128),
        shape(2, 70, 2, 1, 8),
        shape(1, 100, 2, 2, 20),
        shape(1, 67, 2, 1, 33),
        shape(1, 90, 2, 1, 120),
    ]
}

#[test]
fn attention_on_tensor_cores_is_that_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for heads in shapes().into_iter().flat_map(causal_or_not) {
        attends::<bf16>(gpu, heads, false);
    }
    causal_or_not(shape(1, 100, 2, 1, 64)).into_iter().for_each(|heads| attends::<bf16>(gpu, heads, true));
}

#[test]
fn attention_in_single_precision_is_that_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for heads in shapes().into_iter().flat_map(causal_or_not) {
        attends::<f32>(gpu, heads, false);
    }
    causal_or_not(shape(1, 100, 2, 1, 64)).into_iter().for_each(|heads| attends::<f32>(gpu, heads, true));
    attends::<f32>(gpu, shape(1, 70, 2, 1, 256), false);
}

fn merges<E: Stored>(gpu: &Gpu, heads: Heads) {
    let (outs, rows) = (heads.tokens() * heads.out_width(), heads.tokens() * heads.heads);
    let (some, more) = (random::<f32>(1, outs), random::<E>(2, outs));
    let logarithms = |seed| -> Vec<f32> { random::<f32>(seed, rows).iter().map(|number| number * 9.0).collect() };
    let (lse, more_lse) = (logarithms(3), logarithms(4));
    let (mut out, mut sums) = (some.clone(), lse.clone());
    kernels::merge_attention(heads.head_dim, (&mut out, &mut sums), (&more, &more_lse));
    let (actual, actual_sums) = twice(|| {
        let (out, lse) = (gpu.upload(&some), gpu.upload(&by_heads(heads, &lse)));
        let (more, more_lse) = (gpu.upload(&more), gpu.upload(&by_heads(heads, &more_lse)));
        let of = [out.array, lse.array];
        gpu.kernels.merge_attention(gpu.stream(), heads, of, [more.array, more_lse.array]).unwrap();
        (gpu.download::<f32>(&out), gpu.download::<f32>(&lse))
    });
    assert_near(&format!("what is merged of {heads:?}"), &actual, &out);
    assert_near(&format!("the logarithms of what is merged of {heads:?}"), &actual_sums, &by_heads(heads, &sums));
}

#[test]
fn what_is_merged_is_that_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for heads in shapes() {
        merges::<bf16>(gpu, heads);
        merges::<f32>(gpu, heads);
    }
}

#[test]
fn heads_that_are_too_wide_are_refused() {
    let Some(gpu) = gpu() else { return };
    let heads = shape(1, 2, 1, 1, 144);
    let (qkv, out) = (gpu.poisoned::<bf16>(2 * heads.qkv_width()), gpu.poisoned::<bf16>(2 * heads.out_width()));
    let lse = gpu.poisoned::<f32>(2);
    let of = AttentionArrays { qkv: qkv.array, out: out.array, lse: lse.array };
    assert!(gpu.kernels.attention(gpu.stream(), heads, of).is_err());
}
