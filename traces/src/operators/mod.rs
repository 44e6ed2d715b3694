//! Operators of PyTorch: what they are given, and what work that is.

mod attention;
mod convolution;
mod shapes;
mod work;

pub use self::{
    shapes::{ElementType, OperatorArgument, Shapes, Tensor},
    work::{Gemm, OperatorWork},
};
