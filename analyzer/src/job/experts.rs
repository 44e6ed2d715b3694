//! How evenly tokens choose experts, over all ranks.

use std::collections::BTreeMap;

use stepscope_traces::Rank;

use crate::{
    figures::{ExpertFigures, ExpertLayer},
    rank::result::RankResult,
};

/// Of all ranks together; none, where nobody counted.
pub(crate) fn experts(ranks: &[RankResult]) -> Option<ExpertFigures> {
    of_tokens(ranks.iter().map(|rank| (rank.info.rank, &rank.expert_tokens)))
}

/// Tokens of a layer, by expert and by rank.
#[derive(Default)]
struct LayerTokens {
    experts: BTreeMap<u64, f64>,
    ranks: BTreeMap<Rank, f64>,
}

fn of_tokens<'a>(ranks: impl Iterator<Item = (Rank, &'a BTreeMap<(u64, u64), f64>)>) -> Option<ExpertFigures> {
    let mut layers: BTreeMap<u64, LayerTokens> = BTreeMap::new();
    for (rank, tokens) in ranks {
        for ((layer, expert), tokens) in tokens {
            let of_layer = layers.entry(*layer).or_default();
            *of_layer.experts.entry(*expert).or_default() += tokens;
            *of_layer.ranks.entry(rank).or_default() += tokens;
        }
    }
    let layers: Vec<ExpertLayer> = layers
        .into_iter()
        .filter_map(|(layer, LayerTokens { experts, ranks })| {
            let all: f64 = experts.values().sum();
            let (busiest_expert, imbalance) = busiest(&experts)?;
            let (busiest_rank, rank_imbalance) = busiest(&ranks)?;
            let shares = experts.values().map(|tokens| tokens / all).collect();
            Some(ExpertLayer { layer, shares, busiest_expert, imbalance, busiest_rank, rank_imbalance })
        })
        .collect();
    let mean = |of: fn(&ExpertLayer) -> f64| layers.iter().map(of).sum::<f64>() / layers.len() as f64;
    let (imbalance, rank_imbalance) = (mean(|layer| layer.imbalance), mean(|layer| layer.rank_imbalance));
    (!layers.is_empty()).then_some(ExpertFigures { imbalance, rank_imbalance, layers })
}

/// Who has most, and that as a multiple of the mean; none, where nobody has any.
fn busiest<K: Copy>(tokens: &BTreeMap<K, f64>) -> Option<(K, f64)> {
    let mean = tokens.values().sum::<f64>() / tokens.len() as f64;
    let most = tokens.iter().max_by(|one, other| one.1.total_cmp(other.1))?;
    (mean > 0.0).then(|| (*most.0, most.1 / mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_is_told_of_experts_and_of_ranks() {
        // Experts 0 and 1 on one rank, 2 and 3 on the other.
        let of = |tokens: [((u64, u64), f64); 4]| BTreeMap::from(tokens);
        let first = of([((0, 0), 70.0), ((0, 1), 10.0), ((1, 0), 25.0), ((1, 1), 25.0)]);
        let second = of([((0, 2), 10.0), ((0, 3), 10.0), ((1, 2), 25.0), ((1, 3), 25.0)]);
        let found = of_tokens([(Rank(4), &first), (Rank(5), &second)].into_iter()).unwrap();
        let [uneven, even] = &found.layers[..] else { panic!("{found:?}") };
        assert_eq!(uneven.shares, [0.7, 0.1, 0.1, 0.1]);
        assert_eq!((uneven.busiest_expert, uneven.imbalance), (0, 2.8));
        assert_eq!((uneven.busiest_rank, uneven.rank_imbalance), (Rank(4), 1.6));
        assert_eq!((even.imbalance, even.rank_imbalance), (1.0, 1.0));
        assert_eq!((found.imbalance, found.rank_imbalance), (1.9, 1.3));
        assert_eq!(of_tokens([(Rank(0), &BTreeMap::new())].into_iter()), None);
        assert_eq!(of_tokens([(Rank(0), &BTreeMap::from([((0, 0), 0.0)]))].into_iter()), None);
    }
}
