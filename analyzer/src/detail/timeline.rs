//! One step, span by span: what each stream of each rank did, and which micro-batch went through it when.

use stepscope_traces::{Family, MicroBatch, NameId, Nanos, Phase, Rank, Run, Step, Stream, Window};

use crate::{
    detail::rank_spans::{CompactSpan, RankSpans},
    error::AnalysisError,
    figures::{Class, StepFigures},
    rank::{activity::ActivityPlace, work::WorkItem},
};

/// One step. Times are nanoseconds since it began on the first rank to begin it, in the clock all ranks are aligned to.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTimeline {
    /// Which step.
    pub step: Step,
    /// When it began, in that clock.
    pub begin_ns: i64,
    /// From its beginning on the first rank to its end on the last.
    pub duration_ns: i64,
    /// What each stream did, by rank and stream.
    pub lanes: Vec<StreamSpans>,
    /// The passes of each rank.
    pub work: Vec<RankWork>,
}

/// A stream of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpans {
    /// Which rank.
    pub rank: Rank,
    /// Which stream; none, where that is not known.
    pub stream: Option<Stream>,
    /// What it did, by time.
    pub spans: Vec<LaneSpan>,
}

/// Something a stream did, or neighbors that are drawn as one.
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
/// out. Of each stream there are at most `limit` spans: where there are more, neighbors are merged.
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
    let mut timeline = StepTimeline { step, begin_ns: begin, duration_ns, lanes: Vec::new(), work: Vec::new() };
    for figures in figures {
        let Some(directory) = run.rank(figures.rank) else { continue };
        let from = figures.start_ns;
        let to = from.saturating_add(figures.duration_ns);
        let window = Window { from: Nanos(from), to: Nanos(to) };
        let Some(spans) = RankSpans::read(directory, window, Window::NONE, 1, usize::MAX)?.spans else { continue };
        let place = placed_in(figures, begin);
        for (stream, seen) in spans.streams() {
            let mut lane: Vec<Raw> = seen.iter().map(|seen| Raw::of(&spans, seen, (from, to))).collect();
            lane.sort_by_key(|span| span.start);
            merge(&mut lane, limit, to.saturating_sub(from));
            let lane = lane.iter().map(|span| span.placed(&spans, &place)).collect();
            timeline.lanes.push(StreamSpans { rank: figures.rank, stream, spans: lane });
        }
        timeline.work.push(RankWork::of(&spans, figures, begin));
    }
    Ok(timeline)
}

impl RankWork {
    /// The passes of a rank in a step, in nanoseconds since a time of the clock all ranks are aligned to.
    pub fn of(spans: &RankSpans, figures: &StepFigures, begin: i64) -> RankWork {
        let place = placed_in(figures, begin);
        let items = spans.work().into_iter().filter(|item| item.step == figures.step);
        let items = items.map(|item| WorkItem { start: place(item.start), end: place(item.end), ..item }).collect();
        RankWork { rank: figures.rank, items }
    }
}

/// Times of a rank, clipped to its step, since a time of the clock all ranks are aligned to.
fn placed_in(figures: &StepFigures, begin: i64) -> impl Fn(i64) -> i64 {
    let (from, to) = (figures.start_ns, figures.start_ns.saturating_add(figures.duration_ns));
    let shift = figures.aligned_start_ns.saturating_sub(from);
    move |time: i64| time.clamp(from, to).saturating_add(shift).saturating_sub(begin)
}

/// A span before it has a name and a place.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Raw {
    start: i64,
    end: i64,
    name: NameId,
    family: Family,
    class: Class,
    micro_batch: Option<MicroBatch>,
    phase: Option<Phase>,
    count: u32,
    /// How long the span is that gives it its name.
    longest: i64,
}

impl Raw {
    fn of(spans: &RankSpans, seen: &CompactSpan, (from, to): (i64, i64)) -> Raw {
        let (start, end) = (seen.start.clamp(from, to), seen.end.clamp(from, to));
        let (kind, family) = spans.kind(seen);
        let ActivityPlace { class, micro_batch, phase, .. } = kind.place;
        Raw { start, end, name: kind.name, family, class, micro_batch, phase, count: 1, longest: end - start }
    }

    fn placed(&self, spans: &RankSpans, place: impl Fn(i64) -> i64) -> LaneSpan {
        LaneSpan {
            start: place(self.start),
            end: place(self.end),
            name: spans.name(self.name).to_owned(),
            family: self.family,
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

/// Merges neighbors until there are at most `limit`: first those that are alike and close, and where these do not
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
        let (class, family, name) = (Class::Compute, Family::Other, NameId(name));
        Raw { start, end, name, family, class, micro_batch: None, phase: None, count: 1, longest }
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
