//! What operations take: floating-point operations, and bytes of memory read and written. Every backend records these.

use super::{AttentionTensors, Columns, Factors, Heads, OptimizerTensors, Product, Routed, Tensor};

/// What an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) flops: u64,
    pub(crate) bytes: u64,
}

impl Work {
    /// A tensor that is read and written is named twice.
    fn new(flops: usize, touched: &[&Tensor]) -> Work {
        Work { flops: flops as u64, bytes: touched.iter().map(|tensor| tensor.bytes()).sum() }
    }
}

pub(crate) fn matmul(product: Product, a: &Tensor, b: &Tensor, out: &Tensor) -> Work {
    Work::new(2 * product.rows * product.columns * product.inner, &[a, b, out])
}

/// All of them together.
pub(crate) fn products(products: &[Factors]) -> Work {
    let of = |Factors { product, a, b, out }: &Factors| matmul(*product, a, b, out);
    let sum = |one: Work, other: Work| Work { flops: one.flops + other.flops, bytes: one.bytes + other.bytes };
    products.iter().map(of).fold(Work { flops: 0, bytes: 0 }, sum)
}

pub(crate) fn add(target: &Tensor, other: &Tensor) -> Work {
    Work::new(target.elements(), &[target, target, other])
}

/// What is added to is read as well.
pub(crate) fn columns(columns: Columns, from: &Tensor, to: &Tensor) -> Work {
    let rows = from.elements() / columns.from.0;
    let moved = (rows * columns.count) as u64;
    let (read, written) = (moved * from.dtype().bytes() as u64, moved * to.dtype().bytes() as u64);
    match columns.accumulate {
        true => Work { flops: moved, bytes: read + 2 * written },
        false => Work { flops: 0, bytes: read + written },
    }
}

/// Two products and a sum of each number; exponentials are of whole rows.
pub(crate) fn merge_attention([out, lse]: [&Tensor; 2], [more, more_lse]: [&Tensor; 2]) -> Work {
    Work::new(3 * out.elements(), &[out, out, lse, lse, more, more_lse])
}

pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, y: &Tensor) -> Work {
    Work::new(4 * x.elements(), &[x, weight, y])
}

pub(crate) fn rms_norm_backward(x: &Tensor, weight: &Tensor, d_y: &Tensor, d_x: &Tensor, d_weight: &Tensor) -> Work {
    Work::new(11 * x.elements(), &[x, weight, d_y, d_x, d_x, d_weight, d_weight])
}

pub(crate) fn rope(heads: &Heads, qkv: &Tensor) -> Work {
    let rotated = heads.tokens() * (heads.heads + heads.kv_heads) * heads.head_dim;
    Work::new(3 * rotated, &[qkv, qkv])
}

/// Scores and their sums over values.
pub(crate) fn attention(heads: &Heads, qkv: &Tensor, out: &Tensor, lse: &Tensor) -> Work {
    Work::new(2 * pair_flops(heads), &[qkv, out, lse])
}

/// Scores again, and the gradients of probabilities, values, queries and keys.
pub(crate) fn attention_backward(heads: &Heads, of: AttentionTensors<'_>, d_out: &Tensor, d_qkv: &Tensor) -> Work {
    Work::new(5 * pair_flops(heads), &[of.qkv, of.out, of.lse, d_out, d_qkv])
}

/// Two FLOPs for every number of every pair of a query and a key it may see.
fn pair_flops(heads: &Heads) -> usize {
    let pairs = match heads.causal {
        true => heads.sequence * (heads.sequence + 1) / 2,
        false => heads.sequence * heads.sequence,
    };
    2 * heads.batch * heads.heads * pairs * heads.head_dim
}

pub(crate) fn swiglu(gate_up: &Tensor, product: &Tensor) -> Work {
    Work::new(5 * product.elements(), &[gate_up, product])
}

