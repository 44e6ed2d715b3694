//! What a rank did in a stretch of time, span by span, in as few bytes as looking at it needs.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use stepscope_traces::{
    Family, Layer, MicroBatch, NameId, Names, Phase, Rank, RankData, RankDirectory, SpanKind, Spans, Step, Stream,
    Window,
};

use crate::{
    detail::{
        span_key::SpanKey,
        timeline_columns::{ColumnSums, TimelineColumns},
    },
    error::AnalysisError,
    figures::Class,
    rank::{
        activity::ActivityPlace,
        work::{self, WorkItem},
    },
};

/// What a rank did in a stretch of time, by stream.
#[derive(Debug)]
pub struct RankSpans {
    /// Which rank.
    pub rank: Rank,
    /// Which stretch, in the rank's clock: all that touches it is here.
    pub window: Window,
    streams: BTreeMap<Option<Stream>, Vec<CompactSpan>>,
    kinds: SpanKeys,
    names: Names,
}

/// One span: when it was, in the rank's clock, and which of the kinds it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactSpan {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) kind: u32,
}

/// A span with all that is known of it. Times are in the rank's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanFacts {
    /// When it begins.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: SpanKind,
    /// What kind of work it is.
    pub family: Family,
    /// In which step.
    pub step: Option<Step>,
    /// Of which micro-batch.
    pub micro_batch: Option<MicroBatch>,
    /// In which phase.
    pub phase: Option<Phase>,
    /// Of which layer.
    pub layer: Option<Layer>,
    /// The bytes it moved; of a collective, the message's.
    pub bytes: Option<u64>,
    /// The floating-point operations it did.
    pub flops: Option<u64>,
}

impl SpanFacts {
    /// Its operations in its time, a second; none where either is not known.
    pub fn flops_per_second(&self) -> Option<f64> {
        self.a_second(self.flops?)
    }

    /// Its bytes in its time, a second; none where either is not known.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.a_second(self.bytes?)
    }

    fn a_second(&self, amount: u64) -> Option<f64> {
        let time = self.end.saturating_sub(self.start);
        (time > 0).then(|| amount as f64 / (time as f64 / 1e9))
    }
}

/// The kinds of spans there are, each once, with its family.
#[derive(Debug, Default)]
struct SpanKeys {
    all: Vec<(SpanKey, Family)>,
    numbers: HashMap<SpanKey, u32>,
    /// Names are looked at once, not in each step.
    families: HashMap<(Class, NameId), Family>,
}

impl SpanKeys {
    fn number(&mut self, kind: SpanKey, names: &Names) -> u32 {
        let next = self.all.len() as u32;
        *self.numbers.entry(kind).or_insert_with(|| {
            let class = kind.place.class;
            let family = self.families.entry((class, kind.name));
            let family = *family.or_insert_with(|| class.family(names.get(kind.name).unwrap_or_default()));
            self.all.push((kind, family));
            next
        })
    }
}

/// What a rank did in a stretch of time: in columns, and span by span where those are not too many.
pub struct RankView {
    /// In columns.
    pub columns: TimelineColumns,
    /// Span by span.
    pub spans: Option<Arc<RankSpans>>,
    /// From the first beginning to the last end of what touches the window that was read.
    pub extent: Option<(i64, i64)>,
}

impl RankSpans {
    /// Reads what touches a window, and sums up a part of it in `columns` columns. Of more spans than `most` only the columns
    /// are left, however many there are.
    pub fn read(
        directory: &RankDirectory,
        window: Window,
        part: Window,
        columns: usize,
        most: usize,
    ) -> Result<RankView, AnalysisError> {
        let mut kinds = SpanKeys::default();
        let mut streams: BTreeMap<Option<Stream>, Vec<CompactSpan>> = BTreeMap::new();
        let (mut count, mut extent, mut summed) = (0_usize, None, ColumnSums::new(part, columns));
        let take = |data: &RankData, spans: &Spans| {
            let mut last: Option<(SpanKey, u32)> = None;
            for row in 0..spans.len() {
                let Some(kind) = SpanKey::of(spans, row) else { continue };
                // Neighbours are of one kind, often.
                let number = match last {
                    Some((same, number)) if same == kind => number,
                    _ => kinds.number(kind, &data.names),
                };
                last = Some((kind, number));
                let start = spans.start_ns.get(row).0;
                let end = start.saturating_add(spans.duration_ns.get(row).0.max(0));
                let stream = spans.stream.get(row);
                let (first, last) = extent.unwrap_or((start, end));
                extent = Some((first.min(start), last.max(end)));
                summed.add(stream, (start, end), &kind, kinds.all[number as usize].1);
                let seen = streams.entry(stream).or_default();
                count += 1;
                if count <= most {
                    seen.push(CompactSpan { start, end, kind: number });
                } else if count == most + 1 {
                    streams.values_mut().for_each(|seen| *seen = Vec::new());
                }
            }
        };
        let (data, _) = directory.read_in_pieces(window, take, |_| {})?;
        let rank = directory.info.rank;
        let columns = summed.finish(rank, &data.names);
        if count > most {
            return Ok(RankView { columns, spans: None, extent });
        }
        streams.values_mut().for_each(|seen| seen.sort_by_key(|seen| (seen.start, seen.end)));
        let spans = RankSpans { rank, window, streams, kinds, names: data.names };
        Ok(RankView { columns, spans: Some(Arc::new(spans)), extent })
    }

