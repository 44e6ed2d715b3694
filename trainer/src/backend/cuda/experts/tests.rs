//! What a GPU does for experts, against the CPU. Without a GPU these say that they were skipped.

use stepscope_collector::Recorder;
use stepscope_traces::MemoryCategory;

use super::*;
use crate::{
    backend::{Backend, Product, cpu::CpuBackend, cuda::Device},
    look_for_gpu,
    skipped::skipped,
};

fn gpu() -> Option<CudaBackend> {
    look_for_gpu(1).inspect_err(|why| skipped("gpu", why)).ok()?;
    Some(CudaBackend::start(Device::open(0).unwrap(), Recorder::disabled(), true).unwrap())
}

fn tensor(backend: &dyn Backend, seed: u64, elements: usize, dtype: DType) -> Tensor {
    let mut random = fastrand::Rng::with_seed(seed);
    let tensor = backend.allocate(elements, dtype, MemoryCategory::Other);
    backend.upload((0..elements).map(|_| random.f32() * 2.0 - 1.0).collect(), &tensor);
    tensor
}

/// Rows of experts and what they are multiplied by, inputs × outputs; numbers are stored so, gradients of matrices so.
struct Shape {
    rows: Vec<usize>,
    inputs: usize,
    outputs: usize,
    dtype: DType,
    gradients: DType,
}

impl Shape {
    /// The products of a layer: forward, the gradient of rows, and that of matrices.
    fn multiply(&self, backend: &dyn Backend) -> [Vec<f64>; 3] {
        let Shape { rows, inputs, outputs, dtype, gradients } = self;
        let (inputs, outputs, all) = (*inputs, *outputs, rows.iter().sum::<usize>());
        let take = |seed, elements, dtype| tensor(backend, seed, elements, dtype);
        let (x, d_y) = (take(1, all * inputs, *dtype), take(2, all * outputs, *dtype));
        let matrices = take(3, rows.len() * inputs * outputs, *dtype);
        let d_matrices = take(4, matrices.elements(), *gradients);
        let empty = |width| backend.allocate(all * width, *dtype, MemoryCategory::Other);
        let (y, d_x) = (empty(outputs), empty(inputs));
        let (mut forward, mut of_rows, mut of_matrices) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = 0;
        for (expert, rows) in rows.iter().copied().enumerate().filter(|(_, rows)| *rows > 0) {
            let some = |tensor: &Tensor, width| tensor.slice(first * width..(first + rows) * width);
            let own = |tensor: &Tensor| tensor.slice(expert * inputs * outputs..(expert + 1) * inputs * outputs);
            forward.push(Factors {
                product: Product { transpose_b: true, ..Product::plain(rows, outputs, inputs) },
                a: some(&x, inputs),
                b: own(&matrices),
                out: some(&y, outputs),
            });
            of_rows.push(Factors {
                product: Product::plain(rows, inputs, outputs),
                a: some(&d_y, outputs),
                b: own(&matrices),
                out: some(&d_x, inputs),
            });
            of_matrices.push(Factors {
                product: Product { transpose_a: true, accumulate: true, ..Product::plain(outputs, inputs, rows) },
                a: some(&d_y, outputs),
                b: some(&x, inputs),
                out: own(&d_matrices),
            });
            first += rows;
        }
        [&forward, &of_rows, &of_matrices].into_iter().for_each(|products| backend.products(products));
        [y, d_x, d_matrices].map(|tensor| backend.download(&tensor).unwrap())
    }
}

fn apart(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference = squares(&mut found.iter().zip(expected).map(|(found, expected)| found - expected));
    (difference / squares(&mut expected.iter().copied()).max(1e-30)).sqrt()
}

#[test]
fn products_of_experts_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let cpu = CpuBackend::start(Recorder::disabled()).unwrap();
    eprintln!("matrices of experts at once: {}", gpu.grouped().unwrap().is_some());
    let many: Vec<usize> = (0..64).map(|expert| expert * 37 % 50).collect();
    for rows in [vec![1], vec![3, 0, 1, 40, 129], vec![0, 700], many] {
        // The last does not lie where many numbers are read at once.
        for (inputs, outputs) in [(64, 96), (128, 384), (7, 9)] {
            for (dtype, gradients, tolerance) in
                [(DType::F32, DType::F32, 1e-5), (DType::Bf16, DType::Bf16, 1e-2), (DType::Bf16, DType::F32, 1e-2)]
            {
                let shape = Shape { rows: rows.clone(), inputs, outputs, dtype, gradients };
                let (found, expected) = (shape.multiply(&gpu), shape.multiply(&cpu));
                assert_eq!(found, shape.multiply(&gpu), "the same to the last bit each time");
                let what = ["rows", "their gradient", "the matrices' gradient"];
                for (what, (found, expected)) in what.into_iter().zip(found.iter().zip(&expected)) {
                    let apart = apart(found, expected);
                    let of = format!("{rows:?} by {inputs} and {outputs}, {dtype:?} and {gradients:?}");
                    assert!(apart < tolerance, "{what} of {of}: {apart:e} apart");
                }
            }
        }
    }
}

#[test]
fn experts_without_rows_do_nothing() {
    let Some(gpu) = gpu() else { return };
    let none = |elements| gpu.allocate(elements, DType::Bf16, MemoryCategory::Other);
    gpu.products(&[]);
    gpu.swiglu(&none(0), &none(0), 96);
    gpu.swiglu_backward(&none(0), &none(0), &none(0), 96);
    gpu.copy_parts(Stream::Compute, &[]);
    gpu.synchronize().unwrap();
}

#[test]
fn what_was_chosen_is_read_as_it_was_written() {
    let Some(gpu) = gpu() else { return };
    let choices = gpu.allocate(5, DType::U32, MemoryCategory::Other);
    gpu.upload_tokens(vec![3, 0, u32::MAX, 7, 1 << 30], &choices);
    assert_eq!(gpu.choices(&choices).unwrap(), [3, 0, u32::MAX, 7, 1 << 30]);
}

#[test]
fn what_went_wrong_before_tokens_chose_is_told_in_the_end() {
    let Some(gpu) = gpu() else { return };
    let choices = gpu.allocate(5, DType::U32, MemoryCategory::Other);
    gpu.fail(TrainError::Disagreement("out of paper".into()));
    gpu.tell_later(gpu.choices(&choices).unwrap_err());
    let told = gpu.synchronize().unwrap_err();
    assert!(told.to_string().contains("out of paper"), "{told}");
    gpu.tell_later(gpu.choices(&choices).unwrap_err());
    assert!(matches!(gpu.synchronize(), Err(TrainError::FailedBefore)));
}
