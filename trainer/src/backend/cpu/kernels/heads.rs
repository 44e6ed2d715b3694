//! How the heads of attention lie in memory.

use std::ops::Range;

use super::Heads;

use super::Real;

impl Heads {
    /// What scores are multiplied by.
    pub(crate) fn scale<S: Real>(&self) -> S {
        S::of((self.head_dim as f64).sqrt().recip())
    }

    /// Stops at slices that are not those of this shape.
    pub(crate) fn check(&self, qkv: usize, out: usize, lse: usize) {
        assert_eq!(qkv, self.tokens() * self.qkv_width(), "qkv of {self:?}");
        assert_eq!(out, self.tokens() * self.out_width(), "out of {self:?}");
        assert_eq!(lse, self.tokens() * self.heads, "lse of {self:?}");
        assert!(self.heads.is_multiple_of(self.kv_heads), "{self:?}");
    }

    /// The elements of a sequence in a slice of rows of so many elements.
    pub(crate) fn span(&self, sequence: usize, width: usize) -> Range<usize> {
        sequence * self.sequence * width..(sequence + 1) * self.sequence * width
    }

    /// The query heads that share a key head.
    pub(crate) fn group(&self, kv_head: usize) -> Range<usize> {
        let size = self.heads / self.kv_heads;
        kv_head * size..(kv_head + 1) * size
    }

    /// Where in a row of qkv a key head begins.
    pub(crate) fn key(&self, kv_head: usize) -> usize {
        (self.heads + kv_head) * self.head_dim
    }

    /// Where in a row of qkv a value head begins.
    pub(crate) fn value(&self, kv_head: usize) -> usize {
        (self.heads + self.kv_heads + kv_head) * self.head_dim
    }
}
