//! Traces of a job's ranks as a run.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    path::{Path, PathBuf},
};

use super::{
    super::imported::LONGEST_APART,
    header::{DistributedInfo, Header, ProcessGroup},
    one_process::refuse_those_of_one_process,
    opening::{Opening, process, said_rank},
    trace::{EARLIEST, KinetoTrace, Opened},
};
use crate::{
    clock::{ClockRecord, ClockSnapshot},
    error::{ImportError, TraceError},
    ids::{Group, Rank},
    membership::Membership,
    notes::{CollectorNotes, CollectorSource, MemoryAtStart, MemoryCategories, PeakFrom, PhasesFrom, SequencesFrom},
    rank_info::RankInfo,
    run_info::{GroupInfo, RunInfo, RunSource},
};

/// Looks at the beginning of a file, which stays open if it is to be kept; an error where it is no trace.
pub(crate) fn look_at(path: &Path, file: File, keep: bool) -> Result<Opening, TraceError> {
    match KinetoTrace::open(path, file, keep)? {
        Opened::Trace(trace, header) => Ok((path.to_owned(), trace, header)),
        Opened::SomethingElse(what) => Err(ImportError::NotATrace { path: path.to_owned(), what: what.into() }.into()),
    }
}

/// A rank of a run: its file, what is known of it, and its trace.
type TracedRank = (PathBuf, RankInfo, Box<KinetoTrace>);

/// The run that some traces are of, and its ranks in order.
pub(crate) fn run_of(name: String, traces: Vec<Opening>) -> Result<(RunInfo, Vec<TracedRank>), TraceError> {
    of_one_job(&traces)?;
    let ranks = ranks_of(&traces)?;
    refuse_those_of_one_process(&traces)?;
    let groups = Groups::of(traces.iter().map(|(_, _, header)| header.as_ref()));
    let info = run_info(name, &traces, &groups);
    let mut traced = Vec::new();
    for ((path, mut trace, header), rank) in traces.into_iter().zip(ranks) {
        trace.groups = groups.on(&header);
        trace.rank = header.distributed.as_ref().and_then(|distributed| distributed.rank);
        trace.world_size = header.distributed.as_ref().and_then(|distributed| distributed.world_size);
        let memberships = groups.memberships(rank, &header);
        let info = RankInfo { groups: memberships, ..rank_info(rank, &path, &trace, &header) };
        traced.push((path, info, trace));
    }
    traced.sort_by_key(|(_, info, _)| info.rank);
    Ok((info, traced))
}

/// Whether traces can be of one job: as many ranks, at one time. A directory may have those of many.
fn of_one_job(traces: &[Opening]) -> Result<(), TraceError> {
    let apart = |one: &Opening, other: &Opening, why: String| {
        let (one, other) = (one.0.clone(), other.0.clone());
        Err(ImportError::OtherJob { one, other, why }.into())
    };
    let world_size =
        |(_, _, header): &Opening| header.distributed.as_ref().and_then(|distributed| distributed.world_size);
    let mut sized = traces.iter().filter_map(|trace| Some((trace, world_size(trace)?)));
    if let Some((one, size)) = sized.next()
        && let Some((other, another)) = sized.find(|(_, another)| *another != size)
    {
        return apart(one, other, format!("one has {size} ranks, the other {another}"));
    }
    let begin = |(_, trace, _): &&Opening| trace.first.0;
    // One without a clock may be of any time: it has no events, or does not say what their times are counted from.
    let timed = || traces.iter().filter(|trace| begin(trace) > EARLIEST.0);
    let (first, last) = (timed().min_by_key(begin), timed().max_by_key(begin));
    match first.zip(last) {
        Some((one, other)) if begin(&other).saturating_sub(begin(&one)) > LONGEST_APART.0 => {
            apart(one, other, "they begin more than an hour apart".into())
        }
        _ => Ok(()),
    }
}

/// The rank of each trace: the one that is said, else the lowest that no other has.
fn ranks_of(traces: &[Opening]) -> Result<Vec<Rank>, TraceError> {
    let mut taken: BTreeMap<Rank, &Path> = BTreeMap::new();
    for trace in traces {
        let Some(rank) = said_rank(trace) else { continue };
        if let Some(one) = taken.insert(rank, &trace.0) {
            return Err(ImportError::SameRank { rank, one: one.to_owned(), other: trace.0.clone() }.into());
        }
    }
    let mut free = (0..).map(Rank).filter(|rank| !taken.contains_key(rank));
    Ok(traces.iter().filter_map(|trace| said_rank(trace).or_else(|| free.next())).collect())
}

/// The groups of a job, each with a number.
struct Groups(Vec<ProcessGroup>);