    /// How many spans there are.
    pub fn len(&self) -> usize {
        self.streams.values().map(Vec::len).sum()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// From the first beginning to the last end.
    pub fn extent(&self) -> Option<(i64, i64)> {
        let all = || self.streams.values().flatten();
        Some((all().map(|seen| seen.start).min()?, all().map(|seen| seen.end).max()?))
    }

    /// A part of it, summed up in columns.
    pub fn timeline_columns(&self, part: Window, columns: usize) -> TimelineColumns {
        let mut summed = ColumnSums::new(part, columns);
        for (stream, seen) in &self.streams {
            summed.meet(*stream);
            for seen in seen {
                let (kind, family) = &self.kinds.all[seen.kind as usize];
                summed.add(*stream, (seen.start, seen.end), kind, *family);
            }
        }
        summed.finish(self.rank, &self.names)
    }

    /// The spans of a stream, by time.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (Option<Stream>, &[CompactSpan])> {
        self.streams.iter().map(|(stream, seen)| (*stream, seen.as_slice()))
    }

    /// What a span is.
    pub(crate) fn kind(&self, seen: &CompactSpan) -> (&SpanKey, Family) {
        let (kind, family) = &self.kinds.all[seen.kind as usize];
        (kind, *family)
    }

    /// The text of a name.
    pub(crate) fn name(&self, name: NameId) -> &str {
        self.names.get(name).unwrap_or("unnamed")
    }

    /// The passes it made, by time.
    pub fn work(&self) -> Vec<WorkItem> {
        let mut all: Vec<(i64, i64, &ActivityPlace)> =
            self.streams.values().flatten().map(|seen| (seen.start, seen.end, &self.kind(seen).0.place)).collect();
        all.sort_by_key(|(start, ..)| *start);
        work::of(all.into_iter()).items
    }

    /// How many spans a stream has.
    pub fn count(&self, stream: Option<Stream>) -> usize {
        self.streams.get(&stream).map_or(0, Vec::len)
    }

    /// One of a stream's spans, by its place among them.
    pub fn span(&self, stream: Option<Stream>, index: usize) -> Option<SpanFacts> {
        let seen = self.streams.get(&stream)?.get(index)?;
        let (kind, family) = self.kind(seen);
        Some(SpanFacts {
            start: seen.start,
            end: seen.end,
            name: self.name(kind.name).to_owned(),
            kind: kind.kind,
            family,
            step: kind.place.step,
            micro_batch: kind.place.micro_batch,
            phase: kind.place.phase,
            layer: kind.place.layer,
            bytes: kind.bytes,
            flops: kind.flops,
        })
    }

    /// Which of a stream's spans is nearest to a time: the last one that began by then, or the one after it, if that is
    /// nearer.
    pub fn nearest(&self, stream: Option<Stream>, time: i64) -> Option<usize> {
        let seen = self.streams.get(&stream)?;
        let after = seen.partition_point(|seen| seen.start <= time);
        let distance = |index: usize| {
            let CompactSpan { start, end, .. } = seen[index];
            if time < start { start.saturating_sub(time) } else { time.saturating_sub(end).max(0) }
        };
        [after.checked_sub(1), Some(after).filter(|after| *after < seen.len())]
            .into_iter()
            .flatten()
            .min_by_key(|index| distance(*index))
    }
}
