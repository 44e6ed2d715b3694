use half::bf16;

use super::{Gpu, Stored, assert_within, gpu, random, twice};
use crate::backend::cpu::kernels;

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

#[test]
fn arrays_that_do_not_match_are_refused() {
    let Some(gpu) = gpu() else { return };
    let (two, three) = (gpu.upload(&[1.0_f32; 2]), gpu.upload(&[1.0_f32; 3]));
    assert!(gpu.kernels.add(gpu.stream(), two.array, three.array).is_err());
    let narrow = gpu.upload(&[bf16::ONE; 3]);
    assert!(gpu.kernels.add(gpu.stream(), narrow.array, three.array).is_err());
}
