//! A stretch of a run, span by span: as many of them as a picture takes, and elsewhere neighbors as one.

use hashbrown::HashMap;
use stepscope_traces::{Family, Layer, MicroBatch, Nanos, Phase, Rank, Run, Stream, Window};

use crate::{
    detail::{
        overlay::RankOverlay,
        rank_spans::{CompactSpan, RankSpans},
    },
    error::AnalysisError,
    figures::Class,
    rank::intervals::Intervals,
};

/// A rank's clock is told from that of all ranks by less than this, over any stretch.
const CLOCKS_DIFFER_NS: i64 = 10_000_000;

/// What ranks did between two moments. Times are nanoseconds since it begins, in the clock all ranks are aligned to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunStretch {
    /// When it begins, in that clock.
    pub begin_ns: i64,
    /// How long it is.
    pub length_ns: i64,
    /// What spans are, but for their times.
    pub kinds: Vec<StretchKind>,
    /// What each stream of each rank did.
    pub streams: Vec<StretchStream>,
    /// When each rank communicates and does not compute.
    pub exposed: Vec<(Rank, Vec<(i64, i64)>)>,
    /// How many spans there are, those that are merged counted one by one.
    pub spans: u64,
}

/// What spans are that differ in their times alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StretchKind {
    /// Their name.
    pub name: String,
    /// What kind of work.
    pub family: Family,
    /// What it is, as far as time is concerned.
    pub class: Class,
    /// In which phase.
    pub phase: Option<Phase>,
    /// Of which micro-batch.
    pub micro_batch: Option<MicroBatch>,
    /// Of which layer.
    pub layer: Option<Layer>,
    /// The bytes each moved.
    pub bytes: Option<u64>,
    /// The floating-point operations each did.
    pub flops: Option<u64>,
}

/// What a stream did.
#[derive(Clone, Debug, PartialEq)]
pub struct StretchStream {
    /// Of which rank.
    pub rank: Rank,
    /// Which one; none, where that is not known.
    pub stream: Option<Stream>,
    /// By time.
    pub spans: Vec<StretchSpan>,
}

/// A span, or neighbors as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StretchSpan {
    /// When it begins.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// What it is, by its place among the kinds; of several, the longest one's.
    pub kind: u32,
    /// How many spans it stands for.
    pub count: u32,
    /// How long the span is that says what it is.
    longest: i64,
}

/// What is read of a run.
#[derive(Clone, Copy, Debug)]
pub struct StretchChoice {
    /// From when, in the clock all ranks are aligned to.
    pub from: i64,
    /// To when.
    pub to: i64,
    /// What of that is to be merged last.
    pub exact: (i64, i64),
    /// How many spans there may be, of all streams together.
    pub most: usize,
}

impl RunStretch {
    /// Reads a stretch of some ranks.
    pub fn read(run: &Run, ranks: &[&RankOverlay], choice: StretchChoice) -> Result<RunStretch, AnalysisError> {
        let mut stretch = RunStretch {
            begin_ns: choice.from,
            length_ns: choice.to.saturating_sub(choice.from).max(0),
            ..RunStretch::default()
        };
        let mut numbers: HashMap<StretchKind, u32> = HashMap::new();
        for rank in ranks {
            let Some(directory) = run.rank(rank.rank) else { continue };
            let shift = rank.clock.at(choice.from).saturating_sub(choice.from);
            let near = |time: i64, more: i64| Nanos(time.saturating_sub(shift).saturating_add(more));
            let window = Window { from: near(choice.from, -CLOCKS_DIFFER_NS), to: near(choice.to, CLOCKS_DIFFER_NS) };
            let Some(spans) = RankSpans::read(directory, window, Window::NONE, 1, usize::MAX)?.spans else { continue };
            // By the rank's own numbers, which tell steps apart.
            let mut known: HashMap<u32, u32> = HashMap::new();
            let mut by_class: [Vec<(i64, i64)>; 2] = [Vec::new(), Vec::new()];
            for (stream, seen) in spans.streams() {
                let mut read: Vec<StretchSpan> = Vec::new();
                for seen in seen {
                    let place = |time: i64| rank.clock.at(time).clamp(choice.from, choice.to) - choice.from;
                    let (start, end) = (place(seen.start), place(seen.end));
                    let touches = rank.clock.at(seen.end) >= choice.from && rank.clock.at(seen.start) < choice.to;
                    if !touches {
                        continue;
                    }
                    match spans.kind(seen).0.place.class {
                        Class::Compute => by_class[0].push((start, end)),
                        Class::Communication => by_class[1].push((start, end)),
                        Class::Copy => {}
                    }
                    let number = *known.entry(seen.kind).or_insert_with(|| {
                        *numbers.entry(StretchKind::of(&spans, seen)).or_insert_with_key(|kind| {
                            stretch.kinds.push(kind.clone());
                            stretch.kinds.len() as u32 - 1
                        })
                    });
                    read.push(StretchSpan { start, end, kind: number, count: 1, longest: end - start });
                }
                stretch.spans += read.len() as u64;
                if !read.is_empty() {
                    stretch.streams.push(StretchStream { rank: rank.rank, stream, spans: read });
                }
            }
            let [compute, communication] = by_class.map(Intervals::union_of);
            let exposed: Vec<(i64, i64)> = communication.without(&compute).iter().collect();
            if !exposed.is_empty() {
                stretch.exposed.push((rank.rank, exposed));
            }
        }
        stretch.merge(choice);
        Ok(stretch)
    }

