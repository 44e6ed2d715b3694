//! Ranks that share a GPU, by its UUID: each has its part of what the GPU could do.

use std::collections::BTreeMap;

use super::RankDirectory;

/// Says of ranks that were recorded on one GPU how many they are.
pub(super) fn tell(ranks: &mut [RankDirectory]) {
    let mut on: BTreeMap<(String, String), u64> = BTreeMap::new();
    let key = |rank: &RankDirectory| Some((rank.info.host.clone(), rank.info.collector.gpu_uuid.clone()?));
    ranks.iter().filter_map(key).for_each(|key| *on.entry(key).or_default() += 1);
    for rank in ranks {
        let count = key(rank).and_then(|key| on.get(&key).copied()).filter(|count| *count > 1);
        if let Some(count) = count.filter(|_| rank.info.collector.ranks_on_device.is_none()) {
            rank.info.collector.ranks_on_device = Some(count);
            let peak = rank.info.device.as_mut().and_then(|device| device.peak_flops.as_mut());
            peak.into_iter().for_each(|peak| *peak /= count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        ids::Rank,
        notes::CollectorNote,
        rank_info::{Device, RankInfo},
        reader::Run,
        run_info::RunInfo,
        writer::RankWriter,
    };

    #[test]
    fn ranks_on_one_gpu_have_a_part_of_its_peak_each() {
        let directory = tempfile::tempdir().unwrap();
        RunInfo::of_this_process("shared").create(directory.path()).unwrap();
        for (rank, uuid) in [(0, Some("GPU-a")), (1, Some("GPU-b")), (2, Some("GPU-a")), (3, None)] {
            let mut info = RankInfo::of_this_process(Rank(rank));
            let device = Device { name: "H200".into(), memory_bytes: None, peak_flops: Some(8e14) };
            info.device = Some(device);
            uuid.into_iter().for_each(|uuid| info.collector.add(CollectorNote::GpuUuid(uuid.into())));
            RankWriter::create(directory.path(), info).unwrap().finish().unwrap();
        }
        let run = Run::open(directory.path()).unwrap();
        let told = run.ranks.iter().map(|rank| (rank.info.sharing(), rank.info.device.as_ref().unwrap().peak_flops));
        let alone = (None, Some(8e14));
        assert_eq!(told.collect::<Vec<_>>(), [(Some(2), Some(4e14)), alone, (Some(2), Some(4e14)), alone]);
    }
}
