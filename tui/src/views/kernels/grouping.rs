//! What kernels are grouped by.

use std::cmp::Reverse;

use stepscope_analyzer::{Analysis, OperatorFigures};

use super::group::Group;

/// What kernels are grouped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Their names.
    #[default]
    Kernel,
    /// The operator that launched them.
    Operator,
    /// That, and what it was given.
    Shapes,
    /// The module, within those around it.
    Module,
    /// The line of the program.
    Line,
}

impl Grouping {
    const ALL: [Grouping; 5] =
        [Grouping::Kernel, Grouping::Operator, Grouping::Shapes, Grouping::Module, Grouping::Line];

    /// The one after it of which an analysis has groups, around the end.
    pub(super) fn next(self, analysis: &Analysis) -> Grouping {
        let place = Grouping::ALL.iter().position(|grouping| *grouping == self).unwrap_or(0);
        let after = Grouping::ALL[place + 1..].iter().chain(&Grouping::ALL[..place]);
        after.copied().find(|grouping| grouping.is_in(analysis)).unwrap_or(self)
    }

    /// It, or names where an analysis has no such groups.
    pub(super) fn within(self, analysis: &Analysis) -> Grouping {
        if self.is_in(analysis) { self } else { Grouping::Kernel }
    }

    fn is_in(self, analysis: &Analysis) -> bool {
        !self.groups(analysis).is_empty()
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Grouping::Kernel => "kernel",
            Grouping::Operator => "operator",
            Grouping::Shapes => "operator and shapes",
            Grouping::Module => "module",
            Grouping::Line => "line",
        }
    }

    /// All groups, the most time first; each module before those in it.
    pub(super) fn groups<'a>(self, analysis: &'a Analysis) -> Vec<Group<'a>> {
        match self {
            Grouping::Kernel => analysis.kernels.iter().map(Group::of_name).collect(),
            Grouping::Operator => analysis.operators.iter().map(Group::of_operator).collect(),
            Grouping::Shapes => {
                let of_operator = |operator: &'a OperatorFigures| {
                    operator.shapes.iter().filter_map(|shapes| Group::of_shapes(operator, shapes))
                };
                let mut groups: Vec<Group<'a>> = analysis.operators.iter().flat_map(of_operator).collect();
                groups.sort_by_key(|group| Reverse(group.total_ns));
                groups
            }
            Grouping::Module => analysis.modules.iter().map(Group::of_module).collect(),
            Grouping::Line => analysis.sources.iter().map(Group::of_line).collect(),
        }
    }
}
