//! All that is known of an incident.

use ratatui::{buffer::Buffer, layout::Rect, style::Style, text::Line};
use stepscope_analyzer::KnownIncident;
use stepscope_plan::text;
use stepscope_traces::RankStacks;

use crate::{
    scene::Scene,
    widgets::{row, say, say_right},
};

/// So many calls of a thread are shown, the innermost first.
const MOST_CALLS: usize = 8;

/// Draws as much as there is room for, and says how much there is not.
pub(super) fn draw(scene: &Scene<'_>, known: &KnownIncident, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    say(buffer, row(area, 0), Line::styled("─".repeat(area.width.into()), theme.quiet()));
    let width = usize::from(area.width).saturating_sub(2).max(1);
    let lines: Vec<(String, Style)> = paragraphs(scene, known)
        .into_iter()
        .flat_map(|(words, style)| text::wrapped(&words, width).into_iter().map(move |words| (words, style)))
        .collect();
    let room = usize::from(area.height).saturating_sub(1);
    let hidden = lines.len().saturating_sub(room);
    if hidden > 0 {
        let words = format!(" {} more: stepscope incidents ", text::counted(hidden as u64, "line"));
        say_right(buffer, row(area, 0), Line::styled(words, theme.warning()));
    }
    for (index, (words, style)) in lines.into_iter().take(room).enumerate() {
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
