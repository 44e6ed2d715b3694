use half::bf16;

use super::{Gpu, Kernels, Stored, WIDTHS, assert_near, gpu, random, twice};
use crate::backend::{cpu::kernels, operations::NORM_EPSILON};

const ROWS: usize = 37;

fn norms<E: Stored>(gpu: &Gpu) {
    for width in WIDTHS {
        let (x, weight) = (random::<E>(1, ROWS * width), random::<E>(2, width));
        let mut expected = vec![E::default(); x.len()];
        kernels::rms_norm(&x, &weight, &mut expected, NORM_EPSILON);
        let actual = twice(|| {
            let (x, weight, y) = (gpu.upload(&x), gpu.upload(&weight), gpu.poisoned::<E>(x.len()));
            gpu.kernels.rms_norm(gpu.stream(), x.array, weight.array, y.array).unwrap();
            gpu.download::<E>(&y)
        });
        assert_near(&format!("rms_norm of {width}"), &actual, &expected);
    }
}

#[test]
fn norms_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    norms::<bf16>(gpu);
    norms::<f32>(gpu);
}

fn gradients<E: Stored, G: Stored>(gpu: &Gpu, rows: usize, width: usize) {
    let (x, weight, d_y) = (random::<E>(1, rows * width), random::<E>(2, width), random::<E>(3, rows * width));
    let (d_x, d_weight) = (random::<E>(4, rows * width), random::<G>(5, width));
    let (mut expected_x, mut expected_weight) = (d_x.clone(), d_weight.clone());
    kernels::rms_norm_backward(&x, &weight, &d_y, &mut expected_x, &mut expected_weight, NORM_EPSILON);
    let (actual_x, actual_weight) = twice(|| {
        let (x, weight, d_y) = (gpu.upload(&x), gpu.upload(&weight), gpu.upload(&d_y));
        let (d_x, d_weight) = (gpu.upload(&d_x), gpu.upload_misaligned(&d_weight));
        let workspace = gpu.workspace(Kernels::rms_norm_backward_workspace_bytes(rows, width));
        let arrays = [&x, &weight, &d_y, &d_x, &d_weight, &workspace].map(|buffer| buffer.array);
        let [x, weight, d_y, into_x, into_weight, room] = arrays;
        gpu.kernels.rms_norm_backward(gpu.stream(), x, weight, d_y, into_x, into_weight, room).unwrap();
        (gpu.download::<E>(&d_x), gpu.download::<G>(&d_weight))
    });
    assert_near(&format!("d_x of {rows} by {width}"), &actual_x, &expected_x);
    assert_near(&format!("d_weight of {rows} by {width}"), &actual_weight, &expected_weight);
}

#[test]
fn gradients_of_norms_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for width in WIDTHS {
        gradients::<bf16, bf16>(gpu, ROWS, width);
        gradients::<bf16, f32>(gpu, ROWS, width);
        gradients::<f32, f32>(gpu, ROWS, width);
    }
    // More rows than there are blocks.
    gradients::<bf16, f32>(gpu, 5000, 256);
    gradients::<f32, f32>(gpu, 2000, 2048);
}
