//! Findings, in plain words.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::WaterfallRow;
use stepscope_plan::text;
use stepscope_traces::{Rank, State};

use crate::{
    data::RunFacts,
    scene::Scene,
    widgets::{Scroll, below, row, say, say_right},
};

/// Findings, and how far they are scrolled.
#[derive(Default)]
pub(super) struct Findings {
    scroll: Scroll,
}

impl Findings {
    pub(super) fn scroll_by(&mut self, lines: isize) {
        self.scroll.by(lines);
    }

    /// How many lines it would take, with its title.
    pub(super) fn height(&self, scene: &Scene<'_>, width: u16, has_parts: bool) -> u16 {
        1 + u16::try_from(lines(scene, width, has_parts).len()).unwrap_or(u16::MAX - 1)
    }

    /// Draws them; after them the parts of a step, where those stand nowhere else.
    pub(super) fn draw(&mut self, scene: &Scene<'_>, area: Rect, has_parts: bool, buffer: &mut Buffer) {
        let lines = lines(scene, area.width, has_parts);
        let seen = self.scroll.seen(lines.len(), area.height.saturating_sub(1).into());
        say(buffer, row(area, 0), Line::styled(" Findings", scene.theme.title()));
        let hidden = lines.len() - seen.end;
        if hidden > 0 {
            say_right(
                buffer,
                row(area, 0),
                Line::styled(format!("↓ {} ", text::counted(hidden as u64, "line")), scene.theme.warning()),
            );
        }
        for (index, line) in lines.into_iter().skip(seen.start).take(seen.len()).enumerate() {
            say(buffer, row(below(area, 1), index as u16), line);
        }
    }
}

/// So many parts of a step are told where there is no room for its waterfall.
const MOST_PARTS: usize = 6;
/// So many incidents are told.
const MOST_INCIDENTS: usize = 3;
/// So many ranks are named.
const NAMED: usize = 8;

/// How an interrupted run is reported, with its ranks.
fn interrupted(run: &RunFacts) -> String {
    let named: Vec<String> = run.interrupted.iter().take(NAMED).map(Rank::to_string).collect();
    let more = run.interrupted.len().saturating_sub(NAMED);
    match (named.as_slice(), more) {
        ([], _) => "the run was interrupted: ranks are missing".into(),
        ([rank], _) => format!("the run was interrupted: rank {rank} did not finish"),
        (_, 0) => format!("the run was interrupted: ranks {} did not finish", named.join(", ")),
        (_, more) => format!("the run was interrupted: ranks {} and {more} more did not finish", named.join(", ")),
    }
}

/// What went wrong, the newest first.
fn incidents(scene: &Scene<'_>, room: usize) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let all = scene.snapshot.run.as_ref().map_or(&[][..], |run| &run.incidents);
    let mut lines = Vec::new();
    for incident in all.iter().rev().take(MOST_INCIDENTS).map(|kept| &kept.incident) {
        let words = format!("{}: {}", incident.kind.word(), text::printable(&incident.summary));
        for (line, words) in text::wrapped(&words, room).into_iter().enumerate() {
            let mark = if line == 0 { " ! " } else { "   " };
            lines.push(Line::from(vec![Span::styled(mark, theme.bad()), Span::styled(words, theme.strong())]));
        }
        for words in incident.evidence.iter().take(1).flat_map(|why| text::wrapped(&text::printable(why), room)) {
            lines.push(Line::styled(format!("   {words}"), theme.quiet()));
        }
    }
    if let Some(more @ 1..) = all.len().checked_sub(MOST_INCIDENTS) {
        let words = format!("   {} before, in Incidents", text::counted(more as u64, "incident"));
        lines.push(Line::styled(words, theme.quiet()));
    }
    lines
}

/// How the run ended, where it did not end well; what went wrong; every finding: what it is, the figures it rests on, what to
/// try; and the parts of a step, if they are asked for.
fn lines(scene: &Scene<'_>, width: u16, has_parts: bool) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let Some(analysis) = &scene.snapshot.analysis else {
        return vec![Line::styled(" Nothing yet: no spans recorded.", theme.quiet())];
    };
    let room = usize::from(width).saturating_sub(5).max(1);
    let mut lines = Vec::new();
    // How a run ended comes before how fast it was.
    let run = scene.snapshot.run.as_ref().filter(|run| run.state == State::Interrupted);
    let is_interrupted = run.is_some();
    if let Some(run) = run {
        for (line, words) in text::wrapped(&interrupted(run), room).into_iter().enumerate() {
            let mark = if line == 0 { " ✖ " } else { "   " };
            lines.push(Line::from(vec![Span::styled(mark, theme.bad()), Span::styled(words, theme.strong())]));
        }
    }
    lines.extend(incidents(scene, room));
    if analysis.findings.is_empty() {
        let (mark, nothing) = if is_interrupted { (" - ", "Nothing else") } else { (" ✔ ", "Nothing") };
        let style = if is_interrupted { theme.quiet() } else { theme.good() };
        let words = Span::raw(format!("{nothing} stands out in {}.", scene.scope()));
        lines.push(Line::from(vec![Span::styled(mark, style), words]));
    }
    for (index, finding) in analysis.findings.iter().enumerate() {
        for (line, words) in text::wrapped(&text::printable(&finding.summary), room).into_iter().enumerate() {
            let mark = if line == 0 { format!(" {} ", index + 1) } else { "   ".into() };
            lines.push(Line::from(vec![Span::styled(mark, theme.warning()), Span::styled(words, theme.strong())]));
        }
        let details = [finding.evidence.text.clone(), format!("try: {}", finding.advice)];
        for words in details.iter().flat_map(|detail| text::wrapped(&text::printable(detail), room)) {
            lines.push(Line::styled(format!("   {words}"), theme.quiet()));
        }
    }
    if has_parts {
        let parts = WaterfallRow::lines(&analysis.waterfall, MOST_PARTS).into_iter();
        let parts: Vec<String> = parts.map(|line| format!("{} {:.1}", line.words, line.points)).collect();
        let words = format!("a step, in points: {}", parts.join(", "));
        let words = text::wrapped(&words, room).into_iter().filter(|_| !parts.is_empty());
        lines.extend(words.map(|words| Line::styled(format!(" {words}"), theme.quiet())));
    }
    lines
}
