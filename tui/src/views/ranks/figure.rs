//! Figures of ranks: what cells are coloured by, and what is written of the one under the cursor.

use std::{collections::HashMap, sync::Arc};

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{Analysis, RankMemory, RankTime};
use stepscope_plan::ParallelLayout;
use stepscope_traces::{Nanos, Rank};

use super::outliers::median;
use crate::{
    scene::Scene,
    text,
    widgets::{below, row, say},
};

/// What is known of a rank.
pub(super) struct RankCell {
    pub(super) rank: Rank,
    time: Option<RankTime>,
    waiting: Option<(i64, i64)>,
    memory: Option<u64>,
}

/// What is known of every rank, in order.
pub(super) fn cells(analysis: &Analysis, memory: &[Arc<RankMemory>]) -> Vec<RankCell> {
    let times = analysis.counted_time_by_rank();
    let stragglers = analysis.stragglers.iter();
    let waiting: HashMap<Rank, (i64, i64)> =
        stragglers.map(|straggler| (straggler.rank, (straggler.wait_ns, straggler.caused_wait_ns))).collect();
    let memory: HashMap<Rank, u64> = memory.iter().map(|memory| (memory.rank, memory.peak_bytes)).collect();
    let cell = |rank: Rank| RankCell {
        rank,
        time: times.get(&rank).copied(),
        waiting: waiting.get(&rank).copied(),
        memory: memory.get(&rank).copied(),
    };
    analysis.ranks.iter().map(|figures| cell(figures.rank)).collect()
}

/// A figure of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Figure {
    /// How long a step takes.
    #[default]
    Step,
    /// How long it computes in a step.
    Compute,
    /// How long it communicates and nothing hides that.
    Communication,
    /// How long it does nothing.
    Idle,
    /// How long it waits for others.
    Waiting,
    /// How long others wait for it.
    WaitedFor,
    /// What its memory holds at most.
    Memory,
}

impl Figure {
    pub(super) const ALL: [Figure; 7] = [
        Figure::Step,
        Figure::Compute,
        Figure::Communication,
        Figure::Idle,
        Figure::Waiting,
        Figure::WaitedFor,
        Figure::Memory,
    ];

    /// The one after it, around the end.
    pub(super) fn next(self) -> Figure {
        let place = Figure::ALL.iter().position(|figure| *figure == self).unwrap_or(0);
        Figure::ALL[(place + 1) % Figure::ALL.len()]
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Figure::Step => "step time",
            Figure::Compute => "compute",
            Figure::Communication => "exposed comm",
            Figure::Idle => "idle",
            Figure::Waiting => "waiting",
            Figure::WaitedFor => "made others wait",
            Figure::Memory => "memory peak",
        }
    }

    /// Over what it is.
    pub(super) fn words(self, scene: &Scene<'_>) -> String {
        let steps = scene.snapshot.analysis.as_ref().and_then(|analysis| analysis.step_time.as_ref());
        match (self, steps) {
            (Figure::Memory, _) => "over all of the run".into(),
            (Figure::Waiting | Figure::WaitedFor, _) => "in collectives, all together".into(),
            (_, Some(time)) => format!("mean of {}", text::counted(time.count, "step")),
            (_, None) => "in all of the recording".into(),
        }
    }

    /// Why it is not known of any rank.
    pub(super) fn why_unknown(self) -> &'static str {
        match self {
            Figure::Memory => "no memory is recorded",
            Figure::Waiting | Figure::WaitedFor => "not known: no collective was recorded by all its ranks",
            _ => "no activity is recorded",
        }
    }

    pub(super) fn of(self, cell: &RankCell) -> Option<f64> {
        let time = |part| cell.time.map(|time| time.mean(part) as f64);
        match self {
            Figure::Step => time(|time| time.span_ns),
            Figure::Compute => time(|time| time.compute_ns),
            Figure::Communication => time(|time| time.exposed_communication_ns),
            Figure::Idle => time(|time| time.idle_ns),
            Figure::Waiting => cell.waiting.map(|(waited, _)| waited as f64),
            Figure::WaitedFor => cell.waiting.map(|(_, caused)| caused as f64),
            Figure::Memory => cell.memory.map(|bytes| bytes as f64),
        }
    }

    pub(super) fn written(self, value: f64) -> String {
        match self {
            Figure::Memory => text::bytes(value as u64),
            _ => text::duration(Nanos(value as i64)),
        }
    }
}

/// Every figure of a rank, beside the median of all.
pub(super) fn draw(
    scene: &Scene<'_>,
    (cell, cells): (&RankCell, &[RankCell]),
    layout: Option<&ParallelLayout>,
    area: Rect,
    buffer: &mut Buffer,
) {
    let theme = scene.theme;
    let mut title = vec![Span::styled(format!(" Rank {}", cell.rank), theme.title())];
    let at = layout.map(|layout| layout.coordinates(cell.rank.0.into()));
    title.extend(
        at.map(|at| Span::styled(format!("  stage {} · dp {} · tp {}", at.stage, at.dp, at.tp), theme.quiet())),
    );
    say(buffer, row(area, 0), Line::from(title));
    for (line, figure) in Figure::ALL.into_iter().enumerate() {
        let value = figure.of(cell);
        let usual = median(cells.iter().filter_map(|cell| figure.of(cell)).collect());
        let written = value.map_or_else(|| "-".into(), |value| figure.written(value));
        let change = value.zip(usual).filter(|(_, usual)| *usual > 0.0 && cells.len() > 1).map(|(value, usual)| {
            let change = 100.0 * (value / usual - 1.0);
            let side = if change > 0.0 { "above" } else { "below" };
            let change = match change.abs() {
                small if small < 0.05 => "as the median".to_owned(),
                size => format!("{size:.1}% {side} the median"),
            };
            Span::styled(format!("  {change}"), theme.quiet())
        });
        let mut spans =
            vec![Span::raw(format!(" {:<17}", figure.name())), Span::styled(format!("{written:>9}"), theme.strong())];
        spans.extend(change);
        say(buffer, row(below(area, 1), line as u16), Line::from(spans));
    }
}
