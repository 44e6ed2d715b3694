//! A stretch of time of some ranks in the columns of a timeline: what each stream did in each, and to what in the training
//! that belongs.
//!
//! However many spans there are, there are as many columns as somebody asked for, and no more than a bounded number of
//! streams, so that this takes as much memory as it is drawn on. Times of a rank are in its own clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use stepscope_traces::{Family, Layer, MicroBatch, NameId, Names, Phase, Rank, Step, Stream, Window};

use crate::{detail::span_key::SpanKey, figures::Class, rank::activity::ActivityPlace};

/// A span at least this many columns long shows its name.
const NAMED_COLUMNS: i128 = 5;
/// So many streams of a rank have columns: a recording may have one for every span.
const MOST_LANES: usize = 1024;

/// What a rank did in a stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineColumns {
    /// Which rank.
    pub rank: Rank,
    /// Which stretch.
    pub window: Window,
    /// What each stream did, by stream.
    pub lanes: Vec<LaneColumns>,
    /// How many more streams there are.
    pub streams_left_out: usize,
    /// Where in the training its kernels were, from column to column.
    pub frames: Vec<Option<Frame>>,
    /// How many spans touch it.
    pub count: u64,
}

/// What a stream did.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneColumns {
    /// Which stream; none, where that is not known.
    pub stream: Option<Stream>,
    /// Column by column.
    pub columns: Vec<Column>,
    /// What is long enough to be told by name, by time.
    pub long: Vec<LongSpan>,
}

/// What a stream did in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// The time of each family, in the order of [`Family::ALL`]. Of spans beside each other both count.
    pub busy_ns: [i64; Family::ALL.len()],
    /// How many spans touch it.
    pub count: u32,
}

impl Column {
    /// The time of all families.
    pub fn busy(&self) -> i64 {
        self.busy_ns.iter().fold(0, |sum, time| sum.saturating_add(*time))
    }

    /// The family that takes most of it; none, where nothing happened.
    pub fn busiest(&self) -> Option<Family> {
        let (family, time) = Family::ALL.iter().zip(self.busy_ns).rev().max_by_key(|(_, time)| *time)?;
        (time > 0).then_some(*family)
    }
}

/// A span that is told by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongSpan {
    /// When it begins.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// Its name.
    pub name: Arc<str>,
    /// What kind of work it is.
    pub family: Family,
}

/// Where in the training the kernels of a column were, most of the time. What was different within it is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The step.
    pub step: Option<Step>,
    /// The micro-batch.
    pub micro_batch: Option<MicroBatch>,
    /// The phase.
    pub phase: Option<Phase>,
    /// The layer.
    pub layer: Option<Layer>,
}

/// Adds spans up in columns, in whichever order they come.
pub(crate) struct ColumnSums {
    window: Window,
    columns: usize,
    lanes: BTreeMap<Option<Stream>, LaneSums>,
    /// The streams without one.
    left_out: BTreeSet<Option<Stream>>,
    frames: Vec<Votes>,
    count: u64,
}

#[derive(Default)]
struct LaneSums {
    columns: Vec<Column>,
    long: Vec<(i64, i64, NameId, Family)>,
}

/// What each part of a frame is, by majority.
#[derive(Clone, Copy, Default)]
struct Votes {
    any: bool,
    step: Vote<Step>,
    micro_batch: Vote<MicroBatch>,
    phase: Vote<Phase>,
    layer: Vote<Layer>,
}

/// Finds the majority with one candidate (Boyer–Moore): what has more than half of the time is left over.
#[derive(Clone, Copy)]
struct Vote<T> {
    candidate: Option<T>,
    weight: i64,
    total: i64,
}

impl<T> Default for Vote<T> {
    fn default() -> Vote<T> {
        Vote { candidate: None, weight: 0, total: 0 }
    }
}

impl<T: Copy + PartialEq> Vote<T> {
    fn add(&mut self, value: Option<T>, time: i64) {
        self.total = self.total.saturating_add(time);
        if self.weight == 0 {
            self.candidate = value;
        }
        if self.candidate == value {
            self.weight = self.weight.saturating_add(time);
        } else {
            self.weight -= time;
            if self.weight < 0 {
                (self.candidate, self.weight) = (value, -self.weight);
            }
        }
    }

    /// What has nearly all; where it is a close run, nothing does.
    fn winner(&self) -> Option<T> {
        self.candidate.filter(|_| self.weight >= self.total / 4)
    }
}

