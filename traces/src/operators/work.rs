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
    let list = |index: usize| match shapes.0.get(index) {
        Some(OperatorArgument::List(tensors)) => sum(tensors.iter().map(Tensor::bytes)),
        _ => None,
    };
    match name {
        "copy_" | "fill_" | "zero_" => all(),
        // Parameters and moments are written as well.
        "_fused_adamw_" | "_fused_adam_" => sum([all(), list(0), list(2), list(3)]),
        "_fused_sgd_" => sum([all(), list(0), list(2)]),
        "sum" | "mean" | "amax" | "max" | "argmax" => shapes.tensor(0)?.bytes(),
        // Rows are read, and written.
        "embedding" | "index_select" | "gather" => {
            let rows = shapes.tensor(1)?.elements()?;
            let (table, indices) = (shapes.tensor(0)?, shapes.tensor(1)?);
            let row = if name == "gather" { 1 } else { *table.dimensions.last()? };
            let moved = rows.checked_mul(row)?.checked_mul(table.element?.bytes())?.checked_mul(2)?;
            sum([Some(moved), indices.bytes()])
        }
        _ if name.starts_with("_foreach") => sum([all(), list(0)]),
        _ => elementwise(name, shapes),
    }
}

/// The bytes of operators that go element by element: they read what they are given and write as many elements. What they
/// are given besides is where the result goes.
fn elementwise(name: &str, shapes: &Shapes) -> Option<u64> {
    let in_place = name.strip_suffix('_').filter(|name| !name.is_empty());
    let (_, given, makes) = ELEMENTWISE.iter().find(|(known, ..)| *known == in_place.unwrap_or(name))?;
    let given = || shapes.tensors().take(*given);
    let largest = match in_place {
        Some(_) => given().next()?,
        None => given().max_by_key(|tensor| tensor.elements())?,
    };
    let result = match makes {
        Makes::Truth => largest.elements(),
        Makes::Same => largest.bytes(),
    };
    sum(given().map(Tensor::bytes).chain([result]))
}

/// What an operator makes of elements.
enum Makes {
    /// Elements of the same type.
    Same,
    /// Truth values.
    Truth,
}

/// Operators that go element by element, or over rows that a kernel keeps: how many tensors they are given.
#[rustfmt::skip]
const ELEMENTWISE: &[(&str, usize, Makes)] = &[
    ("add", 2, Makes::Same),
    ("sub", 2, Makes::Same),
    ("mul", 2, Makes::Same),
    ("div", 2, Makes::Same),
    ("neg", 1, Makes::Same),
    ("pow", 2, Makes::Same),
    ("exp", 1, Makes::Same),
    ("log", 1, Makes::Same),
    ("sqrt", 1, Makes::Same),
    ("rsqrt", 1, Makes::Same),
    ("reciprocal", 1, Makes::Same),
    ("abs", 1, Makes::Same),
    ("sin", 1, Makes::Same),
    ("cos", 1, Makes::Same),
    ("tanh", 1, Makes::Same),
    ("tanh_backward", 2, Makes::Same),
    ("sigmoid", 1, Makes::Same),
    ("sigmoid_backward", 2, Makes::Same),
    ("silu", 1, Makes::Same),
    ("silu_backward", 2, Makes::Same),
    ("gelu", 1, Makes::Same),
    ("gelu_backward", 2, Makes::Same),
    ("relu", 1, Makes::Same),
    ("threshold_backward", 2, Makes::Same),
    ("clamp", 1, Makes::Same),
    ("where", 3, Makes::Same),
    ("masked_fill", 2, Makes::Same),
    ("native_dropout", 1, Makes::Same),
    ("native_dropout_backward", 2, Makes::Same),
    ("addcmul", 3, Makes::Same),
    ("addcdiv", 3, Makes::Same),
    ("lerp", 3, Makes::Same),
    ("eq", 2, Makes::Truth),
    ("ne", 2, Makes::Truth),
    ("gt", 2, Makes::Truth),
    ("lt", 2, Makes::Truth),
    ("ge", 2, Makes::Truth),
    ("le", 2, Makes::Truth),
    ("bitwise_and", 2, Makes::Same),
    ("bitwise_or", 2, Makes::Same),
    ("bitwise_not", 1, Makes::Same),
    ("logical_not", 1, Makes::Truth),
    ("native_layer_norm", 3, Makes::Same),
    ("_fused_rms_norm", 2, Makes::Same),
    ("native_group_norm", 3, Makes::Same),
    ("native_batch_norm", 3, Makes::Same),
    ("_softmax", 1, Makes::Same),
    ("_log_softmax", 1, Makes::Same),
    ("_softmax_backward_data", 2, Makes::Same),
    ("_log_softmax_backward_data", 2, Makes::Same),
    ("maximum", 2, Makes::Same),
    ("minimum", 2, Makes::Same),
    ("cumsum", 1, Makes::Same),
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
        assert_eq!(work("aten::add", "f32[10] f32[10] - f32[10]").bytes, Some(120), "the last one is the result");
        assert_eq!(work("aten::eq", "f32[10] f32[10]").bytes, Some(90), "truth values have a byte");
        assert_eq!(work("aten::exp", "bf16[10]").bytes, Some(40));
        assert_eq!(work("aten::sum", "f32[10] - f32[]").bytes, Some(40));
        assert_eq!(work("aten::nonzero", "f32[10]").bytes, None);
        assert_eq!(work("aten::nll_loss_forward", "f32[10,5] i64[10]").bytes, None, "it reads an element of each row");
    }
}
