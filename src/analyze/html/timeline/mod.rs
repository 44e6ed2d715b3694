//! The timeline of a run: its streams, the critical path, what communication nothing hides, and memory, on one axis.
//!
//! | file | idea |
//! |---|---|
//! | `choice.rs` | which part of a run there is room for |
//! | `packed.rs` | spans in as few bytes as a page can read |

mod choice;
mod packed;

use std::collections::HashMap;

use anyhow::Result;
use serde::Serialize;
use stepscope_analyzer::{
    Analysis, Evidence, Overlay, RankOverlay, RunStretch, StretchChoice, StretchKind, StretchStream,
};
use stepscope_plan::text;
use stepscope_traces::{Family, MemoryCategory, Rank, Run, Step};

use super::{
    critical_path::{self, PathSpan},
    memory, pipeline,
};
use crate::{
    analyze::report,
    render::html::{chart, chart::of_family, escaped, in_script},
};
use choice::Choice;
use packed::Drawn;

/// Spans that are drawn, of all streams together.
const SPANS: usize = 200_000;
/// Of more ranks than these, the others are folded.
const UNFOLDED: usize = 4;
/// Points of memory: there are not many more pixels.
const POINTS: usize = 2000;

/// What a page says of its timeline, beside its spans. Times are nanoseconds since it begins.
#[derive(Default, Serialize)]
struct About {
    length: i64,
    open: [i64; 2],
    names: Vec<String>,
    kinds: Vec<Kind>,
    lanes: Vec<Lane>,
    ranks: Vec<(Rank, String)>,
    folded: Vec<Rank>,
    steps: Vec<(Step, i64, i64)>,
    memory: Option<Memory>,
}

/// What spans are that differ in their times alone.
#[derive(Serialize)]
struct Kind {
    /// By its place among the names.
    name: usize,
    colour: String,
    says: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flops: Option<u64>,
}

#[derive(Serialize)]
struct Lane {
    /// None for what is of all ranks.
    rank: Option<Rank>,
    name: String,
    /// How many.
    spans: usize,
    /// Whether it is about other lanes.
    thin: bool,
}

#[derive(Serialize)]
struct Memory {
    name: String,
    most: u64,
    times: Vec<i64>,
    parts: Vec<MemoryPart>,
}

#[derive(Serialize)]
struct MemoryPart {
    name: String,
    colour: String,
    bytes: Vec<u64>,
}

/// A timeline as it stands in the page, and when it begins and ends in the clock all ranks are aligned to.
pub(crate) struct Timeline {
    pub(crate) html: String,
    place: Option<(i64, i64)>,
}

impl Timeline {
    /// The step that it opens at: the one of which the critical path is known, and otherwise the one in the middle.
    pub(crate) fn first_step(analysis: &Analysis) -> Option<Step> {
        let path = analysis.critical_path.as_ref().and_then(|path| path.step);
        path.or(analysis.step_time.as_ref().map(|time| time.median_step))
    }

    /// How long a step is on all ranks together.
    pub(crate) fn length_of(analysis: &Analysis, step: Step) -> i64 {
        let place = choice::place_of(analysis.steps.iter().filter(|figures| figures.step == step));
        place.map_or(0, |(from, to)| to.saturating_sub(from))
    }

    /// The timeline of a run. What is seen first is a step, and so long at least.
    pub(crate) fn of(run: &Run, analysis: &Analysis, overlay: &Overlay, least_ns: i64) -> Result<Timeline> {
        let chosen = choice::ranks(analysis, pipeline::ranks(analysis));
        let ranks: Vec<&RankOverlay> = overlay.ranks.iter().filter(|rank| chosen.contains(&rank.rank)).collect();
        let nothing = Timeline { html: String::new(), place: None };
        let first = Timeline::first_step(analysis);
        let Some(choice) = choice::choose(analysis, &ranks, first) else { return Ok(nothing) };
        let read = StretchChoice { from: choice.from, to: choice.to, exact: choice.first, most: SPANS };
        let stretch = RunStretch::read(run, &ranks, read)?;
        if stretch.streams.is_empty() {
            return Ok(nothing);
        }
        let mut page = Page::default();
        page.about.length = stretch.length_ns;
        let (from, to) = choice.first;
        let to = to.max(from.saturating_add(least_ns));
        page.about.open = [from, to].map(|time| time.saturating_sub(choice.from));
        page.draw(analysis, &stretch, &ranks);
        page.about.folded = chosen.iter().skip(UNFOLDED).copied().collect();
        page.about.steps = steps(analysis, &choice);
        page.about.memory = memory_of(analysis, &ranks, &choice);
        let html = page.written(&note(analysis, overlay, &stretch, &choice))?;
        Ok(Timeline { html, place: Some((choice.from, choice.to)) })
    }

