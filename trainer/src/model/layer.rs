//! A decoder layer.
//!
//! ```text
//! input ─┬─► norm ─► qkv ─► rope ─► attention ─► output ─► + ─┬─► norm ─► gate, up ─► swiglu ─► down ─► + ─► output
//!        └───────────────────────────────────────────────► ┘ └────────────────────────────────────────► ┘
//! ```

use stepscope_plan::Recompute;
use stepscope_traces::{MemoryCategory, Phase};

use super::{
    Engine, experts::ExpertTensors, matrices::MatrixGradients, network, rows::Arriving, weights::LayerTensors,
};
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
    network: network::Kept,
}

/// What a forward pass leaves behind besides what is kept.
pub(crate) struct WentThrough<'a> {
    /// What is added to.
    pub(crate) loss: &'a Tensor,
    /// How many rows each of the experts here got.
    pub(crate) rows_of_experts: Vec<usize>,
}

/// The parameters of a layer, or their gradients.
pub(crate) struct OfLayer<'a> {
    pub(crate) own: &'a LayerTensors,
    /// The experts of it that are here, if it has any.
    pub(crate) experts: Option<&'a ExpertTensors>,
}

impl<'a> OfLayer<'a> {
    /// The experts of it that are here.
    ///
    /// # Panics
    /// When they are missing.
    pub(crate) fn experts(&self) -> &'a ExpertTensors {
        self.experts.unwrap_or_else(|| panic!("a layer with experts comes without them"))
    }
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
    /// The output of a layer, as memory of this category, and what to keep. Adds to the loss, if the layer has one of its own.
    pub(crate) fn layer_forward(
        &self,
        weights: &OfLayer,
        input: Tensor,
        (recompute, output): (Recompute, MemoryCategory),
        went_through: &mut WentThrough,
    ) -> (Tensor, Kept) {
        let (rest, output) = self.forward_rest(weights, &input, recompute, output);
        if let Some(kept) = rest.network.experts() {
            self.add_balance_loss(kept, went_through.loss);
            went_through.rows_of_experts.extend(kept.rows_of_experts());
        }
        let rest = (recompute != Recompute::Full).then_some(rest);
        (output, Kept { input, rest })
    }

    fn forward_rest(
        &self,
        of_layer: &OfLayer,
        input: &Tensor,
        recompute: Recompute,
        output: MemoryCategory,
    ) -> (Rest, Tensor) {
        let (backend, weights) = (&self.backend, of_layer.own);
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
        let network = self.network_forward(of_layer, &self.gather(&ffn_input));
        let output = self.sum(output, |output| self.network_output(weights, &network, output));
        backend.add(&output, &middle);
        (Rest { attention_input, attention, middle, ffn_input, network }, output)
    }

    fn attention(&self, weights: &LayerTensors, input: &Tensor) -> Attention {
        let qkv = self.activation(self.sizes.heads.qkv_width());
        self.project(input, &weights.qkv, &qkv);
        self.rope(&qkv, Direction::Forward);
        let (out, lse) = self.attend(&qkv);
        Attention { qkv, out, lse }
    }

    /// Turns the gradient of a layer's output into that of its input, in place, and adds to those of its norms. Those of its
    /// matrices and of its experts are added to, or put off.
    pub(crate) fn layer_backward(
        &self,
        weights: &OfLayer,
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
        let Rest { attention_input, attention, middle, ffn_input, network } = rest;
        let d_input = self.network_backward(weights, matrices, (ffn_input, network), gradient);
        let weights = weights.own;
        self.backend.rms_norm_backward(&middle, &weights.ffn_norm, &d_input, gradient, &norms.ffn_norm);
        drop((middle, d_input));
        let mut attention_input = self.gather_ahead(&attention_input);
        let attention = attention.unwrap_or_else(|| {
            let _again = self.recorder.phase(Phase::Recompute);
            self.attention(weights, &self.here(&mut attention_input))
        });
        self.attention_backward(weights, (norms, matrices), (attention_input, attention), gradient, &input);
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
