//! How tokens choose experts.

use crate::stored::fields;
use serde::Serialize;
use stepscope_traces::Rank;

/// How evenly tokens choose experts, in the steps that count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpertFigures {
    /// What the most chosen expert has, as a multiple of the mean of its layer, in the mean of all layers.
    pub imbalance: f64,
    /// The same of ranks: what the busiest has of a layer's tokens, beside the mean of the ranks that have experts of it.
    pub rank_imbalance: f64,
    /// Each layer that has experts.
    pub layers: Vec<ExpertLayer>,
}

fields!(ExpertFigures { imbalance, rank_imbalance, layers });

/// How tokens choose the experts of a layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpertLayer {
    /// Which layer.
    pub layer: u64,
    /// The share of its tokens that each expert has, by the expert's number.
    pub shares: Vec<f64>,
    /// The most chosen one.
    pub busiest_expert: u64,
    /// What it has, as a multiple of the mean.
    pub imbalance: f64,
    /// The rank whose experts have most.
    pub busiest_rank: Rank,
    /// What they have, as a multiple of the mean of ranks.
    pub rank_imbalance: f64,
}

fields!(ExpertLayer { layer, shares, busiest_expert, imbalance, busiest_rank, rank_imbalance });
