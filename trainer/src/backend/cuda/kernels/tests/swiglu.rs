use half::bf16;

use super::{Gpu, Stored, WIDTHS, assert_near, gpu, random, twice};
use crate::backend::cpu::kernels;

const ROWS: usize = 13;

fn activates<E: Stored>(gpu: &Gpu, width: usize) {
    let gate_up: Vec<E> =
        random::<E>(1, 2 * ROWS * width).iter().map(|number| E::narrow(number.widen() * 8.0)).collect();
    let d_product = random::<E>(2, ROWS * width);
    let (mut product, mut d_gate_up) = (d_product.clone(), gate_up.clone());
    kernels::swiglu(&gate_up, &mut product, width);
    kernels::swiglu_backward(&gate_up, &d_product, &mut d_gate_up, width);
    let (actual, actual_gradient) = twice(|| {
        let (gate_up, d_product) = (gpu.upload(&gate_up), gpu.upload(&d_product));
        let (product, d_gate_up) = (gpu.poisoned::<E>(ROWS * width), gpu.poisoned::<E>(2 * ROWS * width));
        gpu.kernels.swiglu(gpu.stream(), gate_up.array, product.array, width).unwrap();
        let arrays = [&gate_up, &d_product, &d_gate_up].map(|buffer| buffer.array);
        gpu.kernels.swiglu_backward(gpu.stream(), arrays[0], arrays[1], arrays[2], width).unwrap();
        (gpu.download::<E>(&product), gpu.download::<E>(&d_gate_up))
    });
    assert_near(&format!("the product of {width}"), &actual, &product);
    assert_near(&format!("the gradient of {width}"), &actual_gradient, &d_gate_up);
}

#[test]
fn activations_and_their_gradients_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for width in WIDTHS {
        activates::<bf16>(gpu, width);
        activates::<f32>(gpu, width);
    }
}
