//! The processor's vectors, for the loops that the compiler does not vectorise well by itself.

use pulp::Simd;

/// A number of which the processor has vectors.
pub(crate) trait Vectors: Sized {
    /// A vector of a processor's kind.
    type Vector<V: Simd>: Copy;

    /// A slice as vectors, without the rest that is shorter than one.
    fn vectors<V: Simd>(values: &[Self]) -> &[Self::Vector<V>];

    /// A slice as vectors to write to, without the rest that is shorter than one.
    fn vectors_mut<V: Simd>(values: &mut [Self]) -> &mut [Self::Vector<V>];

    /// A vector of the same number.
    fn splat<V: Simd>(simd: V, value: Self) -> Self::Vector<V>;

    /// The larger of every two numbers.
    fn larger<V: Simd>(simd: V, a: Self::Vector<V>, b: Self::Vector<V>) -> Self::Vector<V>;

    /// The largest number of a vector.
    fn largest<V: Simd>(simd: V, vector: Self::Vector<V>) -> Self;

    /// The sum of every two numbers.
    fn sum<V: Simd>(simd: V, a: Self::Vector<V>, b: Self::Vector<V>) -> Self::Vector<V>;

    /// The sum of the numbers of a vector.
    fn total<V: Simd>(simd: V, vector: Self::Vector<V>) -> Self;

    /// a · b + c, rounded once if the processor can.
    fn multiply_add<V: Simd>(simd: V, a: Self::Vector<V>, b: Self::Vector<V>, c: Self::Vector<V>) -> Self::Vector<V>;
}

impl Vectors for f32 {
    type Vector<V: Simd> = V::f32s;

    #[inline(always)]
    fn vectors<V: Simd>(values: &[f32]) -> &[V::f32s] {
        V::as_simd_f32s(values).0
    }

    #[inline(always)]
    fn vectors_mut<V: Simd>(values: &mut [f32]) -> &mut [V::f32s] {
        V::as_mut_simd_f32s(values).0
    }

    #[inline(always)]
    fn splat<V: Simd>(simd: V, value: f32) -> V::f32s {
        simd.splat_f32s(value)
    }

    #[inline(always)]
    fn larger<V: Simd>(simd: V, a: V::f32s, b: V::f32s) -> V::f32s {
        simd.max_f32s(a, b)
    }

    #[inline(always)]
    fn largest<V: Simd>(simd: V, vector: V::f32s) -> f32 {
        simd.reduce_max_f32s(vector)
    }

    #[inline(always)]
    fn sum<V: Simd>(simd: V, a: V::f32s, b: V::f32s) -> V::f32s {
        simd.add_f32s(a, b)
    }

    #[inline(always)]
    fn total<V: Simd>(simd: V, vector: V::f32s) -> f32 {
        simd.reduce_sum_f32s(vector)
    }

    #[inline(always)]
    fn multiply_add<V: Simd>(simd: V, a: V::f32s, b: V::f32s, c: V::f32s) -> V::f32s {
        simd.mul_add_e_f32s(a, b, c)
    }
}

impl Vectors for f64 {
    type Vector<V: Simd> = V::f64s;

    #[inline(always)]
    fn vectors<V: Simd>(values: &[f64]) -> &[V::f64s] {
        V::as_simd_f64s(values).0
    }

    #[inline(always)]
    fn vectors_mut<V: Simd>(values: &mut [f64]) -> &mut [V::f64s] {
        V::as_mut_simd_f64s(values).0
    }

    #[inline(always)]
    fn splat<V: Simd>(simd: V, value: f64) -> V::f64s {
        simd.splat_f64s(value)
    }

    #[inline(always)]
    fn larger<V: Simd>(simd: V, a: V::f64s, b: V::f64s) -> V::f64s {
        simd.max_f64s(a, b)
    }

    #[inline(always)]
    fn largest<V: Simd>(simd: V, vector: V::f64s) -> f64 {
        simd.reduce_max_f64s(vector)
    }

    #[inline(always)]
    fn sum<V: Simd>(simd: V, a: V::f64s, b: V::f64s) -> V::f64s {
        simd.add_f64s(a, b)
    }

    #[inline(always)]
    fn total<V: Simd>(simd: V, vector: V::f64s) -> f64 {
        simd.reduce_sum_f64s(vector)
    }

    #[inline(always)]
    fn multiply_add<V: Simd>(simd: V, a: V::f64s, b: V::f64s, c: V::f64s) -> V::f64s {
        simd.mul_add_e_f64s(a, b, c)
    }
}
