//! Memory over time, stacked by category.

use anyhow::Result;
use plotters::prelude::*;
use stepscope_analyzer::{Analysis, MemoryPoint, RankMemory};
use stepscope_plan::text;
use stepscope_traces::MemoryCategory;

use super::step_axis::StepAxis;
use crate::{
    analyze::report::is_told_apart,
    render::html::chart::{self, Figure, LEFT, LETTERS, WIDTH},
};

const HEIGHT: u32 = 320;
/// There are not many more pixels.
const POINTS: usize = 600;
/// Ranks that are drawn, the fullest first.
const RANKS: usize = 4;

/// In the order of the categories.
const COLOURS: [RGBColor; MemoryCategory::ALL.len()] =
    [chart::BLUE, chart::ORANGE, chart::GREEN, chart::RED, chart::TEAL, chart::PURPLE, chart::YELLOW, chart::GREY];

/// The fullest rank, and some others folded.
pub(super) fn plots(analysis: &Analysis) -> Result<String> {
    let mut ranks: Vec<&RankMemory> = analysis.memory.iter().filter(|memory| memory.timeline.len() > 1).collect();
    ranks.sort_by_key(|memory| (std::cmp::Reverse(memory.peak_bytes), memory.rank));
    let mut plots = ranks.into_iter().take(RANKS).map(|memory| plot(analysis, memory));
    let first = plots.next().transpose()?.unwrap_or_default();
    let others = plots.collect::<Result<String>>()?;
    if others.is_empty() {
        return Ok(first);
    }
    Ok(format!("{first}<details><summary>Memory over time on other ranks</summary>\n{others}</details>\n"))
}

fn plot(analysis: &Analysis, memory: &RankMemory) -> Result<String> {
    let axis = StepAxis::of(analysis, memory.rank);
    let points = thinned(&memory.timeline);
    let used = |category: &usize| points.iter().any(|point| point.bytes[*category] > 0);
    let categories: Vec<usize> = (0..COLOURS.len()).filter(used).collect();
    let inferred = match (memory.inferred, is_told_apart(memory)) {
        (true, true) => " (categories inferred)",
        (true, false) => " (categories unknown)",
        (false, _) => "",
    };
    let title = format!("Memory over time on rank {}{inferred}", memory.rank);
    let begin = points.first().map_or(0, |point| point.time_ns);
    let end = points.last().map_or(0, |point| point.time_ns);
    let since = |time: i64| match &axis {
        Some(axis) => axis.place(time, (begin, end)),
        None => time.saturating_sub(begin) as f64,
    };
    let (first, last) = (since(begin), since(end));
    let label = |place: &f64| axis.as_ref().map_or_else(|| chart::time_label(place), |axis| axis.label(*place));
    let labels = axis.as_ref().map_or(6, |axis| axis.steps().clamp(2, 8));
    let most = points.iter().map(total).max().unwrap_or(0).max(memory.peak_bytes) as f64;
    let svg = chart::svg((WIDTH, HEIGHT), &title, |area| {
        let mut chart = chart::axes(area, LEFT, first..last, 0.0..most * 1.05)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(chart::GRID)
            .axis_style(chart::TEXT)
            .label_style(chart::letters(LETTERS))
            .x_labels(labels)
            .y_labels(6)
            .x_label_formatter(&label)
            .y_label_formatter(&chart::bytes_label)
            .draw()?;
        let mut below = vec![0; points.len()];
        for category in &categories {
            let upon: Vec<u64> =
                below.iter().zip(&points).map(|(below, point)| below + point.bytes[*category]).collect();
            let mut outline = stairs(&points, &upon, since);
            outline.extend(stairs(&points, &below, since).into_iter().rev());
            chart.draw_series([Polygon::new(outline, COLOURS[*category].filled())])?;
            below = upon;
        }
        let peak = (since(memory.peak_time_ns).clamp(first, last), memory.peak_bytes as f64);
        chart.draw_series([Circle::new(peak, 4, chart::TEXT.filled())])?;
        Ok(())
    })?;
    // What is drawn on top stands first.
    let legend = categories.iter().rev().map(|category| (MemoryCategory::ALL[*category].spelled(), COLOURS[*category]));
    let at = text::duration(memory.peak_time_ns.saturating_sub(begin));
    let wide = if axis.is_some() { "; all steps are drawn equally wide" } else { "" };
    let note = format!("the dot marks the peak: {} after {at}{wide}", text::bytes(memory.peak_bytes));
    Ok(Figure { title, note, legend: legend.collect(), svg }.written())
}

fn total(point: &MemoryPoint) -> u64 {
    point.bytes.iter().sum()
}

/// A level holds until the next one.
fn stairs(points: &[MemoryPoint], levels: &[u64], since: impl Fn(i64) -> f64) -> Vec<(f64, f64)> {
    let mut outline: Vec<(f64, f64)> = Vec::with_capacity(2 * points.len());
    for (point, level) in points.iter().zip(levels) {
        let (time, level) = (since(point.time_ns), *level as f64);
        if let Some((_, before)) = outline.last().copied().filter(|(_, before)| *before != level) {
            outline.push((time, before));
        }
        outline.push((time, level));
    }
    outline
}

/// At most so many points: of each stretch the one with most, and the last of all.
fn thinned(points: &[MemoryPoint]) -> Vec<MemoryPoint> {
    if points.len() <= POINTS {
        return points.to_vec();
    }
    let stretches = points.chunks(points.len().div_ceil(POINTS));
    let most = stretches.filter_map(|stretch| stretch.iter().max_by_key(|point| total(point)));
    most.chain(points.last()).copied().collect()
}
