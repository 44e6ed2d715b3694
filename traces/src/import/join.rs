//! Puts the memory that one source recorded beside what another recorded of the same rank.

use super::ImportedRank;
use crate::{
    clock::ClockMap,
    error::JoinError,
    ids::{Nanos, Step},
    notes::CollectorNotes,
    rank_info::{RankInfo, State},
    tables::{MemoryEvent, MemoryEvents, Spans},
    vocabulary::SpanKind,
};

impl ImportedRank {
    /// Takes the memory events of another source of this rank in place of its own, on its own clock.
    ///
    /// Both must tell the time of day, and one moment at least must lie in both. Events keep the step that their own
    /// source knows; others get that of this rank's annotation around them.
    pub(crate) fn take_memory_of(&mut self, other: &ImportedRank) -> Result<(), JoinError> {
        let rank = self.info.rank;
        let no_time = || JoinError::NoTimeOfDay { rank };
        let to_wall = time_of_day(&other.info).ok_or_else(no_time)?;
        let from_wall = from_time_of_day(&self.info).ok_or_else(no_time)?;
        let mut steps = Steps::of(&self.data.spans);
        let mut memory = MemoryEvents::default();
        for event in other.data.memory.rows() {
            let time = to_wall.map(event.time_ns.0).and_then(|wall| from_wall.map(wall)).map(Nanos);
            let time_ns = time.ok_or_else(no_time)?;
            let step = event.step.or_else(|| steps.at(time_ns));
            memory.push(&MemoryEvent { time_ns, step, ..event });
        }
        if !meet(&memory, &self.data.spans) {
            return Err(JoinError::Apart { rank });
        }
        self.data.memory = memory;
        self.loss += other.loss;
        if other.state != State::Complete {
            self.state = other.state;
            self.info.reason = self.info.reason.take().or_else(|| other.info.reason.clone());
        }
        take_notes(&mut self.info, &other.info);
        Ok(())
    }
}

/// What is said of memory is the other's now; where the rest came from is not.
pub(super) fn take_notes(info: &mut RankInfo, of_memory: &RankInfo) {
    info.collector.add_all(CollectorNotes { source: None, ..of_memory.collector.clone() });
}

fn time_of_day(info: &RankInfo) -> Option<ClockMap> {
    (!info.clock.snapshots.is_empty()).then(|| info.clock.wall_clock())
}

fn from_time_of_day(info: &RankInfo) -> Option<ClockMap> {
    let mut map = ClockMap::default();
    info.clock.snapshots.iter().for_each(|snapshot| map.add(snapshot.wall_ns.0, snapshot.rank_ns.0));
    (!info.clock.snapshots.is_empty()).then_some(map)
}

/// Whether something of both lies in one stretch of time.
fn meet(memory: &MemoryEvents, spans: &Spans) -> bool {
    let times = || memory.rows().map(|event| event.time_ns);
    let (first, last) = (times().min(), times().max());
    let within = |(start, end): (Nanos, Nanos)| first.is_some_and(|first| first <= end) && last >= Some(start);
    spans.rows().any(|span| within(span.interval()))
}

/// The steps of a rank, by time.
struct Steps {
    windows: Vec<(Nanos, Nanos, Step)>,
}

impl Steps {
    fn of(spans: &Spans) -> Steps {
        let steps = spans.rows().filter(|span| span.kind == SpanKind::Step);
        let mut windows: Vec<_> =
            steps.filter_map(|span| Some((span.start_ns, span.interval().1, span.step?))).collect();
        windows.sort_unstable();
        Steps { windows }
    }

    fn at(&mut self, time: Nanos) -> Option<Step> {
        let after = self.windows.partition_point(|(start, _, _)| *start <= time);
        let (_, end, step) = self.windows.get(after.checked_sub(1)?)?;
        (time <= *end).then_some(*step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::{ClockRecord, ClockSnapshot},
        ids::Rank,
        loss::Loss,
        names::FIRST_NAME,
        notes::{CollectorSource, MemoryCategories},
        rank_data::RankData,
        tables::Span,
        vocabulary::MemoryOperation,
    };

    /// A rank whose clock showed 0 at a time of day.
    fn rank(rank: u32, zero_at: Option<i64>) -> ImportedRank {
        let snapshot = |wall| ClockSnapshot { rank_ns: Nanos(0), wall_ns: Nanos(wall) };
        let clock = ClockRecord { source: "test".into(), snapshots: zero_at.map(snapshot).into_iter().collect() };
        let info = RankInfo::elsewhere(Rank(rank), clock);
        ImportedRank { info, state: State::Complete, data: RankData::default(), loss: Loss::default() }
    }

    fn with_step(mut rank: ImportedRank) -> ImportedRank {
        let step = Span { step: Some(Step(3)), ..Span::new(SpanKind::Step, FIRST_NAME, Nanos(10), Nanos(20)) };
        rank.data.spans.push(&step);
        rank
    }

    fn with_memory(mut rank: ImportedRank, times: &[i64]) -> ImportedRank {
        for time in times {
            rank.data.memory.push(&MemoryEvent {
                time_ns: Nanos(*time),
                op: MemoryOperation::Alloc,
                address: 1,
                bytes: Some(1),
                category: None,
                step: None,
                phase: None,
                layer: None,
                pool: None,
                site: None,
            });
        }
        rank
    }

    #[test]
    fn memory_comes_onto_the_clock_of_the_rest() {
        let mut rest = with_memory(with_step(rank(2, Some(1000))), &[1, 2, 3]);
        rest.info.collector.memory_categories = Some(MemoryCategories::Unknown);
        rest.info.collector.source = Some(CollectorSource::Kineto);
        let mut memory = with_memory(rank(2, Some(0)), &[500, 1015, 1031]);
        memory.info.collector.memory_categories = Some(MemoryCategories::Inferred);
        memory.info.collector.source = Some(CollectorSource::TorchSnapshot);
        rest.take_memory_of(&memory).unwrap();
        let CollectorNotes { source, memory_categories, .. } = rest.info.collector;
        assert_eq!((source, memory_categories), (Some(CollectorSource::Kineto), Some(MemoryCategories::Inferred)));
        let rows: Vec<_> = rest.data.memory.rows().map(|event| (event.time_ns.0, event.step)).collect();
        assert_eq!(rows, [(-500, None), (15, Some(Step(3))), (31, None)]);
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let join = |rest: ImportedRank, memory: ImportedRank| with_step(rest).take_memory_of(&memory);
        let memory = || with_memory(rank(2, Some(0)), &[5, 1015]);
        assert_eq!(join(rank(2, None), memory()), Err(JoinError::NoTimeOfDay { rank: Rank(2) }));
        assert_eq!(join(rank(2, Some(9000)), memory()), Err(JoinError::Apart { rank: Rank(2) }));
        let timeless = with_memory(rank(2, None), &[5]);
        assert_eq!(join(rank(2, Some(0)), timeless), Err(JoinError::NoTimeOfDay { rank: Rank(2) }));
    }
}
