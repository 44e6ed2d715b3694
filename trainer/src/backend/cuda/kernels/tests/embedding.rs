use half::bf16;

use super::{Gpu, Stored, assert_near, assert_within, gpu, random, twice};
use crate::backend::cpu::kernels;

const FIRST: u32 = 50;
const TABLE_ROWS: usize = 100;

/// Tokens of which some are frequent, and some are not of this part of the vocabulary.
fn tokens(count: usize, most: u32) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..count).map(|_| if random.bool() { FIRST + 3 } else { random.u32(0..most) }).collect()
}

fn looks_up<E: Stored>(gpu: &Gpu, width: usize) {
    let (tokens, table) = (tokens(300, 200), random::<E>(1, TABLE_ROWS * width));
    let mut expected = vec![E::default(); tokens.len() * width];
    kernels::embedding(&tokens, &table, &mut expected, width, FIRST);
    let (tokens, table, out) = (gpu.upload_tokens(&tokens), gpu.upload(&table), gpu.poisoned::<E>(expected.len()));
    gpu.kernels.embedding(gpu.stream(), tokens.array, table.array, out.array, width, FIRST).unwrap();
    assert_within("embeddings", &gpu.download::<E>(&out), &expected, 0.0);
}

fn adds_gradients<E: Stored, G: Stored>(gpu: &Gpu, count: usize, width: usize) {
    let (tokens, d_out, d_table) =
        (tokens(count, 200), random::<E>(1, count * width), random::<G>(2, TABLE_ROWS * width));
    let mut expected = d_table.clone();
    kernels::embedding_backward::<E, G>(&tokens, &d_out, &mut expected, width, FIRST);
    let actual = twice(|| {
        let (tokens, d_out, d_table) = (gpu.upload_tokens(&tokens), gpu.upload(&d_out), gpu.upload(&d_table));
        gpu.kernels.embedding_backward(gpu.stream(), tokens.array, d_out.array, d_table.array, width, FIRST).unwrap();
        gpu.download::<G>(&d_table)
    });
    // The same sums in the same order.
    assert_near(&format!("gradients of {count} by {width}"), &actual, &expected);
    assert!(actual == expected, "gradients of {count} by {width} in another order");
}

#[test]
fn embeddings_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for width in [1, 9, 64, 2048] {
        looks_up::<bf16>(gpu, width);
        looks_up::<f32>(gpu, width);
    }
}

#[test]
fn gradients_of_embeddings_are_exactly_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for (count, width) in [(1, 5), (77, 9), (3000, 64), (1500, 2056), (129, 4099)] {
        adds_gradients::<bf16, bf16>(gpu, count, width);
        adds_gradients::<bf16, f32>(gpu, count, width);
        adds_gradients::<f32, f32>(gpu, count, width);
    }
}
