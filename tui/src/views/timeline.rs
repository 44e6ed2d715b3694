//! What each stream of each rank did, kernel by kernel, and to what in the training that belongs.

mod facts;
mod keys;
mod lanes;

use ratatui::{
    buffer::Buffer,
    crossterm::event::MouseEvent,
    layout::{Position, Rect},
    text::{Line, Span},
};
use stepscope_analyzer::{SpanFacts, StepFigures};
use stepscope_plan::text;
use stepscope_traces::{Nanos, Rank, Step, Stream, Window};

pub(crate) use self::keys::BINDINGS;
use self::lanes::{Arrangement, LanePlace, LaneView, NAMES};
use super::{StepOrRank, ViewBody, stretch};
use crate::{
    data::{DetailRequest, RankDetail, RankTime, TimelineDetail, TimelineRequest},
    filter::Filter,
    keys::Action,
    scene::Scene,
    widgets::{below, draw_time_axis, right_of, row, say, say_both},
};

/// From this height on there is room for what is selected.
const HIGH: u16 = 12;

/// What each stream of each rank did.
#[derive(Default)]
pub(crate) struct Timeline {
    sight: Sight,
    /// The first rank in sight, by its place among all.
    top: usize,
    selected: Option<Selected>,
    /// What is looked for among kernels, and whether the last look found nothing.
    filter: Filter,
    has_no_match: bool,
    /// What was seen when it was drawn last.
    drawn: Drawn,
}

/// Which stretch of time is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sight {
    /// The chosen step; the newest, if there is none.
    #[default]
    Step,
    /// Any, in the clock all ranks are aligned to.
    Stretch(Window),
}

/// The span that is looked at: on a stream of a rank, at a time of that rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Selected {
    rank: Rank,
    stream: Option<Stream>,
    time: i64,
}

impl Selected {
    fn is_on(&self, rank: Rank, stream: Option<Stream>) -> bool {
        self.rank == rank && self.stream == stream
    }

    /// The selected span, its place among those of its stream, and the rank it is on.
    fn found<'a>(&self, timeline: &'a TimelineDetail) -> Option<(SpanFacts, usize, &'a RankDetail)> {
        let rank = timeline.ranks.iter().find(|rank| rank.columns.rank == self.rank)?;
        let spans = rank.spans.as_ref()?;
        let index = spans.nearest(self.stream, self.time)?;
        Some((spans.span(self.stream, index)?, index, rank))
    }
}

/// What was seen when it was drawn last.
#[derive(Default)]
struct Drawn {
    columns: u16,
    /// Ranks that there was room for.
    ranks: usize,
    window: Option<Window>,
    lanes: Vec<LanePlace>,
    chosen: Option<Step>,
}

impl Timeline {
    /// The ranks that may be seen.
    fn ranks(scene: &Scene<'_>) -> Vec<Rank> {
        match (scene.focus, &scene.snapshot.run) {
            (Some(focus), _) => vec![focus],
            (None, Some(run)) => run.ranks.clone(),
            (None, None) => Vec::new(),
        }
    }

    /// From where to where a step goes, on the ranks that may be seen.
    fn extent(scene: &Scene<'_>, step: &[StepFigures]) -> Option<Window> {
        let seen = || step.iter().filter(|figures| scene.focus.is_none_or(|focus| focus == figures.rank));
        let from = seen().map(|figures| figures.aligned_start_ns).min()?;
        let to = seen().map(end_of).max()?;
        Some(Window { from: Nanos(from), to: Nanos(to.max(from.saturating_add(1))) })
    }

    /// All of time that there is something in.
    fn whole(&self, scene: &Scene<'_>) -> Window {
        let steps = scene.figures();
        let ends = [steps.first(), steps.last()].into_iter().flatten().flat_map(|end| scene.on_ranks(end.step));
        let ends = ends.map(|step| (step.aligned_start_ns, end_of(step)));
        let known = scene.details.timeline.as_ref().and_then(|timeline| timeline.extent);
        let all = ends.chain(known).reduce(|(from, to), (start, end)| (from.min(start), to.max(end)));
        let (from, to) = all.unwrap_or((0, 1));
        Window { from: Nanos(from), to: Nanos(to.max(from.saturating_add(1))) }
    }

    /// What is seen: of a step, the newest that is read, so that nothing is blank meanwhile.
    fn window(&self, scene: &Scene<'_>) -> Option<Window> {
        match self.sight {
            Sight::Stretch(window) => Some(window),
            Sight::Step => {
                let read = scene.details.timeline.as_ref().map(|timeline| timeline.window);
                read.or_else(|| Timeline::extent(scene, scene.step_in_sight()))
            }
        }
    }

