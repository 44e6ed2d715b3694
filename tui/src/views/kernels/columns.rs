//! The columns of the table, and what stands in them.

use ratatui::text::Line;
use stepscope_analyzer::KernelFigures;
use stepscope_plan::text;

use super::{group::Group, grouping::Grouping, roof};
use crate::{
    scene::Scene,
    widgets::{Column, Side, Table},
};

const MARK: usize = 0;
pub(super) const NAME: usize = 1;
pub(super) const TOTAL: usize = 2;
const BAR: usize = 4;
pub(super) const COUNT: usize = 5;
pub(super) const MEAN: usize = 6;
const SMALL: usize = 7;
const IDLE: usize = 8;
pub(super) const RATE: usize = 9;
const INTENSITY: usize = 10;
pub(super) const ROOF: usize = 11;
const SPREAD: usize = 12;

/// The columns of every grouping; each has those in which there is something to say. The one by which lines are sorted stays
/// longest.
pub(super) fn columns(grouping: Grouping, sorted: Option<usize>) -> [Column; 13] {
    let (name, count) = match grouping {
        Grouping::Kernel => ("kernel", "count"),
        other => (other.words(), "launches"),
    };
    let mut columns = [
        Column { header: "", width: 1, side: Side::Left, left_out: 0 },
        // Names say what it is: everything else but the time goes first.
        Column { header: name, width: 40, side: Side::Grows, left_out: 0 },
        Column { header: "total", width: 8, side: Side::Right, left_out: 1 },
        Column { header: "share", width: 6, side: Side::Right, left_out: 1 },
        Column { header: "", width: 10, side: Side::Left, left_out: 9 },
        Column { header: count, width: 9, side: Side::Right, left_out: 3 },
        Column { header: "mean", width: 8, side: Side::Right, left_out: 2 },
        Column { header: "below 10 µs", width: 11, side: Side::Right, left_out: 6 },
        Column { header: "idle before", width: 11, side: Side::Right, left_out: 4 },
        Column { header: "rate", width: 14, side: Side::Right, left_out: 5 },
        Column { header: "FLOP/B", width: 7, side: Side::Right, left_out: 7 },
        Column { header: "of roofline", width: 15, side: Side::Right, left_out: 2 },
        Column { header: "range over ranks", width: 23, side: Side::Right, left_out: 8 },
    ];
    sorted.into_iter().for_each(|sorted| columns[sorted].left_out = 0);
    columns
}

/// A group that is at most so near to its roof, and takes time that matters, makes one look.
const FAR_FROM_ROOF: f64 = 0.3;
const MATTERS: f64 = 0.05;

/// Whether there is something to say in a column.
pub(super) fn has_something(column: usize, groups: &[Group<'_>], several_ranks: bool) -> bool {
    let has_names = groups.iter().any(|group| group.kernel().is_some());
    let launched = || groups.iter().filter_map(Group::by_launcher);
    match column {
        MARK | BAR | MEAN => has_names,
        SMALL => launched().any(|kernels| kernels.small_count > 0),
        IDLE => launched().any(|kernels| kernels.idle_before_ns > 0),
        RATE => groups.iter().any(|group| roof::rate(&group.rates).is_some()),
        INTENSITY => has_names && groups.iter().any(|group| group.rates.arithmetic_intensity.is_some()),
        ROOF => groups.iter().any(|group| roof::share(&group.rates).is_some()),
        SPREAD => has_names && several_ranks,
        _ => true,
    }
}

/// What stands in the columns of a table. `longest`: the largest share of all groups.
pub(super) fn cells(scene: &Scene<'_>, group: &Group<'_>, table: &Table<'_>, longest: f64) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let known = |value: Option<String>| value.map_or_else(|| Line::styled("-", theme.quiet()), Line::raw);
    let (kernel, launched) = (group.kernel(), group.by_launcher());
    let [mark, bar] = kernel.map_or_else(Default::default, |kernel| {
        let length = kernel.share / longest * f64::from(table.width(BAR));
        family_cells(scene, kernel, length.round() as usize)
    });
    let is_slow = group.rates.roof_share.is_some_and(|share| share < FAR_FROM_ROOF) && group.share > MATTERS;
    let roof = match roof::words(&group.rates) {
        Some(words) if is_slow => Line::styled(format!("! {words}"), theme.warning()),
        words => known(words),
    };
    let spread = |kernel: &KernelFigures| {
        format!("{} to {}", text::duration(kernel.least_rank_ns), text::duration(kernel.most_rank_ns))
    };
    vec![
        mark,
        Line::raw(text::shortened(&text::printable(&group.short_name()), table.width(NAME).into())),
        Line::raw(text::duration(group.total_ns)),
        Line::raw(text::percent(group.share)),
        bar,
        Line::raw(text::count(group.count)),
        known(kernel.map(|kernel| text::duration(kernel.mean_ns as i64))),
        known(launched.map(|kernels| kernels.small_count).filter(|count| *count > 0).map(text::count)),
        known(launched.map(|kernels| kernels.idle_before_ns).filter(|idle| *idle > 0).map(text::duration)),
        known(roof::rate(&group.rates)),
        known(group.rates.arithmetic_intensity.map(text::intensity)),
        roof,
        known(kernel.map(spread)),
    ]
}

/// The letter of a kernel's family, and a bar of it.
fn family_cells(scene: &Scene<'_>, kernel: &KernelFigures, length: usize) -> [Line<'static>; 2] {
    let theme = scene.theme;
    let mark = theme.family(kernel.family);
    let (glyph, style) = theme.filled(mark);
    let letter = if theme.has_colors() { mark.letter } else { glyph };
    [Line::styled(letter.to_string(), style), Line::styled(glyph.to_string().repeat(length), style)]
}
