//! Why recordings ended early, and those of which ranks.

use std::collections::BTreeMap;

use stepscope_traces::{Rank, RankInfo};

use crate::figures::EndedEarly;

/// What ranks say of that; what several say, once.
pub(crate) fn ended_early<'a>(ranks: impl IntoIterator<Item = &'a RankInfo>) -> Vec<EndedEarly> {
    let mut reasons: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
    for rank in ranks {
        if let Some(reason) = &rank.reason {
            reasons.entry(reason.clone()).or_default().push(rank.rank);
        }
    }
    reasons.into_iter().map(|(why, ranks)| EndedEarly { why, ranks }).collect()
}
