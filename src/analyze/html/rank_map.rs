//! Which rank is slow in which step: how much longer than the others it computes.

use std::collections::BTreeMap;

use stepscope_analyzer::{Analysis, StepFigures};
use stepscope_plan::text;
use stepscope_traces::{Rank, Step};

use crate::render::html::chart::WIDE;

/// There is no room for more.
const RANKS: usize = 64;
const STEPS: usize = 200;
const LANE: usize = 18;
const NAMES: usize = 90;
/// The largest difference is drawn in the full color, unless it is less than this share of a step, or more than that.
const FULL: (f64, f64) = (0.02, 0.2);

/// How much longer a rank computes in a step than the median of ranks, beside that.
struct Cell {
    row: usize,
    column: usize,
    rank: Rank,
    step: Step,
    compute: i64,
    median: i64,
    /// Of the step, more or less.
    share: f64,
}

pub(super) fn plot(analysis: &Analysis) -> String {
    let mut steps: BTreeMap<Step, Vec<&StepFigures>> = BTreeMap::new();
    for figures in analysis.counted_steps() {
        steps.entry(figures.step).or_default().push(figures);
    }
    let mut ranks: Vec<Rank> = analysis.ranks.iter().map(|rank| rank.rank).collect();
    let (all_ranks, all_steps) = (ranks.len(), steps.len());
    ranks.truncate(RANKS);
    // Stages of a pipeline compute different things.
    if ranks.len() < 2 || steps.is_empty() || analysis.pipeline.is_some() {
        return String::new();
    }
    let wide = (WIDE as usize - NAMES) as f64 / all_steps.min(STEPS) as f64;
    let cells = cells(&ranks, &steps);
    let full = cells.iter().map(|cell| cell.share.abs()).fold(0.0, f64::max).clamp(FULL.0, FULL.1);
    let lane = |(row, rank): (usize, &Rank)| {
        let (y, width) = (row * LANE, WIDE as usize - NAMES);
        format!(
            "<text x=\"0\" y=\"{}\" fill=\"#010101\" font-size=\"13\">rank {rank}</text>\n\
             <rect x=\"{NAMES}\" y=\"{y}\" width=\"{width}\" height=\"{}\" fill=\"#030303\"/>\n",
            y + 13,
            LANE - 2,
        )
    };
    let lanes: String = ranks.iter().enumerate().map(lane).collect();
    let cells: String = cells.iter().map(|cell| cell.written(wide, full)).collect();
    let left_out = match (all_ranks > RANKS, all_steps > STEPS) {
        (false, false) => String::new(),
        _ => format!("; the first {RANKS} ranks and {STEPS} steps"),
    };
    format!(
        "<figure>\n<figcaption>Compute by rank and step <small>orange computes longer than the median of ranks, blue \
         shorter, in the full color by {} of a step{left_out}; point at a cell</small></figcaption>\n<div class=\"wide\"><svg \
         class=\"large map\" viewBox=\"0 0 {WIDE} \
         {}\" role=\"img\" aria-label=\"Compute by rank and step\">\n{lanes}{cells}</svg></div>\n</figure>\n",
        text::percent(full),
        ranks.len() * LANE,
    )
}

fn cells(ranks: &[Rank], steps: &BTreeMap<Step, Vec<&StepFigures>>) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (column, (step, figures)) in steps.iter().take(STEPS).enumerate() {
        let compute = |figures: &StepFigures| figures.partition.compute_ns;
        let mut times: Vec<i64> = figures.iter().map(|figures| compute(figures)).collect();
        times.sort_unstable();
        let median = times[(times.len() - 1) / 2].midpoint(times[times.len() / 2]);
        for (row, rank) in ranks.iter().enumerate() {
            let Some(own) = figures.iter().find(|figures| figures.rank == *rank) else { continue };
            let share = (compute(own) - median) as f64 / own.duration_ns.max(1) as f64;
            cells.push(Cell { row, column, rank: *rank, step: *step, compute: compute(own), median, share });
        }
    }
    cells
}

impl Cell {
    /// As it is drawn, so wide, and in its full color where it differs by so much.
    fn written(&self, wide: f64, full: f64) -> String {
        let Cell { row, column, rank, step, compute, median, share } = self;
        let (colour, strength) = (if *share > 0.0 { "#e68a2e" } else { "#3b7dc4" }, (share.abs() / full).min(1.0));
        let differs = if *share < 0.0 { "shorter" } else { "longer" };
        format!(
            "<rect x=\"{:.1}\" y=\"{}\" width=\"{wide:.1}\" height=\"{}\" fill=\"{colour}\" fill-opacity=\"{strength:.2}\">\
             <title>rank {rank}, step {step}: computes {}, {} {differs} than the median of ranks ({})</title></rect>\n",
            NAMES as f64 + *column as f64 * wide,
            row * LANE,
            LANE - 2,
            text::duration(*compute),
            text::duration((compute - median).abs()),
            text::duration(*median),
        )
    }
}