    /// What opens the timeline where a finding rests on, if it is on it.
    pub(super) fn link(&self, analysis: &Analysis, evidence: &Evidence) -> String {
        let Some((begin, end)) = self.place else { return String::new() };
        let of_step = |step: &Step| choice::place_of(analysis.steps.iter().filter(|figures| figures.step == *step));
        let span = evidence.spans.first().map(|span| (span.start_ns, span.end_ns, Some(span.rank)));
        let step = evidence.steps.iter().find_map(of_step);
        let step = step.map(|(from, to)| (from, to, evidence.ranks.first().copied()));
        let Some((from, to, rank)) =
            [span, step].into_iter().flatten().find(|(from, to, _)| *to > begin && *from < end)
        else {
            return String::new();
        };
        let rank = rank.map_or_else(String::new, |rank| format!(" data-rank=\"{rank}\""));
        let (from, to) = (from.max(begin) - begin, to.min(end) - begin);
        format!("<button hidden data-from=\"{from}\" data-to=\"{to}\"{rank}>show on the timeline</button>")
    }
}

/// What a page is made of.
#[derive(Default)]
struct Page {
    about: About,
    drawn: Vec<Vec<Drawn>>,
    names: HashMap<String, usize>,
    /// Kinds that have nothing but a name.
    plain: HashMap<(String, Family), usize>,
    families: Vec<Family>,
}

impl Page {
    fn draw(&mut self, analysis: &Analysis, stretch: &RunStretch, ranks: &[&RankOverlay]) {
        let path = critical_path::between(analysis, (stretch.begin_ns, stretch.length_ns));
        if !path.is_empty() {
            let drawn = |PathSpan { start, end, name, family, count }: &PathSpan| Drawn {
                start: *start,
                end: *end,
                kind: self.plain(name, *family),
                count: *count,
            };
            let drawn = path.iter().map(drawn).collect();
            self.add(Lane { rank: None, name: "critical path".into(), spans: 0, thin: false }, drawn);
        }
        let kinds: Vec<usize> = stretch.kinds.iter().map(|kind| self.kind(kind)).collect();
        for rank in ranks {
            let stage = rank.stage.map_or_else(String::new, |stage| format!(" · stage {stage}"));
            self.about.ranks.push((rank.rank, format!("rank {}{stage}", rank.rank)));
            for StretchStream { stream, spans, .. } in stretch.streams.iter().filter(|stream| stream.rank == rank.rank)
            {
                let name = stream.map_or_else(|| "stream unknown".into(), |stream| format!("stream {stream}"));
                let drawn = spans.iter().map(|span| Drawn {
                    start: span.start,
                    end: span.end,
                    kind: kinds[span.kind as usize],
                    count: span.count,
                });
                self.add(Lane { rank: Some(rank.rank), name, spans: 0, thin: false }, drawn.collect());
            }
            let exposed =
                stretch.exposed.iter().filter(|(exposed, _)| *exposed == rank.rank).flat_map(|(_, times)| times);
            self.thin(rank.rank, "exposed communication", Family::Communication, exposed.copied().collect());
            let inside = |(from, to): &(i64, i64)| {
                let place = |time: i64| time.saturating_sub(stretch.begin_ns).clamp(0, stretch.length_ns);
                (place(*from), place(*to))
            };
            let bubbles = rank.bubbles.iter().map(inside).filter(|(from, to)| from < to).collect();
            self.thin(rank.rank, "pipeline bubble", Family::Other, bubbles);
        }
    }

