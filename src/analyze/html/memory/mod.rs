//! Memory: over time, and what was there at the peak by the calls that led to it.

mod calls;
mod flame;
mod over_time;

use anyhow::Result;
use plotters::prelude::RGBColor;
use stepscope_analyzer::{Analysis, CallTree, RankMemory};
use stepscope_traces::MemoryCategory;
use stepscope_tui::palette;

use crate::render::html::chart;

/// Ranks that are drawn, the fullest first.
const RANKS: usize = 4;

/// The color of a category, as in the dashboard.
pub(super) fn colour(category: MemoryCategory) -> RGBColor {
    chart::shade(palette::category(category))
}

/// The fullest rank, and some others folded.
pub(super) fn plots(analysis: &Analysis) -> Result<String> {
    let mut ranks: Vec<&RankMemory> = analysis.memory.iter().collect();
    ranks.sort_by_key(|memory| (std::cmp::Reverse(memory.peak_bytes), memory.rank));
    let mut plots = ranks.into_iter().take(RANKS).map(|memory| rank(analysis, memory));
    let first = plots.next().transpose()?.unwrap_or_default();
    let others = plots.collect::<Result<String>>()?;
    if others.is_empty() {
        return Ok(first);
    }
    Ok(format!("{first}<details><summary>Memory on other ranks</summary>\n{others}</details>\n"))
}

fn rank(analysis: &Analysis, memory: &RankMemory) -> Result<String> {
    let mut plots = String::new();
    if !memory.one_moment {
        plots += &over_time::by_category(analysis, memory)?;
    }
    if let Some(callers) = memory.callers_over_time.as_ref().filter(|_| !memory.one_moment) {
        plots += &over_time::by_caller(analysis, memory, callers)?;
    }
    if let Some(tree) = CallTree::of(&memory.sites_at_peak) {
        plots += &flame::graph(memory, &tree);
        plots += &calls::tree(memory, &tree);
    }
    Ok(plots)
}
