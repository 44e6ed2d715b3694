//! How things look: the same thing has the same color everywhere, and a letter for whoever sees none.

use ratatui::style::{Color, Modifier, Style};
use stepscope_analyzer::{Class, Pass};
use stepscope_traces::{Family, MemoryCategory, Phase, State};

use crate::palette::{self, BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, RED, SHADOW, SKY, Shades, TEAL, YELLOW};

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

impl Theme {
    pub(crate) fn new(name: ThemeName) -> Theme {
        Theme { name }
    }

    /// Whether there are colors.
    pub(crate) fn has_colors(&self) -> bool {
        self.name != ThemeName::Plain
    }

    fn color(&self, Shades(dark, light): Shades) -> Color {
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
        let letter = match class {
            Class::Compute => 'C',
            Class::Communication => 'N',
            Class::Copy => 'M',
        };
        self.mark(palette::class(class), letter)
    }

    /// Time in which nothing ran.
    pub(crate) fn idle(&self) -> Mark {
        self.mark(SHADOW, '.')
    }

    /// What memory is for.
    pub(crate) fn category(&self, category: MemoryCategory) -> Mark {
        let letter = match category {
            MemoryCategory::Parameters => 'P',
            MemoryCategory::Gradients => 'G',
            MemoryCategory::OptimizerState => 'O',
            MemoryCategory::Activations => 'A',
            MemoryCategory::Communication => 'N',
            MemoryCategory::Workspace => 'W',
            MemoryCategory::Inputs => 'I',
            MemoryCategory::Other => 'x',
        };
        self.mark(palette::category(category), letter)
    }

    /// What kind of work a kernel is.
    pub(crate) fn family(&self, family: Family) -> Mark {
        let letter = match family {
            Family::Matmul => 'M',
            Family::Attention => 'A',
            Family::Elementwise => 'E',
            Family::Norm => 'R',
            Family::Optimizer => 'O',
            Family::Loss => 'L',
            Family::Embedding => 'B',
            Family::Convolution => 'V',
            Family::Recurrence => 'U',
            Family::Routing => 'X',
            Family::Quantization => 'Q',
            Family::Reduction => 'S',
            Family::Sort => 'K',
            Family::Communication => 'N',
            Family::Copy => 'C',
            Family::Other => 'x',
        };
        self.mark(palette::family(family), letter)
    }

    /// A pass through a stage.
    pub(crate) fn pass(&self, pass: Pass, is_even: bool) -> Mark {
        let letter = match pass {
            Pass::Forward => 'F',
            Pass::Backward => 'B',
            Pass::Weights => 'W',
        };
        self.mark(palette::pass(pass, is_even), letter)
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
