//! Figures of ranks: what cells are coloured by, and what is written of the one under the cursor.

use std::{collections::HashMap, sync::Arc};

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{Analysis, CountedTime, Partition, RankMemory, Spread};
use stepscope_plan::{ParallelLayout, text};
use stepscope_traces::Rank;

use crate::{
    scene::Scene,
    unknown_waits,
    widgets::{below, row, say},
};

/// What is known of a rank.
pub(super) struct RankCell {
    pub(super) rank: Rank,
    /// Means of the steps that count, by figure.
    time: Option<[i64; 4]>,
    /// How many steps those are.
    windows: u64,
    waiting: Option<(i64, i64)>,
    memory: Option<u64>,
}

/// What is known of every rank, in order.
pub(super) fn cells(analysis: &Analysis, memory: &[Arc<RankMemory>]) -> Vec<RankCell> {
    let stragglers = analysis.stragglers.iter();
    let waiting: HashMap<Rank, (i64, i64)> =
        stragglers.map(|straggler| (straggler.rank, (straggler.wait_ns, straggler.caused_wait_ns))).collect();
    let memory: HashMap<Rank, u64> = memory.iter().map(|memory| (memory.rank, memory.peak_bytes)).collect();
    let means = |time: &CountedTime| {
        RankFigure::OF_TIME.map(|figure| time.mean(|partition| figure.of_time(partition).unwrap_or(0)))
    };
    let cell = |time: &CountedTime| RankCell {
        rank: time.rank,
        windows: time.windows,
        // Where nothing takes any time, none was recorded.
        time: (time.partition.span_ns > 0).then(|| means(time)),
        waiting: waiting.get(&time.rank).copied(),
        memory: memory.get(&time.rank).copied(),
    };
    analysis.counted.iter().map(cell).collect()
}

/// A figure of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankFigure {
    /// How long others wait for it.
    WaitedFor,
    /// How long a step takes.
    Step,
    /// How long it computes in a step.
    Compute,
    /// How long it communicates and nothing hides that.
    Communication,
    /// How long it does nothing.
    Idle,
    /// How long it waits for others.
    Waiting,
    /// What its memory holds at most.
    Memory,
}

impl RankFigure {
    /// What tells ranks apart comes first: all of them take as long as the slowest.
    pub(super) const ALL: [RankFigure; 7] = [
        RankFigure::WaitedFor,
        RankFigure::Compute,
        RankFigure::Step,
        RankFigure::Communication,
        RankFigure::Idle,
        RankFigure::Waiting,
        RankFigure::Memory,
    ];

    /// What to look at first: who is waited for, where anybody is, or who computes longest.
    pub(super) fn opening(cells: &[RankCell]) -> RankFigure {
        let is_waited_for = |cell: &RankCell| RankFigure::WaitedFor.of(cell).is_some_and(|caused| caused > 0.0);
        if cells.iter().any(is_waited_for) { RankFigure::WaitedFor } else { RankFigure::Compute }
    }

    /// The rank that has most of it, and the first of those that are alike.
    pub(super) fn worst(self, cells: &[RankCell]) -> Option<Rank> {
        let value = |cell: &RankCell| self.of(cell).unwrap_or(f64::NEG_INFINITY);
        cells.iter().rev().max_by(|one, other| value(one).total_cmp(&value(other))).map(|cell| cell.rank)
    }

    /// How it is spread over ranks.
    pub(super) fn spread(self, cells: &[RankCell]) -> Spread {
        let values = |figure: RankFigure| -> Vec<(Rank, f64)> {
            cells.iter().filter_map(|cell| Some((cell.rank, figure.of(cell)?))).collect()
        };
        let whole = match self {
            RankFigure::Memory => RankFigure::Memory,
            _ => RankFigure::Step,
        };
        // Waiting is that of all steps.
        let windows = match self {
            RankFigure::Waiting | RankFigure::WaitedFor => cells.iter().map(|cell| cell.windows).max().unwrap_or(1),
            _ => 1,
        };
        let whole = Spread::of(&values(whole), 0.0).median.unwrap_or(0.0);
        Spread::of(&values(self), whole * windows as f64)
    }

    /// Those that are parts of time.
    const OF_TIME: [RankFigure; 4] =
        [RankFigure::Step, RankFigure::Compute, RankFigure::Communication, RankFigure::Idle];

    /// What it is of some time, if it is a part of it.
    fn of_time(self, time: &Partition) -> Option<i64> {
        match self {
            RankFigure::Step => Some(time.span_ns),
            RankFigure::Compute => Some(time.compute_ns),
            RankFigure::Communication => Some(time.exposed_communication_ns),
            RankFigure::Idle => Some(time.idle_ns),
            RankFigure::Waiting | RankFigure::WaitedFor | RankFigure::Memory => None,
        }
    }

