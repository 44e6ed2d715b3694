//! The embedding: each rank has some rows of the table.

use stepscope_plan::Slot;

use super::Engine;
use crate::backend::Tensor;

impl Engine {
    /// A row for each token.
    pub(crate) fn embedding_forward(&self, tokens: &Tensor, table: &Tensor, slot: &Slot) -> Tensor {
        let out = self.activation(self.sizes.hidden);
        self.backend.embedding(tokens, table, &out, self.sizes.hidden, slot.first_row as u32);
        self.tensor.sum(&out);
        out
    }

    /// Adds each token's gradient to its row.
    pub(crate) fn embedding_backward(&self, tokens: &Tensor, gradient: &Tensor, d_table: &Tensor, slot: &Slot) {
        self.backend.embedding_backward(tokens, gradient, d_table, self.sizes.hidden, slot.first_row as u32);
    }
}