impl ColumnSums {
    pub(crate) fn new(window: Window, columns: usize) -> ColumnSums {
        let columns = columns.max(1);
        let frames = vec![Votes::default(); columns];
        ColumnSums { window, columns, lanes: BTreeMap::new(), left_out: BTreeSet::new(), frames, count: 0 }
    }

    fn length(&self) -> i64 {
        self.window.to.0.saturating_sub(self.window.from.0).max(1)
    }

    /// There is such a stream, whether it does something here or not.
    pub(crate) fn meet(&mut self, stream: Option<Stream>) {
        let columns = self.columns;
        if self.lanes.len() < MOST_LANES || self.lanes.contains_key(&stream) {
            self.lanes
                .entry(stream)
                .or_insert_with(|| LaneSums { columns: vec![Column::default(); columns], long: Vec::new() });
        } else {
            self.left_out.insert(stream);
        }
    }

    pub(crate) fn add(&mut self, stream: Option<Stream>, (start, end): (i64, i64), kind: &SpanKey, family: Family) {
        self.meet(stream);
        let (from, to) = (self.window.from.0, self.window.to.0);
        if start >= to || end < from || (end == from && start < from) {
            return;
        }
        self.count += 1;
        let (length, columns) = (self.length(), self.columns);
        let border = |column: usize| border(from, length, columns, column);
        let column_of = |time: i64| column_of(from, length, columns, time);
        let (seen_from, seen_to) = (start.max(from), end.min(to));
        let last = column_of(seen_to.saturating_sub(1).max(seen_from));
        let Some(lane) = self.lanes.get_mut(&stream) else { return };
        for column in column_of(seen_from)..=last {
            // What has no length is there all the same.
            let time = seen_to.min(border(column + 1)).saturating_sub(seen_from.max(border(column))).max(1);
            let here = &mut lane.columns[column];
            here.busy_ns[family as usize] = here.busy_ns[family as usize].saturating_add(time);
            here.count = here.count.saturating_add(1);
            if kind.place.class == Class::Compute {
                self.frames[column].add(&kind.place, time);
            }
        }
        let seen = i128::from(seen_to.saturating_sub(seen_from));
        let is_long = seen * columns as i128 >= NAMED_COLUMNS * i128::from(length);
        if is_long && lane.long.len() < columns {
            lane.long.push((start, end, kind.name, family));
        }
    }

    pub(crate) fn finish(self, rank: Rank, names: &Names) -> TimelineColumns {
        let mut texts: BTreeMap<NameId, Arc<str>> = BTreeMap::new();
        let mut text =
            |name: NameId| texts.entry(name).or_insert_with(|| names.get(name).unwrap_or("unnamed").into()).clone();
        let lane = |(stream, LaneSums { columns, mut long }): (Option<Stream>, LaneSums)| {
            long.sort_by_key(|(start, end, ..)| (*start, *end));
            let long =
                long.into_iter().map(|(start, end, name, family)| LongSpan { start, end, name: text(name), family });
            LaneColumns { stream, columns, long: long.collect() }
        };
        TimelineColumns {
            rank,
            window: self.window,
            lanes: self.lanes.into_iter().map(lane).collect(),
            streams_left_out: self.left_out.len(),
            frames: self.frames.iter().map(Votes::frame).collect(),
            count: self.count,
        }
    }
}

/// Where a column begins.
fn border(from: i64, length: i64, columns: usize, column: usize) -> i64 {
    let offset = i128::from(length) * column as i128 / columns as i128;
    from.saturating_add(offset as i64)
}

/// The column a time lies in.
fn column_of(from: i64, length: i64, columns: usize, time: i64) -> usize {
    let offset = i128::from(time.saturating_sub(from)).max(0);
    // A border is rounded down, so its time belongs to the column that it begins.
    let column = ((offset + 1) * columns as i128 - 1) / i128::from(length);
    (column as usize).min(columns - 1)
}

impl TimelineColumns {
    /// Where a column begins.
    pub fn border(&self, column: usize) -> i64 {
        let from = self.window.from.0;
        border(from, self.window.to.0.saturating_sub(from).max(1), self.frames.len(), column)
    }

    /// The column a time lies in; none, where it lies outside.
    pub fn column_at(&self, time: i64) -> Option<usize> {
        let (from, to) = (self.window.from.0, self.window.to.0);
        (from..to).contains(&time).then(|| column_of(from, to.saturating_sub(from).max(1), self.frames.len(), time))
    }
}

