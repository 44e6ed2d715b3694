//! What went wrong, the newest first: what happened, what that rests on, and where threads were.

mod account;

use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, MouseEvent},
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::KnownIncident;
use stepscope_plan::text;
use stepscope_traces::{Incident, Nanos, RunSource};

use super::{StepOrRank, ViewBody};
use crate::{
    keys::{Action, Binding},
    scene::Scene,
    widgets::{Column, Cursor, Scroll, Side, Table, below, row, say, say_right},
};

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = &[
    Binding {
        keys: &[KeyCode::Up, KeyCode::Char('k')],
        action: Action::Up,
        short: "select",
        long: "previous incident; of a single one, scroll its account up",
    },
    Binding {
        keys: &[KeyCode::Down, KeyCode::Char('j')],
        action: Action::Down,
        short: "select",
        long: "next incident; of a single one, scroll its account down",
    },
    Binding {
        keys: &[KeyCode::PageUp, KeyCode::Char('u')],
        action: Action::PageUp,
        short: "scroll",
        long: "scroll the account up",
    },
    Binding {
        keys: &[KeyCode::PageDown, KeyCode::Char('d')],
        action: Action::PageDown,
        short: "scroll",
        long: "scroll the account down",
    },
    Binding { keys: &[KeyCode::Home, KeyCode::Char('g')], action: Action::Top, short: "", long: "newest incident" },
    Binding { keys: &[KeyCode::End, KeyCode::Char('G')], action: Action::Bottom, short: "", long: "oldest incident" },
];

const COLUMNS: [Column; 4] = [
    Column { header: "time, UTC", width: 9, side: Side::Left, left_out: 1 },
    Column { header: "kind", width: 15, side: Side::Left, left_out: 0 },
    Column { header: "step", width: 7, side: Side::Right, left_out: 2 },
    Column { header: "what happened", width: 30, side: Side::Grows, left_out: 0 },
];
const SUMMARY: usize = 3;
const STEP: usize = 2;

/// What went wrong.
#[derive(Default)]
pub(crate) struct Incidents {
    cursor: Cursor,
    /// How far the account of the chosen one is scrolled.
    account: Scroll,
    /// Where lines are, and which is the first, for the mouse.
    lines: Rect,
    first: usize,
}

impl ViewBody for Incidents {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let all = scene.snapshot.run.as_ref().map_or(&[][..], |run| &run.incidents);
        let title = [
            Span::styled(" Incidents", theme.title()),
            Span::styled(format!("  {}, the newest first", all.len()), theme.quiet()),
        ];
        say(buffer, row(area, 0), Line::from_iter(title.into_iter().take(if all.is_empty() { 1 } else { 2 })));
        if all.is_empty() {
            for (line, words) in nothing(scene, area.width).into_iter().enumerate() {
                say(buffer, row(below(area, 1), line as u16), Line::styled(format!(" {words}"), theme.quiet()));
            }
            return;
        }
        let has_steps = all.iter().any(|kept| kept.incident.step.is_some());
        let table = Table::new(theme, &COLUMNS, |column| column != STEP || has_steps, area.width);
        table.draw_header(buffer, row(area, 1), None);
        let room = all.len().min(usize::from(area.height / 3).max(1));
        self.lines = Rect { height: room as u16, ..below(area, 2) };
        let seen = self.cursor.seen(all.len(), room);
        self.first = seen.start;
        let hidden = all.len() - seen.end;
        if hidden > 0 {
            say_right(buffer, row(area, 0), Line::styled(format!("↓ {hidden} more "), theme.warning()));
        }
        let newest_first: Vec<&KnownIncident> = all.iter().rev().collect();
        for (line, index) in seen.enumerate() {
            let cells = cells(scene, &newest_first[index].incident, table.width(SUMMARY));
            table.draw(buffer, row(self.lines, line as u16), cells, self.cursor.chosen() == Some(index));
        }
        if let Some(kept) = self.cursor.chosen().and_then(|index| newest_first.get(index)) {
            account::draw(scene, kept, &mut self.account, below(area, 2 + room as u16), buffer);
        }
    }

    fn act(&mut self, action: Action, scene: &Scene<'_>) {
        let is_single = scene.snapshot.run.as_ref().is_some_and(|run| run.incidents.len() == 1);
        match action {
            Action::PageUp => self.account.by_pages(-1),
            Action::PageDown => self.account.by_pages(1),
            Action::Up if is_single => self.account.by(-1),
            Action::Down if is_single => self.account.by(1),
            other => {
                self.cursor.act(other);
                self.account = Scroll::default();
            }
        }
    }

    fn click(&mut self, event: &MouseEvent, _scene: &Scene<'_>) -> Option<StepOrRank> {
        if self.lines.contains((event.column, event.row).into()) {
            self.cursor.choose(self.first + usize::from(event.row - self.lines.y));
            self.account = Scroll::default();
        }
        None
    }
}

fn cells(scene: &Scene<'_>, incident: &Incident, width: u16) -> Vec<Line<'static>> {
    let summary = text::printable(&incident.summary);
    let room = usize::from(width).max(2);
    // All of it is below: here it ends with a whole word.
    let summary = match &text::wrapped(&summary, room)[..] {
        [_, _, ..] => text::wrapped(&summary, room - 1).swap_remove(0) + "…",
        _ => summary,
    };
    vec![
        Line::raw(time_of_day(incident.time_ns)),
        Line::styled(incident.kind.word(), scene.theme.bad()),
        Line::raw(incident.step.map_or_else(|| "-".into(), |step| step.to_string())),
        Line::raw(summary),
    ]
}

/// Why there is nothing to show.
fn nothing(scene: &Scene<'_>, width: u16) -> Vec<String> {
    let is_ours = scene.snapshot.run.as_ref().is_some_and(|run| run.source == RunSource::Stepscope);
    let words = match is_ours {
        true => "none recorded: `stepscope record` and `train --black-box` watch for slow steps, hangs and crashes",
        false => "none: only jobs that Stepscope records are watched",
    };
    text::wrapped(words, usize::from(width).saturating_sub(2).max(1))
}

/// The time of day in UTC, of nanoseconds since 1970.
fn time_of_day(time: Nanos) -> String {
    let seconds = time.0.div_euclid(Nanos::SECOND.0).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_at_midnight() {
        assert_eq!(time_of_day(Nanos(0)), "00:00:00");
        assert_eq!(time_of_day(Nanos((86_400 + 3_723) * Nanos::SECOND.0)), "01:02:03");
    }
}
