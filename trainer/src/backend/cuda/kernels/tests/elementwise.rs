use half::bf16;

use super::{Gpu, Stored, assert_within, gpu, random, twice};
use crate::backend::{Columns, cpu::kernels};

const COUNTS: [usize; 6] = [0, 1, 7, 8, 2049, 100_003];

fn converts<A: Stored, B: Stored>(gpu: &Gpu) {
    for count in COUNTS {
        let from = random::<A>(1, count);
        let mut expected = vec![B::default(); count];
        kernels::convert(&from, &mut expected);
        for source in [gpu.upload(&from), gpu.upload_misaligned(&from)] {
            let to = gpu.poisoned::<B>(count);
            gpu.kernels.convert(gpu.stream(), source.array, to.array).unwrap();
            assert!(gpu.download::<B>(&to) == expected, "{count} from {:?} to {:?}", A::DTYPE, B::DTYPE);
        }
    }
}

#[test]
fn conversion_rounds_as_the_cpu_does() {
    let Some(gpu) = gpu() else { return };
    converts::<bf16, bf16>(gpu);
    converts::<bf16, f32>(gpu);
    converts::<f32, bf16>(gpu);
    converts::<f32, f32>(gpu);
}

fn adds<E: Stored>(gpu: &Gpu) {
    for count in COUNTS {
        let (target, other) = (random::<E>(1, count), random::<E>(2, count));
        let mut expected = target.clone();
        kernels::add(&mut expected, &other);
        let actual = twice(|| {
            let (sum, more) = (gpu.upload_misaligned(&target), gpu.upload(&other));
            gpu.kernels.add(gpu.stream(), sum.array, more.array).unwrap();
            gpu.download::<E>(&sum)
        });
        assert_within("the sum", &actual, &expected, 0.0);
    }
}

#[test]
fn sums_are_exactly_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    adds::<bf16>(gpu);
    adds::<f32>(gpu);
}

fn moves_columns<A: Stored, B: Stored>(gpu: &Gpu) {
    for (rows, count, from, to) in [(3, 5, (9, 4), (5, 0)), (100, 64, (192, 64), (128, 64)), (7, 1, (1, 0), (3, 2))] {
        for accumulate in [false, true] {
            let columns = Columns { count, from, to, accumulate };
            let (source, before) = (random::<A>(1, rows * from.0), random::<B>(2, rows * to.0));
            let mut expected = before.clone();
            kernels::columns(columns, &source, &mut expected);
            let actual = twice(|| {
                let (source, target) = (gpu.upload(&source), gpu.upload_misaligned(&before));
                gpu.kernels.columns(gpu.stream(), columns, source.array, target.array).unwrap();
                gpu.download::<B>(&target)
            });
            assert_within(&format!("{columns:?}"), &actual, &expected, 0.0);
        }
    }
}

#[test]
fn columns_are_exactly_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    moves_columns::<bf16, bf16>(gpu);
    moves_columns::<bf16, f32>(gpu);
    moves_columns::<f32, bf16>(gpu);
    moves_columns::<f32, f32>(gpu);
    let (two, three) = (gpu.upload(&[1.0_f32; 2]), gpu.upload(&[1.0_f32; 3]));
    let beyond = Columns { count: 2, from: (2, 1), to: (3, 0), accumulate: false };
    assert!(gpu.kernels.columns(gpu.stream(), beyond, two.array, three.array).is_err());
}

#[test]
fn arrays_that_do_not_match_are_refused() {
    let Some(gpu) = gpu() else { return };
    let (two, three) = (gpu.upload(&[1.0_f32; 2]), gpu.upload(&[1.0_f32; 3]));
    assert!(gpu.kernels.add(gpu.stream(), two.array, three.array).is_err());
    let narrow = gpu.upload(&[bf16::ONE; 3]);
    assert!(gpu.kernels.add(gpu.stream(), narrow.array, three.array).is_err());
}
