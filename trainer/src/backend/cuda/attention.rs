//! Attention: cuDNN's, where it is found and takes the shape; else our own.

use cudarc::driver::sys::CUstream;
use stepscope_traces::AttentionNote;

use super::{
    array::{Array, AttentionArrays},
    cudnn::{FusedAttention, Order, Workspace},
    kernels::Kernels,
};
use crate::{
    backend::{DType, Heads},
    error::TrainError,
};

/// The attention implementation.
pub(crate) struct Attention {
    /// Or why it is not cuDNN.
    fused: Result<FusedAttention, TrainError>,
}

/// Where cuDNN's fixed order has been seen to be one.
const HOPPER: u32 = 9;

impl Attention {
    /// What is repeatable adds up in one order, which takes a little more time and memory.
    pub(crate) fn open((major, _): (u32, u32), repeatable: bool) -> Attention {
        let fused = match repeatable {
            false => FusedAttention::open(Order::Any),
            true if major == HOPPER => FusedAttention::open(Order::Fixed),
            true => Err(TrainError::Settings("cuDNN may not be deterministic on this GPU".into())),
        };
        Attention { fused }
    }

    /// Who does it, for shapes that both can do.
    pub(crate) fn note(&self) -> AttentionNote {
        match &self.fused {
            Ok(_) => AttentionNote::Cudnn,
            Err(why) => AttentionNote::OurOwn { why: why.to_string() },
        }
    }

    /// cuDNN and what it needs, if it takes the shape.
    fn fused(&self, heads: Heads, dtype: DType) -> Option<(&FusedAttention, Workspace)> {
        let fused = self.fused.as_ref().ok()?;
        Some((fused, fused.prepare(heads, dtype).ok()?))
    }

    /// Bytes that each pass needs beside its arrays.
    pub(crate) fn workspace(&self, heads: Heads, dtype: DType) -> Workspace {
        let own = || Workspace { forward: 0, backward: Kernels::attention_backward_workspace_bytes(heads) };
        self.fused(heads, dtype).map_or_else(own, |(_, workspace)| workspace)
    }

    pub(crate) fn forward(
        &self,
        kernels: &Kernels,
        stream: CUstream,
        heads: Heads,
        arrays: AttentionArrays,
        workspace: Array,
    ) -> Result<(), TrainError> {
        match self.fused(heads, arrays.qkv.dtype) {
            Some((fused, _)) => fused.forward(stream, heads, arrays, workspace),
            None => kernels.attention(stream, heads, arrays),
        }
    }

    pub(crate) fn backward(
        &self,
        kernels: &Kernels,
        stream: CUstream,
        heads: Heads,
        arrays: AttentionArrays,
        (d_out, d_qkv): (Array, Array),
        workspace: Array,
    ) -> Result<(), TrainError> {
        match self.fused(heads, arrays.qkv.dtype) {
            Some((fused, _)) => fused.backward(stream, heads, arrays, (d_out, d_qkv), workspace),
            None => kernels.attention_backward(stream, heads, arrays, d_out, d_qkv, workspace),
        }
    }
}