    /// A lane of spans that have nothing but a name, which is the lane's own.
    fn thin(&mut self, rank: Rank, name: &str, family: Family, times: Vec<(i64, i64)>) {
        if times.is_empty() {
            return;
        }
        let kind = self.plain(name, family);
        let drawn = times.into_iter().map(|(start, end)| Drawn { start, end, kind, count: 1 }).collect();
        self.add(Lane { rank: Some(rank), name: name.into(), spans: 0, thin: true }, drawn);
    }

    fn add(&mut self, lane: Lane, drawn: Vec<Drawn>) {
        self.about.lanes.push(Lane { spans: drawn.len(), ..lane });
        self.drawn.push(drawn);
    }

    fn kind(&mut self, kind: &StretchKind) -> usize {
        let says = [
            Some(kind.family.word().to_owned()),
            kind.phase.map(|phase| phase.word().to_owned()),
            kind.micro_batch.map(|micro_batch| format!("micro-batch {micro_batch}")),
            kind.layer.map(|layer| format!("layer {layer}")),
        ];
        let says = says.into_iter().flatten().collect::<Vec<_>>().join(", ");
        self.push(&kind.name, kind.family, says, (kind.bytes, kind.flops))
    }

    /// What has nothing but a name.
    fn plain(&mut self, name: &str, family: Family) -> usize {
        let key = (name.to_owned(), family);
        if let Some(kind) = self.plain.get(&key) {
            return *kind;
        }
        let kind = self.push(name, family, String::new(), (None, None));
        self.plain.insert(key, kind);
        kind
    }

    fn push(&mut self, name: &str, family: Family, says: String, (bytes, flops): (Option<u64>, Option<u64>)) -> usize {
        let next = self.about.names.len();
        let name = *self.names.entry(text::printable_name(name)).or_insert_with_key(|name| {
            self.about.names.push(name.clone());
            next
        });
        if !self.families.contains(&family) {
            self.families.push(family);
        }
        self.about.kinds.push(Kind { name, colour: chart::hex(of_family(family)), says, bytes, flops });
        self.about.kinds.len() - 1
    }

    fn written(&self, note: &str) -> Result<String> {
        let about = in_script(&serde_json::to_string(&self.about)?);
        let spans = packed::packed(self.drawn.iter().map(Vec::as_slice))?;
        let mut families: Vec<Family> = self.families.clone();
        families.sort_by_key(|family| Family::ALL.iter().position(|other| other == family));
        let legend = families.iter().map(|family| (family.word().to_owned(), of_family(*family)));
        let memory = self.about.memory.iter().flat_map(|memory| &memory.parts);
        let memory: String = memory.map(|part| chart::legend_entry(&part.name, &part.colour)).collect();
        let memory = if memory.is_empty() { String::new() } else { format!("<ul class=\"legend\">{memory}</ul>\n") };
        let jump = |step: &(Step, i64, i64)| format!("<option value=\"{0}\">step {0}</option>", step.0);
        let steps: String = self.about.steps.iter().map(jump).collect();
        let steps = if steps.is_empty() {
            String::new()
        } else {
            format!("<label>go to <select><option value=\"\">all of it</option>{steps}</select></label>")
        };
        Ok(format!(
            "<figure class=\"timeline\">\n<figcaption><small>{}</small></figcaption>\n\
             <div class=\"tools\">{steps}<button data-key=\"+\" title=\"closer (W)\">+</button>\
             <button data-key=\"-\" title=\"farther (S)\">−</button><button data-key=\"a\" title=\"earlier (A)\">←</button>\
             <button data-key=\"d\" title=\"later (D)\">→</button><button data-key=\"0\" title=\"all of it (0)\">all</button>\
             <small>drag to zoom, shift-drag to move; W S A D as in Perfetto; click for details; double-click for all</small>\
             </div>\n<ul class=\"legend\">{}</ul>\n\
             <div class=\"stage\"><canvas tabindex=\"0\" role=\"img\" aria-label=\"Timeline by rank and stream\"></canvas>\
             <div class=\"tip\" hidden></div></div>\n{memory}<div class=\"touched\" aria-live=\"polite\"></div>\n\
             <script type=\"application/json\">{about}</script>\n<script type=\"text/plain\">{spans}</script>\n</figure>\n",
            escaped(note),
            legend.map(|(name, colour)| chart::legend_entry(&name, &chart::hex(colour))).collect::<String>(),
        ))
    }
}

