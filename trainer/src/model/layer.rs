//! A decoder layer.
//!
//! ```text
//! input ─┬─► norm ─► qkv ─► rope ─► attention ─► output ─► + ─┬─► norm ─► gate, up ─► swiglu ─► down ─► + ─► output
//!        └───────────────────────────────────────────────► ┘ └────────────────────────────────────────► ┘
//! ```

use stepscope_plan::Recompute;
use stepscope_traces::{MemoryCategory, Phase};

use super::{Engine, matrices::MatrixGradients, rows::Arriving, weights::LayerTensors};
use crate::backend::{AttentionTensors, Direction, Tensor};

/// What a layer keeps from the forward pass for the backward pass.
pub(crate) struct Kept {
    /// The layer's input. Tokens × hidden.
    input: Tensor,
    /// The rest, unless all of it is computed again.
    rest: Option<Rest>,
}

struct Rest {
    /// The output of the first norm. Tokens × hidden.
    attention_input: Tensor,
    /// What attention had and made, unless it is computed again.
    attention: Option<Attention>,
    /// Between attention and the network, where the second norm begins. Tokens × hidden.
    middle: Tensor,
    /// The output of the second norm. Tokens × hidden.
    ffn_input: Tensor,
    /// Tokens × two widths of the network.
    gate_up: Tensor,
    /// Their product. Tokens × width of the network.
    product: Tensor,
}

struct Attention {
    /// Rotated queries and keys, and values. Tokens × their widths.
    qkv: Tensor,
    /// Tokens × width of the queries.
    out: Tensor,
    /// Logarithms of sums. Tokens × heads.
    lse: Tensor,
}

impl Engine {
    /// The output of a layer, as memory of this category, and what to keep.
    pub(crate) fn layer_forward(
        &self,
        weights: &LayerTensors,
        input: Tensor,
        recompute: Recompute,
        output: MemoryCategory,
    ) -> (Tensor, Kept) {
        let (rest, output) = self.forward_rest(weights, &input, recompute, output);
        let rest = (recompute != Recompute::Full).then_some(rest);
        (output, Kept { input, rest })
    }

    fn forward_rest(
        &self,
        weights: &LayerTensors,
        input: &Tensor,
        recompute: Recompute,
        output: MemoryCategory,
    ) -> (Rest, Tensor) {
        let backend = &self.backend;
        let attention_input = self.rows_here(MemoryCategory::Activations);
        backend.rms_norm(input, &weights.attention_norm, &attention_input);
        let attention = self.attention(weights, &self.gather(&attention_input));
        let middle = self.sum(MemoryCategory::Activations, |middle| {
            self.project(&attention.out, &weights.output, middle);
        });
        backend.add(&middle, input);
        let attention = (recompute != Recompute::Selective).then_some(attention);

        let ffn_input = self.rows_here(MemoryCategory::Activations);
        backend.rms_norm(&middle, &weights.ffn_norm, &ffn_input);
        let gate_up = self.activation(2 * self.sizes.ffn);
        self.project(&self.gather(&ffn_input), &weights.gate_up, &gate_up);
        let product = self.activation(self.sizes.ffn);
        backend.swiglu(&gate_up, &product, self.sizes.ffn);
        let output = self.sum(output, |output| self.project(&product, &weights.down, output));
        backend.add(&output, &middle);
        (Rest { attention_input, attention, middle, ffn_input, gate_up, product }, output)
    }

    fn attention(&self, weights: &LayerTensors, input: &Tensor) -> Attention {
        let qkv = self.activation(self.sizes.heads.qkv_width());
        self.project(input, &weights.qkv, &qkv);
        self.rope(&qkv, Direction::Forward);
        let (out, lse) = self.attend(&qkv);
        Attention { qkv, out, lse }
    }

    /// Turns the gradient of a layer's output into that of its input, in place, and adds to those of its norms. Those of its
    /// matrices are added to, or put off.
    pub(crate) fn layer_backward(
        &self,
        weights: &LayerTensors,
        norms: &LayerTensors,
        matrices: &mut MatrixGradients,
        kept: Kept,
        gradient: &Tensor,
    ) {
        let Kept { input, rest } = kept;
        let rest = rest.unwrap_or_else(|| {
            let _again = self.recorder.phase(Phase::Recompute);
            self.forward_rest(weights, &input, Recompute::None, MemoryCategory::Workspace).0
        });
        let Rest { attention_input, attention, middle, ffn_input, gate_up, product } = rest;
        self.ffn_backward(weights, (norms, matrices), (ffn_input, gate_up, product), gradient, &middle);
        drop(middle);
        let mut attention_input = self.gather_ahead(&attention_input);
        let attention = attention.unwrap_or_else(|| {
            let _again = self.recorder.phase(Phase::Recompute);
            self.attention(weights, &self.here(&mut attention_input))
        });
        self.attention_backward(weights, (norms, matrices), (attention_input, attention), gradient, &input);
    }

    fn ffn_backward(
        &self,
        weights: &LayerTensors,
        (norms, matrices): (&LayerTensors, &mut MatrixGradients),
        (ffn_input, gate_up, product): (Tensor, Tensor, Tensor),
        gradient: &Tensor,
        middle: &Tensor,
    ) {
        let backend = &self.backend;
        let all = self.whole_gradient(matrices, gradient);
        let d_product = self.temporary(self.sizes.ffn);
        self.project_backward(&all, &weights.down, &d_product);
        let ffn_input = self.gather_ahead(&ffn_input);
        self.matrix_backward(matrices, |layer| &layer.down, &all, &product);
        drop((all, product));
        let d_gate_up = self.temporary(2 * self.sizes.ffn);
        backend.swiglu_backward(&gate_up, &d_product, &d_gate_up, self.sizes.ffn);
        drop((gate_up, d_product));
        let d_input = self.sum_ahead(MemoryCategory::Workspace, |d_input| {
            self.project_backward(&d_gate_up, &weights.gate_up, d_input);
        });
        self.matrix_backward(matrices, |layer| &layer.gate_up, &d_gate_up, &self.arrived(ffn_input));
        let d_input = self.arrived(d_input);
        backend.rms_norm_backward(middle, &weights.ffn_norm, &d_input, gradient, &norms.ffn_norm);
    }

    fn attention_backward(
        &self,
        weights: &LayerTensors,
        (norms, matrices): (&LayerTensors, &mut MatrixGradients),
        (attention_input, attention): (Arriving, Attention),
        gradient: &Tensor,
        input: &Tensor,
    ) {
        let backend = &self.backend;
        let all = self.whole_gradient(matrices, gradient);
        let d_out = self.temporary(self.sizes.heads.out_width());
        self.project_backward(&all, &weights.output, &d_out);
        let Attention { qkv, out, lse } = attention;
        self.matrix_backward(matrices, |layer| &layer.output, &all, &out);
        drop(all);
        let d_qkv = self.attend_backward(AttentionTensors { qkv: &qkv, out: &out, lse: &lse }, &d_out);
        drop((qkv, out, lse, d_out));
        self.rope(&d_qkv, Direction::Backward);
        let d_input = self.sum_ahead(MemoryCategory::Workspace, |d_input| {
            self.project_backward(&d_qkv, &weights.qkv, d_input);
        });
        self.matrix_backward(matrices, |layer| &layer.qkv, &d_qkv, &self.arrived(attention_input));
        let d_input = self.arrived(d_input);
        backend.rms_norm_backward(input, &weights.attention_norm, &d_input, gradient, &norms.attention_norm);
    }
}
