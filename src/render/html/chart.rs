//! What the plots have in common: a canvas, colors, legends, and SVG that follows the page's own.

use std::ops::Range;

use anyhow::Result;
use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use stepscope_plan::text;
use stepscope_traces::Family;
use stepscope_tui::palette::{self, Shades};

use super::escaped;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// What stands for the page's colors: the style sheet has the same.
pub(crate) const TEXT: RGBColor = RGBColor(1, 1, 1);
pub(crate) const GRID: RGBColor = RGBColor(2, 2, 2);
pub(crate) const BUBBLE: RGBColor = RGBColor(3, 3, 3);

/// Colors that can be told apart, on white and on black.
pub(crate) const BLUE: RGBColor = RGBColor(0x3b, 0x7d, 0xc4);
pub(crate) const ORANGE: RGBColor = RGBColor(0xe6, 0x8a, 0x2e);
pub(crate) const GREEN: RGBColor = RGBColor(0x3f, 0x9c, 0x6b);
pub(crate) const RED: RGBColor = RGBColor(0xd1, 0x5b, 0x5b);
pub(crate) const PURPLE: RGBColor = RGBColor(0x93, 0x6a, 0xc2);
pub(crate) const TEAL: RGBColor = RGBColor(0x35, 0xa3, 0xad);
pub(crate) const PINK: RGBColor = RGBColor(0xd4, 0x7f, 0xb4);
pub(crate) const YELLOW: RGBColor = RGBColor(0xcf, 0xb0, 0x3a);
pub(crate) const BROWN: RGBColor = RGBColor(0x9c, 0x75, 0x5f);
pub(crate) const GREY: RGBColor = RGBColor(0xa0, 0xa8, 0xb0);

/// The color that something has in the dashboard.
pub(crate) const fn shade(shades: Shades) -> RGBColor {
    let (red, green, blue) = shades.rgb();
    RGBColor(red, green, blue)
}

/// The color of what kernels do, as in the dashboard.
pub(crate) const fn of_family(family: Family) -> RGBColor {
    shade(palette::family(family))
}

/// A plot as it stands in the page.
pub(crate) struct Figure {
    /// Its title.
    pub(crate) title: String,
    /// What else is to be known.
    pub(crate) note: String,
    pub(crate) legend: Vec<(String, RGBColor)>,
    pub(crate) svg: String,
}

impl Figure {
    pub(crate) fn written(&self) -> String {
        format!("<figure>\n{}</figure>\n", self.contents())
    }

    pub(crate) fn contents(&self) -> String {
        let legend: String = self.legend.iter().map(|(name, colour)| legend_entry(name, &hex(*colour))).collect();
        format!(
            "<figcaption>{} <small>{}</small></figcaption>\n<ul class=\"legend\">{legend}</ul>\n\
             <div class=\"wide\">{}</div>\n",
            escaped(&self.title),
            escaped(&self.note),
            self.svg,
        )
    }
}

/// What a color stands for.
pub(crate) fn legend_entry(name: &str, colour: &str) -> String {
    format!("<li><i style=\"background:{colour}\"></i>{}</li>", escaped(name))
}

/// A color as the page's own.
pub(crate) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Draws on a canvas of this size.
pub(crate) fn svg(size: (u32, u32), title: &str, draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area)?;
        area.present()?;
    }
    // In a page it needs no namespace; what goes without saying is a third of it.
    let label = format!("role=\"img\" aria-label=\"{}\"", escaped(title));
    let svg = svg.replacen("xmlns=\"http://www.w3.org/2000/svg\"", &label, 1);
    let large = if size.0 > WIDTH { "<svg class=\"large\" " } else { "<svg " };
    Ok(svg.replacen("<svg ", large, 1).replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", ""))
}

/// Says something of each shape of a kind when it is pointed at, in the order in which they were drawn.
pub(crate) fn titled(svg: &str, shape: &str, titles: impl Iterator<Item = String>) -> String {
    let opening = format!("<{shape} ");
    let mut pieces = svg.split(&opening);
    let mut written = pieces.next().unwrap_or_default().to_owned();
    for (piece, title) in pieces.zip(titles.map(Some).chain(std::iter::repeat(None))) {
        let piece = match title {
            Some(title) => piece.replacen("/>", &format!("><title>{}</title></{shape}>", escaped(&title)), 1),
            None => piece.to_owned(),
        };
        written += &(opening.clone() + &piece);
    }
    written
}

