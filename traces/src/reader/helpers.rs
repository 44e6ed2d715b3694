//! Which processes of a recorded job are ranks.
//!
//! Every process that begins to use CUDA is recorded, and has a number before anybody knows what it will do: a launcher that
//! asks how many GPUs there are, a worker of a compiler. One that did nothing beside others that did is no rank. The number
//! that it had is then free for whoever was told to have it, or came later without being told one.

use std::collections::BTreeSet;

use super::RankDirectory;
use crate::{
    follower::Follower,
    ids::Rank,
    notes::{CuptiNote, RankFrom},
    rank_data::RankData,
    rank_info::State,
    ring,
    tables::Spans,
    vocabulary::SpanKind,
    window::Window,
};

/// A process that does nothing writes less than this.
const LITTLE: u64 = 256 << 10;

/// Takes helpers out of what may be ranks, and numbers those that are as the job does.
pub(super) fn set_apart(ranks: &mut Vec<RankDirectory>) -> Vec<RankDirectory> {
    let found = |rank: &RankDirectory| rank.info.collector.rank_from.is_some();
    // What was not recorded cannot be missed.
    let was_watched = |rank: &RankDirectory| !matches!(rank.info.collector.cupti, Some(CuptiNote::NotRecorded { .. }));
    let may_help = |rank: &RankDirectory| found(rank) && was_watched(rank);
    if ranks.len() < 2 || !ranks.iter().any(may_help) {
        return Vec::new();
    }
    let idle: BTreeSet<Rank> =
        ranks.iter().filter(|rank| may_help(rank) && !did_anything(rank)).map(|rank| rank.info.rank).collect();
    let wanted: BTreeSet<Rank> =
        ranks.iter().filter(|rank| !idle.contains(&rank.info.rank)).filter_map(wanted).collect();
    if idle.len() == ranks.len() {
        return Vec::new();
    }
    // A rank of the job that has written nothing yet, or was killed before it did, is missed, unless another process is
    // that rank.
    let is_missed = |rank: &RankDirectory| {
        let told = matches!(rank.info.collector.rank_from, Some(RankFrom::Variable(_)));
        told && rank.state != State::Complete && !wanted.contains(&rank.info.rank)
    };
    let helpers: Vec<RankDirectory> =
        ranks.extract_if(.., |rank| idle.contains(&rank.info.rank) && !is_missed(rank)).collect();
    if !helpers.is_empty() {
        number(ranks);
    }
    helpers
}

/// The rank that a process was told to be, where another one had that number first.
fn wanted(rank: &RankDirectory) -> Option<Rank> {
    match rank.info.collector.rank_from {
        Some(RankFrom::Taken { wanted, .. }) => Some(wanted),
        _ => None,
    }
}

/// Gives ranks the numbers they were told, where those are free now, and the others the first that are left.
fn number(ranks: &mut [RankDirectory]) {
    let is_numbered = |rank: &RankDirectory| rank.info.collector.rank_from != Some(RankFrom::Order);
    let mut taken: BTreeSet<Rank> = ranks.iter().filter(|rank| is_numbered(rank)).map(|rank| rank.info.rank).collect();
    for rank in ranks.iter_mut() {
        if let Some(wanted) = wanted(rank).filter(|wanted| !taken.contains(wanted)) {
            taken.remove(&rank.info.rank);
            taken.insert(wanted);
            rank.info.rank = wanted;
        }
    }
    let mut free = (0..).map(Rank).filter(|number| !taken.contains(number));
    for (rank, number) in ranks.iter_mut().filter(|rank| !is_numbered(rank)).zip(&mut free) {
        rank.info.rank = number;
    }
}

