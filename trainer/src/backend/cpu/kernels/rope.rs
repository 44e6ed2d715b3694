//! Rotary position embedding.

use num_traits::Zero;

use super::{Direction, Element, Heads, Real, vectorised};

/// Rotates the query and key heads in place by their positions, which begin with `first`; element i of a head goes with element
/// i + head_dim / 2, as in the Llama of Hugging Face.
pub(crate) fn rope<E: Element>(shape: &Heads, first: usize, qkv: &mut [E], direction: Direction, base: f64) {
    assert_eq!(qkv.len(), shape.tokens() * shape.qkv_width(), "{shape:?}");
    assert!(shape.head_dim.is_multiple_of(2), "{shape:?}");
    if qkv.is_empty() {
        return;
    }
    let rotated = (shape.heads + shape.kv_heads) * shape.head_dim;
    let half = shape.head_dim / 2;
    let mut angles = Angles::new(half, first, direction, base);
    let (mut cosines, mut sines) = (vec![E::Sum::zero(); half], vec![E::Sum::zero(); half]);
    vectorised(
        #[inline(always)]
        || {
            for position in 0..shape.sequence {
                angles.write(&mut cosines, &mut sines);
                for token in (position..shape.tokens()).step_by(shape.sequence) {
                    let row = &mut qkv[token * shape.qkv_width()..][..rotated];
                    for head in row.chunks_exact_mut(shape.head_dim) {
                        rotate(head, &cosines, &sines);
                    }
                }
                angles.advance();
            }
        },
    );
}

#[inline(always)]
fn rotate<E: Element>(head: &mut [E], cosines: &[E::Sum], sines: &[E::Sum]) {
    let (lower, upper) = head.split_at_mut(cosines.len());
    for ((lower, upper), (cosine, sine)) in lower.iter_mut().zip(upper).zip(cosines.iter().zip(sines)) {
        let (x, y) = (lower.widen(), upper.widen());
        *lower = E::narrow(x * *cosine - y * *sine);
        *upper = E::narrow(y * *cosine + x * *sine);
    }
}

/// The rotations of one position, from which those of the next follow without trigonometry.
///
/// In double precision, in which the error of a million such steps is still far below what `f32` can tell.
struct Angles {
    cosines: Vec<f64>,
    sines: Vec<f64>,
    step_cosines: Vec<f64>,
    step_sines: Vec<f64>,
}

impl Angles {
    fn new(half: usize, first: usize, direction: Direction, base: f64) -> Angles {
        let sign = if direction == Direction::Forward { 1.0 } else { -1.0 };
        let steps = || (0..half).map(|pair| sign * base.powf(-(pair as f64) / half as f64));
        let (sines, cosines) = steps().map(|step| (first as f64 * step).sin_cos()).unzip();
        let (step_sines, step_cosines) = steps().map(f64::sin_cos).unzip();
        Angles { cosines, sines, step_cosines, step_sines }
    }

    #[inline(always)]
    fn write<S: Real>(&self, cosines: &mut [S], sines: &mut [S]) {
        for (to, from) in [(cosines, &self.cosines), (sines, &self.sines)] {
            for (to, from) in to.iter_mut().zip(from) {
                *to = S::of(*from);
            }
        }
    }

    #[inline(always)]
    fn advance(&mut self) {
        let steps = self.step_cosines.iter().zip(&self.step_sines);
        for ((cosine, sine), (step_cosine, step_sine)) in self.cosines.iter_mut().zip(&mut self.sines).zip(steps) {
            (*cosine, *sine) = (*cosine * step_cosine - *sine * step_sine, *sine * step_cosine + *cosine * step_sine);
        }
    }
}