impl Groups {
    /// The groups that any rank is in, in order. Ranks that are in no group together may call theirs the same.
    fn of<'a>(headers: impl Iterator<Item = &'a Header>) -> Groups {
        let of_rank = |header: &'a Header| header.distributed.iter().flat_map(|distributed| &distributed.pg_config);
        let all: BTreeSet<&ProcessGroup> = headers.flat_map(of_rank).collect();
        let mut groups: Vec<ProcessGroup> = all.into_iter().cloned().collect();
        groups.dedup_by(|one, other| Groups::key(one) == Groups::key(other));
        Groups(groups)
    }

    fn key(group: &ProcessGroup) -> (&str, &[Rank]) {
        (&group.pg_name, &group.ranks)
    }

    /// The numbers of the groups that a rank is in, by the names they have there.
    fn on(&self, header: &Header) -> HashMap<String, Group> {
        told_apart(header).filter_map(|group| Some((group.pg_name.clone(), self.number(group)?))).collect()
    }

    /// What a rank is in them.
    fn memberships(&self, rank: Rank, header: &Header) -> Vec<Membership> {
        told_apart(header)
            .filter_map(|group| {
                let name = Some(group.pg_desc.clone()).filter(|purpose| !purpose.is_empty());
                let size = group.pg_size.and_then(|size| u32::try_from(size).ok());
                Membership::listed(rank, self.number(group)?, group.ranks.clone(), size, name)
            })
            .collect()
    }

    fn number(&self, group: &ProcessGroup) -> Option<Group> {
        let place = self.0.iter().position(|other| Groups::key(other) == Groups::key(group))?;
        Some(Group(place as u32))
    }

    /// Those of which it is known what they are for, and who is in them.
    fn described(&self, world_size: Option<u32>) -> Vec<GroupInfo> {
        let numbered = (0..).map(Group).zip(&self.0).filter(|(_, group)| group.is_whole());
        let describe = |(number, group): (Group, &ProcessGroup)| {
            Some(GroupInfo { group: number, axis: group.axis(world_size)?, ranks: group.ranks.clone() })
        };
        numbered.filter_map(describe).collect()
    }
}

/// The groups that a rank lists, but for those that its list does not tell from others of the same name: of some ranks, and
/// not of which.
fn told_apart(header: &Header) -> impl Iterator<Item = &ProcessGroup> {
    let has_all = |distributed: &DistributedInfo, group: &ProcessGroup| {
        group.pg_size.is_none_or(|size| Some(size) == distributed.world_size.map(u64::from))
    };
    header.distributed.iter().flat_map(move |distributed| {
        let is_told = move |group: &&ProcessGroup| !group.ranks.is_empty() || has_all(distributed, group);
        distributed.pg_config.iter().filter(is_told)
    })
}

fn run_info(name: String, traces: &[Opening], groups: &Groups) -> RunInfo {
    let distributed = || traces.iter().filter_map(|(_, _, header)| header.distributed.as_ref());
    let world_size = distributed().filter_map(|distributed| distributed.world_size).max();
    let mut configuration = serde_json::Map::new();
    let backend = distributed().find_map(|distributed| distributed.backend.clone());
    let nccl = distributed().find_map(|distributed| distributed.nccl_version.clone());
    let notes = traces.first().map(|(_, _, header)| header.notes.clone()).unwrap_or_default();
    configuration.extend(notes.into_iter().map(|(key, value)| (key.into(), value.into())));
    configuration.extend(backend.map(|backend| ("backend".into(), backend.into())));
    configuration.extend(nccl.map(|nccl| ("nccl".into(), nccl.into())));
    let first = traces.iter().map(|(_, trace, _)| trace.first.0).min().unwrap_or(0);
    RunInfo {
        host: traces.first().map_or("unknown".into(), |(path, _, header)| process(path, header).0),
        world_size,
        groups: groups.described(world_size),
        configuration,
        ..RunInfo::of_tool(RunSource::Kineto, name, first)
    }
}

fn rank_info(rank: Rank, path: &Path, trace: &KinetoTrace, header: &Header) -> RankInfo {
    let (host, pid) = process(path, header);
    let collector = CollectorNotes {
        source: Some(CollectorSource::Kineto),
        file: Some(path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())),
        phases: Some(PhasesFrom::KinetoAnnotations),
        sequence: Some(SequencesFrom::Kineto),
        memory_categories: Some(MemoryCategories::Unknown),
        memory_at_start: Some(MemoryAtStart::FirstTotals),
        peak: Some(PeakFrom::DataSheetInBf16),
        ..CollectorNotes::default()
    };
    let clock = ClockRecord {
        // Each process fits its own line to the time of day, so that no two ranks share one.
        source: format!("CLOCK_REALTIME of rank {rank}"),
        snapshots: vec![ClockSnapshot { rank_ns: trace.first, wall_ns: trace.first }],
    };
    RankInfo { host, pid, device: header.device(None), collector, ..RankInfo::elsewhere(rank, clock) }
}
