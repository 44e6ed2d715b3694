//! One step, span by span: what each stream of each rank did, and which micro-batch went through it when.

use std::collections::BTreeMap;

use stepscope_traces::{MicroBatch, NameId, Names, Nanos, Phase, Rank, Run, Spans, Step, Stream, Window};

use crate::{
    activity::{Activities, Class},
    error::AnalysisError,
    family::Family,
    steps::StepFigures,
    work::{self, WorkItem},
};

/// One step. Times are nanoseconds since it began on the first rank to begin it, in the clock all ranks are aligned to.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTimeline {
    /// Which step.
    pub step: Step,
    /// From its beginning on the first rank to its end on the last.
    pub duration_ns: i64,
    /// What each stream did, by rank and stream.
    pub lanes: Vec<Lane>,
    /// The passes of each rank.
    pub work: Vec<RankWork>,
}

/// A stream of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// Which rank.
    pub rank: Rank,
    /// Which stream; none, where that is not known.
    pub stream: Option<Stream>,
    /// What it did, by time.
    pub spans: Vec<LaneSpan>,
}

/// Something a stream did, or neighbours that are drawn as one.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneSpan {
    /// When it begins.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// Its name; of several, that of the longest.
    pub name: String,
    /// What kind of work it is.
    pub family: Family,
    /// What it is, as far as time is concerned.
    pub class: Class,
    /// Of which micro-batch.
    pub micro_batch: Option<MicroBatch>,
    /// In which phase.
    pub phase: Option<Phase>,
    /// How many spans it stands for.
    pub count: u32,
}

/// The passes that a rank made in the step.
#[derive(Clone, Debug, PartialEq)]
pub struct RankWork {
    /// Which rank.
    pub rank: Rank,
    /// Its passes, by time.
    pub items: Vec<WorkItem>,
}

/// Reads one step again. `figures` has where the step lies on each rank that is wanted; those of other steps are left
/// out. Of each stream there are at most `limit` spans: where there are more, neighbours are merged.
pub fn step_timeline(
    run: &Run,
    step: Step,
    figures: &[StepFigures],
    limit: usize,
) -> Result<StepTimeline, AnalysisError> {
    let figures: Vec<&StepFigures> = figures.iter().filter(|figures| figures.step == step).collect();
    let begin = figures.iter().map(|figures| figures.aligned_start_ns).min().unwrap_or(0);
    let end = figures.iter().map(|figures| figures.aligned_start_ns.saturating_add(figures.duration_ns)).max();
    let duration_ns = end.unwrap_or(begin).saturating_sub(begin);
    let mut timeline = StepTimeline { step, duration_ns, lanes: Vec::new(), work: Vec::new() };
    for figures in figures {
        let Some(directory) = run.rank(figures.rank) else { continue };
        let from = figures.start_ns;
        let to = from.saturating_add(figures.duration_ns);
        let (mut streams, mut activities) = (Streams::new(), Activities::new(&run.info.groups));
        let window = Window { from: Nanos(from), to: Nanos(to) };
        let take = |_: &_, spans: &_| {
            activities.take(spans);
            collect(&mut streams, spans, (from, to));
        };
        let (data, _) = directory.read_in_pieces(window, take, |_| {})?;
        let shift = figures.aligned_start_ns.saturating_sub(from);
        let place = |time: i64| time.clamp(from, to).saturating_add(shift).saturating_sub(begin);
        for (stream, mut spans) in streams {
            spans.sort_by_key(|span| span.start);
            merge(&mut spans, limit, to.saturating_sub(from));
            let spans = spans.iter().map(|span| span.placed(&data.names, place)).collect();
            timeline.lanes.push(Lane { rank: figures.rank, stream, spans });
        }
        activities.sort();
        let items = work::items(&activities).into_iter().filter(|item| item.step == step);
        let items = items.map(|item| WorkItem { start: place(item.start), end: place(item.end), ..item }).collect();
        timeline.work.push(RankWork { rank: figures.rank, items });
    }
    Ok(timeline)
}

type Streams = BTreeMap<Option<Stream>, Vec<Raw>>;