    fn look_at(&mut self, window: Window) {
        self.sight = Sight::Stretch(window);
    }

    /// The middle of what is selected, where that is seen; else of all that is.
    fn centre(&self, timeline: &TimelineDetail, window: Window) -> i64 {
        let selected = self.selected.and_then(|selected| selected.found(timeline));
        let middle = selected.map(|(facts, _, rank)| rank.time.aligned(facts.start.midpoint(facts.end)));
        middle.filter(|middle| (window.from.0..window.to.0).contains(middle)).unwrap_or(stretch::middle(window))
    }

    /// Selects the next kernel of the stream, or the one before; of those that are looked for, on other streams, too.
    fn select(&mut self, scene: &Scene<'_>, timeline: &TimelineDetail, window: Window, later: bool) {
        if self.selected.is_none() && self.filter.is_empty() {
            all_lanes(timeline).next().into_iter().for_each(|first| self.select_lane(timeline, window, first));
            return;
        }
        let found = self.next_here(timeline, later).or_else(|| self.first_elsewhere(timeline, later));
        self.has_no_match = found.is_none();
        let Some((selected, (start, end))) = found else { return };
        self.selected = Some(selected);
        if end <= window.from.0 || start >= window.to.0 {
            self.look_at(stretch::around(window, start, self.whole(scene)));
        }
    }

    fn is_looked_for(&self, span: &SpanFacts) -> bool {
        self.filter.lets_through(&[&span.name, span.family.word()])
    }

    /// The next on the stream of what is selected, and when it is for all ranks.
    fn next_here(&self, timeline: &TimelineDetail, later: bool) -> Option<(Selected, (i64, i64))> {
        let selected = self.selected?;
        let (_, index, rank) = selected.found(timeline)?;
        let spans = rank.spans.as_ref()?;
        let place = |number: usize| if later { index.checked_add(number) } else { index.checked_sub(number) };
        let mut others = (1..).map_while(|number| spans.span(selected.stream, place(number)?));
        let span = others.find(|span| self.is_looked_for(span))?;
        Some((Selected { time: span.start, ..selected }, aligned(rank, &span)))
    }

    /// The first that is looked for on the streams after that of what is selected, or the last on those before it.
    fn first_elsewhere(&self, timeline: &TimelineDetail, later: bool) -> Option<(Selected, (i64, i64))> {
        if self.filter.is_empty() {
            return None;
        }
        let mut lanes: Vec<(Rank, Option<Stream>)> = all_lanes(timeline).collect();
        if !later {
            lanes.reverse();
        }
        if let Some(selected) = self.selected {
            // Its own comes last: there is what was passed over.
            let at = lanes.iter().position(|lane| selected.is_on(lane.0, lane.1))?;
            lanes.rotate_left(at + 1);
        }
        lanes.into_iter().find_map(|(rank, stream)| {
            let detail = timeline.ranks.iter().find(|detail| detail.columns.rank == rank)?;
            let spans = detail.spans.as_ref()?;
            let mut wanted = (0..).map_while(|index| spans.span(stream, index)).filter(|span| self.is_looked_for(span));
            let span = if later { wanted.next() } else { wanted.last() }?;
            Some((Selected { rank, stream, time: span.start }, aligned(detail, &span)))
        })
    }

    /// Selects what is in the middle on another lane.
    fn select_lane(&mut self, timeline: &TimelineDetail, window: Window, (rank, stream): (Rank, Option<Stream>)) {
        let moment = self.centre(timeline, window);
        self.select_at(timeline, rank, stream, moment);
    }

    fn select_at(&mut self, timeline: &TimelineDetail, rank: Rank, stream: Option<Stream>, moment: i64) {
        let Some(detail) = timeline.ranks.iter().find(|detail| detail.columns.rank == rank) else { return };
        let time = moment.saturating_sub(detail.time.shift);
        let selected = Selected { rank, stream, time };
        let start = selected.found(timeline).map(|(facts, ..)| facts.start);
        self.selected = Some(Selected { time: start.unwrap_or(time), ..selected });
    }

