//! The chosen kernel: its whole name, and where it is under the roof of its device.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{Analysis, Bound, KernelFigures};
use stepscope_plan::text;

use crate::{
    scene::Scene,
    widgets::{below, row, say},
};

/// How many of the available lines it takes.
pub(super) fn height(lines: u16) -> u16 {
    match lines {
        0..8 => 0,
        8..24 => 4,
        _ => 6,
    }
}

/// How many lines of what it comes to are kept for, where a name is long.
const MOST_WORDS: usize = 2;

/// What is waited for.
pub(super) fn word(bound: Bound) -> &'static str {
    match bound {
        Bound::Compute => "compute",
        Bound::Memory => "memory",
    }
}

pub(super) fn draw(scene: &Scene<'_>, kernel: &KernelFigures, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let line = "─".repeat(area.width.into());
    say(buffer, row(area, 0), Line::styled(line, theme.quiet()));
    let area = below(area, 1);
    let width = usize::from(area.width).saturating_sub(2).max(1);
    let words = text::wrapped(&position(kernel, scene.snapshot.analysis.as_deref()), width);
    // A name may be long; what it comes to has one line at least.
    let room = usize::from(area.height).saturating_sub(words.len().min(MOST_WORDS)).max(1);
    let names = in_pieces(&text::printable(&kernel.name), width, room);
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

/// Where it is under the roof, in words.
fn position(kernel: &KernelFigures, analysis: Option<&Analysis>) -> String {
    let roofline = analysis.and_then(|analysis| analysis.roofline.as_ref());
    let is_shared = analysis.is_some_and(|analysis| analysis.run.ranks_on_a_device.is_some());
    let mut words = vec![kernel.family.word().to_owned()];
    if let Some(rate) = kernel.rates.flops_per_second {
        let of = kernel.rates.peak_share.zip(roofline).map(|(share, roofline)| {
            format!(", {} of peak {}", text::percent(share), text::flops(roofline.peak_flops))
        });
        words.push(format!("{}{}", text::flops(rate), of.unwrap_or_default()));
    }
    if let Some(rate) = kernel.rates.bytes_per_second {
        let most = roofline.and_then(|roofline| roofline.memory_bandwidth).filter(|_| kernel.rates.bound.is_some());
        let of = most.map(|most| format!(", {} of bandwidth {}", text::percent(rate / most), text::bandwidth(most)));
        words.push(format!("{}{}", text::bandwidth(rate), of.unwrap_or_default()));
    }
    let ridge = roofline.and_then(|roofline| roofline.ridge);
    if let Some((at, ridge)) = kernel.rates.arithmetic_intensity.zip(ridge) {
        let waits = match kernel.rates.bound {
            Some(Bound::Memory) => ": memory-bound",
            Some(Bound::Compute) => ": compute-bound",
            None => "",
        };
        words.push(format!("{} FLOP/B, ridge at {}{waits}", text::intensity(at), text::intensity(ridge)));
    }
    match words.len() {
        1 => words.push("its FLOPs and bytes are unknown".into()),
        _ if is_shared => words.push("ranks share a GPU, so its peak is unknown".into()),
        _ => {}
    }
    words.join(" · ")
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
