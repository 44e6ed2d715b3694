//! The kernels against those of the CPU, which are the definition of what they compute.

mod attention;
mod compile;
mod cross_entropy;
mod elementwise;
mod embedding;
mod experts;
mod gpu;
mod norm;
mod optimizer;
mod rope;
mod swiglu;
mod timing;

use half::bf16;

use self::gpu::{Buffer, Gpu, gpu};
use super::Kernels;
use crate::backend::{DType, cpu::Element};

/// A way to store numbers that both devices have.
trait Stored: Element<Sum = f32> + PartialEq + std::fmt::Debug {
    /// What it is called.
    const DTYPE: DType;
    /// The largest error of a result, relative in the sense of the root mean square: bf16 keeps 8 bits, of which sums
    /// of rounded numbers may lose one; f32 keeps 24, of which sums in another order lose a few.
    const TOLERANCE: f64;
}

impl Stored for bf16 {
    const DTYPE: DType = DType::Bf16;
    const TOLERANCE: f64 = 1e-2;
}

impl Stored for f32 {
    const DTYPE: DType = DType::F32;
    const TOLERANCE: f64 = 1e-5;
}

/// Widths of rows: less than a group, a part of one more, what registers hold, and more than that.
const WIDTHS: [usize; 8] = [1, 7, 8, 100, 257, 2048, 4099, 8216];

fn random<E: Stored>(seed: u64, count: usize) -> Vec<E> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| E::narrow(random.f32() * 2.0 - 1.0)).collect()
}

/// Fails where the results are further apart than their precision explains.
fn assert_near<E: Stored>(what: &str, actual: &[E], expected: &[E]) {
    assert_within(what, actual, expected, E::TOLERANCE);
}

fn assert_within<E: Stored>(what: &str, actual: &[E], expected: &[E], tolerance: f64) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let square = |number: f32| f64::from(number) * f64::from(number);
    let difference: f64 = actual.iter().zip(expected).map(|(a, b)| square(a.widen() - b.widen())).sum();
    let size: f64 = expected.iter().map(|number| square(number.widen())).sum();
    let error = (difference / size.max(1e-30)).sqrt();
    assert!(error <= tolerance, "{what} in {:?}: a relative error of {error:e}", E::DTYPE);
}

/// What work gives, which has to be the same bits when it is done again.
fn twice<T: PartialEq + std::fmt::Debug>(work: impl Fn() -> T) -> T {
    let first = work();
    assert!(first == work(), "another result for the same input");
    first
}
