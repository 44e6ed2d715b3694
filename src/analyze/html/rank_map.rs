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
/// A difference of this share of a step is drawn in the full color.
const FULL: f64 = 0.2;

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
    let (mut cells, mut lanes) = (String::new(), String::new());
    for (row, rank) in ranks.iter().enumerate() {
        let y = row * LANE;
        lanes += &format!("<text x=\"0\" y=\"{}\" fill=\"#010101\" font-size=\"13\">rank {rank}</text>\n", y + 13);
        for (column, (step, figures)) in steps.iter().take(STEPS).enumerate() {
            let Some(own) = figures.iter().find(|figures| figures.rank == *rank) else { continue };
            let compute = |figures: &StepFigures| figures.partition.compute_ns;
            let mut times: Vec<i64> = figures.iter().map(|figures| compute(figures)).collect();
            times.sort_unstable();
            let median = times[(times.len() - 1) / 2].midpoint(times[times.len() / 2]);
            let more = compute(own) - median;
            let share = more as f64 / own.duration_ns.max(1) as f64;
            let (colour, strength) = (if share > 0.0 { "#e68a2e" } else { "#3b7dc4" }, (share.abs() / FULL).min(1.0));
            let differs = if more < 0 { "shorter" } else { "longer" };
            cells += &format!(
                "<rect x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\" fill-opacity=\"{:.2}\"><title>rank \
                 {rank}, step {step}: computes {}, {} {differs} than the median of ranks ({})</title></rect>\n",
                NAMES as f64 + column as f64 * wide,
                (wide - 0.5).max(0.5),
                LANE - 2,
                0.06 + 0.94 * strength,
                text::duration(compute(own)),
                text::duration(more.abs()),
                text::duration(median),
            );
        }
    }
    let left_out = match (all_ranks > RANKS, all_steps > STEPS) {
        (false, false) => String::new(),
        _ => format!("; the first {RANKS} ranks and {STEPS} steps"),
    };
    format!(
        "<figure>\n<figcaption>Compute by rank and step <small>orange computes longer than the median of ranks, blue \
         shorter{left_out}; point at a cell</small></figcaption>\n<div class=\"wide\"><svg class=\"large\" viewBox=\"0 0 {WIDE} \
         {}\" role=\"img\" aria-label=\"Compute by rank and step\">\n{lanes}{cells}</svg></div>\n</figure>\n",
        ranks.len() * LANE,
    )
}
