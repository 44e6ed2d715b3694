//! The gradients of a layer's matrices: nobody waits for them, so they may be computed later than those of its inputs.

use super::{
    Engine,
    layer::OfLayer,
    weights::{LayerTensors, NetworkTensors},
};
use crate::{backend::Tensor, parallel::expert::Routes};

/// Which matrix of a layer.
type Matrix = fn(&LayerTensors) -> &Tensor;

/// Which matrix of each expert.
type ExpertMatrix = fn(&NetworkTensors) -> &Tensor;

/// Where the gradients of a layer's matrices go.
pub(crate) enum MatrixGradients<'a> {
    /// Into these tensors, at once.
    Now(&'a OfLayer<'a>),
    /// Put off, until a stage has nothing better to do.
    Later(Vec<PutOff>),
}

/// A gradient that is put off, and what it will be made of.
pub(crate) struct PutOff {
    of: PutOffMatrix,
    /// Of the output. Rows × outputs.
    gradient: Tensor,
    /// Rows × inputs.
    input: Tensor,
}

enum PutOffMatrix {
    Own(Matrix),
    /// A matrix of each expert here, which got these rows.
    OfExperts(ExpertMatrix, Routes),
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
            MatrixGradients::Now(gradients) => self.weight_backward(gradient, input, matrix(gradients.own)),
            MatrixGradients::Later(put_off) => {
                let (gradient, input) = (gradient.clone(), input.clone());
                put_off.push(PutOff { of: PutOffMatrix::Own(matrix), gradient, input });
            }
        }
    }

    /// The same for a matrix of each expert here, which got these rows.
    pub(crate) fn expert_matrix_backward(
        &self,
        gradients: &mut MatrixGradients,
        (matrix, routes): (ExpertMatrix, &Routes),
        gradient: &Tensor,
        rows: &Tensor,
    ) {
        match gradients {
            MatrixGradients::Now(gradients) => {
                self.expert_weights_backward((matrix, routes), gradient, rows, gradients.experts());
            }
            MatrixGradients::Later(put_off) => {
                let (gradient, input) = (gradient.clone(), rows.clone());
                put_off.push(PutOff { of: PutOffMatrix::OfExperts(matrix, routes.clone()), gradient, input });
            }
        }
    }

    /// Adds to the gradients what was put off, and frees what it was made of.
    pub(crate) fn catch_up(&self, put_off: Vec<PutOff>, gradients: &OfLayer) {
        for PutOff { of, gradient, input } in put_off {
            match of {
                PutOffMatrix::Own(matrix) => self.weight_backward(&gradient, &input, matrix(gradients.own)),
                PutOffMatrix::OfExperts(matrix, routes) => {
                    self.expert_weights_backward((matrix, &routes), &gradient, &input, gradients.experts());
                }
            }
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
