//! Attention: cuDNN's, where it is found and takes the shape; else our own.

use cudarc::driver::sys::CUstream;

use super::{array::Array, cudnn::FusedAttention, kernels::Kernels};
use crate::{
    backend::{DType, Heads},
    error::TrainError,
};
