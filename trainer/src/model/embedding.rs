//! The embedding: each rank has some rows of the table.

use stepscope_plan::Slot;
use stepscope_traces::MemoryCategory;

use super::Engine;
use crate::backend::Tensor;

impl Engine {
    /// A row for each token.
    pub(crate) fn embedding_forward(&self, tokens: &Tensor, table: &Tensor, slot: &Slot) -> Tensor {
        self.sum(MemoryCategory::Activations, |out| {
            self.backend.embedding(tokens, table, out, self.sizes.hidden, slot.first_row as u32);
        })
    }

    /// Adds each token's gradient to its row.
    pub(crate) fn embedding_backward(&self, tokens: &Tensor, gradient: &Tensor, d_table: &Tensor, slot: &Slot) {
        let gradient = self.gather(gradient);
        self.backend.embedding_backward(tokens, &gradient, d_table, self.sizes.hidden, slot.first_row as u32);
    }
}
