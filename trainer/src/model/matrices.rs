//! The gradients of a layer's matrices: nobody waits for them, so they may be computed later than those of its inputs.

use super::{Engine, weights::LayerTensors};
use crate::backend::Tensor;

/// Which matrix of a layer.
type Matrix = fn(&LayerTensors) -> &Tensor;

/// Where the gradients of a layer's matrices go.
pub(crate) enum MatrixGradients<'a> {
    /// Into these tensors, at once.
    Now(&'a LayerTensors),
    /// Put off, until a stage has nothing better to do.
    Later(Vec<PutOff>),
}

/// A gradient of a matrix that is put off, and what it will be made of.
pub(crate) struct PutOff {
    matrix: Matrix,
    /// Of the matrix's output. Tokens × outputs.
    gradient: Tensor,
    /// Of the matrix. Tokens × inputs.
    input: Tensor,
}

impl Engine {
    /// Adds to the gradient of a matrix, or remembers to.
    pub(crate) fn matrix_backward(
        &self,
        gradients: &mut MatrixGradients,
        matrix: Matrix,
        gradient: &Tensor,
        input: &Tensor,
    ) {
        match gradients {
            MatrixGradients::Now(gradients) => self.weight_backward(gradient, input, matrix(gradients)),
            MatrixGradients::Later(put_off) => {
                put_off.push(PutOff { matrix, gradient: gradient.clone(), input: input.clone() });
            }
        }
    }

    /// Adds to the gradients what was put off, and frees what it was made of.
    pub(crate) fn catch_up(&self, put_off: Vec<PutOff>, gradients: &LayerTensors) {
        for PutOff { matrix, gradient, input } in put_off {
            self.weight_backward(&gradient, &input, matrix(gradients));
        }
    }

    /// The gradient of what all ranks' rows become in a layer. It stays as it is while the layer goes on in place, if that is
    /// needed later.
    pub(crate) fn whole_gradient(&self, gradients: &MatrixGradients, gradient: &Tensor) -> Tensor {
        let whole = self.gather(gradient);
        if matches!(gradients, MatrixGradients::Now(_)) || self.tensor.shares_rows() {
            return whole;
        }
        let copy = self.temporary(self.sizes.hidden);
        self.backend.copy(&whole, &copy);
        copy
    }
}
