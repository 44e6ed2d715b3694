//! What was live at the peak, by the lines of the program that asked for it.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{CallerMemory, RankMemory};
use stepscope_plan::text;

use super::GROUP;
use crate::{
    scene::Scene,
    widgets::{below, row, say},
};

/// What stands before the caller.
const CALLER: u16 = 48;

/// Whether anybody is known to have asked.
pub(super) fn are_known(memory: &RankMemory) -> bool {
    !memory.sites_at_peak.is_empty()
}

/// The table: callers with most first, and in the last line those that there is no room for.
pub(super) fn draw(scene: &Scene<'_>, memory: &RankMemory, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let callers = CallerMemory::of(&memory.sites_at_peak);
    let title = Line::from(vec![
        Span::styled(" Who asked for it, at the peak", theme.title()),
        Span::styled(format!("  {GROUP}"), theme.strong()),
        Span::styled(" group by category", theme.quiet()),
    ]);
    say(buffer, row(area, 0), title);
    let lines = below(area, 1);
    let room = usize::from(lines.height);
    let told = if callers.len() > room { room.saturating_sub(1) } else { callers.len() };
    let (told, left_out) = callers.split_at(told);
    for (index, caller) in told.iter().enumerate() {
        let (glyph, style) = theme.filled(theme.category(caller.category));
        let name = caller.caller.map_or_else(|| "(not recorded)".into(), text::printable);
        let line = vec![
            Span::raw(" "),
            Span::styled(glyph.to_string(), style),
            Span::raw(format!(" {:<15}", caller.category.word().replace('_', " "))),
            Span::raw(amounts(caller.bytes, caller.blocks, memory)),
            Span::raw(ending(&name, area.width.saturating_sub(CALLER))),
        ];
        say(buffer, row(lines, index as u16), Line::from(line));
    }
    if !left_out.is_empty() {
        let sum = |of: fn(&CallerMemory<'_>) -> u64| left_out.iter().map(of).sum();
        let amounts = amounts(sum(|caller| caller.bytes), sum(|caller| caller.blocks), memory);
        let others = text::counted(left_out.len() as u64, "other caller");
        let line = format!("   {:<15}{amounts}{others}", "");
        say(buffer, row(lines, told.len() as u16), Line::styled(line, theme.quiet()));
    }
}

fn amounts(bytes: u64, blocks: u64, memory: &RankMemory) -> String {
    let share = text::percent(bytes as f64 / memory.peak_bytes.max(1) as f64);
    format!("{:>9} {share:>6} {:>12}", text::bytes(bytes), text::counted(blocks, "block")) + " "
}

/// The end of a text, which says more of a call than its beginning.
fn ending(text: &str, width: u16) -> String {
    let (length, width) = (text.chars().count(), usize::from(width));
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    "…".chars().take(width).chain(text.chars().skip(length - kept)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_call_is_known_by_its_end() {
        assert_eq!(ending("model.py:3 forward", 18), "model.py:3 forward");
        assert_eq!(ending("model.py:3 forward", 9), "… forward");
        assert_eq!(ending("model.py:3 forward", 0), "");
    }
}
