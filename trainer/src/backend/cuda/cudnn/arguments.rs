//! What callers hand over, checked: kernels read and write as much as the shape says.

use super::{
    graph::Argument,
    library::{ATTENTION, refused},
};
use crate::{
    backend::{
        DType, Heads,
        cuda::array::{Array, AttentionArrays},
    },
    error::TrainError,
};

impl AttentionArrays {
    /// Where each argument of the graphs is.
    pub(super) fn arguments(&self, heads: Heads) -> Result<Vec<(Argument, u64)>, TrainError> {
        check("the output", self.out, heads.tokens() * heads.out_width(), DType::Bf16)?;
        check("the logarithms", self.lse, heads.tokens() * heads.heads, DType::F32)?;
        let mut arguments = parts(heads, self.qkv, [Argument::Query, Argument::Key, Argument::Value])?.to_vec();
        arguments.extend([(Argument::Out, self.out.address), (Argument::Statistics, self.lse.address)]);
        Ok(arguments)
    }

    /// With those that only the gradient has.
    pub(super) fn arguments_of_gradient(
        &self,
        heads: Heads,
        d_out: Array,
        d_qkv: Array,
    ) -> Result<Vec<(Argument, u64)>, TrainError> {
        const GRADIENTS: [Argument; 3] = [Argument::QueryGradient, Argument::KeyGradient, Argument::ValueGradient];
        check("the gradient of the output", d_out, heads.tokens() * heads.out_width(), DType::Bf16)?;
        let mut arguments = self.arguments(heads)?;
        arguments.push((Argument::OutGradient, d_out.address));
        arguments.extend(parts(heads, d_qkv, GRADIENTS)?);
        Ok(arguments)
    }
}

/// Where queries, keys and values begin in their rows.
pub(super) fn parts(heads: Heads, qkv: Array, arguments: [Argument; 3]) -> Result<[(Argument, u64); 3], TrainError> {
    check("qkv", qkv, heads.tokens() * heads.qkv_width(), DType::Bf16)?;
    let first = [0, heads.heads, heads.heads + heads.kv_heads];
    let bytes = |head: usize| (head * heads.head_dim * DType::Bf16.bytes()) as u64;
    Ok([0, 1, 2].map(|part| (arguments[part], qkv.address + bytes(first[part]))))
}

fn check(what: &str, array: Array, elements: usize, dtype: DType) -> Result<(), TrainError> {
    if array.elements != elements || array.dtype != dtype {
        let why = format!("{what} should be {elements} of {dtype:?} and is {} of {:?}", array.elements, array.dtype);
        return Err(refused(ATTENTION, why));
    }
    Ok(())
}
