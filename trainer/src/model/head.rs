//! The head: the final norm, the logits, and the loss. Each rank has the logits of some of the vocabulary.

use stepscope_traces::MemoryCategory;

use super::Engine;
use crate::backend::{LossWeights, Tensor, Vocabulary};

/// The parameters of the head, or their gradients.
pub(crate) struct HeadTensors {
    /// hidden
    pub(crate) norm: Tensor,
    /// vocabulary here × hidden: the embedding itself, where they are tied.
    pub(crate) matrix: Tensor,
    /// The first token of the vocabulary here.
    pub(crate) first: u32,
}

/// What the head keeps for the backward pass.
pub(crate) struct Kept {
    /// Tokens × hidden.
    input: Tensor,
    /// Tokens × hidden.
    normed: Tensor,
    /// Tokens × vocabulary here.
    logits: Tensor,
    /// The largest logit of each token.
    maxima: Tensor,
    /// Sums of exponentials, then logits of targets.
    sums: Tensor,
}

impl Engine {
    /// Adds the scaled loss of these tokens to `total`.
    pub(crate) fn head_forward(
        &self,
        weights: &HeadTensors,
        input: Tensor,
        targets: &Tensor,
        loss: LossWeights,
        total: &Tensor,
    ) -> Kept {
        let backend = &self.backend;
        let normed = self.rows_here(MemoryCategory::Activations);
        backend.rms_norm(&input, &weights.norm, &normed);
        let logits = self.temporary(weights.matrix.elements() / self.sizes.hidden);
        self.project(&self.gather(&normed), &weights.matrix, &logits);
        let maxima = self.sums(1, MemoryCategory::Workspace);
        backend.row_maxima(&logits, &maxima);
        self.tensor.maximum(&maxima);
        let sums = self.sums(2, MemoryCategory::Workspace);
        backend.row_sums(&logits, Vocabulary { targets, first: weights.first }, &maxima, &sums);
        self.tensor.sum(&sums);
        backend.loss(&maxima, &sums, loss, total);
        Kept { input, normed, logits, maxima, sums }
    }

    /// The gradient of the head's input.
    pub(crate) fn head_backward(
        &self,
        weights: &HeadTensors,
        gradients: &HeadTensors,
        kept: Kept,
        targets: &Tensor,
        loss: LossWeights,
    ) -> Tensor {
        let backend = &self.backend;
        let Kept { input, normed, logits, maxima, sums } = kept;
        let normed = self.gather_ahead(&normed);
        let d_logits = self.temporary(weights.matrix.elements() / self.sizes.hidden);
        let vocabulary = Vocabulary { targets, first: weights.first };
        backend.loss_backward(&logits, vocabulary, (&maxima, &sums), loss, &d_logits);
        drop((logits, maxima, sums));
        let d_normed = self.sum_ahead(MemoryCategory::Workspace, |d_normed| {
            self.project_backward(&d_logits, &weights.matrix, d_normed);
        });
        self.weight_backward(&d_logits, &self.arrived(normed), &gradients.matrix);
        drop(d_logits);
        let d_normed = self.arrived(d_normed);
        let gradient = self.rows_here(MemoryCategory::Workspace);
        backend.zero(&gradient);
        backend.rms_norm_backward(&input, &weights.norm, &d_normed, &gradient, &gradients.norm);
        gradient
    }
}
