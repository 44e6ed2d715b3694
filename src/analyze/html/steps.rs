//! Where the time of each step goes, part upon part.

use std::collections::BTreeMap;

use anyhow::Result;
use plotters::prelude::*;
use stepscope_analyzer::{Analysis, Class, Partition};
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

pub(super) fn plot(analysis: &Analysis) -> Result<String> {
    let mut steps: BTreeMap<Step, Vec<&Partition>> = BTreeMap::new();
    for step in analysis.counted_steps() {
        steps.entry(step.step).or_default().push(&step.partition);
    }
    if steps.is_empty() {
        return Ok(String::new());
    }
    let steps: Vec<(Step, Vec<&Partition>)> = steps.into_iter().collect();
    let shared = steps.len().div_ceil(BARS);
    let together = |steps: &[(Step, Vec<&Partition>)]| {
        (steps[0].0, Time::of(steps.iter().flat_map(|(_, ranks)| ranks.iter().copied())))
    };
    let bars: Vec<(Step, Time)> = steps.chunks(shared).map(together).collect();
    let most = bars.iter().map(|(_, time)| time.span().0).max().unwrap_or(0) as f64;
    let title = "Time of each step".to_owned();
    let number = |place: &f64| {
        let whole = (place - place.round()).abs() < 1e-6;
        let bar = bars.get(place.round() as usize).filter(|_| whole && *place > -0.5);
        bar.map_or_else(String::new, |(step, _)| step.to_string())
    };
    let svg = chart::svg((WIDTH, HEIGHT), &title, |area| {
        let mut chart = chart::axes(area, LEFT, -0.6..bars.len() as f64 - 0.4, 0.0..most * 1.05)?;
        chart::grid(&mut chart, (bars.len().min(12), &number), (6, &chart::time_label))?;
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
    let ranks = if analysis.ranks.len() > 1 { "mean of ranks" } else { "" };
    let together = if shared > 1 { format!("each bar is {shared} steps") } else { String::new() };
    let notes: Vec<&str> = [ranks, &together].into_iter().filter(|note| !note.is_empty()).collect();
    let note = notes.join("; ");
    let legend = PARTS.iter().map(|part| (*part).to_owned()).zip(COLOURS).collect();
    Ok(Figure { title, note, legend, svg }.written())
}
