//! All that is known of an incident.

use ratatui::{buffer::Buffer, layout::Rect, style::Style, text::Line};
use stepscope_analyzer::KnownIncident;
use stepscope_plan::text;
use stepscope_traces::RankStacks;

use crate::{
    scene::Scene,
    widgets::{Scroll, right_of, row, say},
};

/// So many calls of a thread are shown, the innermost first.
const MOST_CALLS: usize = 8;

/// Draws as much as there is room for, and says how much is below.
pub(super) fn draw(scene: &Scene<'_>, known: &KnownIncident, scroll: &mut Scroll, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    say(buffer, row(area, 0), Line::styled("─".repeat(area.width.into()), theme.quiet()));
    let width = usize::from(area.width).saturating_sub(2).max(1);
    let lines: Vec<(String, Style)> = paragraphs(scene, known)
        .into_iter()
        .flat_map(|(words, style)| text::wrapped(&words, width).into_iter().map(move |words| (words, style)))
        .collect();
    let seen = scroll.seen(lines.len(), area.height.saturating_sub(1).into());
    let hidden = lines.len() - seen.end;
    if hidden > 0 {
        let words = Line::styled(format!(" ↓ {} ", text::counted(hidden as u64, "more line")), theme.warning());
        let place = right_of(row(area, 0), area.width.saturating_sub(words.width() as u16));
        say(buffer, place, words);
    }
    for (index, (words, style)) in lines.into_iter().skip(seen.start).take(seen.len()).enumerate() {
        say(buffer, row(area, index as u16 + 1), Line::styled(format!(" {words}"), style));
    }
}

fn paragraphs(scene: &Scene<'_>, known: &KnownIncident) -> Vec<(String, Style)> {
    let (theme, incident) = (scene.theme, &known.incident);
    let mut all = vec![(text::printable(&incident.summary), theme.strong())];
    let quiet = |words: String| (words, theme.quiet());
    if !incident.ranks.is_empty() {
        let ranks: Vec<u32> = incident.ranks.iter().map(|rank| rank.0).collect();
        all.push((format!("at fault: {}", text::named_ranks(&ranks)), theme.warning()));
    }
    all.extend(incident.evidence.iter().map(|why| (text::printable(why), Style::new())));
    if incident.ended_job {
        all.push((String::from("the job ended with it"), theme.bad()));
    }
    all.extend(incident.stacks.iter().flat_map(threads).map(quiet));
    let run = scene.snapshot.run.as_ref().map(|run| run.path.as_path());
    if let Some(path) = &known.path {
        let path = run.and_then(|run| path.strip_prefix(run).ok()).unwrap_or(path);
        all.push(quiet(format!("kept in {} of the run", text::printable(&path.display().to_string()))));
    }
    all
}

/// Where the threads of a rank were.
fn threads(stacks: &RankStacks) -> Vec<String> {
    let mut lines = Vec::new();
    for thread in &stacks.python {
        lines.push(format!("rank {}, Python thread {}:", stacks.rank, text::printable(&thread.name)));
        lines.extend(thread.calls.iter().take(MOST_CALLS).map(|call| format!("  {}", text::printable(call))));
    }
    for thread in &stacks.native {
        let (name, does) = (text::printable(&thread.name), text::printable(&thread.does));
        lines.push(format!("rank {}, {} {name}: {does}", stacks.rank, text::counted(thread.count, "thread")));
    }
    lines
}
