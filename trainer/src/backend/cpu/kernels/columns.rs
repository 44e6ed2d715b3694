//! Columns of rows, on their way to other rows.

use super::{Columns, Element, Real, vectorised};

/// Copies columns of every row, or adds them, into another form of storage.
pub(crate) fn columns<A: Element, B: Element>(columns: Columns, from: &[A], to: &mut [B]) {
    let Columns { count, from: (from_width, from_first), to: (to_width, to_first), accumulate } = columns;
    assert_eq!(from.len() / from_width, to.len() / to_width, "{columns:?}");
    vectorised(
        #[inline(always)]
        || {
            for (from, to) in from.chunks_exact(from_width).zip(to.chunks_exact_mut(to_width)) {
                let (from, to) = (&from[from_first..from_first + count], &mut to[to_first..to_first + count]);
                for (to, from) in to.iter_mut().zip(from) {
                    let value = B::Sum::of(from.widen().double());
                    *to = B::narrow(if accumulate { to.widen() + value } else { value });
                }
            }
        },
    );
}
