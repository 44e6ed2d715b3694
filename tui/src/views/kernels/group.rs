//! Kernels that stand in one line of the table.

use std::borrow::Cow;

use stepscope_analyzer::{
    KernelFigures, KernelRates, LaunchedKernels, ModuleFigures, OperatorFigures, ShapeFigures, SourceFigures,
};
use stepscope_traces::without_signature;

/// Kernels that stand in one line of the table.
pub(super) struct Group<'a> {
    /// What they have in common, in full.
    pub(super) name: Cow<'a, str>,
    pub(super) count: u64,
    pub(super) total_ns: i64,
    /// Of the time of all kernels.
    pub(super) share: f64,
    pub(super) rates: KernelRates,
    pub(super) kind: GroupKind<'a>,
}

/// What kernels of a group have in common.
pub(super) enum GroupKind<'a> {
    /// Their name.
    Name(&'a KernelFigures),
    /// The operator that launched them.
    Operator(&'a OperatorFigures),
    /// That, and what it was given.
    Shapes(&'a ShapeFigures),
    /// The module.
    Module(&'a ModuleFigures),
    /// The line of the program.
    Line(&'a SourceFigures),
}

impl<'a> Group<'a> {
    pub(super) fn of_name(kernel: &'a KernelFigures) -> Group<'a> {
        Group {
            name: Cow::Borrowed(&kernel.name),
            count: kernel.count,
            total_ns: kernel.total_ns,
            share: kernel.share,
            rates: kernel.rates,
            kind: GroupKind::Name(kernel),
        }
    }

    pub(super) fn of_operator(operator: &'a OperatorFigures) -> Group<'a> {
        let name = operator.operator.as_deref().unwrap_or("no operator");
        Group::launched(name.into(), &operator.kernels, GroupKind::Operator(operator))
    }

    /// None where what the operator was given was not recorded.
    pub(super) fn of_shapes(operator: &'a OperatorFigures, shapes: &'a ShapeFigures) -> Option<Group<'a>> {
        let name = format!("{} {}", operator.operator.as_ref()?, shapes.shapes.as_ref()?);
        Some(Group::launched(name.into(), &shapes.kernels, GroupKind::Shapes(shapes)))
    }

    pub(super) fn of_module(module: &'a ModuleFigures) -> Group<'a> {
        let name = module.module.as_deref().unwrap_or("no module");
        Group::launched(name.into(), &module.kernels, GroupKind::Module(module))
    }

    pub(super) fn of_line(line: &'a SourceFigures) -> Group<'a> {
        let name = line.source.as_deref().unwrap_or("no line");
        Group::launched(name.into(), &line.kernels, GroupKind::Line(line))
    }

    fn launched(name: Cow<'a, str>, kernels: &LaunchedKernels, kind: GroupKind<'a>) -> Group<'a> {
        let LaunchedKernels { count, total_ns, share, rates, .. } = *kernels;
        Group { name, count, total_ns, share, rates, kind }
    }

    /// The kernel whose name they have in common.
    pub(super) fn kernel(&self) -> Option<&'a KernelFigures> {
        match self.kind {
            GroupKind::Name(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// Its kernels by who launched them; none of those that have a name in common.
    pub(super) fn by_launcher(&self) -> Option<&'a LaunchedKernels> {
        match self.kind {
            GroupKind::Name(_) => None,
            GroupKind::Operator(operator) => Some(&operator.kernels),
            GroupKind::Shapes(shapes) => Some(&shapes.kernels),
            GroupKind::Module(module) => Some(&module.kernels),
            GroupKind::Line(line) => Some(&line.kernels),
        }
    }

    /// Its name where there is little room: parameters of a kernel say little, and a module stands below those around it.
    pub(super) fn short_name(&self) -> Cow<'_, str> {
        match self.kind {
            GroupKind::Name(_) => without_signature(&self.name).into(),
            GroupKind::Module(module) => {
                let own = self.name.rsplit('/').next().unwrap_or(&self.name);
                format!("{}{own}", "  ".repeat(module.depth)).into()
            }
            _ => self.name.as_ref().into(),
        }
    }
}
