//! What could not be found out about a recorded program, and on which ranks.

use std::collections::BTreeMap;

use stepscope_traces::{Rank, RankInfo, TorchMemory};

use crate::figures::FailedSource;

/// What failed, in the order of its name; what the same reason has on several ranks, once.
pub(crate) fn failed_sources<'a>(ranks: impl IntoIterator<Item = &'a RankInfo>) -> Vec<FailedSource> {
    let mut failed: BTreeMap<(String, String), Vec<Rank>> = BTreeMap::new();
    for rank in ranks {
        let sources = rank.collector.failed_sources.iter().flat_map(|sources| sources.0.clone());
        let memory = rank.collector.torch_memory.as_ref().and_then(|notes| match &notes.state {
            TorchMemory::Recorded => None,
            TorchMemory::InPart { why } | TorchMemory::NotRecorded { why } => Some(("memory".to_owned(), why.clone())),
        });
        sources.chain(memory).for_each(|failure| failed.entry(failure).or_default().push(rank.rank));
    }
    failed.into_iter().map(|((source, why), ranks)| FailedSource { source, why, ranks }).collect()
}
