//! How things look: the same thing has the same color everywhere, and a letter for whoever sees none.
//!
//! The colors are those of Okabe and Ito, which people with any kind of color blindness tell apart, as the nearest of
//! the 256 that nearly every terminal has.

use ratatui::style::{Color, Modifier, Style};
use stepscope_analyzer::{Class, Pass};
use stepscope_traces::{Family, MemoryCategory, Phase, State};

/// A set of colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThemeName {
    /// For dark terminals.
    Dark,
    /// For light terminals.
    Light,
    /// Without colors: what is drawn is drawn in letters.
    Plain,
}

impl ThemeName {
    /// Every theme.
    pub const ALL: [ThemeName; 3] = [ThemeName::Dark, ThemeName::Light, ThemeName::Plain];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            ThemeName::Dark => "dark",
            ThemeName::Light => "light",
            ThemeName::Plain => "plain",
        }
    }

    /// The one that suits a terminal, by what it says of itself in the variables NO_COLOR and COLORFGBG.
    pub fn suited_to(no_color: Option<&str>, colors: Option<&str>) -> ThemeName {
        let background = colors.and_then(|colors| colors.rsplit(';').next()?.parse::<u8>().ok());
        match (no_color, background) {
            (Some(set), _) if !set.is_empty() => ThemeName::Plain,
            (_, Some(7 | 15)) => ThemeName::Light,
            _ => ThemeName::Dark,
        }
    }
}

/// How something is told from its neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) color: Color,
    pub(crate) letter: char,
}

/// How things look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    name: ThemeName,
}

/// Two shades of a color: on a dark ground, and on a light one.
type Shades = (u8, u8);

const BLUE: Shades = (32, 25);
const LIGHT_BLUE: Shades = (75, 68);
const LIGHT_ORANGE: Shades = (222, 179);
const SKY: Shades = (117, 67);
const GREEN: Shades = (36, 29);
const YELLOW: Shades = (221, 136);
const ORANGE: Shades = (214, 172);
const VERMILION: Shades = (202, 166);
const PURPLE: Shades = (175, 132);
const BROWN: Shades = (137, 94);
const TEAL: Shades = (80, 30);
const GREY: Shades = (245, 243);
const SHADOW: Shades = (238, 250);
const RED: Shades = (203, 160);
const OLIVE: Shades = (142, 100);
const PINK: Shades = (218, 162);
const INDIGO: Shades = (105, 61);
const MINT: Shades = (121, 35);
const SAND: Shades = (180, 137);
const ROSE: Shades = (174, 131);

impl Theme {
    pub(crate) fn new(name: ThemeName) -> Theme {
        Theme { name }
    }

    /// Whether there are colors.
    pub(crate) fn has_colors(&self) -> bool {
        self.name != ThemeName::Plain
    }

    fn color(&self, (dark, light): Shades) -> Color {
        match self.name {
            ThemeName::Dark => Color::Indexed(dark),
            ThemeName::Light => Color::Indexed(light),
            ThemeName::Plain => Color::Reset,
        }
    }

    fn mark(&self, shades: Shades, letter: char) -> Mark {
        Mark { color: self.color(shades), letter }
    }

    fn colored(&self, shades: Shades) -> Style {
        if self.has_colors() { Style::new().fg(self.color(shades)) } else { Style::new() }
    }

    /// What time went to. The letters are those of the figures' definitions.
    pub(crate) fn class(&self, class: Class) -> Mark {
        match class {
            Class::Compute => self.mark(BLUE, 'C'),
            Class::Communication => self.mark(VERMILION, 'N'),
            Class::Copy => self.mark(PURPLE, 'M'),
        }
    }

    /// Time in which nothing ran.
    pub(crate) fn idle(&self) -> Mark {
        self.mark(SHADOW, '.')
    }

    /// What memory is for.
    pub(crate) fn category(&self, category: MemoryCategory) -> Mark {
        match category {
            MemoryCategory::Parameters => self.mark(BLUE, 'P'),
            MemoryCategory::Gradients => self.mark(GREEN, 'G'),
            MemoryCategory::OptimizerState => self.mark(SKY, 'O'),
            MemoryCategory::Activations => self.mark(ORANGE, 'A'),
            MemoryCategory::Communication => self.mark(VERMILION, 'N'),
            MemoryCategory::Workspace => self.mark(PURPLE, 'W'),
            MemoryCategory::Inputs => self.mark(YELLOW, 'I'),
            MemoryCategory::Other => self.mark(GREY, 'x'),
        }
    }

    /// What kind of work a kernel is.
    pub(crate) fn family(&self, family: Family) -> Mark {
        match family {
            Family::Matmul => self.mark(BLUE, 'M'),
            Family::Attention => self.mark(SKY, 'A'),
            Family::Elementwise => self.mark(GREEN, 'E'),
            Family::Norm => self.mark(TEAL, 'R'),
            Family::Optimizer => self.mark(ORANGE, 'O'),
            Family::Loss => self.mark(YELLOW, 'L'),
            Family::Embedding => self.mark(BROWN, 'B'),
            Family::Convolution => self.mark(INDIGO, 'V'),
            Family::Recurrence => self.mark(SAND, 'U'),
            Family::Routing => self.mark(ROSE, 'X'),
            Family::Quantization => self.mark(OLIVE, 'Q'),
            Family::Reduction => self.mark(MINT, 'S'),
            Family::Sort => self.mark(PINK, 'K'),
            Family::Communication => self.mark(VERMILION, 'N'),
            Family::Copy => self.mark(PURPLE, 'C'),
            Family::Other => self.mark(GREY, 'x'),
        }
    }