/// The steps that are in it with most of their time, those that do not count too.
fn steps(analysis: &Analysis, choice: &Choice) -> Vec<(Step, i64, i64)> {
    let mut numbers: Vec<Step> = analysis.steps.iter().map(|figures| figures.step).collect();
    numbers.sort();
    numbers.dedup();
    let place = |step: Step| {
        let (from, to) = choice::place_of(analysis.steps.iter().filter(|figures| figures.step == step))?;
        let is_inside = (choice.from..choice.to).contains(&(from / 2 + to / 2));
        is_inside.then(|| (step, from.max(choice.from) - choice.from, to.min(choice.to) - choice.from))
    };
    numbers.into_iter().filter_map(place).collect()
}

/// Memory of the fullest rank that is drawn.
fn memory_of(analysis: &Analysis, ranks: &[&RankOverlay], choice: &Choice) -> Option<Memory> {
    let rank = |memory: &stepscope_analyzer::RankMemory| ranks.iter().find(|rank| rank.rank == memory.rank);
    let (memory, rank) = analysis
        .memory
        .iter()
        .filter_map(|memory| Some((memory, rank(memory)?)))
        .max_by_key(|(memory, _)| memory.peak_bytes)?;
    let time = |point: &stepscope_analyzer::MemoryPoint| rank.clock.at(point.time_ns);
    let before = memory.timeline.partition_point(|point| time(point) < choice.from).saturating_sub(1);
    let inside: Vec<_> = memory.timeline[before..].iter().take_while(|point| time(point) < choice.to).collect();
    let every = inside.len().div_ceil(POINTS).max(1);
    // Of neighbors the fullest, so that no peak is lost.
    let kept: Vec<_> = inside.chunks(every).filter_map(|near| near.iter().max_by_key(|point| point.total())).collect();
    let part = |category: usize| MemoryPart {
        name: MemoryCategory::ALL[category].spelled(),
        colour: chart::hex(memory::colour(MemoryCategory::ALL[category])),
        bytes: kept.iter().map(|point| point.bytes[category]).collect(),
    };
    let parts = (0..MemoryCategory::ALL.len()).map(part).filter(|part| part.bytes.iter().any(|bytes| *bytes > 0));
    let inferred = if memory.inferred && report::is_told_apart(memory) { " (inferred)" } else { "" };
    let drawn = Memory {
        name: format!("memory, rank {}{inferred}", memory.rank),
        most: kept.iter().map(|point| point.total()).max().filter(|most| *most > 0)?,
        times: kept.iter().map(|point| time(point).saturating_sub(choice.from).max(0)).collect(),
        parts: parts.collect(),
    };
    Some(drawn)
}

/// What of the run it is.
fn note(analysis: &Analysis, overlay: &Overlay, stretch: &RunStretch, choice: &Choice) -> String {
    let what = match (choice.steps, choice.is_cut, analysis.step_time.is_some()) {
        (Some((first, last)), ..) => format!("steps {first} to {last} of those that count"),
        (None, true, _) => format!("the first {} of the recording", text::duration(stretch.length_ns)),
        (None, false, true) => "the steps that count".into(),
        (None, false, false) => "the whole recording".into(),
    };
    let drawn: usize = stretch.streams.iter().map(|stream| stream.spans.len()).sum();
    let spans = match stretch.is_merged() {
        true => format!("{} spans, drawn as {}", text::count(stretch.spans), text::count(drawn as u64)),
        false => text::counted(stretch.spans, "span"),
    };
    let left_out = overlay.ranks.len().saturating_sub(stretch_ranks(stretch));
    let left_out = if left_out > 0 { format!("; {left_out} more ranks not shown") } else { String::new() };
    format!("{what}: {spans}{left_out}")
}

fn stretch_ranks(stretch: &RunStretch) -> usize {
    let mut ranks: Vec<Rank> = stretch.streams.iter().map(|stream| stream.rank).collect();
    ranks.dedup();
    ranks.len()
}
