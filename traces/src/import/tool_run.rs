//! What a profiler wrote into one file: a run, whose ranks are read at once.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
};

use chrono::{DateTime, Utc};

use super::{ImportedRank, imported::LONGEST_APART};
use crate::{
    ids::{Group, Nanos, Rank, Sequence},
    run_info::{RunInfo, RunSource},
};

/// How far clocks of machines may be apart.
const CLOCKS_APART: Nanos = Nanos(60_000_000_000);

/// A run in one file.
pub(crate) struct ToolRun {
    /// The file.
    pub(crate) path: PathBuf,
    /// What was run.
    pub(crate) info: RunInfo,
    /// The rank that the file is of, where that is one and the file says so in a way of its own.
    pub(crate) rank: Option<Rank>,
    /// Its ranks, in order.
    pub(crate) ranks: Vec<ImportedRank>,
}

impl ToolRun {
    /// Why this and another one are not of one job, if they are not.
    pub(crate) fn is_of_another_job(&self, other: &ToolRun) -> Option<String> {
        if fs::canonicalize(&self.path).ok() == fs::canonicalize(&other.path).ok() {
            return Some("they are one file".into());
        }
        if let (Some(one), Some(another)) = (self.info.world_size, other.info.world_size)
            && one != another
        {
            return Some(format!("one has {one} ranks, the other {another}"));
        }
        let (one, another) = (self.completed_collectives(), other.completed_collectives());
        let is_apart = |(start, end): &(Nanos, Nanos), (next_start, next_end): &(Nanos, Nanos)| {
            next_start.0.saturating_sub(end.0) > CLOCKS_APART.0 || start.0.saturating_sub(next_end.0) > CLOCKS_APART.0
        };
        if one.iter().any(|(key, time)| another.get(key).is_some_and(|other| is_apart(time, other))) {
            return Some("the same collective was over in one before it was called in the other".into());
        }
        // A ring of events begins where there is no more room, and that differs; it ends when it is written.
        if let (Some(one), Some(another)) = (self.ring_ends(), other.ring_ends()) {
            let apart = one.0.saturating_sub(another.0).saturating_abs();
            return (apart > LONGEST_APART.0).then(|| "they end more than an hour apart".into());
        }
        let apart = (self.began()? - other.began()?).abs();
        (apart.num_nanoseconds()? > LONGEST_APART.0).then(|| "they begin more than an hour apart".into())
    }

    /// When the collectives were called and over that a ring of events has, by group and number. A rank that calls one
    /// later than others still does so before it is over.
    fn completed_collectives(&self) -> HashMap<(Group, Sequence), (Nanos, Nanos)> {
        let mut completed = HashMap::new();
        for rank in &self.ranks {
            let Some(in_flight) = &rank.info.collector.in_flight else { continue };
            let mut first_waiting: BTreeMap<Group, u64> = BTreeMap::new();
            for operation in in_flight.waiting.iter().filter(|operation| operation.peer.is_none()) {
                let first = first_waiting.entry(operation.group).or_insert(u64::MAX);
                *first = operation.sequence.min(*first);
            }
            let spans =
                rank.data.spans.rows().filter_map(|span| Some(((span.group?, span.sequence?), span.interval())));
            let is_over = |(group, number): &(Group, Sequence)| {
                first_waiting.get(group).is_none_or(|waiting| number.0 < *waiting)
            };
            completed.extend(spans.filter(|(key, _)| is_over(key)));
        }
        completed
    }

    /// When a ring of events was written, if it is one.
    fn ring_ends(&self) -> Option<Nanos> {
        let is_ring = self.info.source == RunSource::FlightRecorder;
        let ends = self.ranks.iter().flat_map(|rank| rank.data.spans.rows()).map(|span| span.interval().1);
        is_ring.then(|| ends.max()).flatten()
    }

    /// When it began, where that is known.
    fn began(&self) -> Option<DateTime<Utc>> {
        let began = DateTime::parse_from_rfc3339(&self.info.started).ok()?.to_utc();
        (began.timestamp() != 0).then_some(began)
    }
}