    /// A pass through a stage; neighbors differ, so that one can tell where one ends.
    pub(crate) fn pass(&self, pass: Pass, is_even: bool) -> Mark {
        match (pass, is_even) {
            (Pass::Forward, true) => self.mark(BLUE, 'F'),
            (Pass::Forward, false) => self.mark(LIGHT_BLUE, 'F'),
            (Pass::Backward, true) => self.mark(ORANGE, 'B'),
            (Pass::Backward, false) => self.mark(LIGHT_ORANGE, 'B'),
        }
    }

    /// A phase of the training.
    pub(crate) fn phase(&self, phase: Phase) -> Style {
        self.colored(match phase {
            Phase::Forward => BLUE,
            Phase::Backward => ORANGE,
            Phase::Recompute => YELLOW,
            Phase::Optimizer => GREEN,
            Phase::Data => PURPLE,
            Phase::Evaluation => TEAL,
            Phase::Checkpoint => BROWN,
        })
    }

    /// How much of something there is, from none of it to all: a color that gets warmer, and a digit.
    pub(crate) fn level(&self, share: f64) -> Mark {
        const SHADES: [Shades; 5] = [SHADOW, TEAL, YELLOW, ORANGE, RED];
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        let shades = SHADES[((share * SHADES.len() as f64) as usize).min(SHADES.len() - 1)];
        let digit = b'0' + ((share * 10.0) as u8).min(9);
        self.mark(shades, char::from(digit))
    }

    /// A cell that is so much of something: its digit, on its color.
    pub(crate) fn leveled(&self, mark: Mark) -> Style {
        if !self.has_colors() {
            return Style::new();
        }
        // Where there is none of it, its digit is there, and no more than that.
        let ink = if mark.color == self.color(SHADOW) { self.color(GREY) } else { Color::Indexed(16) };
        Style::new().fg(ink).bg(mark.color)
    }

    /// What became of a run: how it looks, and a shape for it.
    pub(crate) fn state(&self, state: State) -> (Style, char) {
        match state {
            State::Recording => (self.good(), '●'),
            State::Complete => (self.good(), '✔'),
            State::Interrupted => (self.bad(), '✖'),
        }
    }

    /// A filled piece of something.
    pub(crate) fn filled(&self, mark: Mark) -> (char, Style) {
        if self.has_colors() { ('█', Style::new().fg(mark.color)) } else { (mark.letter, Style::new()) }
    }

    /// A letter on a filled piece of some color.
    pub(crate) fn letter_on(&self, color: Color) -> Style {
        if self.has_colors() { Style::new().fg(Color::Indexed(16)).bg(color) } else { Style::new() }
    }

    /// What is read first.
    pub(crate) fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Of a part of the screen.
    pub(crate) fn title(&self) -> Style {
        self.colored(SKY).add_modifier(Modifier::BOLD)
    }

    /// What is read last.
    pub(crate) fn quiet(&self) -> Style {
        self.colored(GREY)
    }

    /// What is well.
    pub(crate) fn good(&self) -> Style {
        self.colored(GREEN).add_modifier(Modifier::BOLD)
    }

    /// What to look at.
    pub(crate) fn warning(&self) -> Style {
        self.colored(ORANGE).add_modifier(Modifier::BOLD)
    }

    /// What is wrong.
    pub(crate) fn bad(&self) -> Style {
        self.colored(RED).add_modifier(Modifier::BOLD)
    }

    /// What is looked at, among things that have colors of their own: a piece of a bar, or words, on the ground that they have.
    /// White and black are among the 16 colors that every terminal has.
    pub(crate) fn picked(&self, symbol: &str, ground: Color) -> Style {
        let (ink, paper) = match self.name {
            ThemeName::Dark => (Color::White, Color::Black),
            ThemeName::Light => (Color::Black, Color::White),
            ThemeName::Plain => return Style::new(),
        };
        match (is_block(symbol), ground) {
            (true, Color::Reset) => Style::new().fg(ink),
            (true, _) => Style::new().fg(ink).bg(ink),
            (false, _) => Style::new().fg(paper).bg(ink),
        }
    }

    /// What is chosen.
    pub(crate) fn chosen(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Whether something is a piece of a bar: reversed, it would be a hole.
pub(crate) fn is_block(symbol: &str) -> bool {
    symbol.chars().next().is_some_and(|first| ('▀'..='▟').contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_colours_are_told_apart() {
        for name in ThemeName::ALL {
            let theme = Theme::new(name);
            let categories = MemoryCategory::ALL.iter().map(|category| theme.category(*category));
            let families = Family::ALL.iter().map(|family| theme.family(*family));
            let classes = [Class::Compute, Class::Communication, Class::Copy].map(|class| theme.class(class));
            let time = classes.into_iter().chain([theme.idle()]);
            for marks in [categories.collect::<Vec<_>>(), families.collect(), time.collect()] {
                for (index, mark) in marks.iter().enumerate() {
                    assert!(marks[..index].iter().all(|other| other.letter != mark.letter), "{mark:?}");
                    let same = marks[..index].iter().any(|other| other.color == mark.color);
                    assert!(!theme.has_colors() || !same, "{mark:?}");
                }
            }
        }
    }

    #[test]
    fn a_terminal_says_what_suits_it() {
        assert_eq!(ThemeName::suited_to(None, None), ThemeName::Dark);
        assert_eq!(ThemeName::suited_to(Some(""), Some("0;15")), ThemeName::Light);
        assert_eq!(ThemeName::suited_to(None, Some("15;default;0")), ThemeName::Dark);
        assert_eq!(ThemeName::suited_to(Some("1"), Some("0;15")), ThemeName::Plain);
    }
}
