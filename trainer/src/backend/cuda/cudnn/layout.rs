//! Where the numbers of each head lie.

use crate::backend::Heads;

/// Four axes: sequences, heads, rows and columns of each head.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) sizes: [i64; 4],
    /// Elements from one to the next.
    pub(super) strides: [i64; 4],
}

impl Layout {
    /// One after another.
    pub(super) fn packed(sizes: [usize; 4]) -> Layout {
        let [_, heads, rows, columns] = sizes;
        Layout::strided(sizes, [heads * rows * columns, rows * columns, columns, 1])
    }

    /// Of so many heads, in rows of tokens that are `width` long.
    fn in_rows(of: Heads, heads: usize, width: usize) -> Layout {
        let Heads { batch, sequence, head_dim, .. } = of;
        Layout::strided([batch, heads, sequence, head_dim], [sequence * width, head_dim, width, 1])
    }

    /// The queries in qkv.
    pub(super) fn queries(of: Heads) -> Layout {
        Layout::in_rows(of, of.heads, of.qkv_width())
    }

    /// The keys, or the values, in qkv.
    pub(super) fn keys(of: Heads) -> Layout {
        Layout::in_rows(of, of.kv_heads, of.qkv_width())
    }

    /// The result.
    pub(super) fn out(of: Heads) -> Layout {
        Layout::in_rows(of, of.heads, of.out_width())
    }

    /// One number of each query.
    pub(super) fn statistics(of: Heads) -> Layout {
        Layout::packed([of.batch, of.heads, of.sequence, 1])
    }

    /// One number of each query and key: what kernels hold in tiles.
    pub(super) fn scores(of: Heads) -> Layout {
        Layout::packed([of.batch, of.heads, of.sequence, of.sequence])
    }

    /// As many numbers as queries have, one head after another.
    pub(super) fn apart(of: Heads) -> Layout {
        Layout::packed([of.batch, of.heads, of.sequence, of.head_dim])
    }

    /// Rows and columns exchanged.
    pub(super) fn transposed(mut self) -> Layout {
        self.sizes.swap(2, 3);
        self.strides.swap(2, 3);
        self
    }

    /// How many numbers there are.
    pub(super) fn elements(&self) -> usize {
        self.sizes.iter().product::<i64>() as usize
    }

    fn strided(sizes: [usize; 4], strides: [usize; 4]) -> Layout {
        Layout { sizes: sizes.map(|size| size as i64), strides: strides.map(|stride| stride as i64) }
    }
}
