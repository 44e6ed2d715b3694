//! One step, by rank and stream.

use anyhow::Result;
use plotters::prelude::*;
use serde::Serialize;
use stepscope_analyzer::{LaneSpan, StepTimeline, StreamSpans};
use stepscope_traces::Family;
use stepscope_tui::palette;

use super::{
    chart::{self, Figure, LETTERS, NAMES, WIDE},
    in_script,
};

const LANE: u32 = 28;
const LANES: usize = 48;

/// The color of what kernels do, as in the dashboard.
pub(crate) const fn colour(family: Family) -> RGBColor {
    chart::shade(palette::family(family))
}

/// How a step is shown.
pub(crate) struct Shown {
    pub(crate) title: String,
    /// What step it is, in words.
    pub(crate) which: &'static str,
    /// The plot is as wide as a step of this length.
    pub(crate) length_ns: i64,
}

/// A lane of the plot.
struct Lane<'a> {
    name: String,
    spans: &'a [LaneSpan],
}

impl Lane<'_> {
    fn of(stream: &StreamSpans) -> Lane<'_> {
        let number = stream.stream.map_or("unknown".into(), |stream| stream.to_string());
        Lane { name: format!("rank {} · stream {number}", stream.rank), spans: &stream.spans }
    }
}

pub(crate) fn plot(timeline: &StepTimeline, shown: Shown) -> Result<String> {
    let Shown { title, which, length_ns } = shown;
    let streams = &timeline.lanes[..timeline.lanes.len().min(LANES)];
    if streams.is_empty() {
        return Ok(String::new());
    }
    let lanes: Vec<Lane<'_>> = streams.iter().map(Lane::of).collect();
    let height = LANE * lanes.len() as u32 + 3 * LETTERS;
    let (mut labels, mut rectangles) = (Labels::default(), String::new());
    let svg = chart::svg((WIDE, height), &title, |area| {
        let rows = lanes.len() as f64;
        let mut chart = chart::axes(area, NAMES, 0.0..length_ns as f64, 0.0..rows)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(chart::GRID)
            .axis_style(chart::TEXT)
            .label_style(chart::letters(LETTERS))
            .x_labels(10)
            .x_label_formatter(&chart::time_label)
            .draw()?;
        let left = chart.backend_coord(&(0.0, 0.0)).0;
        let right = chart.backend_coord(&(length_ns as f64, 0.0)).0;
        let scale = f64::from(right - left) / length_ns.max(1) as f64;
        for (row, lane) in lanes.iter().enumerate() {
            let middle = rows - row as f64 - 0.5;
            let [top, bottom] = [0.4, -0.4].map(|side| chart.backend_coord(&(0.0, middle + side)).1);
            for span in lane.spans {
                // In parts of a pixel: kernels that take turns with pauses must not look like one that does not.
                let (x, width) = (f64::from(left) + span.start as f64 * scale, (span.end - span.start) as f64 * scale);
                let RGBColor(red, green, blue) = colour(span.family);
                rectangles += &format!(
                    "<rect x=\"{x:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{}\" \
                     fill=\"#{red:02X}{green:02X}{blue:02X}\"/>\n",
                    width.max(0.02),
                    bottom - top,
                );
                labels.add(span);
            }
            area.draw(&chart::beside(lane.name.clone(), chart.backend_coord(&(0.0, middle)), LETTERS))?;
        }
        Ok(())
    })?;
    let svg = svg.replacen("</svg>", &format!("{rectangles}</svg>"), 1);
    let there = |family: &&Family| lanes.iter().flat_map(|lane| lane.spans).any(|span| span.family == **family);
    let legend = Family::ALL.iter().filter(there).map(|family| (family.word().to_owned(), colour(*family)));
    let left_out = timeline.lanes.len() - streams.len();
    let more = if left_out > 0 { format!("; {left_out} more streams not shown") } else { String::new() };
    let note = format!("{which}; point at a span for details{more}");
    let figure = Figure { title, note, legend: legend.collect(), svg };
    let labels = in_script(&serde_json::to_string(&labels)?);
    Ok(format!(
        "<figure data-labels>\n{}<div class=\"touched\"></div>\n\
         <script type=\"application/json\">{labels}</script>\n</figure>\n",
        figure.contents(),
    ))
}

/// What each rectangle is, in the order in which they are drawn.
#[derive(Default, Serialize)]
struct Labels {
    names: Vec<String>,
    /// Name, where it belongs, start and length in microseconds, and how many spans it is.
    spans: Vec<(usize, usize, f64, f64, u32)>,
}

impl Labels {
    fn add(&mut self, span: &LaneSpan) {
        let phase = span.phase.map(|phase| phase.word().to_owned());
        let micro_batch = span.micro_batch.map(|micro_batch| format!("micro-batch {micro_batch}"));
        let belongs: Vec<String> = phase.into_iter().chain(micro_batch).collect();
        let (name, belongs) = (self.number(span.name.clone()), self.number(belongs.join(", ")));
        let microseconds = |time: i64| (time as f64 / 100.0).round() / 10.0;
        self.spans.push((name, belongs, microseconds(span.start), microseconds(span.end - span.start), span.count));
    }

    fn number(&mut self, name: String) -> usize {
        self.names.iter().position(|other| *other == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }
}
