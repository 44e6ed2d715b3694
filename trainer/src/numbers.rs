//! What numbers a training run computes with.

use serde::Serialize;
use stepscope_plan::ParallelLayout;

use crate::backend::DType;

/// How parameters and activations, and how gradients are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Parameters and activations.
    pub compute: DType,
    /// Gradients of parameters.
    pub gradients: DType,
}

impl Numbers {
    /// Double precision throughout: for checks against differences, where rounding must not matter.
    pub const CHECK: Numbers = Numbers { compute: DType::F64, gradients: DType::F64 };

    /// What the optimizer keeps.
    pub(crate) fn state(self) -> DType {
        self.compute.sum()
    }
}

impl From<&ParallelLayout> for Numbers {
    fn from(layout: &ParallelLayout) -> Numbers {
        Numbers { compute: layout.precision.into(), gradients: layout.gradients.into() }
    }
}