    /// Goes up or down a lane; past the last that is seen, to the next rank.
    fn change_lane(&mut self, scene: &Scene<'_>, timeline: &TimelineDetail, window: Window, down: bool) {
        let lanes: Vec<(Rank, Option<Stream>)> = all_lanes(timeline).collect();
        let at = self.selected.and_then(|selected| lanes.iter().position(|lane| selected.is_on(lane.0, lane.1)));
        let (Some(selected), Some(at)) = (self.selected, at) else {
            lanes.first().into_iter().for_each(|first| self.select_lane(timeline, window, *first));
            return;
        };
        let next = if down { Some(at + 1) } else { at.checked_sub(1) };
        if let Some(lane) = next.and_then(|next| lanes.get(next)) {
            self.select_lane(timeline, window, *lane);
            let is_seen = self.drawn.lanes.iter().any(|seen| (seen.rank, seen.stream) == *lane);
            // A rank that does not fit is scrolled by itself.
            let is_first = timeline.ranks.first().is_some_and(|first| first.columns.rank == lane.0);
            if down && !is_seen && !is_first {
                self.top += 1;
            }
            return;
        }
        let ranks = Timeline::ranks(scene);
        let place = ranks.iter().position(|rank| *rank == selected.rank).unwrap_or(0);
        let next = if down { Some(place + 1) } else { place.checked_sub(1) };
        if let Some((next, rank)) = next.and_then(|next| Some((next, *ranks.get(next)?))) {
            self.top = if down { (self.top + 1).min(next) } else { next };
            self.selected = Some(Selected { rank, ..selected });
        }
    }

    fn draw_title(
        &self,
        scene: &Scene<'_>,
        timeline: Option<&TimelineDetail>,
        window: Window,
        place: Rect,
        buffer: &mut Buffer,
    ) {
        let theme = scene.theme;
        let length = text::duration(stretch::length(window));
        let mut words = vec![Span::styled(" Timeline", theme.title())];
        let last = Window { from: Nanos(window.to.0.saturating_sub(1)), ..window };
        match (begun_before(scene, window), begun_before(scene, last)) {
            (Some((first, _)), Some((last, _))) if first != last && self.sight != Sight::Step => {
                words.push(Span::styled(format!("  steps {first} to {last}"), theme.strong()));
                words.push(Span::raw(format!("  {length} visible")));
            }
            (Some((step, start)), _) if self.sight == Sight::Step || start == window.from.0 => {
                words.push(Span::styled(format!("  step {step}"), theme.strong()));
                words.push(Span::raw(format!("  {length} visible")));
            }
            (Some((step, start)), _) => {
                let since = exact(window.from.0.saturating_sub(start));
                words.push(Span::styled(format!("  {length} visible"), theme.strong()));
                words.push(Span::raw(format!(", from {since} into step {step}")));
            }
            (None, _) => words.push(Span::styled(format!("  {length} visible"), theme.strong())),
        }
        let filter = self.filter.spans(theme);
        if self.has_no_match && !filter.is_empty() {
            let where_to = "  no match";
            words.push(Span::styled(where_to, theme.warning()));
        }
        words.extend(filter);
        let all = Timeline::ranks(scene).len();
        let seen = timeline.map_or(0, |_| self.drawn.ranks).min(all);
        let mut right = Vec::new();
        if timeline.is_none_or(|timeline| self.sight != Sight::Step && timeline.window != window) {
            right.push(Span::styled("reading… ", theme.warning()));
        }
        let ranks = timeline.into_iter().flat_map(|timeline| &timeline.ranks);
        let left_out: usize = ranks.map(|rank| rank.columns.streams_left_out).sum();
        if left_out > 0 {
            let words = format!("{} not shown ", text::counted(left_out as u64, "stream"));
            right.push(Span::styled(words, theme.warning()));
        }
        if seen > 0 && seen < all {
            let last = (self.top + seen).min(all);
            right.push(Span::styled(format!("ranks {} to {} of {all} ", self.top + 1, last), theme.quiet()));
        }
        say_both(buffer, place, Line::from(words), Line::from(right));
    }

    fn draw_selected(&self, scene: &Scene<'_>, timeline: &TimelineDetail, area: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let Some(selected) = &self.selected else {
            let words = "  n or a click selects a kernel, ⏎ zooms to it, f shows the step";
            say(buffer, row(area, 0), Line::styled(words, theme.quiet()));
            return;
        };
        let Some((facts, _, rank)) = selected.found(timeline) else {
            let too_many = timeline.ranks.iter().any(|rank| rank.columns.rank == selected.rank && rank.spans.is_none());
            let words = if too_many {
                "  too many kernels to tell apart: zoom in with +"
            } else {
                "  nothing ran on this stream"
            };
            say(buffer, row(area, 0), Line::styled(words, theme.quiet()));
            return;
        };
        let step = facts.step.and_then(|step| scene.on_ranks(step).iter().find(|step| step.rank == selected.rank));
        let since = step.map(|step| facts.start.saturating_sub(step.start_ns)).filter(|since| *since >= 0);
        facts::draw(theme, &facts, (rank.columns.rank, selected.stream), since, area, buffer);
    }
}