impl Votes {
    fn add(&mut self, place: &ActivityPlace, time: i64) {
        self.any = true;
        self.step.add(place.step, time);
        self.micro_batch.add(place.micro_batch, time);
        self.phase.add(place.phase, time);
        self.layer.add(place.layer, time);
    }

    fn frame(&self) -> Option<Frame> {
        self.any.then(|| Frame {
            step: self.step.winner(),
            micro_batch: self.micro_batch.winner(),
            phase: self.phase.winner(),
            layer: self.layer.winner(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stepscope_traces::{FIRST_NAME, Nanos, SpanKind};

    use super::*;

    fn kind(phase: Phase, class: Class) -> SpanKey {
        let place = ActivityPlace {
            class,
            step: Some(Step(3)),
            micro_batch: None,
            phase: Some(phase),
            layer: None,
            operation: None,
            axis: None,
        };
        SpanKey { place, kind: SpanKind::Kernel, name: FIRST_NAME, bytes: None, flops: None }
    }

    fn window(from: i64, to: i64) -> Window {
        Window { from: Nanos(from), to: Nanos(to) }
    }

    #[test]
    fn spans_are_spread_over_their_columns() {
        let mut columns = ColumnSums::new(window(100, 200), 10);
        let (forward, backward) = (kind(Phase::Forward, Class::Compute), kind(Phase::Backward, Class::Compute));
        columns.add(Some(Stream(7)), (95, 125), &forward, Family::Matmul);
        columns.add(Some(Stream(7)), (125, 129), &backward, Family::Norm);
        columns.add(Some(Stream(9)), (190, 300), &kind(Phase::Backward, Class::Communication), Family::Communication);
        columns.add(Some(Stream(9)), (200, 300), &backward, Family::Norm);
        let columns = columns.finish(Rank(0), &Names::default());
        assert_eq!(columns.count, 3);
        let busy: Vec<i64> = columns.lanes[0].columns.iter().map(Column::busy).collect();
        assert_eq!(busy, [10, 10, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(columns.lanes[0].columns[2].busiest(), Some(Family::Matmul));
        assert_eq!(columns.lanes[1].columns[9].busy(), 10);
        let phases: Vec<Option<Phase>> =
            columns.frames.iter().map(|frame| frame.and_then(|frame| frame.phase)).collect();
        assert_eq!(phases[..4], [Some(Phase::Forward), Some(Phase::Forward), None, None], "the third one is mixed");
        assert!(columns.frames[9].is_none(), "communication says nothing of where the kernels are");
        assert_eq!((columns.border(1), columns.column_at(110), columns.column_at(200)), (110, Some(1), None));
    }

    #[test]
    fn a_stream_for_every_span_takes_no_more_memory_than_is_seen() {
        let mut columns = ColumnSums::new(window(0, 100), 200);
        for stream in 0..5000 {
            columns.add(Some(Stream(stream)), (0, 100), &kind(Phase::Forward, Class::Compute), Family::Matmul);
        }
        let columns = columns.finish(Rank(0), &Names::default());
        assert_eq!((columns.lanes.len(), columns.streams_left_out), (MOST_LANES, 5000 - MOST_LANES));
        assert_eq!(columns.count, 5000);
    }

    proptest! {
        #[test]
        fn no_time_is_lost_or_counted_twice(
            from in -1_000_000_000_i64..1_000_000_000,
            length in 1_i64..1_000_000,
            columns in 1_usize..300,
            spans in prop::collection::vec((-10_000_i64..1_010_000, 1_i64..50_000), 1..50),
        ) {
            let mut summed = ColumnSums::new(window(from, from + length), columns);
            let mut expected = 0;
            for (start, duration) in spans {
                let (start, end) = (from + start, from + start + duration);
                summed.add(None, (start, end), &kind(Phase::Forward, Class::Compute), Family::Other);
                expected += (end.min(from + length) - start.max(from)).max(0);
            }
            // A column may be shorter than a nanosecond: then what touches it is counted as one.
            prop_assume!(length >= columns as i64);
            let columns = summed.finish(Rank(0), &Names::default());
            let busy: i64 = columns.lanes.iter().flat_map(|lane| &lane.columns).map(Column::busy).sum();
            prop_assert_eq!(busy, expected);
        }

        #[test]
        fn borders_and_columns_agree(from in -1_000_i64..1_000, length in 1_i64..5_000, columns in 1_usize..700) {
            for column in 0..columns.min(length as usize) {
                let time = border(from, length, columns, column);
                let found = column_of(from, length, columns, time);
                prop_assert!(found >= column && border(from, length, columns, found) == time);
            }
        }
    }
}
