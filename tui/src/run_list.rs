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
use stepscope_traces::State;

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

/// How wide the word for what became of a run is.
const STATE: usize = "interrupted".len();

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

    /// Takes in what became of a run.
    pub(crate) fn learn(&mut self, path: &Path, state: State) {
        self.runs.iter_mut().filter(|run| run.path == path).for_each(|run| run.state = Some(state));
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
            say(buffer, row(inner, line as u16), fitting(pieces(&self.runs[index], theme), inner.width));
            if self.cursor.chosen() == Some(index) {
                buffer.set_style(row(inner, line as u16), theme.chosen());
            }
        }
    }
}

/// A run: when it began, what became of it, what it is, how long it is to be, and where it is.
fn pieces(run: &RunChoice, theme: &Theme) -> Vec<Span<'static>> {
    let RunChoice { path, name, started, planned_steps, state } = run;
    let time: String = started.chars().take(TIME).collect::<String>().replace('T', " ");
    let folder = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let (style, shape, word) = match state {
        None => (theme.quiet(), ' ', ""),
        Some(state) => {
            let (style, shape) = theme.state(*state);
            (style, shape, state.word())
        }
    };
    let steps = match (planned_steps, state) {
        (Some(steps), Some(State::Complete)) => format!("  {}", text::counted(*steps, "step")),
        (Some(steps), _) => format!("  of {}", text::counted(*steps, "step")),
        (None, _) => String::new(),
    };
    vec![
        Span::raw(format!(" {time:<TIME$}")),
        Span::styled(format!("  {shape} {word:<STATE$}"), style),
        Span::styled(format!("  {}", text::printable(name)), theme.strong()),
        Span::raw(steps),
        Span::styled(format!("  {}", text::printable(&folder)), theme.quiet()),
    ]
}
