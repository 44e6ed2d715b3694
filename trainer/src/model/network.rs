//! The feed-forward network of a layer: one that every token goes through, experts that it chooses, or both.
//!
//! ```text
//! input ─┬─► gate, up ─► swiglu ─► down ─► + ─► output
//!        └─► router, experts ────────────► ┘
//! ```
//!
//! Shared experts are one network, as wide as all of them.

use stepscope_traces::MemoryCategory;

use super::{
    Engine, experts,
    layer::OfLayer,
    matrices::MatrixGradients,
    weights::{LayerTensors, NetworkTensors},
};
use crate::backend::Tensor;

/// What a network keeps from the forward pass for the backward pass.
pub(crate) struct Kept {
    dense: Option<Dense>,
    experts: Option<Box<experts::Kept>>,
}

/// What the network that every token goes through had inside it.
struct Dense {
    /// Tokens × two widths of the network.
    gate_up: Tensor,
    /// Their product. Tokens × width of the network.
    product: Tensor,
}

impl Kept {
    /// That of experts, if there are any.
    pub(crate) fn experts(&self) -> Option<&experts::Kept> {
        self.experts.as_deref()
    }
}

impl Engine {
    /// Takes tokens to where only the last matrices are left.
    pub(crate) fn network_forward(&self, weights: &OfLayer, input: &Tensor) -> Kept {
        let own = weights.own;
        let experts = own.has_experts().then(|| Box::new(self.experts_forward(own.router(), weights.experts(), input)));
        Kept { experts, dense: own.is_dense().then(|| self.dense_forward(own.dense(), input)) }
    }

    fn dense_forward(&self, weights: &NetworkTensors, input: &Tensor) -> Dense {
        let width = weights.width(self.sizes.hidden);
        let gate_up = self.activation(2 * width);
        self.project(input, &weights.gate_up, &gate_up);
        let product = self.activation(width);
        self.backend.swiglu(&gate_up, &product, width);
        Dense { gate_up, product }
    }

    /// What a network gives: this tensor rank's part of it.
    pub(crate) fn network_output(&self, weights: &LayerTensors, kept: &Kept, output: &Tensor) {
        if let Some(experts) = &kept.experts {
            self.experts_output(experts, output);
        }
        if let Some(Dense { product, .. }) = &kept.dense {
            self.project_onto(product, &weights.dense().down, output, kept.experts.is_some());
        }
    }

    /// The gradient of a network's input.
    pub(crate) fn network_backward(
        &self,
        weights: &OfLayer,
        matrices: &mut MatrixGradients,
        (input, Kept { dense, experts }): (Tensor, Kept),
        gradient: &Tensor,
    ) -> Tensor {
        // Experts have rows of their own.
        let all = if dense.is_some() { self.whole_gradient(matrices, gradient) } else { self.gather(gradient) };
        let input = self.gather_ahead(&input);
        let of_experts = experts.map(|kept| self.experts_backward(weights.experts(), matrices, *kept, &all));
        let d_gate_up = dense.map(|kept| self.dense_backward(weights.own, matrices, kept, &all));
        drop(all);
        let d_input = self.sum_ahead(MemoryCategory::Workspace, |d_input| {
            if let Some(of) = &of_experts {
                self.experts_input_gradient(of, weights.own.router(), d_input);
            }
            if let Some(d_gate_up) = &d_gate_up {
                self.project_backward_onto(d_gate_up, &weights.own.dense().gate_up, d_input, of_experts.is_some());
            }
        });
        let input = self.arrived(input);
        if let Some(of) = &of_experts {
            self.matrix_backward(matrices, LayerTensors::router, &of.d_logits, &input);
        }
        if let Some(d_gate_up) = &d_gate_up {
            self.matrix_backward(matrices, |layer| &layer.dense().gate_up, d_gate_up, &input);
        }
        self.arrived(d_input)
    }

    /// The gradient of gate and up.
    fn dense_backward(
        &self,
        weights: &LayerTensors,
        matrices: &mut MatrixGradients,
        Dense { gate_up, product }: Dense,
        gradient: &Tensor,
    ) -> Tensor {
        let network = weights.dense();
        let width = network.width(self.sizes.hidden);
        let d_product = self.temporary(width);
        self.project_backward(gradient, &network.down, &d_product);
        self.matrix_backward(matrices, |layer| &layer.dense().down, gradient, &product);
        drop(product);
        let d_gate_up = self.temporary(2 * width);
        self.backend.swiglu_backward(&gate_up, &d_product, &d_gate_up, width);
        d_gate_up
    }
}
