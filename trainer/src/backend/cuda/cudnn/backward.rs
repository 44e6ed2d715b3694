//! The graph of attention's gradient.

use cudarc::cudnn::sys::{cudnnPointwiseMode_t as Pointwise, cudnnReduceTensorOp_t as Reduction};

use super::{
    forward::scale,
    graph::{Argument, Graph, Output, Tensor, brain, single},
    layout::Layout,
};
use crate::{backend::Heads, error::TrainError};

/// In which order the parts of a query's gradient are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// As they are ready: in a few of a million numbers the last bit differs from run to run.
    Any,
    /// Always the same, on Hopper. It takes longer, and cuDNN then keeps gradients of scores in the workspace: two bytes
    /// of each pair of tokens of each head.
    Fixed,
}

/// Gradients of queries, keys and values, from probabilities made again of the logarithms of their sums.
///
/// cuDNN recognizes these very operations and does them in tiles; so the multiplication by one stays.
pub(super) fn backward(graph: &mut Graph, heads: Heads, order: Order) -> Result<(), TrainError> {
    let (scores, rows) = (Layout::scores(heads), Layout::statistics(heads));
    let query = graph.argument(Argument::Query, Layout::queries(heads))?;
    let key = graph.argument(Argument::Key, Layout::keys(heads).transposed())?;
    let value = graph.argument(Argument::Value, Layout::keys(heads).transposed())?;
    let out = graph.argument(Argument::Out, Layout::out(heads))?;
    let d_out = graph.argument(Argument::OutGradient, Layout::out(heads))?;
    let statistics = graph.statistics(rows)?;
    let scale = graph.constant(scale(heads))?;
    let one = graph.constant(1.0)?;

    let products = graph.combine(Pointwise::CUDNN_POINTWISE_MUL, d_out, out, single(Layout::out(heads)))?;
    let sums = graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, products, single(rows))?;
    let row_sums = graph.scratch(rows)?;
    graph.combine(Pointwise::CUDNN_POINTWISE_MUL, sums, one, Output::To(row_sums))?;

    let raw = graph.product(query, key, single(scores))?;
    let scaled = graph.combine(Pointwise::CUDNN_POINTWISE_MUL, raw, scale, single(scores))?;
    let shifted = graph.combine(Pointwise::CUDNN_POINTWISE_SUB, scaled, statistics, single(scores))?;
    let masked = graph.seen(heads, shifted, scores)?;
    let probabilities = graph.map(Pointwise::CUDNN_POINTWISE_EXP, masked, single(scores))?;
    let by_key = graph.reshape(probabilities, brain(scores.transposed()))?;
    gradient_of_keys(graph, heads, Argument::ValueGradient, (by_key, d_out))?;

    let d_probabilities = graph.product(d_out, value, single(scores))?;
    let centred = graph.combine(Pointwise::CUDNN_POINTWISE_SUB, d_probabilities, row_sums, single(scores))?;
    let weighted = graph.combine(Pointwise::CUDNN_POINTWISE_MUL, centred, probabilities, single(scores))?;
    let d_scores = graph.combine(Pointwise::CUDNN_POINTWISE_MUL, weighted, scale, single(scores))?;
    let by_key = graph.reshape(d_scores, brain(scores.transposed()))?;
    gradient_of_keys(graph, heads, Argument::KeyGradient, (by_key, query))?;

    let key = graph.reshape(key, single(Layout::keys(heads)))?;
    let d_query = graph.argument(Argument::QueryGradient, Layout::queries(heads))?;
    match order {
        Order::Fixed => {
            graph.product(d_scores, key, Output::To(d_query))?;
        }
        Order::Any => {
            let total = graph.scratch(Layout::apart(heads))?;
            graph.product(d_scores, key, Output::To(total))?;
            graph.map(Pointwise::CUDNN_POINTWISE_IDENTITY, total, Output::To(d_query))?;
        }
    }
    Ok(())
}

/// A gradient of keys or values: a product, and its sum over the query heads that share one.
fn gradient_of_keys(
    graph: &mut Graph,
    heads: Heads,
    argument: Argument,
    (by_key, other): (Tensor, Tensor),
) -> Result<(), TrainError> {
    let gradient = graph.argument(argument, Layout::keys(heads))?;
    if heads.heads == heads.kv_heads {
        graph.product(by_key, other, Output::To(gradient))?;
    } else {
        let of_each = graph.product(by_key, other, brain(Layout::apart(heads)))?;
        graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, of_each, Output::To(gradient))?;
    }
    Ok(())
}
