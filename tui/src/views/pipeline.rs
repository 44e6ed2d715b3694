//! The schedule of a pipeline: which micro-batch each stage works on when, beside what it would be ideally.

mod grid;
mod stages;

use std::collections::BTreeMap;

use ratatui::{
    buffer::Buffer,
    crossterm::event::KeyCode,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{NoIdeal, PipelineFigures, RankWork, StepFigures, WorkItem, ideal_work};
use stepscope_plan::{Coordinates, Schedule, text};
use stepscope_traces::{Nanos, Rank, Window};

use self::grid::NAMES;
use super::{ViewBody, stretch};
use crate::{
    data::{DetailRequest, Passes, PassesRequest},
    keys::{Action, Binding, EARLIER, LATER, STEP_AFTER, STEP_BEFORE, zoom_in, zoom_out},
    scene::Scene,
    widgets::{below, draw_time_axis, right_of, row, say, say_both},
};

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = &[
    zoom_in("nearer"),
    zoom_out("zoom out, up to the whole step"),
    EARLIER,
    LATER,
    STEP_BEFORE,
    STEP_AFTER,
    Binding { keys: &[KeyCode::Up, KeyCode::Char('k')], action: Action::Up, short: "scroll", long: "scroll stages up" },
    Binding {
        keys: &[KeyCode::Down, KeyCode::Char('j')],
        action: Action::Down,
        short: "scroll",
        long: "scroll stages down",
    },
    Binding { keys: &[KeyCode::Char('f')], action: Action::Follow, short: "", long: "show the whole step" },
];

/// How high a stage is at most.
const HIGHEST: u16 = 3;
/// How high the bubbles from step to step are, at least and at most.
const STEPS: u16 = 4;
const MOST_STEPS: u16 = 8;
/// What the ideal schedule assumes, in long and in short.
const IDEALLY: &str = "passes of equal length, transfers take no time";
const IDEALLY_SHORT: &str = "equal passes, instant transfers";
const WIDE: u16 = 90;
/// A bubble that is so much larger than it would be ideally is worth a look.
const MUCH: f64 = 0.05;

/// The schedule of a pipeline.
#[derive(Default)]
pub(crate) struct Pipeline {
    /// What of the step is seen; all of it, if there is none.
    seen: Option<Window>,
    /// The first stage in sight.
    top: usize,
    /// How many there were when it was drawn last.
    stages: usize,
}

/// What a stage is called.
fn name(stage: u64, rank: Rank) -> String {
    format!("stage {stage} · rank {rank}")
}

/// The ranks of one pipeline, by stage: of the one that the rank in focus belongs to, where it is known which that is.
fn ranks(scene: &Scene<'_>, pipeline: &PipelineFigures) -> Vec<Rank> {
    let layout = scene.layout().and_then(|layout| layout.grid);
    let (Some(focus), Some(layout)) = (scene.focus, layout) else { return pipeline.first_ranks() };
    let place = |rank: Rank| Coordinates { stage: 0, ..layout.coordinates(rank.0.into()) };
    let same = pipeline.per_stage.iter().filter(|stage| place(stage.rank) == place(focus));
    let by_stage: BTreeMap<u64, Rank> = same.map(|stage| (stage.stage, stage.rank)).collect();
    by_stage.into_values().collect()
}

/// From the first to the last work.
fn extent<'a>(items: impl Iterator<Item = &'a WorkItem> + Clone) -> Option<Window> {
    let from = items.clone().map(|item| item.start).min()?;
    let to = items.map(|item| item.end).max()?.max(from.saturating_add(1));
    Some(Window { from: Nanos(from), to: Nanos(to) })
}

/// All of the work that is read.
fn all_work(passes: &Passes) -> Option<Window> {
    extent(passes.ranks.iter().flat_map(|rank| &rank.items))
}

