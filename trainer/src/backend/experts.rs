//! What mixtures of experts need of a device, beside what all models do.

use super::{Product, Tensor};
use crate::error::TrainError;

/// How tokens choose experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Sequences.
    pub sequences: usize,
    /// Tokens of each, wherever they are.
    pub sequence: usize,
    /// How many of them lie together here: all, or those of a chunk. Chunks lie one after another, each with all sequences.
    pub chunk: usize,
    /// Experts to choose from.
    pub experts: usize,
    /// How many of them a token goes through.
    pub top_k: usize,
    /// The weight of a sequence's balance loss.
    pub balance: f64,
}

impl Routing {
    /// To which sequence a token belongs.
    pub(crate) fn sequence_of(&self, token: usize) -> usize {
        token / self.chunk % self.sequences
    }

    /// How much the loss grows with a probability of an expert, for each time that a token of the sequence chose this one.
    pub(crate) fn slope(&self) -> f64 {
        let Routing { sequence, experts, top_k, balance, .. } = *self;
        let tokens = sequence as f64;
        balance * experts as f64 / (top_k as f64 * tokens) / tokens
    }
}

/// What tokens chose.
#[derive(Clone, Copy)]
pub struct Routed<'a> {
    /// Tokens × experts.
    pub probabilities: &'a Tensor,
    /// Of those that were chosen, adding up to one. Tokens × choices.
    pub weights: &'a Tensor,
    /// Which ones. Tokens × choices.
    pub choices: &'a Tensor,
    /// How often each sequence chose each expert, wherever its tokens are. Sequences × experts.
    pub counts: &'a Tensor,
}

/// One of several products: `out (+)= a · b`.
#[derive(Clone)]
pub struct Factors {
    /// Its shape.
    pub product: Product,
    /// The first factor.
    pub a: Tensor,
    /// The second one.
    pub b: Tensor,
    /// The result.
    pub out: Tensor,
}

/// Operations of mixtures of experts, queued as those of a [`Backend`](super::Backend) are.
///
/// `order` has the numbers of all choices sorted by expert, `places` the row of each choice among those sorted.
pub trait ExpertOperations {
    /// Chooses experts. `probabilities` has logits before.
    fn route(&self, routing: Routing, routed: Routed<'_>);
    /// Counts what the tokens here chose.
    fn count_choices(&self, routing: Routing, routed: Routed<'_>);
    /// Adds the balance loss of all sequences to one number: what the tokens here make up of it.
    fn balance_loss(&self, routing: Routing, routed: Routed<'_>, total: &Tensor);
    /// The gradient of the logits, from that of the weights and of the balance loss.
    fn route_backward(&self, routing: Routing, routed: Routed<'_>, d_weights: &Tensor, d_logits: &Tensor);
    /// Waits for the compute stream and reads what was chosen.
    fn choices(&self, choices: &Tensor) -> Result<Vec<u32>, TrainError>;
    /// Sorts rows of tokens by expert.
    fn dispatch(&self, tokens: &Tensor, order: &Tensor, sorted: &Tensor, top_k: usize);
    /// Adds up the rows of each token's choices, by their weights if they have any.
    fn combine(&self, sorted: &Tensor, places: &Tensor, weights: Option<&Tensor>, tokens: &Tensor, top_k: usize);
    /// The gradients of what is combined: of its rows and of the weights.
    fn combine_backward(
        &self,
        d_tokens: &Tensor,
        of: (&Tensor, &Tensor, &Tensor),
        gradients: (&Tensor, &Tensor),
        top_k: usize,
    );
    /// Products that need not wait for each other, such as those of all experts: as few launches as the device can.
    fn products(&self, products: &[Factors]);
}
