//! What work an operator is: floating-point operations, and bytes of memory that it reads and writes.
//!
//! A matrix product of m×k by k×n takes 2·m·k·n. Bytes are those of what an operator is given and of what it makes, each
//! once: what a kernel cannot do with less. FLOPs are known for products, attention and convolutions; elements that are
//! added or scaled count for nothing beside those, and what handles them waits for memory.

use super::{
    attention::attention,
    convolution::convolution,
    shapes::{OperatorArgument, Shapes, Tensor},
};

/// A product of matrices, `batch` times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gemm {
    /// How many products.
    pub batch: u64,
    /// The rows of the result.
    pub m: u64,
    /// Its columns.
    pub n: u64,
    /// What is summed over.
    pub k: u64,
}

impl Gemm {
    /// The FLOPs that it takes.
    pub fn flops(&self) -> Option<u64> {
        [self.batch, self.m, self.n, self.k].iter().try_fold(2_u64, |all, side| all.checked_mul(*side))
    }
}

/// What work an operator is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorWork {
    /// The FLOPs it takes, where they are known.
    pub flops: Option<u64>,
    /// The bytes it reads and writes, where they are known.
    pub bytes: Option<u64>,
    /// The product that it is, if it is one.
    pub gemm: Option<Gemm>,
}

impl OperatorWork {
    /// The work of an operator. `concrete` are its other arguments, as PyTorch writes them, where a trace has them.
    pub fn of(operator: &str, shapes: &Shapes, concrete: &[String]) -> OperatorWork {
        if let Some((gemm, result)) = gemm(operator, shapes) {
            let element = result.or(shapes.matrix_element());
            let result = Tensor { element, dimensions: vec![gemm.batch, gemm.m, gemm.n] };
            return OperatorWork {
                flops: gemm.flops(),
                bytes: sum(shapes.tensors().map(Tensor::bytes).chain([result.bytes()])),
                gemm: Some(gemm),
            };
        }
        if let Some(flops) = attention(operator, shapes) {
            return OperatorWork { flops: Some(flops), bytes: attention_bytes(operator, shapes), gemm: None };
        }
        if let Some(flops) = convolution(operator, shapes, concrete) {
            return OperatorWork { flops: Some(flops), bytes: None, gemm: None };
        }
        OperatorWork { flops: None, bytes: bytes(operator, shapes), gemm: None }
    }
}

/// What attention is given, and its result, which is as large as queries are; backward, three of those.
fn attention_bytes(operator: &str, shapes: &Shapes) -> Option<u64> {
    let queries = shapes.tensors().next()?.bytes();
    let results = if operator.ends_with("backward") { 3 } else { 1 };
    sum(shapes.tensors().map(Tensor::bytes).chain(std::iter::repeat_n(queries, results)))
}

/// The product that an operator is, and what its result is made of if that is something else than what it is given.
fn gemm(operator: &str, shapes: &Shapes) -> Option<(Gemm, Option<super::ElementType>)> {
    let matrices = |first: usize, second: usize| {
        let (a, b) = (&shapes.tensor(first)?.dimensions, &shapes.tensor(second)?.dimensions);
        match (a.as_slice(), b.as_slice()) {
            ([m, k], [k2, n]) if k == k2 => Some(Gemm { batch: 1, m: *m, n: *n, k: *k }),
            ([batch, m, k], [batch2, k2, n]) if (batch, k) == (batch2, k2) => {
                Some(Gemm { batch: *batch, m: *m, n: *n, k: *k })
            }
            // Rows of one are given to matrices of the other: experts.
            ([m, k], [_, k2, n]) if k == k2 => Some(Gemm { batch: 1, m: *m, n: *n, k: *k }),
            ([m, k], [k2]) if k == k2 => Some(Gemm { batch: 1, m: *m, n: 1, k: *k }),
            ([k], [k2]) if k == k2 => Some(Gemm { batch: 1, m: 1, n: 1, k: *k }),
            _ => None,
        }
    };
    let sixteen_bits = Some(super::ElementType::Bf16);
    match operator {
        "aten::mm" | "aten::bmm" | "aten::mv" | "aten::dot" | "aten::_int_mm" | "aten::matmul" => {
            Some((matrices(0, 1)?, None))
        }
        "aten::_scaled_mm" | "aten::_scaled_grouped_mm" => Some((matrices(0, 1)?, sixteen_bits)),
        "aten::_grouped_mm" => Some((matrices(0, 1)?, None)),
        "aten::addmm"
        | "aten::addmm_"
        | "aten::baddbmm"
        | "aten::baddbmm_"
        | "aten::_addmm_activation"
        | "aten::addmv"
        | "aten::addmv_" => Some((matrices(1, 2)?, None)),
        "aten::linear" => {
            let (input, weight) = (&shapes.tensor(0)?.dimensions, &shapes.tensor(1)?.dimensions);
            let ((k, rows), [n, k2]) = (input.split_last()?, weight.as_slice()) else { return None };
            let m = rows.iter().try_fold(1_u64, |all, side| all.checked_mul(*side))?;
            (k == k2).then_some((Gemm { batch: 1, m, n: *n, k: *k }, None))
        }
        _ => None,
    }
}