/// Whether a process did something on a device, or trained. What cannot be read may have.
fn did_anything(rank: &RankDirectory) -> bool {
    // A recorder makes its tables before it describes itself. Where there are none, they were left behind: a summary was copied
    // alone, or a run was fetched without them.
    if !rank.has_recording() {
        return true;
    }
    if rank.span_bytes() > LITTLE || ring::segments(&rank.path).first().is_some_and(|first| *first > 0) {
        return true;
    }
    let (mut activity, mut memory) = (false, false);
    let trains = |kind: SpanKind| !kind.is_annotation() || matches!(kind, SpanKind::Step | SpanKind::Phase);
    let mut follower = Follower::new(&rank.path, Window::ALL);
    let spans = |_: &RankData, spans: &mut Spans| activity |= spans.rows().any(|span| trains(span.kind));
    let visited = follower.visit(&mut RankData::default(), spans, |events| memory |= events.rows().next().is_some());
    let is_whole = || follower.loss(&rank.info, rank.state).is_none();
    visited.is_err() || activity || memory || !is_whole()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{
        ids::Nanos, names::FIRST_NAME, rank_info::RankInfo, reader::Run, run_info::RunInfo, tables::Span,
        writer::RankWriter,
    };

    use super::*;

    /// What a process did.
    #[derive(Clone, Copy, PartialEq)]
    enum Did {
        Kernels,
        Nothing,
        /// Nothing before it was killed.
        Killed,
        /// Nobody knows: there was no CUPTI.
        Unknown,
    }

    fn variable() -> RankFrom {
        RankFrom::Variable("RANK".into())
    }

    fn taken(wanted: u32) -> RankFrom {
        RankFrom::Taken { variable: "RANK".into(), wanted: Rank(wanted) }
    }

    fn record(run: &Path, rank: u32, from: RankFrom, did: Did) {
        let mut info = RankInfo::of_this_process(Rank(rank));
        info.collector.rank_from = Some(from);
        info.pid = 100 + rank;
        if did == Did::Unknown {
            info.collector.cupti = Some(CuptiNote::NotRecorded { why: "another profiler".into() });
        }
        let mut writer = RankWriter::create(run, info).unwrap();
        if did == Did::Killed {
            return;
        }
        writer.push_name(FIRST_NAME, "matmul").unwrap();
        let kind = if did == Did::Kernels { SpanKind::Kernel } else { SpanKind::Range };
        writer.push_span(&Span::new(kind, FIRST_NAME, Nanos(1), Nanos(1))).unwrap();
        writer.finish().unwrap();
    }

    /// The ranks of a job, and its other processes: number now, and number when it was recorded.
    fn told_apart(processes: &[(RankFrom, Did)]) -> (Vec<(u32, u32)>, Vec<u32>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        RunInfo::of_this_process("job").create(&path).unwrap();
        for (rank, (from, did)) in processes.iter().enumerate() {
            record(&path, rank as u32, from.clone(), *did);
        }
        let run = Run::open(&path).unwrap();
        let ranks = run.ranks.iter().map(|rank| (rank.info.rank.0, rank.info.pid - 100)).collect();
        (ranks, run.helpers.iter().map(|helper| helper.info.pid - 100).collect())
    }

    #[test]
    fn a_process_that_did_nothing_is_no_rank_and_leaves_its_number() {
        let (order, nothing, kernels) = (RankFrom::Order, Did::Nothing, Did::Kernels);
        // A parent that only asked how many GPUs there are.
        assert_eq!(told_apart(&[(order.clone(), nothing), (order.clone(), kernels)]), (vec![(0, 1)], vec![0]));
        // A launcher had the number that a rank was told.
        let job = [(order.clone(), nothing), (variable(), kernels), (taken(0), kernels)];
        assert_eq!(told_apart(&job), (vec![(0, 2), (1, 1)], vec![0]));
        // Workers of a compiler inherit the variable of their rank, and are killed.
        let job = [(variable(), kernels), (taken(0), Did::Killed), (taken(0), nothing)];
        assert_eq!(told_apart(&job), (vec![(0, 0)], vec![1, 2]));
        // A probe with the variable came first, and was killed.
        let job = [(variable(), Did::Killed), (taken(0), kernels)];
        assert_eq!(told_apart(&job), (vec![(0, 1)], vec![0]));
    }

    #[test]
    fn whoever_computed_keeps_its_number_and_who_was_killed_is_missed() {
        let (order, kernels) = (RankFrom::Order, Did::Kernels);
        let job = [(order.clone(), kernels), (variable(), kernels), (taken(0), kernels)];
        assert_eq!(told_apart(&job), (vec![(0, 0), (1, 1), (2, 2)], vec![]));
        let job = [(variable(), kernels), (variable(), Did::Killed)];
        assert_eq!(told_apart(&job), (vec![(0, 0), (1, 1)], vec![]));
        let job = [(variable(), kernels), (variable(), Did::Unknown)];
        assert_eq!(told_apart(&job), (vec![(0, 0), (1, 1)], vec![]));
    }

    #[test]
    fn a_rank_whose_spans_are_lost_is_missed() {
        let directory = tempfile::tempdir().unwrap();
        RunInfo::of_this_process("job").create(directory.path()).unwrap();
        for rank in 0..2 {
            record(directory.path(), rank, variable(), Did::Kernels);
        }
        std::fs::write(directory.path().join("rank-00001/spans.arrows"), "").unwrap();
        let run = Run::open(directory.path()).unwrap();
        assert_eq!((run.ranks.len(), run.helpers.len()), (2, 0));
    }

    #[test]
    fn who_left_its_tables_behind_is_a_rank() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        RunInfo::of_this_process("job").create(&path).unwrap();
        (0..2).for_each(|rank| record(&path, rank, variable(), Did::Kernels));
        for entry in std::fs::read_dir(path.join("rank-00001")).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_some_and(|extension| extension == "arrows") {
                std::fs::remove_file(file).unwrap();
            }
        }
        let run = Run::open(&path).unwrap();
        assert_eq!((run.ranks.len(), run.helpers.len()), (2, 0));
    }

    #[test]
    fn where_nobody_did_anything_all_are_ranks() {
        let job = [(RankFrom::Order, Did::Nothing), (variable(), Did::Killed)];
        assert_eq!(told_apart(&job), (vec![(0, 0), (1, 1)], vec![]));
    }
}
