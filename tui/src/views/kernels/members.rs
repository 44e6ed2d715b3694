//! What a group is made of: shapes and kernels.

use stepscope_analyzer::ShapeFigures;
use stepscope_plan::text;
use stepscope_traces::without_signature;

use super::{
    group::{Group, GroupKind},
    roof,
};

/// How many shapes of an operator are shown at most.
const MOST_SHAPES: usize = 3;

/// What a group is made of, the most time first, in lines of fixed width.
pub(super) fn lines(group: &Group<'_>, width: usize, room: usize) -> Vec<String> {
    match group.kind {
        GroupKind::Operator(operator) => {
            let recorded = operator.shapes.iter().filter_map(|given| Some((given, given.shapes.as_deref()?)));
            // Kernels have one line at least.
            let shown = recorded.take(room.saturating_sub(1).min(MOST_SHAPES));
            let mut lines: Vec<String> = shown.map(|(given, shapes)| shapes_line(given, shapes, width)).collect();
            lines.extend(name_lines(&operator.shapes, width, room.saturating_sub(lines.len())));
            lines
        }
        GroupKind::Shapes(shapes) => name_lines(std::slice::from_ref(shapes), width, room),
        GroupKind::Name(_) | GroupKind::Module(_) | GroupKind::Line(_) => Vec::new(),
    }
}

/// Shapes, after how long they take and how fast they are.
fn shapes_line(given: &ShapeFigures, shapes: &str, width: usize) -> String {
    let known = |words: Option<String>| words.unwrap_or_else(|| "-".into());
    let kernels = &given.kernels;
    let (rate, roof) = (known(roof::rate(&kernels.rates)), known(roof::words(&kernels.rates)));
    let numbers = format!("{:>8} {rate:>14} {roof:>14}  ", text::duration(kernels.total_ns));
    let left = width.saturating_sub(numbers.chars().count());
    format!("{numbers}{}", text::shortened(&text::printable(shapes), left))
}

/// The names of kernels, one a line; the last line says how many more there are.
fn name_lines(given: &[ShapeFigures], width: usize, room: usize) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for name in given.iter().flat_map(|given| &given.names).map(|name| without_signature(name)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let hidden = names.len().saturating_sub(room);
    let line = |(index, name): (usize, &&str)| {
        let more = if hidden > 0 && index + 1 == room { format!("  and {hidden} more") } else { String::new() };
        let left = width.saturating_sub(more.chars().count());
        format!("{}{more}", text::shortened(&text::printable(name), left))
    };
    names.iter().take(room).enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use stepscope_analyzer::LaunchedKernels;

    use super::*;

    fn given(names: &[&str]) -> ShapeFigures {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        ShapeFigures { shapes: None, kernels: LaunchedKernels::default(), names }
    }

    #[test]
    fn kernels_are_named_once_and_counted_where_there_is_no_room() {
        let given = [given(&["gemm(int)", "add"]), given(&["add", "reduce_kernel"])];
        assert_eq!(name_lines(&given, 20, 3), ["gemm", "add", "reduce_kernel"]);
        assert_eq!(name_lines(&given, 20, 2), ["gemm", "add  and 1 more"]);
        assert_eq!(name_lines(&given, 14, 1), ["g…  and 2 more"].map(String::from));
        assert!(name_lines(&given, 20, 0).is_empty());
    }
}
