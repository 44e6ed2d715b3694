use half::bf16;

use super::{super::Targets, Gpu, Stored, assert_near, gpu, random, twice};
use crate::backend::{LossWeights, cpu::kernels};

const FIRST: u32 = 40;
const WEIGHTS: LossWeights = LossWeights { scale: 0.37, z: 0.02 };

fn losses<E: Stored>(gpu: &Gpu, rows: usize, columns: usize) {
    let what = |name: &str| format!("{name} of {rows} by {columns}");
    let logits: Vec<E> = random::<E>(1, rows * columns).iter().map(|logit| E::narrow(logit.widen() * 12.0)).collect();
    let mut random_targets = fastrand::Rng::with_seed(5);
    let targets: Vec<u32> = (0..rows).map(|_| random_targets.u32(0..FIRST + columns as u32 + 20)).collect();
    let (mut maxima, mut sums, mut total) = (vec![0.0_f32; rows], vec![0.0_f32; 2 * rows], [2.5_f32]);
    let mut d_logits = vec![E::default(); logits.len()];
    kernels::row_maxima(&logits, columns, &mut maxima);
    kernels::row_sums(&logits, columns, &maxima, &targets, FIRST, &mut sums);
    kernels::loss(&maxima, &sums, WEIGHTS, &mut total);
    kernels::loss_backward(&logits, columns, &maxima, &sums, &targets, FIRST, WEIGHTS, &mut d_logits);

    let stream = gpu.stream();
    let (actual_maxima, actual_sums, actual_total, actual_gradient) = twice(|| {
        let (logits, tokens) = (gpu.upload(&logits), gpu.upload_tokens(&targets));
        let targets = Targets { tokens: tokens.array, first: FIRST };
        let (maxima, sums) = (gpu.poisoned::<f32>(rows), gpu.poisoned::<f32>(2 * rows));
        let (total, d_logits) = (gpu.upload(&[2.5_f32]), gpu.poisoned::<E>(rows * columns));
        gpu.kernels.row_maxima(stream, logits.array, maxima.array).unwrap();
        gpu.kernels.row_sums(stream, logits.array, targets, maxima.array, sums.array).unwrap();
        gpu.kernels.loss(stream, maxima.array, sums.array, WEIGHTS, total.array).unwrap();
        let row = (maxima.array, sums.array);
        gpu.kernels.loss_backward(stream, logits.array, targets, row, WEIGHTS, d_logits.array).unwrap();
        // And once more in place.
        let gradient = gpu.download::<E>(&d_logits);
        gpu.kernels.loss_backward(stream, logits.array, targets, row, WEIGHTS, logits.array).unwrap();
        assert!(gradient == gpu.download::<E>(&logits), "another gradient in place");
        (gpu.download::<f32>(&maxima), gpu.download::<f32>(&sums), gpu.download::<f32>(&total), gradient)
    });
    assert_eq!(actual_maxima, maxima, "{}", what("maxima"));
    assert_near(&what("sums"), &actual_sums, &sums);
    assert_near(&what("the loss"), &actual_total, &total);
    assert_near(&what("the gradient"), &actual_gradient, &d_logits);
}

#[test]
fn losses_and_their_gradients_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for (rows, columns) in [(1, 1), (3, 7), (70, 31), (5, 257), (33, 5003), (4, 32_000), (3, 50_257)] {
        losses::<bf16>(gpu, rows, columns);
        losses::<f32>(gpu, rows, columns);
    }
}