/// Why there is no pipeline to see.
fn why_not(scene: &Scene<'_>) -> &'static str {
    match (scene.layout(), scene.snapshot.analysis.is_some()) {
        (_, false) => " no pipeline yet: no step is complete",
        (Some(_), _) => " no pipeline: each rank has all layers (try `stepscope train --pp 2`)",
        (None, _) => " no pipeline found: ranks do not pass micro-batches to each other",
    }
}

/// How many lines each part has.
struct Room {
    stages: usize,
    stage_height: u16,
    ideal: bool,
    table: bool,
    steps: u16,
}

impl Room {
    /// Shows as much as there is room for: the ideal first, then figures, then what is higher, then steps.
    fn of(stages: usize, height: u16) -> Room {
        let height = usize::from(height);
        // Titles, times and gaps.
        let needs = |stage_height: usize, ideal: bool, table: bool| {
            3 + stages * stage_height
                + if ideal { 2 + stages * stage_height } else { 0 }
                + if table { 2 + stages } else { 0 }
        };
        let ideal = needs(1, true, false) <= height;
        let table = needs(1, ideal, true) <= height;
        let stage_height =
            (1..=usize::from(HIGHEST)).rev().find(|high| needs(*high, ideal, table) <= height).unwrap_or(1);
        let left = height.saturating_sub(needs(stage_height, ideal, table) + 1) as u16;
        Room {
            stages: stages.min(height.saturating_sub(3)).max(1),
            stage_height: stage_height as u16,
            ideal,
            table,
            steps: if left >= STEPS { left.min(MOST_STEPS) } else { 0 },
        }
    }
}

impl Pipeline {
    fn draw_title(&self, scene: &Scene<'_>, pipeline: &PipelineFigures, place: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let PipelineFigures { stages, micro_batches, schedule, .. } = pipeline;
        let batches = if *micro_batches == 1 { "micro-batch" } else { "micro-batches" };
        let mut what = vec![Span::raw(format!("  {stages} stages · {micro_batches} {batches} · {}", schedule.name()))];
        if pipeline.inferred {
            what.push(Span::styled("  inferred", theme.warning()));
        }
        let is_much = pipeline.bubble.is_some_and(|bubble| bubble > pipeline.ideal_bubble + MUCH);
        let style = if is_much { theme.bad() } else { theme.good() };
        let bubble = Line::from(vec![
            Span::styled(format!("bubble {}", pipeline.bubble.map_or("-".into(), text::percent)), style),
            Span::raw(format!("  ideally {} ", text::percent(pipeline.ideal_bubble))),
        ]);
        let mut title = Line::from(Span::styled(" Pipeline", theme.title()));
        // The bubble is what people look for.
        let room = usize::from(place.width).saturating_sub(title.width() + bubble.width() + 1);
        if Line::from(what.clone()).width() <= room {
            title.spans.extend(what);
        }
        say_both(buffer, place, title, bubble);
    }

    /// The stages of one grid under its title; gives what is left below.
    fn draw_grid(
        &self,
        scene: &Scene<'_>,
        stages: &[(String, &[WorkItem])],
        seen: (Window, Window),
        room: &Room,
        area: Rect,
        buffer: &mut Buffer,
    ) -> Rect {
        let shown = stages.iter().skip(self.top).take(room.stages);
        let mut line = 0;
        for (name, items) in shown {
            let place = Rect { height: room.stage_height.min(area.height.saturating_sub(line)), ..row(area, line) };
            if line < area.height {
                grid::draw_stage(buffer, place, scene.theme, name, items, seen);
            }
            line += room.stage_height;
        }
        below(area, line)
    }

    fn draw_passes(
        &self,
        scene: &Scene<'_>,
        pipeline: &PipelineFigures,
        passes: &Passes,
        room: &Room,
        area: Rect,
        buffer: &mut Buffer,
    ) -> Option<Rect> {
        let theme = scene.theme;
        let all = all_work(passes)?;
        let seen = self.seen.unwrap_or(all);
        let bubble = pipeline.per_step.iter().find(|step| step.step == passes.step);
        let mut title = Line::from(vec![
            Span::styled(format!(" Step {} measured", passes.step), theme.title()),
            Span::styled(format!("  passes {}", text::duration(stretch::length(all))), theme.strong()),
        ]);
        // The rest of a step is the optimizer's, mostly.
        let steps = &scene.snapshot.steps;
        let step = steps.iter().find(|step| step.step == passes.step).map(|step| text::duration(step.duration_ns));
        title.extend(step.map(|step| Span::raw(format!(" of {step}"))));
        let legend = legend(scene, pipeline.schedule);
        let bubble =
            bubble.map(|bubble| Span::styled(format!(", bubble {}", text::percent(bubble.bubble)), theme.strong()));
        let fits = |bubble: &Span<'_>| title.width() + bubble.width() + 1 + legend.width() <= area.width.into();
        title.extend(bubble.filter(fits));
        say_both(buffer, row(area, 0), title, legend);
        let cells = |place: Rect| right_of(place, NAMES);
        draw_time_axis(buffer, cells(row(area, 1)), theme, stretch::length(seen));
        let stage_of = |rank: Rank| pipeline.per_stage.iter().find(|stage| stage.rank == rank).map(|stage| stage.stage);
        let mut ranks: Vec<(u64, &RankWork)> =
            passes.ranks.iter().filter_map(|work| Some((stage_of(work.rank)?, work))).collect();
        ranks.sort_by_key(|(stage, _)| *stage);
        let measured: Vec<(String, &[WorkItem])> = ranks
            .iter()
            .map(|(stage, work)| (format!(" {}", name(*stage, work.rank)), work.items.as_slice()))
            .collect();
        let mut rest = self.draw_grid(scene, &measured, (seen, all), room, below(area, 2), buffer);
        let ideal = room.ideal.then(|| ideal_work(pipeline, passes.step, &passes.ranks));
        if let Some(Err(NoIdeal::Claimed { claimed, recorded })) = ideal {
            rest = below(rest, 1);
            let why = format!("  not drawn: the run claims {claimed} passes per step, but {recorded} are recorded");
            let title = Line::from(vec![Span::styled(" Ideally", theme.title()), Span::styled(why, theme.warning())]);
            say(buffer, row(rest, 0), title);
            rest = below(rest, 1);
        }
        if let Some(Ok(mut ideal)) = ideal {
            // Both begin together, so that what is longer is seen.
            ideal.iter_mut().flatten().for_each(|item| {
                item.start = item.start.saturating_add(all.from.0);
                item.end = item.end.saturating_add(all.from.0);
            });
            let whole = extent(ideal.iter().flatten())?;
            rest = below(rest, 1);
            let words = if area.width < WIDE { IDEALLY_SHORT } else { IDEALLY };
            let title = Line::from(vec![
                Span::styled(" Ideally", theme.title()),
                Span::styled(format!("  {}", text::duration(stretch::length(whole))), theme.strong()),
                Span::styled(format!("  {words}"), theme.quiet()),
            ]);
            say(buffer, row(rest, 0), title);
            let stages: Vec<(String, &[WorkItem])> =
                ideal.iter().enumerate().map(|(stage, items)| (format!(" stage {stage}"), items.as_slice())).collect();
            rest = self.draw_grid(scene, &stages, (seen, whole), room, below(rest, 1), buffer);
        }
        Some(rest)
    }
}

/// What colors and letters mean.
fn legend(scene: &Scene<'_>, schedule: Schedule) -> Line<'static> {
    use stepscope_analyzer::Pass;
    let theme = scene.theme;
    let mut spans = Vec::new();
    let weights = (schedule == Schedule::ZeroBubble).then_some((Pass::Weights, "weights"));
    for (pass, word) in [(Pass::Forward, "forward"), (Pass::Backward, "backward")].into_iter().chain(weights) {
        let (glyph, style) = theme.filled(theme.pass(pass, true));
        spans.extend([Span::styled(glyph.to_string(), style), Span::styled(format!(" {word}  "), theme.quiet())]);
    }
    let bubble = if theme.has_colors() { "░" } else { "." };
    spans.push(Span::styled(format!("{bubble} bubble "), theme.quiet()));
    Line::from(spans)
}

impl ViewBody for Pipeline {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let pipeline = scene.snapshot.analysis.as_ref().and_then(|analysis| analysis.pipeline.as_ref());
        let Some(pipeline) = pipeline else {
            say(buffer, row(area, 0), Line::styled(why_not(scene), theme.quiet()));
            return;
        };
        self.draw_title(scene, pipeline, row(area, 0), buffer);
        let ranks = ranks(scene, pipeline);
        let body = below(area, 1);
        let room = Room::of(ranks.len(), body.height);
        self.stages = ranks.len();
        self.top = self.top.min(ranks.len().saturating_sub(room.stages));
        if let Some(why) = &scene.details.failure {
            say(
                buffer,
                row(body, 0),
                Line::styled(format!(" cannot read this: {}", text::printable(why)), theme.bad()),
            );
            return;
        }
        let drawn = match scene.details.passes.as_deref() {
            Some(passes) => self.draw_passes(scene, pipeline, passes, &room, body, buffer),
            None => {
                say(buffer, row(body, 0), Line::styled(" reading…", theme.quiet()));
                return;
            }
        };
        let rest = drawn.unwrap_or_else(|| {
            let words =
                " passes are unknown: kernels have no micro-batch, so bubbles are inferred from when stages compute";
            say(buffer, row(body, 0), Line::styled(words, theme.quiet()));
            below(body, 1)
        });
        let rest = below(rest, 1);
        let lines = u16::try_from(ranks.len()).unwrap_or(u16::MAX);
        if room.table {
            stages::draw(
                scene,
                pipeline,
                &ranks,
                Rect { height: rest.height.min(lines.saturating_add(1)), ..rest },
                buffer,
            );
        }
        if room.steps > 0 && pipeline.per_step.len() > 1 {
            let place = below(rest, lines.saturating_add(2));
            stages::draw_steps(scene, pipeline, Rect { height: place.height.min(room.steps), ..place }, buffer);
        }
    }

    fn act(&mut self, action: Action, scene: &Scene<'_>) {
        match action {
            Action::Up => self.top = self.top.saturating_sub(1),
            Action::Down => self.top = (self.top + 1).min(self.stages.saturating_sub(1)),
            Action::Follow | Action::Back => self.seen = None,
            _ => {
                let Some(all) = scene.details.passes.as_deref().and_then(all_work) else { return };
                let seen = self.seen.unwrap_or(all);
                let (length, middle) = (stretch::length(seen), stretch::middle(seen));
                self.seen = Some(match action {
                    Action::ZoomIn => stretch::of_length(seen, middle, length / stretch::ZOOM, all),
                    Action::ZoomOut => stretch::of_length(seen, middle, length.saturating_mul(stretch::ZOOM), all),
                    Action::Earlier => stretch::moved(seen, -(length / stretch::PAN).max(1), all),
                    Action::Later => stretch::moved(seen, (length / stretch::PAN).max(1), all),
                    _ => seen,
                })
                .filter(|seen| *seen != all);
            }
        }
    }

    fn detail_request(&self, scene: &Scene<'_>) -> Option<DetailRequest> {
        let pipeline = scene.snapshot.analysis.as_ref()?.pipeline.as_ref()?;
        let ranks = ranks(scene, pipeline);
        let figures = scene.step_in_sight().iter().filter(|figures| ranks.contains(&figures.rank));
        let figures: Vec<StepFigures> = figures.cloned().collect();
        let (step, schedule) = (figures.first()?.step, pipeline.schedule);
        Some(DetailRequest::Passes(PassesRequest { step, figures, schedule }))
    }
}
