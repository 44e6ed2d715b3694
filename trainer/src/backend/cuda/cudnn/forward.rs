//! The graph of attention.

use cudarc::cudnn::sys::{cudnnPointwiseMode_t as Pointwise, cudnnReduceTensorOp_t as Reduction};

use super::{
    graph::{Argument, Graph, Output, brain, single},
    layout::Layout,
};
use crate::{backend::Heads, error::TrainError};

/// `out = softmax(queries · keysᵀ / √head_dim) · values`, and the logarithm of each row's sum.
///
/// cuDNN recognizes these very operations and does them in one kernel, in tiles.
pub(super) fn forward(graph: &mut Graph, heads: Heads) -> Result<(), TrainError> {
    let (scores, rows) = (Layout::scores(heads), Layout::statistics(heads));
    let query = graph.argument(Argument::Query, Layout::queries(heads))?;
    let key = graph.argument(Argument::Key, Layout::keys(heads).transposed())?;
    let value = graph.argument(Argument::Value, Layout::keys(heads))?;
    let out = graph.argument(Argument::Out, Layout::out(heads))?;
    let statistics = graph.statistics(rows)?;
    let scale = graph.constant(scale(heads))?;

    let raw = graph.product(query, key, single(scores))?;
    let scaled = graph.combine(Pointwise::CUDNN_POINTWISE_MUL, raw, scale, single(scores))?;
    let masked = graph.seen(heads, scaled, scores)?;

    let maxima = graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_MAX, masked, single(rows))?;
    let shifted = graph.combine(Pointwise::CUDNN_POINTWISE_SUB, masked, maxima, single(scores))?;
    let powers = graph.map(Pointwise::CUDNN_POINTWISE_EXP, shifted, single(scores))?;
    let sums = graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, powers, single(rows))?;
    let logarithms = graph.map(Pointwise::CUDNN_POINTWISE_LOG, sums, single(rows))?;
    graph.combine(Pointwise::CUDNN_POINTWISE_ADD, maxima, logarithms, Output::To(statistics))?;
    let probabilities = graph.combine(Pointwise::CUDNN_POINTWISE_DIV, powers, sums, brain(scores))?;

    graph.product(probabilities, value, Output::To(out))?;
    Ok(())
}

/// What scores are multiplied with.
pub(super) fn scale(heads: Heads) -> f32 {
    1.0 / (heads.head_dim as f32).sqrt()
}
