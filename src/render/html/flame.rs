//! A flame graph: boxes in rows, each as wide as its amount, and below it what it is made of.
//!
//! Boxes are pictures inside of the picture, so that a name ends where its box does. The script only moves them.

use plotters::style::RGBColor;

use super::{
    chart::{Figure, WIDE, hex},
    escaped,
};

const ROW: u32 = 22;
/// The page's own color.
const NEUTRAL: &str = "#030303";

/// The boxes that are drawn so far.
pub(crate) struct Flame {
    /// What the whole width stands for.
    all: u64,
    written: String,
    rows: u32,
}

/// Where a box begins: what is left of it, and in which row it is.
#[derive(Clone, Copy)]
pub(crate) struct BoxPlace {
    pub(crate) from: u64,
    pub(crate) row: u32,
}

/// A box: how wide, in which color, what stands in it, and what is said when it is pointed at.
pub(crate) struct FlameBox<'a> {
    pub(crate) amount: u64,
    pub(crate) colour: RGBColor,
    pub(crate) label: &'a str,
    pub(crate) hover: &'a str,
}

impl Flame {
    /// Begins with a box for all of it.
    pub(crate) fn of(all: u64, label: &str, hover: &str) -> Flame {
        let mut flame = Flame { all, written: String::new(), rows: 0 };
        flame.draw(BoxPlace { from: 0, row: 0 }, all, NEUTRAL, label, hover);
        flame
    }

    pub(crate) fn add(&mut self, place: BoxPlace, FlameBox { amount, colour, label, hover }: &FlameBox<'_>) {
        self.draw(place, *amount, &hex(*colour), label, hover);
    }

    fn draw(&mut self, BoxPlace { from, row }: BoxPlace, amount: u64, colour: &str, label: &str, hover: &str) {
        let wide = |amount: u64| amount as f64 / self.all.max(1) as f64 * f64::from(WIDE);
        self.rows = self.rows.max(row + 1);
        self.written += &format!(
            "<svg x=\"{:.2}\" y=\"{}\" width=\"{:.2}\" height=\"{ROW}\"><title>{}</title>\
             <rect width=\"100%\" height=\"100%\" fill=\"{colour}\"/><text x=\"5\" y=\"15\">{}</text></svg>\n",
            wide(from),
            row * ROW,
            wide(amount),
            escaped(hover),
            escaped(label),
        );
    }

    /// All of it, as it stands in the page.
    pub(crate) fn figure(self, title: String, note: String, legend: Vec<(String, RGBColor)>) -> String {
        let svg = format!(
            "<svg class=\"large flame\" viewBox=\"0 0 {WIDE} {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.rows * ROW,
            escaped(&title),
            self.written,
        );
        let figure = Figure { title, note, legend, svg };
        format!(
            "<figure data-flame>\n{}<div class=\"touched\" aria-live=\"polite\"></div>\n</figure>\n",
            figure.contents()
        )
    }
}