pub(crate) fn swiglu_backward(gate_up: &Tensor, d_product: &Tensor, d_gate_up: &Tensor) -> Work {
    Work::new(11 * d_product.elements(), &[gate_up, d_product, d_gate_up])
}

/// As much of the table is read as is written.
pub(crate) fn embedding(tokens: &Tensor, out: &Tensor) -> Work {
    Work::new(0, &[tokens, out, out])
}

/// Of the gradient of the table, as much is read and written as there is to add.
pub(crate) fn embedding_backward(tokens: &Tensor, d_out: &Tensor) -> Work {
    Work::new(d_out.elements(), &[tokens, d_out, d_out, d_out])
}

pub(crate) fn row_maxima(logits: &Tensor, maxima: &Tensor) -> Work {
    Work::new(logits.elements(), &[logits, maxima])
}

pub(crate) fn row_sums(logits: &Tensor, targets: &Tensor, maxima: &Tensor, sums: &Tensor) -> Work {
    Work::new(3 * logits.elements(), &[logits, targets, maxima, sums])
}

pub(crate) fn loss(maxima: &Tensor, sums: &Tensor, total: &Tensor) -> Work {
    Work::new(4 * maxima.elements(), &[maxima, sums, total])
}

pub(crate) fn loss_backward(
    logits: &Tensor,
    targets: &Tensor,
    (maxima, sums): (&Tensor, &Tensor),
    d_logits: &Tensor,
) -> Work {
    Work::new(4 * logits.elements(), &[logits, targets, maxima, sums, d_logits])
}

pub(crate) fn add_squares(values: &Tensor, total: &Tensor) -> Work {
    Work::new(2 * values.elements(), &[values, total, total])
}

pub(crate) fn adamw(tensors: &OptimizerTensors<'_>) -> Work {
    let OptimizerTensors { gradients, parameters, master, first_moment, second_moment, .. } = *tensors;
    let mut touched = vec![gradients, parameters, first_moment, first_moment, second_moment, second_moment];
    match master {
        Some(master) => touched.extend([master, master]),
        // Then the parameters are read too.
        None => touched.push(parameters),
    }
    Work::new(14 * parameters.elements(), &touched)
}

/// Exponentials, their sum, and a look at each probability for each choice.
pub(crate) fn route(routed: Routed<'_>) -> Work {
    let Routed { probabilities, weights, choices, .. } = routed;
    Work::new(4 * probabilities.elements(), &[probabilities, probabilities, weights, choices])
}

pub(crate) fn count_choices(Routed { choices, counts, .. }: Routed<'_>) -> Work {
    Work::new(0, &[choices, counts])
}

pub(crate) fn balance_loss(routed: Routed<'_>, total: &Tensor) -> Work {
    let Routed { probabilities, counts, .. } = routed;
    Work::new(2 * probabilities.elements(), &[probabilities, counts, total, total])
}

pub(crate) fn route_backward(routed: Routed<'_>, d_weights: &Tensor, d_logits: &Tensor) -> Work {
    let Routed { probabilities, weights, choices, counts } = routed;
    Work::new(4 * probabilities.elements(), &[probabilities, weights, choices, counts, d_weights, d_logits])
}

/// As many rows are read as are written.
pub(crate) fn dispatch(order: &Tensor, sorted: &Tensor) -> Work {
    Work::new(0, &[order, sorted, sorted])
}

pub(crate) fn combine(sorted: &Tensor, places: &Tensor, weights: Option<&Tensor>, tokens: &Tensor) -> Work {
    let mut touched = vec![sorted, places, tokens];
    touched.extend(weights);
    Work::new(2 * sorted.elements(), &touched)
}

/// For each row, that of its token is read.
pub(crate) fn combine_backward(
    (sorted, order, weights): (&Tensor, &Tensor, &Tensor),
    (d_sorted, d_weights): (&Tensor, &Tensor),
) -> Work {
    Work::new(3 * sorted.elements(), &[sorted, sorted, order, weights, d_sorted, d_weights])
}