/// When a span is, for all ranks.
fn aligned(rank: &RankDetail, span: &SpanFacts) -> (i64, i64) {
    (rank.time.aligned(span.start), rank.time.aligned(span.end))
}

/// Every lane that is read, from the top.
fn all_lanes(timeline: &TimelineDetail) -> impl Iterator<Item = (Rank, Option<Stream>)> {
    let of_rank = |rank: &RankDetail| -> Vec<(Rank, Option<Stream>)> {
        rank.columns.lanes.iter().map(|lane| (rank.columns.rank, lane.stream)).collect()
    };
    timeline.ranks.iter().flat_map(of_rank)
}

/// When a step ends on its rank.
fn end_of(step: &StepFigures) -> i64 {
    step.aligned_start_ns.saturating_add(step.duration_ns)
}

/// The last step that begins no later than a window on any rank, and when it does.
fn begun_before(scene: &Scene<'_>, window: Window) -> Option<(Step, i64)> {
    let steps = scene.figures();
    let start = |step: Step| Some((step, Timeline::extent(scene, scene.on_ranks(step))?.from.0));
    let after = steps.partition_point(|step| step.aligned_start_ns <= window.from.0);
    // Ranks begin one after another, so it may be the next step as well, or the one before.
    let near = steps.get(after).or(steps.last())?.step;
    let earlier = |step: Step| steps[..steps.partition_point(|other| other.step < step)].last().map(|step| step.step);
    let nearest = [Some(near), earlier(near), earlier(near).and_then(earlier)];
    nearest.into_iter().flatten().filter_map(start).find(|(_, start)| *start <= window.from.0)
}

/// A length of time to the nanosecond, as far as that matters.
fn exact(time: i64) -> String {
    if time < 1_000 { format!("{time} ns") } else { format!("{} µs", text::thousandths(time)) }
}