/// A span before it has a name and a place.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Raw {
    start: i64,
    end: i64,
    name: NameId,
    class: Class,
    micro_batch: Option<MicroBatch>,
    phase: Option<Phase>,
    count: u32,
    /// How long the span is that gives it its name.
    longest: i64,
}

impl Raw {
    fn placed(&self, names: &Names, place: impl Fn(i64) -> i64) -> LaneSpan {
        let name = names.get(self.name).unwrap_or("unnamed");
        LaneSpan {
            start: place(self.start),
            end: place(self.end),
            name: name.to_owned(),
            family: Family::of(self.class, name),
            class: self.class,
            micro_batch: self.micro_batch,
            phase: self.phase,
            count: self.count,
        }
    }

    fn is_like(&self, other: &Raw) -> bool {
        (self.name, self.class, self.micro_batch, self.phase)
            == (other.name, other.class, other.micro_batch, other.phase)
    }

    /// Makes one of two, the other one beginning later.
    fn join(&mut self, other: &Raw) {
        let (end, count) = (self.end.max(other.end), self.count.saturating_add(other.count));
        if other.longest > self.longest {
            *self = Raw { start: self.start, ..*other };
        }
        (self.end, self.count) = (end, count);
    }
}

fn collect(streams: &mut Streams, spans: &Spans, (from, to): (i64, i64)) {
    for row in 0..spans.len() {
        let Some(class) = Class::of(spans.kind.get(row)) else { continue };
        let start = spans.start_ns.get(row).0;
        let end = start.saturating_add(spans.duration_ns.get(row).0.max(0));
        let (start, end) = (start.clamp(from, to), end.clamp(from, to));
        streams.entry(spans.stream.get(row)).or_default().push(Raw {
            start,
            end,
            name: spans.name.get(row),
            class,
            micro_batch: spans.micro_batch.get(row),
            phase: spans.phase.get(row),
            count: 1,
            longest: end - start,
        });
    }
}

/// Merges neighbours until there are at most `limit`: first those that are alike and close, and where these do not
/// do, those that are short and close. Each round, what is close and short is twice as long, up to the whole window.
fn merge(spans: &mut Vec<Raw>, limit: usize, window: i64) {
    let mut close = (window / (4 * limit.max(1) as i64)).max(1);
    while spans.len() > limit.max(1) {
        let short = |span: &Raw| span.end - span.start <= close;
        spans.dedup_by(|later, earlier| {
            let joins = later.start.saturating_sub(earlier.end) <= close
                && (earlier.is_like(later) || short(earlier) && short(later));
            if joins {
                earlier.join(later);
            }
            joins
        });
        close = close.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(start: i64, end: i64, name: u32) -> Raw {
        let longest = end - start;
        let (class, name) = (Class::Compute, NameId(name));
        Raw { start, end, name, class, micro_batch: None, phase: None, count: 1, longest }
    }

    #[test]
    fn few_spans_stay_as_they_are() {
        let before = vec![raw(0, 10, 1), raw(10, 20, 1), raw(30, 40, 2)];
        let mut spans = before.clone();
        merge(&mut spans, 3, 40);
        assert_eq!(spans, before);
    }

    #[test]
    fn many_become_few_and_cover_the_same_time() {
        // Two names in turn, and one long span among them.
        let mut spans: Vec<Raw> = (0..10_000).map(|index| raw(index * 10, index * 10 + 9, index as u32 % 2)).collect();
        spans.push(raw(100_000, 150_000, 2));
        merge(&mut spans, 100, 150_000);
        assert!(spans.len() <= 100 && spans.len() > 10, "{}", spans.len());
        assert_eq!(spans.iter().map(|span| span.count).sum::<u32>(), 10_001);
        assert_eq!((spans[0].start, spans.last().map(|span| span.end)), (0, Some(150_000)));
        assert!(spans.is_sorted_by_key(|span| span.start));
        assert_eq!(
            spans.last().map(|span| (span.name, span.start)),
            Some((NameId(2), 100_000)),
            "the long one is kept"
        );
    }
}