    /// Whether some spans are drawn as one.
    pub fn is_merged(&self) -> bool {
        self.streams.iter().flat_map(|stream| &stream.spans).any(|span| span.count > 1)
    }

    /// Merges neighbors that are close until there are few enough: each round what is close is twice as long. What is to be
    /// exact is left alone while something else can be merged.
    fn merge(&mut self, choice: StretchChoice) {
        let exact = (choice.exact.0.saturating_sub(choice.from), choice.exact.1.saturating_sub(choice.from));
        let count = |streams: &[StretchStream]| streams.iter().map(|stream| stream.spans.len()).sum::<usize>();
        for spares in [true, false] {
            let mut close = (self.length_ns / (8 * choice.most.max(1) as i64)).max(1);
            while count(&self.streams) > choice.most && close <= self.length_ns.max(1) {
                for stream in &mut self.streams {
                    stream.spans.dedup_by(|later, earlier| {
                        let is_spared = spares && earlier.end > exact.0 && later.start < exact.1;
                        !is_spared && earlier.joins(later, close)
                    });
                }
                close = close.saturating_mul(2);
            }
        }
    }
}

impl StretchKind {
    fn of(spans: &RankSpans, seen: &CompactSpan) -> StretchKind {
        let (key, family) = spans.kind(seen);
        StretchKind {
            name: spans.name(key.name).to_owned(),
            family,
            class: key.place.class,
            phase: key.place.phase,
            micro_batch: key.place.micro_batch,
            layer: key.place.layer,
            bytes: key.bytes,
            flops: key.flops,
        }
    }
}

impl StretchSpan {
    /// Takes in one that begins later, if both are short and close or of one kind and close.
    fn joins(&mut self, later: &StretchSpan, close: i64) -> bool {
        let short = |span: &StretchSpan| span.end - span.start <= close;
        let joins =
            later.start.saturating_sub(self.end) <= close && (self.kind == later.kind || short(self) && short(later));
        if joins {
            let (end, count) = (self.end.max(later.end), self.count.saturating_add(later.count));
            if later.longest > self.longest {
                (self.kind, self.longest) = (later.kind, later.longest);
            }
            (self.end, self.count) = (end, count);
        }
        joins
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{Run, Step};

    use super::*;
    use crate::{Selection, analyze_with_overlay};

    fn sample(name: &str) -> Run {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/samples").join(name);
        Run::open(&path).unwrap()
    }

    fn read(name: &str, most: usize) -> (RunStretch, i64, i64) {
        let run = sample(name);
        let (analysis, overlay) = analyze_with_overlay(&run, &Selection::default(), &|_| {}).unwrap();
        let step = analysis.step_time.as_ref().map_or(Step(1), |time| time.median_step);
        let ranks = || analysis.steps.iter().filter(|figures| figures.step == step);
        let from = ranks().map(|figures| figures.aligned_start_ns).min().unwrap();
        let to = ranks().map(|figures| figures.aligned_start_ns + figures.duration_ns).max().unwrap();
        let ranks: Vec<&RankOverlay> = overlay.ranks.iter().collect();
        let choice = StretchChoice { from, to, exact: (from, from), most };
        let stretch = RunStretch::read(&run, &ranks, choice).unwrap();
        let counted: i64 = analysis
            .steps
            .iter()
            .filter(|figures| figures.step == step)
            .map(|figures| figures.partition.exposed_communication_ns)
            .sum();
        let exposed = stretch.exposed.iter().flat_map(|(_, exposed)| exposed).map(|(start, end)| end - start).sum();
        (stretch, exposed, counted)
    }

    #[test]
    fn a_stretch_that_is_a_step_has_its_exposed_communication() {
        // All ranks of these begin and end the step together, but for what clocks differ by.
        let (stretch, exposed, counted) = read("tp2", usize::MAX);
        assert!(!stretch.is_merged() && stretch.spans > 100 && counted > 0);
        let apart = (exposed - counted).abs() as f64 / counted as f64;
        assert!(apart < 0.05, "{exposed} and {counted}");
    }

    #[test]
    fn what_is_merged_is_still_counted() {
        let (whole, ..) = read("dp2-bucketed", usize::MAX);
        let (merged, ..) = read("dp2-bucketed", 40);
        let drawn = merged.streams.iter().map(|stream| stream.spans.len()).sum::<usize>();
        assert!(drawn <= 40 && merged.is_merged(), "{drawn}");
        let counted = merged.streams.iter().flat_map(|stream| &stream.spans).map(|span| u64::from(span.count));
        assert_eq!(counted.sum::<u64>(), whole.spans);
        assert_eq!(merged.exposed, whole.exposed, "what is merged changes no figure");
    }
}
