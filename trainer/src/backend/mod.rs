//! What a device does: memory, streams, and the operations a model is made of.

pub mod cpu;
pub mod cuda;
mod experts;
mod operations;
mod tensor;
mod work;

use std::{any::Any, sync::Arc};

use stepscope_traces::MemoryCategory;

pub use experts::{ExpertOperations, Factors, Routed, Routing};
pub use operations::{AdamW, Columns, Direction, Heads, LossWeights, Product};
pub use tensor::{DType, Tensor};

use crate::error::TrainError;

/// A queue of work that is done in order; several of them make progress side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Where the model is computed.
    Compute,
    /// Where replicas talk while it is.
    Communication,
    /// Where a stage hands on what it has made: that may wait for the next stage, and replicas must not wait behind it.
    Messages,
}

impl Stream {
    /// All of them.
    pub const ALL: [Stream; 3] = [Stream::Compute, Stream::Communication, Stream::Messages];

    /// Its number in a recording.
    pub fn number(self) -> stepscope_traces::Stream {
        stepscope_traces::Stream(self as u32)
    }
}

/// A point in a stream's work that others can wait for.
#[derive(Clone)]
pub struct Event(pub(crate) Arc<dyn Any + Send + Sync>);

/// The tensors a step of the optimizer reads and writes: equally many numbers each.
pub struct OptimizerTensors<'a> {
    /// Gradients, read.
    pub gradients: &'a Tensor,
    /// Parameters in the precision they compute in.
    pub parameters: &'a Tensor,
    /// Their master copy, where they have one.
    pub master: Option<&'a Tensor>,
    /// Running means.
    pub first_moment: &'a Tensor,
    /// Running squares.
    pub second_moment: &'a Tensor,
    /// One number: the squares of the gradient, of all parameters. Read where gradients are clipped.
    pub squares: &'a Tensor,
}

/// A device. Operations are queued on the compute stream and done later, in order; each is recorded when it is done.
/// What goes wrong in one is told by the next [`Backend::synchronize`].
///
/// Shapes follow from the arguments: `width` is the length of a row. Gradients of parameters are added to what is
/// there, since micro-batches add up; gradients of activations are overwritten unless it says otherwise.
///
/// Memory goes back in order of the compute stream. So before the last tensor of a block that another stream
/// uses is dropped, the compute stream has to wait for that use.
pub trait Backend: ExpertOperations + Send + Sync {
    /// Takes memory, in order of the compute stream; what is in it is undefined.
    fn allocate(&self, elements: usize, dtype: DType, category: MemoryCategory) -> Tensor;
    /// Writes numbers of the host, rounded to how the tensor stores them.
    fn upload(&self, values: Vec<f32>, to: &Tensor);
    /// Writes tokens of the host.
    fn upload_tokens(&self, tokens: Vec<u32>, to: &Tensor);
    /// Waits for the compute stream and reads a tensor of numbers.
    fn download(&self, from: &Tensor) -> Result<Vec<f64>, TrainError>;
    /// Copies, converting between ways to store.
    fn copy(&self, from: &Tensor, to: &Tensor);
    /// Fills with zeros.
    fn zero(&self, tensor: &Tensor);

    /// Marks the end of what a stream has been given so far.
    fn record(&self, stream: Stream) -> Event;
    /// Lets a stream go on only after an event.
    fn wait(&self, stream: Stream, event: &Event);
    /// Waits until everything is done, and tells what went wrong.
    fn synchronize(&self) -> Result<(), TrainError>;
    /// Takes back what it told of where nobody can act on it: the next [`Backend::synchronize`] tells it again.
    fn tell_later(&self, error: TrainError);

    /// A matrix product.
    fn matmul(&self, product: Product, a: &Tensor, b: &Tensor, out: &Tensor);
    /// `target += other`.
    fn add(&self, target: &Tensor, other: &Tensor);
    /// Divides each row by its root mean square and scales it by the weights.
    fn rms_norm(&self, x: &Tensor, weight: &Tensor, y: &Tensor);
    /// Adds to `d_x`, the gradient that passes by the norm.
    fn rms_norm_backward(&self, x: &Tensor, weight: &Tensor, d_y: &Tensor, d_x: &Tensor, d_weight: &Tensor);
    /// Copies columns of all rows, or adds them, converting between ways to store.
    fn columns(&self, columns: Columns, from: &Tensor, to: &Tensor);
    /// Rotates queries and keys by their position, in place; positions of each sequence begin with `first`.
    fn rope(&self, heads: Heads, first: usize, qkv: &Tensor, direction: Direction);
    /// Attention; `lse` takes the logarithm of each row's sum. The square of scores is never there.
    fn attention(&self, heads: Heads, qkv: &Tensor, out: &Tensor, lse: &Tensor);
    /// Its gradient, from the inputs, the output and the logarithms.
    fn attention_backward(&self, heads: Heads, of: AttentionTensors<'_>, d_out: &Tensor, d_qkv: &Tensor);
    /// Makes the result of attention to some keys, and its logarithms, that of attention to more of them.
    fn merge_attention(&self, heads: Heads, of: [&Tensor; 2], more: [&Tensor; 2]);
    /// `silu(gate) · up`; a row of `gate_up` is the gate and then what it lets through.
    fn swiglu(&self, gate_up: &Tensor, product: &Tensor, width: usize);
    /// Its gradient.
    fn swiglu_backward(&self, gate_up: &Tensor, d_product: &Tensor, d_gate_up: &Tensor, width: usize);
    /// Looks tokens up in a table that holds the vocabulary from `first` on; others give zeros.
    fn embedding(&self, tokens: &Tensor, table: &Tensor, out: &Tensor, width: usize, first: u32);
    /// Adds each token's gradient to its row.
    fn embedding_backward(&self, tokens: &Tensor, d_out: &Tensor, d_table: &Tensor, width: usize, first: u32);
    /// The largest logit of each row.
    fn row_maxima(&self, logits: &Tensor, maxima: &Tensor);
    /// Sums of each row's exponentials, then each target's logit: zero where `vocabulary` does not have it.
    fn row_sums(&self, logits: &Tensor, vocabulary: Vocabulary<'_>, maxima: &Tensor, sums: &Tensor);
    /// Adds the loss of all rows to one number.
    fn loss(&self, maxima: &Tensor, sums: &Tensor, weights: LossWeights, total: &Tensor);
    /// Its gradient.
    fn loss_backward(
        &self,
        logits: &Tensor,
        vocabulary: Vocabulary<'_>,
        row: (&Tensor, &Tensor),
        weights: LossWeights,
        d_logits: &Tensor,
    );
    /// Adds the squares of all values to one number.
    fn add_squares(&self, values: &Tensor, total: &Tensor);
    /// One step of the optimizer.
    fn adamw(&self, settings: AdamW, tensors: OptimizerTensors<'_>);
}

/// What attention had and made.
#[derive(Clone, Copy)]
pub struct AttentionTensors<'a> {
    /// Rotated queries and keys, and values.
    pub qkv: &'a Tensor,
    /// Its output.
    pub out: &'a Tensor,
    /// The logarithm of each row's sum.
    pub lse: &'a Tensor,
}

/// The targets of logits that cover a part of the vocabulary.
#[derive(Clone, Copy)]
pub struct Vocabulary<'a> {
    /// The token each row should give.
    pub targets: &'a Tensor,
    /// The first token these logits are of.
    pub first: u32,
}
