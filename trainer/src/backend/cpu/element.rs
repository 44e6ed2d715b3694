//! The numbers that the kernels compute with: how they are stored, and what they are summed in.

use bytemuck::Pod;
use half::bf16;
use num_traits::{Float, NumAssign};

use super::kernels::{exponential, vectors::Vectors};

/// A number as it is stored.
pub(crate) trait Element: Copy + Default + Send + Sync + Pod + 'static {
    /// What sums of it are in: `f32` for `bf16` and `f32`, `f64` for `f64`.
    type Sum: Real;

    /// The number, as sums have it.
    fn widen(self) -> Self::Sum;

    /// The nearest number that can be stored; of two equally near, the even one.
    fn narrow(sum: Self::Sum) -> Self;
}

/// A number that sums are in.
pub(crate) trait Real: Element<Sum = Self> + Float + NumAssign + Vectors {
    /// The nearest such number.
    fn of(value: f64) -> Self;

    /// The same number in double precision.
    fn double(self) -> f64;

    /// e to the power of the number, in a form that loops vectorise.
    fn exponential(self) -> Self;
}

impl Element for f64 {
    type Sum = f64;

    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }

    #[inline(always)]
    fn narrow(sum: f64) -> f64 {
        sum
    }
}

impl Element for f32 {
    type Sum = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(sum: f32) -> f32 {
        sum
    }
}

/// Bit arithmetic without branches rather than the conversions of `half`, because loops over it are up to half as fast
/// again.
impl Element for bf16 {
    type Sum = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(sum: f32) -> bf16 {
        let bits = sum.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        // Rounding could carry a NaN into infinity or zero, so it keeps its upper bits and becomes quiet.
        let quiet = (bits >> 16) | 0x40;
        let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
        bf16::from_bits(if is_nan { quiet } else { rounded } as u16)
    }
}

impl Real for f64 {
    #[inline(always)]
    fn of(value: f64) -> f64 {
        value
    }

    #[inline(always)]
    fn double(self) -> f64 {
        self
    }

    #[inline(always)]
    fn exponential(self) -> f64 {
        self.exp()
    }
}

impl Real for f32 {
    #[inline(always)]
    fn of(value: f64) -> f32 {
        value as f32
    }

    #[inline(always)]
    fn double(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn exponential(self) -> f32 {
        exponential::single(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NaNs of every kind, infinities, subnormals, ties and their neighbors, and a sample of everything else.
    fn patterns() -> impl Iterator<Item = u32> {
        let lower = [0, 1, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff];
        let upper_and_lower = (0..=0xffff_u32).flat_map(move |upper| lower.map(|lower| upper << 16 | lower));
        upper_and_lower.chain((0..=u32::MAX).step_by(4093))
    }

    #[test]
    fn brain_floats_are_rounded_as_the_half_crate_rounds_them() {
        for bits in patterns() {
            let number = f32::from_bits(bits);
            assert_eq!(<bf16 as Element>::narrow(number).to_bits(), bf16::from_f32(number).to_bits(), "{bits:#x}");
        }
    }

    #[test]
    fn brain_floats_widen_exactly() {
        for bits in 0..=u16::MAX {
            let number = bf16::from_bits(bits);
            let same = number.widen() == number.to_f32() || number.is_nan() && number.widen().is_nan();
            assert!(same, "{bits:#x}");
            if !number.is_nan() {
                assert_eq!(bf16::narrow(number.widen()).to_bits(), bits);
            }
        }
    }
}
