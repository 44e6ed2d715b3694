//! What was live at the peak: by category beside what was predicted, as the device counts, and the largest blocks.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::{Block, RankMemory};
use stepscope_plan::text;
use stepscope_traces::{MemoryCategory, State};

use super::{GROUP, callers};
use crate::{
    scene::Scene,
    theme::Theme,
    widgets::{fitting, row, say},
};

/// How wide the table is.
pub(super) const WIDTH: u16 = 62;
/// How wide what stands beside it is.
pub(super) const DETAILS: u16 = 46;
/// How many lines that asks for, if the ledger needs no more.
const MOST_DETAILS: u16 = 16;

/// The categories that something is known of, in order: what is there, and what was predicted.
fn rows(memory: &RankMemory) -> Vec<(MemoryCategory, u64, u64, Option<u64>)> {
    let predicted = |category: MemoryCategory| {
        let plan = memory.predicted.as_ref()?;
        let named = plan.categories().into_iter().find(|(name, _)| *name == category.word());
        named.map(|(_, bytes)| bytes)
    };
    let of = |map: &std::collections::BTreeMap<MemoryCategory, u64>, category| map.get(category).copied().unwrap_or(0);
    let all = MemoryCategory::ALL
        .iter()
        .map(|category| (*category, of(&memory.at_peak, category), of(&memory.at_end, category), predicted(*category)));
    all.filter(|(_, peak, end, predicted)| *peak > 0 || *end > 0 || predicted.unwrap_or(0) > 0).collect()
}

/// How many lines the table takes, or the details beside it; where there is no room beside it, with the ledger below.
pub(super) fn height(memory: &RankMemory, is_narrow: bool) -> u16 {
    let table = rows(memory).len() as u16 + 2;
    if is_narrow { table + 1 } else { table.max(details_height(memory).min(MOST_DETAILS.max(ledger_height(memory)))) }
}

/// The table: each category at the peak, its share, what was predicted, and at the end.
pub(super) fn draw(scene: &Scene<'_>, memory: &RankMemory, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let is_recording = scene.snapshot.state() == Some(State::Recording);
    let has_prediction = memory.predicted.is_some();
    let now = if is_recording { "now" } else { "at end" };
    let predicted = if has_prediction { "predicted" } else { "" };
    let (key, group) = if callers::are_known(memory) { (GROUP, " by caller") } else { (' ', "") };
    let header = format!("{group:<16}{:>9} {:>6} {predicted:>9} {now:>9}", "at peak", "share");
    let key = Span::styled(format!(" {key}"), theme.strong());
    say(buffer, row(area, 0), Line::from(vec![key, Span::styled(header, theme.quiet())]));
    let peak = memory.peak_bytes.max(1) as f64;
    let rows = rows(memory);
    for (index, (category, bytes, end, plan)) in rows.iter().enumerate() {
        let (glyph, style) = theme.filled(theme.category(*category));
        let name = category.word().replace('_', " ");
        let plan = plan.map_or_else(String::new, text::bytes);
        let line = Line::from(vec![
            Span::raw(" "),
            Span::styled(glyph.to_string(), style),
            Span::raw(format!(" {name:<15}{:>9} {:>6}", text::bytes(*bytes), text::percent(*bytes as f64 / peak))),
            Span::styled(format!(" {plan:>9}"), theme.quiet()),
            Span::raw(format!(" {:>9}", text::bytes(*end))),
        ]);
        say(buffer, row(area, index as u16 + 1), line);
    }
    draw_total(scene, memory, row(area, rows.len() as u16 + 1), buffer);
}

