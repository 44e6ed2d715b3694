//! What went wrong while ranks were recorded.

use stepscope_traces::{CuptiNote, RankDirectory};

use crate::folded::Folded;

/// What went wrong, a few lines.
pub(super) fn lines(ranks: &[RankDirectory]) -> Vec<String> {
    let problems = ranks.iter().filter_map(|rank| Some((rank.info.rank, problem(rank)?)));
    let failed = ranks.iter().flat_map(|rank| {
        let sources = rank.info.collector.failed_sources.iter().flat_map(|sources| &sources.0);
        sources.map(|(source, why)| (rank.info.rank, format!("no {source}: {why}")))
    });
    Folded::of(problems.chain(failed)).lines()
}

/// Why a rank has no kernels, if the recorder said so, or why it ended early.
fn problem(rank: &RankDirectory) -> Option<String> {
    match &rank.info.collector.cupti {
        Some(CuptiNote::NotRecorded { why }) => Some(format!("no kernels: {why}")),
        _ => rank.info.reason.clone(),
    }
}
