//! Memory over time, stacked by category or by who asked for it.

use anyhow::Result;
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use stepscope_analyzer::{Analysis, CallerInTime, CallersOverTime, MemoryPoint, RankMemory};
use stepscope_plan::text;
use stepscope_traces::MemoryCategory;

use super::{calls::words, colour};
use crate::{
    analyze::{html::step_axis::StepAxis, report::is_told_apart},
    render::html::chart::{self, Figure, LEFT, LETTERS, WIDTH},
};

const HEIGHT: u32 = 320;
/// There are not many more pixels.
const POINTS: usize = 600;

/// In the order of the callers; the last one is for all others.
const CALLER_COLOURS: [RGBColor; CallersOverTime::MOST + 1] = [
    chart::BLUE,
    chart::ORANGE,
    chart::GREEN,
    chart::PURPLE,
    chart::YELLOW,
    chart::TEAL,
    chart::RED,
    chart::PINK,
    chart::BROWN,
    chart::GREY,
];

/// What is stacked: names and colors of the parts, in the order of the points' own.
struct Stacked<'a, const PARTS: usize> {
    title: String,
    points: &'a [MemoryPoint<PARTS>],
    names: [String; PARTS],
    /// What is said of a part that is pointed at, beside its size.
    says: [String; PARTS],
    colours: [RGBColor; PARTS],
}

pub(super) fn by_category(analysis: &Analysis, memory: &RankMemory) -> Result<String> {
    let inferred = match (memory.inferred, is_told_apart(memory)) {
        (true, true) => " (categories inferred)",
        (true, false) => " (categories unknown)",
        (false, _) => "",
    };
    let names = std::array::from_fn(|category| MemoryCategory::ALL[category].spelled());
    let stacked = Stacked {
        title: format!("Memory over time on rank {}{inferred}", memory.rank),
        points: &memory.timeline,
        says: names.clone(),
        names,
        colours: std::array::from_fn(|place| colour(MemoryCategory::ALL[place])),
    };
    plot(analysis, memory, &stacked)
}

pub(super) fn by_caller(analysis: &Analysis, memory: &RankMemory, callers: &CallersOverTime) -> Result<String> {
    let name = |CallerInTime { caller, category }: &CallerInTime| {
        let caller = caller.as_deref().map_or_else(|| "(not recorded)".into(), words);
        format!("{caller} ({})", category.spelled())
    };
    let mut names: [String; CallersOverTime::MOST + 1] = std::array::from_fn(|_| "others".into());
    names.iter_mut().zip(&callers.callers).for_each(|(words, caller)| *words = name(caller));
    let mut says = names.clone();
    for (says, caller) in says.iter_mut().zip(&callers.callers) {
        *says = format!("{} ({})", caller.caller.as_deref().unwrap_or("(not recorded)"), caller.category.spelled());
    }
    let stacked = Stacked {
        title: format!("Memory over time on rank {} by who asked for it", memory.rank),
        points: &callers.points,
        names,
        says,
        colours: CALLER_COLOURS,
    };
    plot(analysis, memory, &stacked)
}

