use half::bf16;

use super::{Gpu, Stored, assert_near, gpu, random, twice};
use crate::backend::{Direction, Heads, cpu::kernels, operations::ROPE_BASE};

fn rotates<E: Stored>(gpu: &Gpu, heads: Heads, first: usize, direction: Direction) {
    let qkv = random::<E>(1, heads.tokens() * heads.qkv_width());
    let mut expected = qkv.clone();
    kernels::rope(&heads, first, &mut expected, direction, ROPE_BASE);
    let actual = twice(|| {
        let qkv = gpu.upload(&qkv);
        gpu.kernels.rope(gpu.stream(), heads, first, qkv.array, direction).unwrap();
        gpu.download::<E>(&qkv)
    });
    assert_near(&format!("{heads:?} from {first} {direction:?}"), &actual, &expected);
}

#[test]
fn rotations_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let shapes = [
        Heads { batch: 2, sequence: 33, heads: 4, kv_heads: 2, head_dim: 16, causal: true },
        Heads { batch: 3, sequence: 17, heads: 3, kv_heads: 1, head_dim: 10, causal: true },
        Heads { batch: 1, sequence: 500, heads: 2, kv_heads: 2, head_dim: 128, causal: true },
        // Far into a long sequence, where angles are large.
        Heads { batch: 1, sequence: 131_072, heads: 1, kv_heads: 1, head_dim: 8, causal: true },
    ];
    for heads in shapes {
        for direction in [Direction::Forward, Direction::Backward] {
            for first in [0, 3000] {
                rotates::<bf16>(gpu, heads, first, direction);
                rotates::<f32>(gpu, heads, first, direction);
            }
        }
    }
}