fn draw_total(scene: &Scene<'_>, memory: &RankMemory, place: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let end: u64 = memory.at_end.values().sum();
    let plan = memory.predicted.as_ref().map(|plan| plan.total());
    let written = plan.map_or_else(String::new, text::bytes);
    let mut spans = vec![
        Span::styled(format!(" {:<17}{:>9} {:>6}", "all", text::bytes(memory.peak_bytes), ""), theme.strong()),
        Span::styled(format!(" {written:>9}"), theme.quiet()),
        Span::styled(format!(" {:>9}", text::bytes(end)), theme.strong()),
    ];
    if let Some(plan) = plan.filter(|plan| *plan > 0) {
        let change = memory.peak_bytes as f64 / plan as f64 - 1.0;
        // More than was planned for is what makes a run end.
        let style = if change > 0.1 { theme.warning() } else { theme.quiet() };
        spans.push(Span::styled(format!(" {:>7}", text::percent_more(change)), style));
    }
    say(buffer, place, Line::from(spans));
}

/// Memory in use on the device at the peak, in one line.
pub(super) fn draw_ledger_line(scene: &Scene<'_>, memory: &RankMemory, area: Rect, buffer: &mut Buffer) {
    let Some(ledger) = &memory.ledger else { return };
    let quiet = |words: String| Span::styled(words, scene.theme.quiet());
    let pieces = [
        Span::styled(format!(" device {}", text::bytes(ledger.device_used_bytes)), scene.theme.strong()),
        quiet(format!(", of which fragmentation {}", text::bytes(ledger.fragmentation_bytes))),
        quiet(format!(", driver and libraries {}", text::bytes(ledger.driver_and_libraries()))),
        quiet(format!(", residual {}", text::larger(ledger.residual_bytes))),
    ];
    say(buffer, row(area, 0), fitting(pieces, area.width));
}

/// How many lines the ledger takes: with a title, what is allocated, the sum, and nothing.
fn ledger_height(memory: &RankMemory) -> u16 {
    memory.ledger.as_ref().map_or(0, |ledger| 4 + ledger.lines().len() as u16)
}

/// How many lines the details take.
fn details_height(memory: &RankMemory) -> u16 {
    ledger_height(memory) + if memory.largest_at_peak.is_empty() { 0 } else { 1 + memory.largest_at_peak.len() as u16 }
}

/// The ledger, and the largest blocks.
pub(super) fn draw_details(scene: &Scene<'_>, memory: &RankMemory, area: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let mut lines: Vec<Line<'static>> = Vec::new();
    if let Some(ledger) = &memory.ledger {
        let line = |name: &str, bytes: String| Line::raw(format!("{name:<24}{bytes:>10}"));
        lines.push(Line::styled("Memory in use on the device", theme.title()));
        lines.push(line("allocated", text::bytes(ledger.allocated_bytes)));
        for (name, bytes) in ledger.lines() {
            let sign = if bytes < 0 { "-" } else { "" };
            lines.push(line(&format!("+ {name}"), format!("{sign}{}", text::bytes(bytes.unsigned_abs()))));
        }
        let used = line("= used on the device", text::bytes(ledger.device_used_bytes));
        lines.push(used.style(theme.strong()));
        lines.push(Line::default());
    }
    if !memory.largest_at_peak.is_empty() {
        lines.push(Line::styled("Largest blocks at the peak", theme.title()));
        lines.extend(memory.largest_at_peak.iter().map(|block| block_line(block, theme)));
    }
    for (index, line) in lines.into_iter().enumerate() {
        say(buffer, row(area, index as u16), line);
    }
}

fn block_line(block: &Block, theme: &Theme) -> Line<'static> {
    let (glyph, style) = theme.filled(theme.category(block.category));
    let layer = block.layer.map_or_else(String::new, |layer| format!(", layer {layer}"));
    let phase = block.phase.map_or_else(String::new, |phase| format!(", {phase}"));
    Line::from(vec![
        Span::raw(format!("{:>9} ", text::bytes(block.bytes))),
        Span::styled(glyph.to_string(), style),
        Span::raw(format!(" {}{layer}{phase}", block.category.word().replace('_', " "))),
    ])
}
