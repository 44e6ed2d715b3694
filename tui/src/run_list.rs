//! The runs of a folder, over what is seen, to choose one.

use std::path::Path;

use ratatui::{
    buffer::Buffer,
    crossterm::event::KeyCode,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Widget},
};
use stepscope_plan::text;

use crate::{
    data::RunChoice,
    keys::{Action, Binding, list_keys},
    theme::Theme,
    widgets::{Cursor, centered, fitting, row, say},
};

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = list_keys![
    "select",
    Binding { keys: &[KeyCode::Enter], action: Action::Take, short: "open", long: "open the selected run" },
];

/// How wide the list is at most.
const WIDEST: u16 = 100;
/// How much of a time is shown: up to its seconds.
const TIME: usize = "2026-11-14T10:22:07".len();

/// The runs of a folder.
pub(crate) struct RunList {
    runs: Vec<RunChoice>,
    cursor: Cursor,
}

impl RunList {
    /// Of these runs, the one that is shown is under the cursor.
    pub(crate) fn new(runs: Vec<RunChoice>, shown: Option<&Path>) -> RunList {
        let mut cursor = Cursor::default();
        cursor.seen(runs.len(), 1);
        let is_shown = |run: &RunChoice| shown.is_some_and(|shown| run.path.file_name() == shown.file_name());
        cursor.choose(runs.iter().position(is_shown).unwrap_or(0));
        RunList { runs, cursor }
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.cursor.act(action);
    }

    /// The run under the cursor.
    pub(crate) fn chosen(&self) -> Option<&Path> {
        self.runs.get(self.cursor.chosen()?).map(|run| run.path.as_path())
    }

    /// Draws it in the middle of an area.
    pub(crate) fn draw(&mut self, theme: &Theme, area: Rect, buffer: &mut Buffer) {
        let lines = u16::try_from(self.runs.len()).unwrap_or(u16::MAX).max(1);
        let place = centered(area, area.width.min(WIDEST), lines.saturating_add(2).min(area.height));
        Clear.render(place, buffer);
        let title = " runs, the newest first: enter opens one, esc closes ";
        let block = Block::bordered().border_type(BorderType::Rounded).title(title).border_style(theme.title());
        let inner = block.inner(place);
        block.render(place, buffer);
        if self.runs.is_empty() {
            say(buffer, row(inner, 0), Line::styled(" no other runs in this folder", theme.quiet()));
        }
        for (line, index) in self.cursor.seen(self.runs.len(), inner.height.into()).enumerate() {
            let RunChoice { path, name, started } = &self.runs[index];
            let time: String = started.chars().take(TIME).collect::<String>().replace('T', " ");
            let folder = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let pieces = [
                Span::raw(format!(" {time:<TIME$}")),
                Span::styled(format!("  {}", text::printable(name)), theme.strong()),
                Span::styled(format!("  {}", text::printable(&folder)), theme.quiet()),
            ];
            say(buffer, row(inner, line as u16), fitting(pieces, inner.width));
            if self.cursor.chosen() == Some(index) {
                buffer.set_style(row(inner, line as u16), theme.chosen());
            }
        }
    }
}
