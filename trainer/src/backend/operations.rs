//! The shapes and settings of operations.

/// What every norm adds to the mean square.
pub(crate) const NORM_EPSILON: f64 = 1e-5;
/// The slowest rotation of positions.
pub(crate) const ROPE_BASE: f64 = 10_000.0;

/// A matrix product, `out (+)= a · b`, all row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// What is summed over.
    pub inner: usize,
    /// Whether `a` is stored inner × rows.
    pub transpose_a: bool,
    /// Whether `b` is stored columns × inner.
    pub transpose_b: bool,
    /// Whether the result is added to what is there.
    pub accumulate: bool,
}

impl Product {
    /// Of matrices that are stored as they are multiplied; the result is overwritten.
    pub(crate) fn plain(rows: usize, columns: usize, inner: usize) -> Product {
        Product { rows, columns, inner, transpose_a: false, transpose_b: false, accumulate: false }
    }
}

/// The heads of an attention: a row of `qkv` is all query heads, then the key heads, then the value heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Sequences.
    pub batch: usize,
    /// Tokens of each.
    pub sequence: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Whether a query sees the keys up to its own position, or all of them.
    pub causal: bool,
}

/// Columns of rows, on their way to other rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// How many.
    pub count: usize,
    /// Width of the rows that they come from, and the first of them there.
    pub from: (usize, usize),
    /// Width of the rows that they go to, and where.
    pub to: (usize, usize),
    /// Whether they are added to what is there.
    pub accumulate: bool,
}

impl Heads {
    /// Rows of qkv.
    pub(crate) fn tokens(&self) -> usize {
        self.batch * self.sequence
    }

    /// Elements of a row of qkv.
    pub(crate) fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Elements of a row of the result.
    pub(crate) fn out_width(&self) -> usize {
        self.heads * self.head_dim
    }
}

/// What a token's loss is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossWeights {
    /// Scales all of it, so that tokens add up to their mean.
    pub scale: f64,
    /// Of the square of the logarithm of the sum of exponentials, beside the cross-entropy: it keeps logits from drifting.
    pub z: f64,
}

/// Which way a rotation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As in the forward pass.
    Forward,
    /// Back: the gradient of it.
    Backward,
}

/// Added to the norm of a gradient before it is divided by.
pub(crate) const CLIP_EPSILON: f64 = 1e-6;

/// The settings of AdamW, and which step it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// How far a step goes.
    pub learning_rate: f64,
    /// Memory of the mean.
    pub beta1: f64,
    /// Memory of the square.
    pub beta2: f64,
    /// Keeps the division finite.
    pub epsilon: f64,
    /// How fast weights shrink.
    pub weight_decay: f64,
    /// The longest a gradient may be, over all parameters; longer ones are scaled.
    pub clip: Option<f64>,
    /// Which step this is, from 1.
    pub step: u64,
}
