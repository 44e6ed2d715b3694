//! Throughput, memory and parallel efficiency against ranks.

use std::ops::Range;

use anyhow::Result;
use plotters::prelude::*;
use stepscope_analyzer::Several;
use stepscope_plan::text;

use crate::render::html::chart::{self, Figure, LEFT, WIDTH};

const HEIGHT: u32 = 260;

/// A curve: what it is called, how its values are written, and its points.
struct Curve {
    title: &'static str,
    label: fn(&f64) -> String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
    /// Whether of runs with as many ranks the one with more is better.
    more_is_better: bool,
    /// What it would be if nothing was lost.
    ideal: Option<[(f64, f64); 2]>,
}

pub(in crate::diff) fn plots(several: &Several) -> Result<String> {
    let points = |of: fn(&stepscope_analyzer::ScalingPoint) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = several.scaling.iter().filter_map(|point| Some((f64::from(point.ranks), of(point)?)));
        points.collect()
    };
    let throughput = points(|point| point.tokens_per_second);
    let most = throughput.iter().map(|(ranks, _)| *ranks).fold(1.0, f64::max);
    let linear = throughput.first().map(|&(ranks, rate)| [(ranks, rate), (most, rate * most / ranks)]);
    let efficiency = points(|point| point.efficiency);
    let curves = [
        Curve {
            title: "Tokens per second vs. ranks",
            label: tokens,
            colour: chart::BLUE,
            points: throughput,
            more_is_better: true,
            ideal: linear,
        },
        Curve {
            title: "Parallel efficiency vs. ranks",
            label: percent,
            colour: chart::GREEN,
            ideal: efficiency.first().map(|(ranks, _)| [(*ranks, 1.0), (most, 1.0)]),
            points: efficiency,
            more_is_better: true,
        },
        Curve {
            title: "Peak memory per rank vs. ranks",
            label: chart::bytes_label,
            colour: chart::ORANGE,
            points: points(|point| point.peak_bytes.map(|bytes| bytes as f64)),
            more_is_better: false,
            ideal: None,
        },
    ];
    curves.iter().filter(|curve| curve.points.len() > 1).map(plot).collect()
}

impl Curve {
    /// The best point of each number of ranks; they are sorted by it.
    fn best(&self) -> Vec<(f64, f64)> {
        let mut best: Vec<(f64, f64)> = Vec::new();
        for point in &self.points {
            match best.last_mut() {
                Some(last) if last.0 == point.0 => {
                    last.1 = if self.more_is_better { last.1.max(point.1) } else { last.1.min(point.1) };
                }
                _ => best.push(*point),
            }
        }
        best
    }
}

fn tokens(rate: &f64) -> String {
    text::count(rate.max(0.0) as u64)
}

fn percent(share: &f64) -> String {
    text::whole_percent(*share)
}

fn plot(curve: &Curve) -> Result<String> {
    let all = || curve.points.iter().chain(curve.ideal.iter().flatten());
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(0.0, f64::max);
    let x: Range<f64> = 0.0..most(|point| point.0) + 0.5;
    // Shares end at one, sizes where they end.
    let (top, title) = (1.1 * most(|point| point.1), curve.title.to_owned());
    let svg = chart::svg((WIDTH, HEIGHT), &title, |area| {
        let mut chart = chart::axes_to(area, LEFT + 16, x, 0.0..top)?;
        chart::grid(&mut chart, (8, &chart::whole_label), (5, &curve.label))?;
        if let Some(ideal) = curve.ideal {
            chart.draw_series([PathElement::new(ideal.to_vec(), chart::GREY)])?;
        }
        chart.draw_series([PathElement::new(curve.best(), curve.colour.stroke_width(2))])?;
        chart.draw_series(curve.points.iter().map(|point| Circle::new(*point, 4, curve.colour.filled())))?;
        Ok(())
    })?;
    let ideal = curve.ideal.map(|_| ("ideal".to_owned(), chart::GREY));
    let legend = [("measured".to_owned(), curve.colour)].into_iter().chain(ideal).collect();
    Ok(Figure { title, note: String::new(), legend, svg }.written())
}
