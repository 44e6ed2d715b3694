//! Curves over one axis.

use anyhow::Result;
use plotters::prelude::*;

use super::chart::{self, Figure, LEFT, WIDTH};

const HEIGHT: u32 = 240;

/// Curves that share their axes.
pub(crate) struct Lines<'a> {
    pub(crate) title: &'a str,
    pub(crate) note: String,
    /// How places of the horizontal axis are written, and values.
    pub(crate) place: &'a dyn Fn(&f64) -> String,
    pub(crate) value: &'a dyn Fn(&f64) -> String,
    /// Whether nothing is the lowest value that is shown.
    pub(crate) from_zero: bool,
    pub(crate) curves: Vec<Curve>,
}

/// A curve: what it is, and its points.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) colour: RGBColor,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Lines<'_> {
    /// The plot; nothing, if there is no curve of two points.
    pub(crate) fn written(self) -> Result<String> {
        let curves: Vec<&Curve> = self.curves.iter().filter(|curve| curve.points.len() > 1).collect();
        let all = || curves.iter().flat_map(|curve| &curve.points);
        let bounds = |of: fn(&(f64, f64)) -> f64| {
            all().map(of).fold(None, |range, value| {
                let (low, high) = range.unwrap_or((value, value));
                Some((value.min(low), value.max(high)))
            })
        };
        let (Some((first, last)), Some((low, high))) = (bounds(|point| point.0), bounds(|point| point.1)) else {
            return Ok(String::new());
        };
        let room = (high - low).max(high.abs() * 1e-3).max(f64::MIN_POSITIVE) * 0.08;
        let low = if self.from_zero { 0.0 } else { low - room };
        let svg = chart::svg((WIDTH, HEIGHT), self.title, |area| {
            let mut chart = chart::axes_to(area, LEFT + 16, first..last, low..high + room)?;
            chart::grid(&mut chart, (8, self.place), (5, self.value))?;
            for curve in &curves {
                chart.draw_series([PathElement::new(curve.points.clone(), curve.colour.stroke_width(2))])?;
            }
            Ok(())
        })?;
        let legend = curves.iter().filter(|_| curves.len() > 1).map(|curve| (curve.name.clone(), curve.colour));
        let figure = Figure { title: self.title.into(), note: self.note, legend: legend.collect(), svg };
        Ok(figure.written())
    }
}