    /// The one after it, around the end.
    pub(super) fn next(self) -> RankFigure {
        let place = RankFigure::ALL.iter().position(|figure| *figure == self).unwrap_or(0);
        RankFigure::ALL[(place + 1) % RankFigure::ALL.len()]
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            RankFigure::Step => "step time",
            RankFigure::Compute => "compute",
            RankFigure::Communication => "exposed comm",
            RankFigure::Idle => "idle",
            RankFigure::Waiting => "waiting",
            RankFigure::WaitedFor => "caused waiting",
            RankFigure::Memory => "memory peak",
        }
    }

    /// What it is called among others: those of a step are means of steps, and waiting is not.
    fn label(self) -> &'static str {
        match self {
            RankFigure::Waiting => "waiting, total",
            RankFigure::WaitedFor => "caused waiting, total",
            other => other.name(),
        }
    }

    /// Over what it is.
    pub(super) fn words(self, scene: &Scene<'_>) -> String {
        let steps = scene.snapshot.analysis.as_ref().and_then(|analysis| analysis.step_time.as_ref());
        match (self, steps) {
            (RankFigure::Memory, _) => "over the whole run".into(),
            (RankFigure::Waiting | RankFigure::WaitedFor, _) => "total in collectives, not per step".into(),
            (_, Some(time)) => format!("mean of {}", text::counted(time.count, "step")),
            (_, None) => "in the whole recording".into(),
        }
    }

    /// Why it is not known of any rank.
    pub(super) fn why_unknown(self, scene: &Scene<'_>) -> &'static str {
        let waiting = || scene.snapshot.analysis.as_ref().and_then(|analysis| unknown_waits::why_unknown(analysis));
        match self {
            RankFigure::Memory => "no memory recorded",
            RankFigure::Waiting | RankFigure::WaitedFor => waiting().unwrap_or("no waiting recorded"),
            _ => "no activity recorded",
        }
    }

    pub(super) fn of(self, cell: &RankCell) -> Option<f64> {
        match self {
            RankFigure::Step | RankFigure::Compute | RankFigure::Communication | RankFigure::Idle => {
                let place = RankFigure::OF_TIME.iter().position(|figure| *figure == self)?;
                cell.time.map(|means| means[place] as f64)
            }
            RankFigure::Waiting => cell.waiting.map(|(waited, _)| waited as f64),
            RankFigure::WaitedFor => cell.waiting.map(|(_, caused)| caused as f64),
            RankFigure::Memory => cell.memory.map(|bytes| bytes as f64),
        }
    }

    pub(super) fn written(self, value: f64) -> String {
        match self {
            RankFigure::Memory => text::bytes(value as u64),
            _ => text::duration(value as i64),
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
    title.extend(at.zip(layout).map(|(at, layout)| {
        let part = if layout.cp > 1 { format!(" · cp {}", at.cp) } else { String::new() };
        Span::styled(format!("  stage {} · dp {}{part} · tp {}", at.stage, at.dp, at.tp), theme.quiet())
    }));
    say(buffer, row(area, 0), Line::from(title));
    for (line, figure) in RankFigure::ALL.into_iter().enumerate() {
        let value = figure.of(cell);
        let usual = figure.spread(cells).median;
        let written = value.map_or_else(|| "-".into(), |value| figure.written(value));
        let spans = [
            Span::raw(format!(" {:<LABELS$}", figure.label())),
            Span::styled(format!("{written:>VALUES$}"), theme.strong()),
        ];
        let mut words = Line::from(spans.to_vec());
        let change = value.zip(usual).filter(|(_, usual)| *usual > 0.0 && cells.len() > 1).map(beside_median);
        // Where there is no room for all of it, the figure is enough.
        let change = change.filter(|change| words.width() + 2 + change.len() <= area.width.into());
        words.extend(change.map(|change| Span::styled(format!("  {change}"), theme.quiet())));
        say(buffer, row(below(area, 1), line as u16), words);
    }
}

/// How wide the name of a figure is, the figure, and how far it is from the median.
const LABELS: usize = 23;
const VALUES: usize = 9;
const CHANGES: usize = 19;
/// How wide all of it is.
pub(super) const WIDTH: u16 = (1 + LABELS + VALUES + 2 + CHANGES) as u16;

/// A value beside the median, in at most so many characters as there are for it.
fn beside_median((value, median): (f64, f64)) -> String {
    let change = value / median - 1.0;
    match change {
        small if small.abs() < 0.0005 => "at the median".into(),
        below if below < 0.0 => format!("{} below median", text::percent(-below)),
        above if above < 9.9995 => format!("{} above median", text::percent(above)),
        _ => "many times median".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_value_is_from_the_median_fits() {
        assert_eq!(beside_median((100.01, 100.0)), "at the median");
        assert_eq!(beside_median((119.9, 100.0)), "19.9% above median");
        assert_eq!(beside_median((0.0, 3.0)), "100.0% below median");
        for value in [0.0, 0.5, 1.0, 5.0, 10.999, 11.0, 1e9] {
            assert!(beside_median((value, 1.0)).len() <= CHANGES, "{value}");
        }
    }
}