/// The width of most plots, in the units of their fonts.
pub(crate) const WIDTH: u32 = 680;
/// The width of those that have much to show.
pub(crate) const WIDE: u32 = 1200;
/// The size of the letters in them.
pub(crate) const LETTERS: u32 = 16;
/// Room for the words at the left, and for the names of streams and stages.
pub(crate) const LEFT: u32 = 84;
pub(crate) const NAMES: u32 = 150;

/// The axes of a plot.
pub(crate) fn axes<'a, 'b>(area: &'a Area<'b>, left: u32, x: Range<f64>, y: Range<f64>) -> Result<Chart<'a, 'b>> {
    let widened = |range: Range<f64>| range.start..range.end.max(range.start + 1.0);
    axes_to(area, left, widened(x), widened(y))
}

/// The axes of a plot that may be less than one wide or high.
pub(crate) fn axes_to<'a, 'b>(area: &'a Area<'b>, left: u32, x: Range<f64>, y: Range<f64>) -> Result<Chart<'a, 'b>> {
    Ok(ChartBuilder::on(area)
        .margin_top(10)
        .margin_right(24)
        .set_label_area_size(LabelAreaPosition::Left, left)
        .set_label_area_size(LabelAreaPosition::Bottom, 2 * LETTERS)
        .build_cartesian_2d(x, y)?)
}

/// How values of an axis are written, and about how many.
type Labels<'a> = (usize, &'a dyn Fn(&f64) -> String);

/// Draws the axes of a plot, with lines across at the values of the vertical one.
pub(crate) fn grid(chart: &mut Chart<'_, '_>, (x_labels, x): Labels<'_>, (y_labels, y): Labels<'_>) -> Result<()> {
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(TEXT)
        .label_style(letters(LETTERS))
        .x_labels(x_labels)
        .y_labels(y_labels)
        .x_label_formatter(&x)
        .y_label_formatter(&y)
        .draw()?;
    Ok(())
}

/// Letters that follow the page's color.
pub(crate) fn letters(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

/// A word beside a lane: it ends at the left edge, in the middle of the lane.
pub(crate) fn beside<'a>(words: String, (x, y): (i32, i32), size: u32) -> Text<'a, (i32, i32), String> {
    Text::new(words, (x - 8, y), letters(size).pos(Pos::new(HPos::Right, VPos::Center)))
}

/// A word behind a bar, in the middle of its lane.
pub(crate) fn behind<'a>(words: String, (x, y): (i32, i32), size: u32) -> Text<'a, (i32, i32), String> {
    Text::new(words, (x + 6, y), letters(size).pos(Pos::new(HPos::Left, VPos::Center)))
}

/// A time at an axis: nanoseconds.
pub(crate) fn time_label(time: &f64) -> String {
    shortest(text::duration(*time as i64))
}

/// A number of steps or ranks at an axis, which has no parts.
pub(crate) fn whole_label(number: &f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { String::new() }
}

/// A size at an axis.
pub(crate) fn bytes_label(bytes: &f64) -> String {
    shortest(text::bytes(*bytes as u64))
}

/// Without digits that say nothing; nothing has no unit.
fn shortest(words: String) -> String {
    match words.split_once(' ') {
        Some(("0", _)) => "0".into(),
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_told_of_in_their_order() {
        let svg = "<svg><polygon fill=\"a\"/><rect/><polygon fill=\"b\"/><polygon/></svg>";
        let titled = titled(svg, "polygon", ["<one>".to_owned(), "two".to_owned()].into_iter());
        assert_eq!(
            titled,
            "<svg><polygon fill=\"a\"><title>&lt;one&gt;</title></polygon><rect/>\
             <polygon fill=\"b\"><title>two</title></polygon><polygon/></svg>"
        );
    }
}
