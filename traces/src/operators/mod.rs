//! Operators of PyTorch: what they are given, and what work that is.

mod attention;
mod convolution;
mod shapes;
mod work;

pub use self::{
    shapes::{Argument, ElementType, Shapes, Tensor},
    work::{Gemm, OperatorWork},
};
