//! From a device's peak to what is used of it: what takes the rest.

use serde::Serialize;
use stepscope_plan::Axis;
use stepscope_traces::Family;

use super::idle::IdleReason;
use crate::stored::{fields, told_as};

/// Compute of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FamilyTime {
    /// Which family.
    pub family: Family,
    /// Moments that are its own, without what is computed again.
    pub time_ns: i64,
}

fields!(FamilyTime { family, time_ns });

/// A line of the waterfall. Those of one waterfall add up: times to the step, points to a hundred.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WaterfallRow {
    /// What takes it.
    #[serde(flatten)]
    pub part: WaterfallPart,
    /// How long, of a step.
    pub time_ns: i64,
    /// The same in milliseconds.
    pub ms: f64,
    /// The same in points of a hundred: what the device could do in the step.
    pub points: f64,
}

fields!(WaterfallRow { part, time_ns, ms, points });

/// What takes a part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum WaterfallPart {
    /// Kernels of a family, but for what the model's FLOPs take at the peak.
    Kernels {
        /// Which family.
        family: Family,
    },
    /// Nothing runs.
    Idle {
        /// Why.
        reason: IdleReason,
    },
    /// Communication that nothing hides, all ranks being there.
    Communication {
        /// Along which axis; none, where that is not known.
        axis: Option<Axis>,
    },
    /// Copies and fills that nothing hides.
    Copies,
    /// A stage of a pipeline has nothing to do.
    Bubble,
    /// What is computed again.
    Recomputation,
    /// Communication that nothing hides, and that waits for other ranks.
    Stragglers,
    /// The model's FLOPs at the peak: MFU.
    Mfu,
}

told_as!(
    WaterfallPart as (u8, Option<Family>, Option<Axis>, Option<IdleReason>),
    |part| match *part {
        WaterfallPart::Kernels { family } => (0, Some(family), None, None),
        WaterfallPart::Idle { reason } => (1, None, None, Some(reason)),
        WaterfallPart::Communication { axis } => (2, None, axis, None),
        WaterfallPart::Copies => (3, None, None, None),
        WaterfallPart::Bubble => (4, None, None, None),
        WaterfallPart::Recomputation => (5, None, None, None),
        WaterfallPart::Stragglers => (6, None, None, None),
        WaterfallPart::Mfu => (7, None, None, None),
    },
    |(part, family, axis, reason)| Some(match part {
        0 => WaterfallPart::Kernels { family: family? },
        1 => WaterfallPart::Idle { reason: reason? },
        2 => WaterfallPart::Communication { axis },
        3 => WaterfallPart::Copies,
        4 => WaterfallPart::Bubble,
        5 => WaterfallPart::Recomputation,
        6 => WaterfallPart::Stragglers,
        7 => WaterfallPart::Mfu,
        _ => return None,
    })
);

impl WaterfallPart {
    /// What it is, in a few words.
    pub fn words(self) -> String {
        match self {
            WaterfallPart::Kernels { family } => format!("{} kernels", family.word()),
            WaterfallPart::Idle { reason } => format!("idle: {}", reason.words()),
            WaterfallPart::Communication { axis: Some(axis) } => format!("exposed {} communication", axis.name()),
            WaterfallPart::Communication { axis: None } => "exposed communication".into(),
            WaterfallPart::Copies => "exposed copies".into(),
            WaterfallPart::Bubble => "pipeline bubble".into(),
            WaterfallPart::Recomputation => "recomputation".into(),
            WaterfallPart::Stragglers => "waiting for slower ranks".into(),
            WaterfallPart::Mfu => "MFU".into(),
        }
    }
}

/// A line of a waterfall as people read it.
#[derive(Clone, Debug, PartialEq)]
pub struct WaterfallLine {
    /// What takes it; none, of several small parts together.
    pub part: Option<WaterfallPart>,
    /// In words.
    pub words: String,
    /// How long, of a step.
    pub time_ns: i64,
    /// The same in points of a hundred.
    pub points: f64,
    /// The points of all lines before it.
    pub from: f64,
}

impl WaterfallRow {
    /// A waterfall in at most so many lines: the smallest parts are put together. They add up as before, and MFU is the last.
    pub fn lines(rows: &[WaterfallRow], most: usize) -> Vec<WaterfallLine> {
        const SMALL: f64 = 0.5;
        let mut order: Vec<&WaterfallRow> = rows.iter().filter(|row| row.part != WaterfallPart::Mfu).collect();
        order.sort_by(|one, other| other.points.total_cmp(&one.points));
        let mfu = rows.iter().find(|row| row.part == WaterfallPart::Mfu);
        let room = most.saturating_sub(1 + usize::from(mfu.is_some())).max(1);
        let large = order.iter().filter(|row| row.points >= SMALL).count();
        let is_one_left = order.len() == large.min(room) + 1;
        let kept = if is_one_left { order.len() } else { large.min(room) };
        let (kept, small) = order.split_at(kept.min(order.len()));
        // In the order of the waterfall.
        let shown = rows.iter().filter(|row| kept.iter().any(|kept| kept.part == row.part));
        let mut lines: Vec<WaterfallLine> = shown.map(|row| line(Some(row.part), row.part.words(), &[row])).collect();
        if !small.is_empty() {
            lines.push(line(None, format!("{} smaller parts", small.len()), small));
        }
        lines.extend(mfu.map(|row| line(Some(row.part), row.part.words(), &[row])));
        let mut from = 0.0;
        for line in &mut lines {
            line.from = from;
            from += line.points;
        }
        lines
    }
}

fn line(part: Option<WaterfallPart>, words: String, rows: &[&WaterfallRow]) -> WaterfallLine {
    let (time_ns, points) = (rows.iter().map(|row| row.time_ns).sum(), rows.iter().map(|row| row.points).sum());
    WaterfallLine { part, words, time_ns, points, from: 0.0 }
}
