//! Where the time of each step and of each rank goes, part upon part.

use std::collections::BTreeMap;

use anyhow::Result;
use plotters::prelude::*;
use stepscope_analyzer::{Analysis, Class, CountedTime, Partition};
use stepscope_traces::Step;
use stepscope_tui::palette;

use crate::{
    analyze::time::{PARTS, Time},
    render::html::chart::{self, Figure, LEFT, WIDTH},
};

const HEIGHT: u32 = 280;
/// There is no room for more; neighbors share a bar.
const BARS: usize = 120;

/// In the order of the parts.
const COLOURS: [RGBColor; PARTS.len()] = [
    chart::shade(palette::class(Class::Compute)),
    chart::shade(palette::class(Class::Communication)),
    chart::shade(palette::class(Class::Copy)),
    chart::GREY,
];

/// A bar: what it is called, and what its time goes to.
type Bar = (String, Time);

/// Where the time of each step goes, in the mean of ranks.
pub(super) fn of_steps(analysis: &Analysis) -> Result<String> {
    let mut steps: BTreeMap<Step, Vec<&Partition>> = BTreeMap::new();
    for step in analysis.counted_steps() {
        steps.entry(step.step).or_default().push(&step.partition);
    }
    let steps: Vec<(Step, Vec<&Partition>)> = steps.into_iter().collect();
    let shared = steps.len().div_ceil(BARS).max(1);
    let together = |steps: &[(Step, Vec<&Partition>)]| {
        (steps[0].0.to_string(), Time::of(steps.iter().flat_map(|(_, ranks)| ranks.iter().copied())))
    };
    let bars: Vec<Bar> = steps.chunks(shared).map(together).collect();
    let ranks = if analysis.ranks.len() > 1 { "mean of ranks" } else { "" };
    let together = if shared > 1 { format!("each bar is {shared} steps") } else { String::new() };
    plot("Time of each step", &[ranks, &together], &bars)
}

/// Where a step goes on each rank, where there are several.
pub(super) fn of_ranks(analysis: &Analysis) -> Result<String> {
    let ranks: Vec<&CountedTime> = analysis.counted.iter().filter(|time| time.partition.span_ns > 0).collect();
    if ranks.len() < 2 {
        return Ok(String::new());
    }
    let bars: Vec<Bar> = ranks.iter().take(BARS).map(|time| (time.rank.to_string(), Time::counted([*time]))).collect();
    let mean = if analysis.window.whole { "" } else { "mean of steps" };
    let left_out = if ranks.len() > BARS { format!("the first {BARS} of {}", ranks.len()) } else { String::new() };
    plot("Time of each rank", &[mean, &left_out], &bars)
}

fn plot(title: &str, notes: &[&str], bars: &[Bar]) -> Result<String> {
    if bars.is_empty() {
        return Ok(String::new());
    }
    let most = bars.iter().map(|(_, time)| time.span().0).max().unwrap_or(0) as f64;
    let name = |place: &f64| {
        let whole = (place - place.round()).abs() < 1e-6;
        let bar = bars.get(place.round() as usize).filter(|_| whole && *place > -0.5);
        bar.map_or_else(String::new, |(name, _)| name.clone())
    };
    let svg = chart::svg((WIDTH, HEIGHT), title, |area| {
        let mut chart = chart::axes(area, LEFT, -0.6..bars.len() as f64 - 0.4, 0.0..most * 1.05)?;
        chart::grid(&mut chart, (bars.len().min(12), &name), (6, &chart::time_label))?;
        for (place, (_, time)) in bars.iter().enumerate() {
            let mut level = 0.0;
            for ((part, _), colour) in time.parts().iter().zip(COLOURS) {
                let (x, upon) = (place as f64, (level + part.0 as f64).min(most * 1.05));
                if part.0 > 0 {
                    let corners = [(x - 0.4, level), (x + 0.4, upon)];
                    chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                }
                level = upon;
            }
        }
        Ok(())
    })?;
    let notes: Vec<&str> = notes.iter().copied().filter(|note| !note.is_empty()).collect();
    let legend = PARTS.iter().map(|part| (*part).to_owned()).zip(COLOURS).collect();
    Ok(Figure { title: title.into(), note: notes.join("; "), legend, svg }.written())
}