impl ViewBody for Timeline {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        if self.drawn.chosen != scene.chosen {
            self.sight = Sight::Step;
        }
        let ranks = Timeline::ranks(scene);
        self.top = self.top.min(ranks.len().saturating_sub(1));
        let top = if scene.focus.is_some() { 0 } else { self.top };
        let timeline = scene.details.timeline.as_deref().filter(|timeline| !timeline.ranks.is_empty());
        let window = self.window(scene);
        let bottom = if area.height >= HIGH { facts::HEIGHT + 1 } else { 1 };
        let body = below(area, 2);
        let body = Rect { height: body.height.saturating_sub(bottom), ..body };
        self.drawn = Drawn {
            columns: body.width.saturating_sub(NAMES),
            ranks: usize::from(body.height / 3).max(1),
            window,
            lanes: Vec::new(),
            chosen: scene.chosen,
        };
        if let Some(why) = &scene.details.failure {
            say(
                buffer,
                row(area, 1),
                Line::styled(format!(" cannot read this: {}", text::printable(why)), scene.theme.bad()),
            );
            return;
        }
        let (Some(timeline), Some(window)) = (timeline, window) else {
            say(buffer, row(area, 0), Line::styled(" Timeline", scene.theme.title()));
            say(buffer, row(area, 1), Line::styled(" reading…", scene.theme.quiet()));
            return;
        };
        let lanes = timeline.ranks.iter().map(|rank| rank.columns.lanes.len()).max().unwrap_or(0);
        if lanes == 0 {
            say(
                buffer,
                row(area, 0),
                Line::styled(" nothing ran on these ranks: no kernels, copies or collectives", scene.theme.quiet()),
            );
            return;
        }
        let arrangement = Arrangement::of(timeline, ranks.len() - top, body.height);
        self.drawn.ranks = usize::from(body.height.div_ceil(arrangement.height(lanes).max(1))).max(1);
        self.draw_title(scene, Some(timeline), window, row(area, 0), buffer);
        draw_time_axis(buffer, right_of(row(area, 1), NAMES), scene.theme, stretch::length(window));
        let time = self.selected.as_ref().and_then(|selected| selected.found(timeline));
        let time = time.map(|(facts, _, rank)| (rank.time.aligned(facts.start), rank.time.aligned(facts.end)));
        let view = LaneView { theme: scene.theme, window, selected: self.selected.as_ref(), selected_time: time };
        self.drawn.lanes = arrangement.draw(&view, timeline, body, buffer);
        let foot = below(area, 2 + body.height);
        if bottom > 1 {
            self.draw_selected(scene, timeline, Rect { height: facts::HEIGHT.min(foot.height), ..foot }, buffer);
        }
        facts::draw_legend(scene.theme, timeline, row(foot, bottom - 1), buffer);
    }

    fn act(&mut self, action: Action, scene: &Scene<'_>) {
        let (Some(timeline), Some(window)) = (scene.details.timeline.as_deref(), self.window(scene)) else { return };
        let whole = self.whole(scene);
        let length = stretch::length(window);
        let page = self.drawn.ranks.saturating_sub(1).max(1);
        match action {
            Action::ZoomIn => {
                self.look_at(stretch::of_length(window, self.centre(timeline, window), length / stretch::ZOOM, whole))
            }
            Action::ZoomOut => {
                let longer = length.saturating_mul(stretch::ZOOM);
                self.look_at(stretch::of_length(window, self.centre(timeline, window), longer, whole));
            }
            Action::Earlier => self.look_at(stretch::moved(window, -(length / stretch::PAN).max(1), whole)),
            Action::Later => self.look_at(stretch::moved(window, (length / stretch::PAN).max(1), whole)),
            Action::Next => self.select(scene, timeline, window, true),
            Action::Previous => self.select(scene, timeline, window, false),
            Action::Up => self.change_lane(scene, timeline, window, false),
            Action::Down => self.change_lane(scene, timeline, window, true),
            Action::Fit => {
                if let Some((facts, _, rank)) = self.selected.and_then(|selected| selected.found(timeline)) {
                    let own = facts.end.saturating_sub(facts.start).max(1);
                    let middle = rank.time.aligned(facts.start.midpoint(facts.end));
                    let near = stretch::of_length(window, middle, own.saturating_add(own / 2), whole);
                    self.look_at(stretch::around(near, middle, whole));
                }
            }
            Action::Follow => self.sight = Sight::Step,
            Action::Back => (self.sight, self.selected) = (Sight::Step, None),
            Action::PageUp => self.top = self.top.saturating_sub(page),
            Action::PageDown => {
                self.top = self.top.saturating_add(page).min(Timeline::ranks(scene).len().saturating_sub(page))
            }
            _ => {}
        }
    }

    fn detail_request(&self, scene: &Scene<'_>) -> Option<DetailRequest> {
        let analysis = scene.snapshot.analysis.as_ref()?;
        let step = Timeline::extent(scene, scene.step_in_sight());
        let window = match self.sight {
            Sight::Stretch(window) => Some(window),
            Sight::Step => step,
        };
        let moment = window.map(stretch::middle);
        let ranks = Timeline::ranks(scene);
        let top = if scene.focus.is_some() { 0 } else { self.top };
        let seen = ranks.iter().skip(top).take(self.drawn.ranks.max(1));
        let ranks: Vec<RankTime> = seen.map(|rank| RankTime::of(analysis, *rank, moment)).collect();
        let end = scene.figures().last().and_then(|last| scene.on_ranks(last.step).iter().map(end_of).max());
        // What all ranks have done with does not change any more.
        let newest =
            scene.snapshot.newest.filter(|_| window.is_none_or(|window| end.is_none_or(|end| window.to.0 > end)));
        let columns = usize::from(self.drawn.columns);
        let is_wanted = self.drawn.columns > 0 && !ranks.is_empty();
        is_wanted.then_some(DetailRequest::Timeline(TimelineRequest { ranks, window, columns, newest }))
    }

    fn filter(&mut self) -> Option<&mut Filter> {
        Some(&mut self.filter)
    }

    fn click(&mut self, event: &MouseEvent, scene: &Scene<'_>) -> Option<StepOrRank> {
        let (timeline, window) = (scene.details.timeline.as_deref()?, self.drawn.window?);
        let place = Position { x: event.column, y: event.row };
        let lane = self.drawn.lanes.iter().find(|lane| lane.place.contains(place)).copied()?;
        let cell = i128::from(event.column - lane.place.x);
        let offset = i128::from(stretch::length(window)) * (2 * cell + 1) / (2 * i128::from(lane.place.width.max(1)));
        self.select_at(timeline, lane.rank, lane.stream, window.from.0.saturating_add(offset as i64));
        None
    }
}
