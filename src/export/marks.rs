//! What is said of a run beside its spans: metadata, and moments that stand out.

use stepscope_analyzer::{Analysis, RankOverlay};
use stepscope_plan::text;
use stepscope_traces::{
    Run, State,
    export::perfetto::{Fact, Level, Mark},
};

use super::missing;
use crate::terminal;

/// What is known of a run, by name; which levels are left out, and beyond which size that was done.
pub(super) fn metadata(
    run: &Run,
    analysis: &Analysis,
    (left_out, beyond): (&[Level], Option<u64>),
    limit: u64,
) -> impl Iterator<Item = (String, String)> {
    let info = &run.info;
    let entry = |name: &str, value: String| Some((format!("stepscope.{name}"), value));
    let clock = &analysis.clock;
    let aligned = serde_json::to_value(clock.aligned_by).ok().and_then(|by| by.as_str().map(str::to_owned));
    let left_out = left_out.iter().map(|level| level.words()).collect::<Vec<_>>().join("; ");
    let lost = analysis.data_loss;
    let lost_events = lost.dropped_events.saturating_add(lost.unreadable_events);
    [
        entry("version", env!("CARGO_PKG_VERSION").into()),
        entry("run", info.name.clone()),
        entry("state", analysis.run.state.word().into()),
        entry("started", info.started.clone()),
        entry("host", info.host.clone()),
        Some(terminal::command_line(&info.command))
            .filter(|command| !command.is_empty())
            .and_then(|command| entry("command", command)),
        entry("world_size", analysis.run.world_size.to_string()),
        analysis.run.layout.and_then(|layout| entry("layout", layout.words())),
        info.model.as_ref().and_then(|model| entry("model", serde_json::to_string(model).unwrap_or_default())),
        info.git.as_ref().and_then(|git| entry("git", git.commit.clone() + if git.modified { "+" } else { "" })),
        analysis.run.device.as_ref().and_then(|device| entry("device", device.name.clone())),
        aligned.and_then(|by| entry("clock.aligned_by", by)),
        clock.residual_ns.and_then(|residual| entry("clock.residual_ns", residual.to_string())),
        entry("step_figures", "in each rank's own clock; slices are in the clock that all ranks share".into()),
        entry("lost_events", lost_events.to_string()),
        entry("lost_bytes", lost.unreadable_bytes.to_string()),
        entry("missing_ranks", missing::words(run).unwrap_or_else(|| "none".into())),
        entry("left_out", if left_out.is_empty() { "nothing".into() } else { left_out }),
        beyond.and_then(|beyond| entry("left_out_beyond", beyond.to_string())),
        entry("max_size", limit.to_string()),
    ]
    .into_iter()
    .flatten()
}

/// What holds of the whole run, at its beginning: ranks that are missing.
pub(super) fn of_run(run: &Run, first: i64) -> Vec<Mark> {
    let mark = |ranks: String| Mark {
        time_ns: first,
        name: "ranks are missing".into(),
        arguments: vec![("missing".into(), Fact::Text(ranks))],
    };
    missing::words(run).map(mark).into_iter().collect()
}

/// What stands out in a rank: its memory's peak, losses, what it lost, and how it ended.
/// Of a rank of which nothing is left that is said at the beginning.
pub(super) fn of_rank(analysis: &Analysis, overlay: &RankOverlay, beginning: i64) -> Vec<Mark> {
    let at = |time: i64| overlay.clock.at(time);
    let mut marks: Vec<Mark> = Vec::new();
    for memory in analysis.memory.iter().filter(|memory| memory.rank == overlay.rank && memory.peak_bytes > 0) {
        let categories = memory.at_peak.iter().map(|(category, bytes)| (category.spelled(), Fact::Count(*bytes)));
        let step = memory.peak_step.map(|step| ("step".into(), Fact::Number(step.0.into())));
        let phase = memory.peak_phase.map(|phase| ("phase".into(), Fact::Text(phase.word().into())));
        let peak = ("allocated".into(), Fact::Count(memory.peak_bytes));
        marks.push(Mark {
            time_ns: at(memory.peak_time_ns),
            name: format!("memory peak {}", text::bytes(memory.peak_bytes)),
            arguments: [peak].into_iter().chain(step).chain(phase).chain(categories).collect(),
        });
    }
    if let Some(shortage) = &overlay.info.collector.out_of_memory {
        let free = shortage.free_bytes.map(|free| ("free".into(), Fact::Count(free)));
        let stack = (!shortage.stack.is_empty()).then(|| ("stack".into(), Fact::Text(shortage.stack.join("\n"))));
        let asked = [
            ("asked for".into(), Fact::Count(shortage.requested_bytes)),
            ("times".into(), Fact::Count(shortage.times)),
        ];
        marks.push(Mark {
            time_ns: at(shortage.time_ns.0),
            name: "out of memory".into(),
            arguments: asked.into_iter().chain(free).chain(stack).collect(),
        });
    }
    for step in analysis.steps.iter().filter(|step| step.rank == overlay.rank) {
        let Some(loss) = step.loss else { continue };
        marks.push(Mark {
            time_ns: at(step.start_ns.saturating_add(step.duration_ns)),
            name: format!("loss {}", text::training_loss(loss)),
            arguments: vec![("step".into(), Fact::Number(step.step.0.into())), ("loss".into(), Fact::Number(loss))],
        });
    }
    let end = overlay.extent.map_or(beginning, |(_, end)| at(end));
    let ended = |name: &str, arguments| Mark { time_ns: end, name: name.into(), arguments };
    let reason = overlay.info.reason.iter().map(|reason| ("reason".into(), Fact::Text(reason.clone())));
    match overlay.state {
        State::Complete => {}
        State::Recording => marks.push(ended("still recording", Vec::new())),
        State::Interrupted => marks.push(ended("interrupted", reason.collect())),
    }
    if !overlay.loss.is_none() {
        marks.push(ended("data lost", vec![("lost".into(), Fact::Text(overlay.loss.words()))]));
    }
    marks
}
