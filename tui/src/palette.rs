//! Which color a thing has, in the dashboard and in reports.
//!
//! The colors are those of Okabe and Ito, which people with any kind of color blindness tell apart, as the nearest of
//! the 256 that nearly every terminal has.

use stepscope_analyzer::{Class, Pass};
use stepscope_traces::{Family, MemoryCategory};

/// Two shades of a color, by their numbers among the 256: on a dark ground, and on a light one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shades(pub(crate) u8, pub(crate) u8);

pub(crate) const BLUE: Shades = Shades(32, 25);
pub(crate) const LIGHT_BLUE: Shades = Shades(75, 68);
pub(crate) const LIGHT_ORANGE: Shades = Shades(222, 179);
pub(crate) const SKY: Shades = Shades(117, 67);
pub(crate) const GREEN: Shades = Shades(36, 29);
pub(crate) const YELLOW: Shades = Shades(221, 136);
pub(crate) const ORANGE: Shades = Shades(214, 172);
pub(crate) const VERMILION: Shades = Shades(202, 166);
pub(crate) const PURPLE: Shades = Shades(175, 132);
pub(crate) const BROWN: Shades = Shades(137, 94);
pub(crate) const TEAL: Shades = Shades(80, 30);
pub(crate) const GREY: Shades = Shades(245, 243);
pub(crate) const SHADOW: Shades = Shades(238, 250);
pub(crate) const RED: Shades = Shades(203, 160);
const OLIVE: Shades = Shades(142, 100);
const PINK: Shades = Shades(218, 162);
const INDIGO: Shades = Shades(105, 61);
const MINT: Shades = Shades(121, 35);
const SAND: Shades = Shades(180, 137);
const ROSE: Shades = Shades(174, 131);

impl Shades {
    /// Red, green and blue of the one on a dark ground, which is seen on a light one, too, where it fills something.
    pub const fn rgb(self) -> (u8, u8, u8) {
        const fn of_cube(step: u8) -> u8 {
            if step == 0 { 0 } else { 55 + 40 * step }
        }
        match self.0.checked_sub(16) {
            Some(place) if place < 216 => (of_cube(place / 36), of_cube(place / 6 % 6), of_cube(place % 6)),
            Some(place) => {
                let grey = 8 + 10 * (place - 216);
                (grey, grey, grey)
            }
            // The first sixteen are whatever a terminal makes of them, and nothing has them.
            None => (0, 0, 0),
        }
    }
}

/// What time went to.
pub const fn class(class: Class) -> Shades {
    match class {
        Class::Compute => BLUE,
        Class::Communication => VERMILION,
        Class::Copy => PURPLE,
    }
}

/// What memory is for.
pub const fn category(category: MemoryCategory) -> Shades {
    match category {
        MemoryCategory::Parameters => BLUE,
        MemoryCategory::Gradients => GREEN,
        MemoryCategory::OptimizerState => SKY,
        MemoryCategory::Activations => ORANGE,
        MemoryCategory::Communication => VERMILION,
        MemoryCategory::Workspace => PURPLE,
        MemoryCategory::Inputs => YELLOW,
        MemoryCategory::Other => GREY,
    }
}

/// What kind of work a kernel is.
pub const fn family(family: Family) -> Shades {
    match family {
        Family::Matmul => BLUE,
        Family::Attention => SKY,
        Family::Elementwise => GREEN,
        Family::Norm => TEAL,
        Family::Optimizer => ORANGE,
        Family::Loss => YELLOW,
        Family::Embedding => BROWN,
        Family::Convolution => INDIGO,
        Family::Recurrence => SAND,
        Family::Routing => ROSE,
        Family::Quantization => OLIVE,
        Family::Reduction => MINT,
        Family::Sort => PINK,
        Family::Communication => VERMILION,
        Family::Copy => PURPLE,
        Family::Other => GREY,
    }
}

/// A pass through a stage; neighbors differ, so that one can tell where one ends.
pub const fn pass(pass: Pass, is_even: bool) -> Shades {
    match (pass, is_even) {
        (Pass::Forward, true) => BLUE,
        (Pass::Forward, false) => LIGHT_BLUE,
        (Pass::Backward, true) => ORANGE,
        (Pass::Backward, false) => LIGHT_ORANGE,
        (Pass::Weights, true) => GREEN,
        (Pass::Weights, false) => MINT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_colors_that_terminals_make_of_them() {
        // As xterm's own table has them.
        for (number, color) in
            [(16, (0, 0, 0)), (32, (0, 135, 215)), (214, (255, 175, 0)), (231, (255, 255, 255)), (245, (138, 138, 138))]
        {
            assert_eq!(Shades(number, 0).rgb(), color, "{number}");
        }
    }
}