fn plot<const PARTS: usize>(analysis: &Analysis, memory: &RankMemory, stacked: &Stacked<'_, PARTS>) -> Result<String> {
    let axis = StepAxis::of(analysis, memory.rank);
    let mut points = thinned(stacked.points);
    if let (Some(last), Some(shortage)) = (points.last().copied(), &memory.out_of_memory) {
        // What was there last is there until memory runs out.
        points.push(MemoryPoint { time_ns: last.time_ns.max(shortage.time_ns), ..last });
    }
    let used = |part: &usize| points.iter().any(|point| point.bytes[*part] > 0);
    let parts: Vec<usize> = (0..PARTS).filter(used).collect();
    let begin = points.first().map_or(0, |point| point.time_ns);
    let end = points.last().map_or(0, |point| point.time_ns);
    let since = |time: i64| match &axis {
        Some(axis) => axis.place(time, (begin, end)),
        None => time.saturating_sub(begin) as f64,
    };
    let (first, last) = (since(begin), since(end));
    let label = |place: &f64| axis.as_ref().map_or_else(|| chart::time_label(place), |axis| axis.label(*place));
    let labels = axis.as_ref().map_or(6, |axis| axis.steps().clamp(2, 8));
    let most = points.iter().map(MemoryPoint::total).max().unwrap_or(0).max(memory.peak_bytes) as f64;
    let at_peak = points.iter().max_by_key(|point| point.total());
    // Above the peak is where the end is named.
    let above = if memory.out_of_memory.is_some() { 1.15 } else { 1.05 };
    let svg = chart::svg((WIDTH, HEIGHT), &stacked.title, |area| {
        let mut chart = chart::axes(area, LEFT, first..last, 0.0..most * above)?;
        chart::grid(&mut chart, (labels, &label), (6, &chart::bytes_label))?;
        let mut below = vec![0; points.len()];
        for part in &parts {
            let upon: Vec<u64> = below.iter().zip(&points).map(|(below, point)| below + point.bytes[*part]).collect();
            let mut outline = stairs(&points, &upon, since);
            outline.extend(stairs(&points, &below, since).into_iter().rev());
            chart.draw_series([Polygon::new(outline, stacked.colours[*part].filled())])?;
            below = upon;
        }
        if let Some(shortage) = &memory.out_of_memory {
            let (time, top) = (since(shortage.time_ns).clamp(first, last), most * above);
            let line = PathElement::new(vec![(time, 0.0), (time, top)], chart::TEXT.filled().stroke_width(2));
            chart.draw_series([line])?;
            let is_late = time > (first + last) / 2.0;
            let (side, words) =
                if is_late { (HPos::Right, "out of memory \u{2192}") } else { (HPos::Left, "\u{2190} out of memory") };
            let style = chart::letters(LETTERS).pos(Pos::new(side, VPos::Top));
            let (x, y) = chart.backend_coord(&(time, top));
            area.draw(&Text::new(words, (if is_late { x - 6 } else { x + 6 }, y), style))?;
        }
        // The peak may be narrower than a pixel.
        if let Some(peak) = at_peak {
            let (time, mut below) = (since(peak.time_ns), 0);
            for part in &parts {
                let upon = below + peak.bytes[*part];
                let line = vec![(time, below as f64), (time, upon as f64)];
                chart.draw_series([PathElement::new(line, stacked.colours[*part].stroke_width(2))])?;
                below = upon;
            }
        }
        let peak = (since(memory.peak_time_ns).clamp(first, last), memory.peak_bytes as f64);
        chart.draw_series([Circle::new(peak, 4, chart::TEXT.filled())])?;
        Ok(())
    })?;
    let says = |part: &usize| {
        let most = points.iter().map(|point| point.bytes[*part]).max().unwrap_or(0);
        let at_peak = at_peak.map_or(0, |point| point.bytes[*part]);
        format!("{}: {} at the peak, at most {}", stacked.says[*part], text::bytes(at_peak), text::bytes(most))
    };
    let svg = chart::titled(&svg, "polygon", parts.iter().map(says));
    // What is drawn on top stands first.
    let legend = parts.iter().rev().map(|part| (stacked.names[*part].clone(), stacked.colours[*part]));
    let at = text::duration(memory.peak_time_ns.saturating_sub(begin));
    let wide = if axis.is_some() { "; all steps are drawn equally wide" } else { "" };
    let ran_out = memory.out_of_memory.as_ref().map(|shortage| {
        let at = text::duration(shortage.time_ns.saturating_sub(begin));
        format!("; the line marks where memory ran out, after {at}")
    });
    let ran_out = ran_out.unwrap_or_default();
    let note = format!("the dot marks the peak: {} after {at}{ran_out}{wide}", text::bytes(memory.peak_bytes));
    Ok(Figure { title: stacked.title.clone(), note, legend: legend.collect(), svg }.written())
}

/// A level holds until the next one.
fn stairs<const PARTS: usize>(
    points: &[MemoryPoint<PARTS>],
    levels: &[u64],
    since: impl Fn(i64) -> f64,
) -> Vec<(f64, f64)> {
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
fn thinned<const PARTS: usize>(points: &[MemoryPoint<PARTS>]) -> Vec<MemoryPoint<PARTS>> {
    if points.len() <= POINTS {
        return points.to_vec();
    }
    let stretches = points.chunks(points.len().div_ceil(POINTS));
    let most = stretches.filter_map(|stretch| stretch.iter().max_by_key(|point| point.total()));
    most.chain(points.last()).copied().collect()
}
