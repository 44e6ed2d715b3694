//! A line that says what became of something that was asked for.

use ratatui::text::Line;
use stepscope_plan::text;

use crate::theme::Theme;

/// What there is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Something goes on.
    Busy(String),
    /// It is done.
    Done(String),
    /// It cannot be done.
    Failed(String),
}

impl Notice {
    /// Whether it may be forgotten as soon as somebody does something else.
    pub(crate) fn is_over(&self) -> bool {
        !matches!(self, Notice::Busy(_))
    }

    pub(crate) fn line(&self, theme: &Theme) -> Line<'static> {
        let (words, style) = match self {
            Notice::Busy(words) => (words, theme.warning()),
            Notice::Done(words) => (words, theme.good()),
            Notice::Failed(words) => (words, theme.bad()),
        };
        Line::styled(format!(" {}", text::printable(words)), style)
    }
}
