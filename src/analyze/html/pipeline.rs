//! The pipeline of one step: when each stage works on which micro-batch, and its bubbles.

use anyhow::Result;
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use stepscope_analyzer::{Analysis, Pass, PipelineFigures, RankWork, WorkItem};
use stepscope_plan::text;
use stepscope_traces::{Rank, Step};
use stepscope_tui::palette;

use crate::render::html::chart::{self, Figure, LETTERS, NAMES, WIDE};

const LANE: u32 = 40;
/// Narrower work has no number in it.
const ROOM_FOR_A_NUMBER: f64 = 20.0;

/// Of each stage the first rank.
pub(super) fn ranks(analysis: &Analysis) -> Vec<Rank> {
    analysis.pipeline.as_ref().map(PipelineFigures::first_ranks).unwrap_or_default()
}

/// Neighbours differ, so that one can tell where one ends.
fn colour(item: &WorkItem) -> RGBColor {
    of_pass(item.pass, item.micro_batch.0 % 2 == 0)
}

fn of_pass(pass: Pass, is_even: bool) -> RGBColor {
    chart::shade(palette::pass(pass, is_even))
}

pub(super) fn plot(analysis: &Analysis, step: Step, passes: &[RankWork]) -> Result<String> {
    let work = |rank: Rank| passes.iter().find(|work| work.rank == rank);
    let stages: Vec<&RankWork> = ranks(analysis).into_iter().filter_map(work).collect();
    let items = || stages.iter().flat_map(|stage| &stage.items);
    let (Some(begin), Some(end)) = (items().map(|item| item.start).min(), items().map(|item| item.end).max()) else {
        return Ok(String::new());
    };
    let inferred =
        if analysis.pipeline.as_ref().is_some_and(|pipeline| pipeline.inferred) { " (inferred)" } else { "" };
    let title = format!("Pipeline in step {step}{inferred}");
    let height = LANE * stages.len() as u32 + 3 * LETTERS;
    let svg = chart::svg((WIDE, height), &title, |area| {
        let rows = stages.len() as f64;
        let whole = (end - begin) as f64;
        let mut chart = chart::axes(area, NAMES, 0.0..whole, 0.0..rows)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .disable_y_axis()
            .axis_style(chart::TEXT)
            .label_style(chart::letters(LETTERS))
            .x_labels(10)
            .x_label_formatter(&chart::time_label)
            .draw()?;
        let pixels = f64::from(WIDE - NAMES) / whole.max(1.0);
        let white = ("sans-serif", LETTERS - 1).into_font().color(&WHITE).pos(Pos::new(HPos::Center, VPos::Center));
        for (row, stage) in stages.iter().enumerate() {
            let middle = rows - row as f64 - 0.5;
            let block = |from: f64, to: f64| [(from, middle - 0.42), (to, middle + 0.42)];
            chart.draw_series([Rectangle::new(block(0.0, whole), chart::BUBBLE.filled())])?;
            for item in &stage.items {
                let (from, to) = ((item.start - begin) as f64, (item.end - begin) as f64);
                chart.draw_series([Rectangle::new(block(from, to), colour(item).filled())])?;
                if (to - from) * pixels >= ROOM_FOR_A_NUMBER {
                    let number = item.micro_batch.to_string();
                    chart.draw_series([Text::new(number, ((from + to) / 2.0, middle), white.clone())])?;
                }
            }
            let name = format!("stage {row} · rank {}", stage.rank);
            area.draw(&chart::beside(name, chart.backend_coord(&(0.0, middle)), LETTERS))?;
        }
        Ok(())
    })?;
    let bubble = analysis.pipeline.iter().flat_map(|pipeline| &pipeline.per_step);
    let bubble = bubble.into_iter().find(|bubble| bubble.step == step);
    let bubble = bubble.map_or_else(String::new, |bubble| format!("bubble {}; ", text::percent(bubble.bubble)));
    let note = format!("{bubble}numbers are micro-batches, gray is bubble; first rank of each stage");
    let legend = [("forward", Pass::Forward), ("backward", Pass::Backward), ("gradients of weights", Pass::Weights)];
    let drawn = |(_, pass): &(&str, Pass)| items().any(|item| item.pass == *pass);
    let legend = legend.into_iter().filter(drawn).map(|(word, pass)| (word.to_owned(), of_pass(pass, true)));
    Ok(Figure { title, note, legend: legend.collect(), svg }.written())
}