/// The bytes of operators that read what they are given and write as much as its largest part.
fn bytes(operator: &str, shapes: &Shapes) -> Option<u64> {
    let name = operator.strip_prefix("aten::").or(operator.strip_prefix("at::"))?;
    let all = || sum(shapes.tensors().map(Tensor::bytes));
    let first = || shapes.tensors().next().and_then(Tensor::bytes);
    let list = |index: usize| match shapes.0.get(index) {
        Some(OperatorArgument::List(tensors)) => sum(tensors.iter().map(Tensor::bytes)),
        _ => None,
    };
    match name {
        "copy_" | "fill_" | "zero_" => all(),
        // Parameters and moments are written as well.
        "_fused_adamw_" | "_fused_adam_" => sum([all(), list(0), list(2), list(3)]),
        "_fused_sgd_" => sum([all(), list(0), list(2)]),
        "sum" | "mean" | "amax" | "max" | "argmax" | "nll_loss_forward" => all(),
        // Rows are read, and written.
        "embedding" | "index_select" | "gather" => {
            let rows = shapes.tensor(1)?.elements()?;
            let (table, indices) = (shapes.tensor(0)?, shapes.tensor(1)?);
            let row = if name == "gather" { 1 } else { *table.dimensions.last()? };
            let moved = rows.checked_mul(row)?.checked_mul(table.element?.bytes())?.checked_mul(2)?;
            sum([Some(moved), indices.bytes()])
        }
        _ if name.starts_with("_foreach") => sum([all(), list(0)]),
        _ if ELEMENTWISE.contains(&name.trim_end_matches('_')) && name.ends_with('_') => sum([all(), first()]),
        _ if ELEMENTWISE.contains(&name) => sum([all(), shapes.tensors().filter_map(Tensor::bytes).max()]),
        _ => None,
    }
}

/// Operators whose result is as large as the largest of what they are given.
const ELEMENTWISE: &[&str] = &[
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "pow",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "abs",
    "sin",
    "cos",
    "tanh",
    "tanh_backward",
    "sigmoid",
    "sigmoid_backward",
    "silu",
    "silu_backward",
    "gelu",
    "gelu_backward",
    "relu",
    "threshold_backward",
    "clamp",
    "where",
    "masked_fill",
    "native_dropout",
    "native_dropout_backward",
    "addcmul",
    "addcdiv",
    "lerp",
    "eq",
    "ne",
    "gt",
    "lt",
    "ge",
    "le",
    "bitwise_and",
    "bitwise_or",
    "bitwise_not",
    "logical_not",
    "native_layer_norm",
    "_fused_rms_norm",
    "native_group_norm",
    "native_batch_norm",
    "_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "maximum",
    "minimum",
    "cumsum",
];

/// A sum, if all of it is known.
pub(super) fn sum(parts: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    parts.into_iter().try_fold(0_u64, |all, part| all.checked_add(part?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(operator: &str, shapes: &str) -> OperatorWork {
        OperatorWork::of(operator, &shapes.parse().unwrap(), &[])
    }

    #[test]
    fn products_by_hand() {
        let gemm = |batch, m, n, k| Some(Gemm { batch, m, n, k });
        let mm = work("aten::mm", "bf16[8,16] bf16[16,4]");
        assert_eq!((mm.flops, mm.gemm), (Some(2 * 8 * 16 * 4), gemm(1, 8, 4, 16)));
        assert_eq!(mm.bytes, Some(2 * (8 * 16 + 16 * 4 + 8 * 4)));
        assert_eq!(work("aten::addmm", "f32[4] f32[8,16] f32[16,4]").gemm, gemm(1, 8, 4, 16));
        assert_eq!(work("aten::bmm", "f32[3,8,16] f32[3,16,4]").gemm, gemm(3, 8, 4, 16));
        assert_eq!(work("aten::linear", "f32[2,4,16] f32[4,16] f32[4]").gemm, gemm(1, 8, 4, 16));
        assert_eq!(work("aten::_grouped_mm", "bf16[64,16] bf16[4,16,32] i32[4]").gemm, gemm(1, 64, 32, 16));
        assert_eq!(work("aten::mm", "bf16[8,16] bf16[8,4]"), OperatorWork::default(), "they do not fit");
        assert_eq!(work("aten::mm", "[8,16] [16,4]").bytes, None, "nobody said what of");
        assert_eq!(work("my::mm", "bf16[8,16] bf16[16,4]"), OperatorWork::default());
    }

    #[test]
    fn elements_by_hand() {
        assert_eq!(work("aten::add", "f32[10] f32[10]").bytes, Some(120));
        assert_eq!(work("aten::add_", "f32[10] bf16[10]").bytes, Some(100));
        assert_eq!(work("aten::copy_", "bf16[10] f32[10]").bytes, Some(60));
        assert_eq!(work("aten::embedding", "bf16[100,8] i64[5]").bytes, Some(2 * 5 * 8 * 2 + 40));
        let adam = work("aten::_fused_adamw_", "(f32[4]) (f32[4]) (f32[4]) (f32[4]) () (f32[])").bytes;
        assert_eq!(adam, Some(4 * 16 + 4 + 3 * 16));
        assert_eq!(work("aten::nonzero", "f32[10]").bytes, None);
    }
}
