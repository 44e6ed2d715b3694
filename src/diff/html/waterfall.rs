//! From one total to another, cause by cause.

use anyhow::Result;
use plotters::prelude::*;
use stepscope_analyzer::Diff;
use stepscope_plan::text;

use crate::{
    diff::answer,
    render::html::chart::{self, Figure, LETTERS},
};

const WIDTH: u32 = 900;
const ROW: u32 = 30;
/// Room for the names of causes, and for what stands behind the bars.
const NAMES: u32 = 240;
/// Causes that have a bar; the others share one.
const CAUSES: usize = 12;

pub(super) fn of_time(diff: &Diff) -> Result<String> {
    let Some(time) = &diff.step_time else { return Ok(String::new()) };
    let causes = time.causes.iter().map(|cause| (cause.cause.clone(), cause.change_ns));
    let title = format!("Change in {} time from {} to {}", answer::compared(diff), diff.base, diff.other);
    Waterfall {
        ends: [(diff.base.clone(), time.base_ns), (diff.other.clone(), time.other_ns)],
        causes: causes.collect(),
        label: chart::time_label,
        change: text::longer,
    }
    .plot(title)
}

pub(super) fn of_memory(diff: &Diff) -> Result<String> {
    let Some(memory) = &diff.peak_memory else { return Ok(String::new()) };
    let causes = memory.causes.iter().map(|cause| (cause.cause.clone(), cause.change_bytes));
    let title = format!("Change in peak memory from {} to {}", diff.base, diff.other);
    Waterfall {
        ends: [(diff.base.clone(), memory.base_bytes), (diff.other.clone(), memory.other_bytes)],
        causes: causes.collect(),
        label: chart::bytes_label,
        change: text::larger,
    }
    .plot(title)
}

struct Waterfall {
    ends: [(String, i64); 2],
    /// The largest first; they add up to what the ends differ by.
    causes: Vec<(String, i64)>,
    label: fn(&f64) -> String,
    change: fn(i64) -> String,
}

/// A bar: its name, from where to where it goes, what stands behind it, and its color.
struct Bar {
    name: String,
    from: i64,
    to: i64,
    says: String,
    colour: RGBColor,
}

impl Waterfall {
    fn bars(&self) -> Vec<Bar> {
        let [(base, from), (other, to)] = &self.ends;
        let whole = |name: &str, value: i64| Bar {
            name: text::shortened(&text::printable(name), 26),
            from: 0,
            to: value,
            says: (self.label)(&(value as f64)),
            colour: chart::BLUE,
        };
        let mut bars = vec![whole(base, *from)];
        let mut level = *from;
        let mut add = |name: String, change: i64| {
            let colour = if change > 0 { chart::RED } else { chart::GREEN };
            bars.push(Bar { name, from: level, to: level + change, says: (self.change)(change), colour });
            level += change;
        };
        let (named, others) = self.causes.split_at(self.causes.len().min(CAUSES));
        named.iter().filter(|(_, change)| *change != 0).for_each(|(name, change)| add(name.clone(), *change));
        let rest: i64 = others.iter().map(|(_, change)| change).sum();
        if rest != 0 {
            add(format!("{} more", others.len()), rest);
        }
        bars.push(whole(other, *to));
        bars
    }

    fn plot(&self, title: String) -> Result<String> {
        let bars = self.bars();
        let levels = || bars.iter().flat_map(|bar| [bar.from, bar.to]).filter(|level| *level > 0);
        let (least, most) = (levels().min().unwrap_or(0) as f64, levels().max().unwrap_or(1) as f64);
        // What changes is to be seen, though it may be a small part of the whole.
        let begin = if most > least { (least - 1.5 * (most - least)).max(0.0) } else { 0.0 };
        let end = most + 0.18 * (most - begin).max(1.0);
        let height = ROW * bars.len() as u32 + 3 * LETTERS;
        let svg = chart::svg((WIDTH, height), &title, |area| {
            let rows = bars.len() as f64;
            let mut chart = chart::axes(area, NAMES, begin..end, 0.0..rows)?;
            chart
                .configure_mesh()
                .disable_y_mesh()
                .disable_y_axis()
                .light_line_style(TRANSPARENT)
                .bold_line_style(chart::GRID)
                .axis_style(chart::TEXT)
                .label_style(chart::letters(LETTERS))
                .x_labels(6)
                .x_label_formatter(&self.label)
                .draw()?;
            for (row, bar) in bars.iter().enumerate() {
                let middle = rows - row as f64 - 0.5;
                let (from, to) = (bar.from.min(bar.to) as f64, bar.from.max(bar.to) as f64);
                let corners = [(from.max(begin), middle - 0.35), (to, middle + 0.35)];
                chart.draw_series([Rectangle::new(corners, bar.colour.filled())])?;
                area.draw(&chart::beside(bar.name.clone(), chart.backend_coord(&(begin, middle)), LETTERS))?;
                area.draw(&chart::behind(bar.says.clone(), chart.backend_coord(&(to, middle)), LETTERS))?;
            }
            Ok(())
        })?;
        let note = if begin > 0.0 { "the axis does not start at zero" } else { "" };
        let legend = [("less", chart::GREEN), ("more", chart::RED)].map(|(name, colour)| (name.to_owned(), colour));
        Ok(Figure { title, note: note.into(), legend: legend.into(), svg }.written())
    }
}
