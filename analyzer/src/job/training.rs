//! Whether a run trains: what is told from how a training communicates says nothing of anything else.

use stepscope_traces::{Family, Phase};

use crate::rank::result::RankResult;

/// Words in the names of kernels that a backward pass has alone.
const BACKWARD: [&str; 3] = ["backward", "bwd", "wgrad"];

/// Whether any rank goes backward or updates parameters, as far as its phases or its kernels tell.
pub(crate) fn trains(ranks: &[RankResult]) -> bool {
    ranks.iter().any(|rank| {
        let of_device = rank.figures.breakdown.phases.iter().filter_map(|share| share.phase);
        let of_host = rank.host.phases.keys().filter_map(|phase| *phase);
        let of_communication = rank.communication.iter().filter_map(|span| span.phase);
        of_device.chain(of_host).chain(of_communication).any(is_of_training) || has_its_kernels(rank)
    })
}

fn is_of_training(phase: Phase) -> bool {
    matches!(phase, Phase::Backward | Phase::Recompute | Phase::Optimizer)
}

fn has_its_kernels(rank: &RankResult) -> bool {
    let goes_backward = |name: &str| {
        let name = name.to_ascii_lowercase();
        BACKWARD.iter().any(|word| name.contains(word))
    };
    rank.time.families.iter().any(|family| family.family == Family::Optimizer)
        || rank.kernels.iter().flat_map(|kernels| kernels.rows.keys()).any(|kernel| goes_backward(&kernel.name))
}
