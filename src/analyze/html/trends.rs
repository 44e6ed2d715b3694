//! What changes over the steps that count: loss, throughput and MFU; and what devices measured meanwhile.

use std::collections::BTreeMap;

use anyhow::Result;
use plotters::style::RGBColor;
use stepscope_analyzer::{Analysis, StepFigures};
use stepscope_plan::text;
use stepscope_traces::Step;

use crate::render::html::{
    chart,
    lines::{Curve, Lines},
};

/// There are not many more pixels.
const POINTS: usize = 500;
/// Counters that are shares, what each is called, and its color.
const SHARES: [(&str, &str, RGBColor); 3] = [
    ("gpu.tensor_activity", "tensor cores", chart::BLUE),
    ("gpu.sm_activity", "SMs", chart::GREEN),
    ("gpu.dram_activity", "memory traffic", chart::ORANGE),
];

pub(super) fn of_steps(analysis: &Analysis) -> Result<String> {
    let plot = |title: &str, of: fn(&StepFigures) -> Option<f64>, value: &dyn Fn(&f64) -> String, from_zero, colour| {
        let (points, together) = means(analysis, of);
        let ranks = if analysis.ranks.len() > 1 { "mean of ranks" } else { "" };
        let together = if together > 1 { format!("mean of {together} steps") } else { String::new() };
        let note: Vec<&str> = [ranks, &together].into_iter().filter(|note| !note.is_empty()).collect();
        let curves = vec![Curve { name: String::new(), colour, points }];
        Lines { title, note: note.join("; "), place: &chart::whole_label, value, from_zero, curves }.written()
    };
    let loss = |loss: &f64| format!("{:.4}", loss).trim_end_matches('0').trim_end_matches('.').to_owned();
    Ok(plot("Loss", |step| step.loss.filter(|loss| loss.is_finite()), &loss, false, chart::RED)?
        + &plot(
            "Tokens per second",
            |step| step.tokens_per_second,
            &|rate| text::count(*rate as u64),
            true,
            chart::BLUE,
        )?
        + &plot("MFU", |step| step.mfu, &|share| text::whole_percent(*share), true, chart::GREEN)?)
}

/// What devices measured, of the first one.
pub(super) fn of_devices(analysis: &Analysis) -> Result<String> {
    let Some(device) = analysis.devices.first() else { return Ok(String::new()) };
    let points = |counter: &str| -> Vec<(f64, f64)> {
        let values = device.over_time.get(counter).map_or(&[][..], Vec::as_slice);
        let last = values.len().saturating_sub(1).max(1) as f64;
        values.iter().enumerate().map(|(place, value)| (place as f64 / last, *value)).collect()
    };
    let place = |share: &f64| text::whole_percent(*share);
    let note = format!("rank {}, over the time of the counted steps", device.rank);
    let plot = |title: &str, value: &dyn Fn(&f64) -> String, curves| {
        Lines { title, note: note.clone(), place: &place, value, from_zero: true, curves }.written()
    };
    let shares = SHARES.map(|(counter, name, colour)| Curve { name: name.into(), colour, points: points(counter) });
    let one = |counter: &str, colour| vec![Curve { name: String::new(), colour, points: points(counter) }];
    Ok(plot("Device activity", &|percent| text::whole_percent(percent / 100.0), shares.into())?
        + &plot("Power", &|watts| text::watts(*watts), one("gpu.power", chart::RED))?
        + &plot("SM clock", &|clock| text::megahertz(*clock), one("gpu.sm_clock_mhz", chart::PURPLE))?)
}

/// The means over ranks, by step; of many steps some are one point. Tells of how many.
fn means(analysis: &Analysis, of: fn(&StepFigures) -> Option<f64>) -> (Vec<(f64, f64)>, usize) {
    let mut steps: BTreeMap<Step, (f64, f64)> = BTreeMap::new();
    for (step, value) in analysis.counted_steps().filter_map(|figures| Some((figures.step, of(figures)?))) {
        let (sum, count) = steps.entry(step).or_default();
        (*sum, *count) = (*sum + value, *count + 1.0);
    }
    let points: Vec<(f64, f64)> = steps.iter().map(|(step, (sum, count))| (f64::from(step.0), sum / count)).collect();
    let together = points.len().div_ceil(POINTS).max(1);
    let mean = |points: &[(f64, f64)]| {
        let value = points.iter().map(|(_, value)| value).sum::<f64>() / points.len() as f64;
        (points[0].0, value)
    };
    (points.chunks(together).map(mean).collect(), together)
}
