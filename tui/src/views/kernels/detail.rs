//! The chosen group: its whole name, where it is under the roof of its device, and what it is made of.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::ModuleFigures;
use stepscope_plan::text;

use super::{
    group::{Group, GroupKind},
    grouping::Grouping,
    members, roof,
};
use crate::{
    scene::Scene,
    widgets::{below, row, say},
};

/// How many of the available lines it takes.
pub(super) fn height(lines: u16, grouping: Grouping) -> u16 {
    let has_members = matches!(grouping, Grouping::Operator | Grouping::Shapes);
    match lines {
        0..8 => 0,
        12..24 if grouping != Grouping::Kernel => 6,
        8..24 => 4,
        _ if has_members => 8,
        _ => 6,
    }
}

/// How many lines of what it comes to are kept for, where a name is long.
const MOST_WORDS: usize = 2;

pub(super) fn draw(scene: &Scene<'_>, group: &Group<'_>, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let line = "─".repeat(area.width.into());
    say(buffer, row(area, 0), Line::styled(line, theme.quiet()));
    let area = below(area, 1);
    let width = usize::from(area.width).saturating_sub(2).max(1);
    let height = usize::from(area.height);
    let position = roof::position(first_words(group), &group.rates, scene.snapshot.analysis.as_deref());
    let mut words = text::wrapped(&position, width);
    words.extend(members::lines(group, width, height.saturating_sub(1 + words.len())));
    // A name may be long; what it comes to has one line at least.
    let room = height.saturating_sub(words.len().min(MOST_WORDS)).max(1);
    let names = in_pieces(&text::printable(&group.name), width, room);
    let names = names.into_iter().map(|name| Line::from(Span::styled(format!(" {name}"), theme.strong())));
    let words = words.into_iter().map(|words| Line::styled(format!(" {words}"), theme.quiet()));
    for (index, line) in names.chain(words).enumerate() {
        say(buffer, row(area, index as u16), line);
    }
}

/// A text in lines of fixed width, broken anywhere, since names have no spaces. A text that is too long loses its middle.
fn in_pieces(text: &str, width: usize, lines: usize) -> Vec<String> {
    let characters: Vec<char> = text::shortened(text, width * lines).chars().collect();
    characters.chunks(width).map(|piece| piece.iter().collect()).take(lines).collect()
}

/// What kernels they are.
fn first_words(group: &Group<'_>) -> String {
    let mut words = format!("launches {}", text::count(group.count));
    if let Some(small) = group.by_launcher().map(|kernels| kernels.small_count).filter(|count| *count > 0) {
        words += &format!(", {} below 10 µs", text::count(small));
    }
    match group.kind {
        GroupKind::Name(kernel) => kernel.family.word().into(),
        GroupKind::Module(module) => format!("{words}{}", inner_time(module)),
        _ => words,
    }
}

/// How much of a module's time is its own, and how much is of the modules in it; nothing where there are none.
fn inner_time(module: &ModuleFigures) -> String {
    let total = module.kernels.total_ns;
    let inner = total - module.own_ns;
    if inner == 0 {
        return String::new();
    }
    let share = |part: i64| text::percent(part as f64 / total as f64);
    let own = text::duration(module.own_ns);
    format!(" · own {own} ({}), modules in it {} ({})", share(module.own_ns), text::duration(inner), share(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_broken_anywhere() {
        assert_eq!(in_pieces("abcdefgh", 3, 3), ["abc", "def", "gh"]);
        assert_eq!(in_pieces("abcdefghij", 3, 2), ["abc", "d…j"].map(String::from));
        assert!(in_pieces("", 3, 2).is_empty());
        assert!(in_pieces("abc", 3, 0).is_empty());
    }
}
