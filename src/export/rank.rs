//! One rank of a trace: what it is called, where it stands, and what the analysis says of its spans.

use stepscope_analyzer::{Analysis, Class, RankOverlay, Selection, StepChoice, StreamUse};
use stepscope_collector::nvml;
use stepscope_plan::Coordinates;
use stepscope_traces::{
    Run, SpanKind, Step, Window,
    export::perfetto::{ExportError, NamedStretch, Note, RankPlan, Stretches, Trace, Unit},
};

use super::{chosen::chosen_window, critical_path, findings, marks, steps};

/// What a rank's part of a trace is made of.
pub(super) struct RankParts<'a> {
    run: &'a Run,
    analysis: &'a Analysis,
    overlay: &'a RankOverlay,
    steps: StepChoice,
    /// What of it was analyzed.
    analyzed: Window,
}

impl<'a> RankParts<'a> {
    pub(super) fn of(
        run: &'a Run,
        selection: &Selection,
        analysis: &'a Analysis,
        overlay: &'a RankOverlay,
    ) -> RankParts<'a> {
        let analyzed = selection.windows.get(&overlay.rank).copied().unwrap_or(Window::ALL);
        RankParts { run, analysis, overlay, steps: selection.steps, analyzed }
    }

    /// Where a rank stands among all: by stage, replica, part of sequences and shard.
    pub(super) fn place(run: &Run, overlay: &RankOverlay) -> (Coordinates, u32) {
        let nowhere = Coordinates { stage: overlay.stage.unwrap_or(0), dp: 0, cp: 0, tp: 0 };
        (coordinates(run, overlay).unwrap_or(nowhere), overlay.rank.0)
    }

    /// Writes it, into a trace that has its beginning at a time of the clock that all ranks share.
    pub(super) fn write(&self, trace: &mut Trace<'_>, order: i32, beginning: i64) -> Result<(), ExportError> {
        let RankParts { run, analysis, overlay, steps: chosen, analyzed } = self;
        let Some(rank) = run.rank(overlay.rank) else { return Ok(()) };
        let align = |time: i64| overlay.clock.at(time);
        let is_chosen = |step: Option<Step>| chosen.may_have(step);
        let note = |number: usize| {
            overlay.links.get(number).map_or(Note::default(), |link| Note {
                flow: link.number,
                own_ns: link.own_ns.and_then(|own| u64::try_from(own).ok()),
                bus_factor: link.bus_factor,
            })
        };
        let bubble = |(start_ns, end_ns): &(i64, i64)| NamedStretch {
            start_ns: *start_ns,
            end_ns: *end_ns,
            name: "bubble".into(),
            arguments: Vec::new(),
        };
        let bubbles = Stretches { name: "bubble", stretches: overlay.bubbles.iter().map(bubble).collect() };
        let stretches =
            vec![findings::of_rank(analysis, overlay.rank), bubbles, critical_path::of_rank(analysis, overlay.rank)];
        let plan = RankPlan {
            rank,
            name: name(run, overlay),
            steps: steps::of_rank(analysis, *chosen, overlay.rank),
            order,
            align: &align,
            is_chosen: &is_chosen,
            window: chosen_window(*chosen, overlay),
            streams: overlay.streams.iter().map(stream).collect(),
            main_stream: overlay.streams.iter().rev().max_by_key(|used| used.compute_ns).and_then(|used| used.stream),
            has_launches: overlay.spans[SpanKind::Launch as usize] > 0,
            analyzed: *analyzed,
            note: &note,
            marks: marks::of_rank(analysis, overlay, beginning),
            stretches,
            unit: &unit,
        };
        trace.rank(&plan).map(drop)
    }
}

fn coordinates(run: &Run, overlay: &RankOverlay) -> Option<Coordinates> {
    run.info.layout.map(|layout| layout.coordinates(overlay.rank.0.into()))
}

/// A rank by its number, its place in the layout, as far as there is a choice, and its host.
fn name(run: &Run, overlay: &RankOverlay) -> String {
    let mut parts = vec![format!("rank {}", overlay.rank)];
    match run.info.layout.zip(coordinates(run, overlay)) {
        Some((layout, at)) => {
            let axes = [
                ("stage", layout.pp, at.stage),
                ("dp", layout.dp, at.dp),
                ("cp", layout.cp, at.cp),
                ("tp", layout.tp, at.tp),
            ];
            parts.extend(axes.iter().filter(|(_, size, _)| *size > 1).map(|(axis, _, at)| format!("{axis} {at}")));
        }
        None => parts.extend(overlay.stage.map(|stage| format!("stage {stage} (inferred)"))),
    }
    parts.extend(Some(overlay.info.host.clone()).filter(|host| host != "unknown"));
    parts.join(" · ")
}

/// A stream by its number, and what it is for.
fn stream(used: &StreamUse) -> (Option<stepscope_traces::Stream>, String) {
    let purpose = match used.class {
        Class::Compute => "compute",
        Class::Communication => "communication",
        Class::Copy => "copies",
    };
    let name = used.stream.map_or("no stream".into(), |stream| format!("stream {stream}"));
    (used.stream, format!("{name} · {purpose}"))
}

/// What a counter counts in.
fn unit(counter: &str) -> Unit {
    match nvml::unit(counter) {
        Some("B") => Unit::Bytes,
        Some(unit) => Unit::Named(unit.into()),
        None if counter.ends_with("_bytes") => Unit::Bytes,
        None if counter.ends_with("_ns") => Unit::Named("ns".into()),
        None => Unit::UNKNOWN,
    }
}
