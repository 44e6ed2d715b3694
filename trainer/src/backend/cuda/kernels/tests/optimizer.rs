use half::bf16;

use super::{super::OptimizerArrays, Gpu, Kernels, Stored, assert_near, gpu, random, twice};
use crate::backend::{AdamW, cpu::kernels};

const SETTINGS: AdamW =
    AdamW { learning_rate: 1e-2, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip: Some(0.5), step: 3 };
/// Of all gradients.
const SQUARES: f32 = 16.0;

fn steps<E: Stored, G: Stored>(gpu: &Gpu, count: usize, with_master: bool) {
    let (gradients, parameters) = (random::<G>(1, count), random::<E>(2, count));
    let master = with_master.then(|| random::<f32>(3, count));
    let first = random::<f32>(4, count);
    let second: Vec<f32> = random::<f32>(5, count).iter().map(|number| number.abs()).collect();
    let (mut expected, mut expected_first, mut expected_second) = (parameters.clone(), first.clone(), second.clone());
    let mut expected_master = master.clone();
    let into_master = expected_master.as_deref_mut();
    kernels::adamw(
        (&SETTINGS, SQUARES),
        &gradients,
        &mut expected,
        into_master,
        &mut expected_first,
        &mut expected_second,
    );
    let (actual, actual_master, actual_first, actual_second) = twice(|| {
        let (gradients, parameters) = (gpu.upload(&gradients), gpu.upload(&parameters));
        let master = master.as_ref().map(|master| gpu.upload(master));
        let (first_moment, second_moment) = (gpu.upload(&first), gpu.upload_misaligned(&second));
        let squares = gpu.upload(&[SQUARES]);
        let arrays = OptimizerArrays {
            gradients: gradients.array,
            parameters: parameters.array,
            master: master.as_ref().map(|master| master.array),
            first_moment: first_moment.array,
            second_moment: second_moment.array,
            squares: squares.array,
        };
        gpu.kernels.adamw(gpu.stream(), SETTINGS, arrays).unwrap();
        let master = master.map(|master| gpu.download::<f32>(&master));
        (
            gpu.download::<E>(&parameters),
            master,
            gpu.download::<f32>(&first_moment),
            gpu.download::<f32>(&second_moment),
        )
    });
    assert_near("parameters", &actual, &expected);
    assert_near("the first moment", &actual_first, &expected_first);
    assert_near("the second moment", &actual_second, &expected_second);
    assert_near("the master copy", &actual_master.unwrap_or_default(), &expected_master.unwrap_or_default());
}

#[test]
fn steps_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for count in [1, 13, 2048, 70_001] {
        for with_master in [false, true] {
            steps::<bf16, bf16>(gpu, count, with_master);
            steps::<bf16, f32>(gpu, count, with_master);
            steps::<f32, f32>(gpu, count, with_master);
        }
    }
}

fn sums_squares<E: Stored>(gpu: &Gpu, count: usize) {
    let values = random::<E>(1, count);
    let exact: f64 = values.iter().map(|value| f64::from(value.widen()).powi(2)).sum();
    let actual = twice(|| {
        let (values, total) = (gpu.upload(&values), gpu.upload(&[1.0_f32]));
        let room = gpu.workspace(Kernels::sum_of_squares_workspace_bytes(count));
        gpu.kernels.add_sum_of_squares(gpu.stream(), values.array, total.array, room.array).unwrap();
        gpu.download::<f32>(&total)
    });
    assert_near(&format!("{count} squares"), &actual, &[(1.0 + exact) as f32]);
}

#[test]
fn sums_of_squares_are_exact_enough() {
    let Some(gpu) = gpu() else { return };
    for count in [0, 1, 15, 100_003, 5_000_000] {
        sums_squares::<bf16>(gpu, count);
        sums_squares::<f32>(gpu, count);
    }
}
