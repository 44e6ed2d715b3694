//! The numbers that devices multiply.

use serde::Serialize;

/// The numbers that matrices are made of where they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NumberType {
    /// Double precision.
    Fp64,
    /// Single precision, outside of tensor cores.
    Fp32,
    /// Single precision, of which tensor cores take 19 bits.
    Tf32,
    /// Half precision.
    Fp16,
    /// Brain floats.
    Bf16,
    /// Eight bits.
    Fp8,
    /// Four bits.
    Fp4,
    /// Integers of eight bits.
    Int8,
}

impl NumberType {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            NumberType::Fp64 => "fp64",
            NumberType::Fp32 => "fp32",
            NumberType::Tf32 => "tf32",
            NumberType::Fp16 => "fp16",
            NumberType::Bf16 => "bf16",
            NumberType::Fp8 => "fp8",
            NumberType::Fp4 => "fp4",
            NumberType::Int8 => "int8",
        }
    }
}
