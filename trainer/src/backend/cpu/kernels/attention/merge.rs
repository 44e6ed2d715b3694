//! Attention to some keys and attention to others, made into attention to all of them.

use num_traits::Float;

use super::super::{Element, Real, vectorised};

/// Makes the result of attention to some keys, and the logarithms of its rows' sums, that of attention to more of them: each
/// counts by its sum.
pub(crate) fn merge_attention<E: Element>(
    head_dim: usize,
    (out, lse): (&mut [E::Sum], &mut [E::Sum]),
    (more, more_lse): (&[E], &[E::Sum]),
) {
    assert!(out.len() == more.len() && lse.len() == more_lse.len(), "{} {}", out.len(), more.len());
    assert_eq!(out.len(), lse.len() * head_dim);
    vectorised(
        #[inline(always)]
        || {
            let heads = out.chunks_exact_mut(head_dim).zip(more.chunks_exact(head_dim));
            for ((out, more), (lse, more_lse)) in heads.zip(lse.iter_mut().zip(more_lse)) {
                let largest = if *lse > *more_lse { *lse } else { *more_lse };
                let sum = largest + ((*lse - largest).exponential() + (*more_lse - largest).exponential()).ln();
                let (share, more_share) = ((*lse - sum).exponential(), (*more_lse - sum).exponential());
                for (out, more) in out.iter_mut().zip(more) {
                    *out = *out * share + more.widen() * more_share;
                }
                *lse = sum;
            }
        },
    );
}
