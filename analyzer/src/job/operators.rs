//! Kernels by the operator that launched them, by what it was given, and by the line of the program.
//!
//! For users, it is defined in `docs/src/metrics.md#operators-modules-and-lines`.

use std::collections::BTreeMap;

use stepscope_traces::Origin;

use crate::{
    figures::{LaunchedKernels, OperatorFigures, ShapeFigures, SourceFigures},
    job::launched::{JobKernel, JobKernels},
};

type Groups<'k, 'a> = BTreeMap<Option<&'a str>, Vec<&'k JobKernel<'a>>>;

/// Kernels by some part of their origin.
fn grouped<'k, 'a>(
    kernels: impl IntoIterator<Item = &'k JobKernel<'a>>,
    part: impl Fn(&Origin<'a>) -> Option<&'a str>,
) -> Groups<'k, 'a>
where
    'a: 'k,
{
    let mut groups = Groups::new();
    for kernel in kernels {
        groups.entry(kernel.origin.as_ref().and_then(&part)).or_default().push(kernel);
    }
    groups
}

/// Whether any kernel has a part of an origin.
pub(crate) fn has<'a>(job: &JobKernels<'a>, part: impl Fn(&Origin<'a>) -> Option<&'a str>) -> bool {
    job.kernels.iter().any(|kernel| kernel.origin.as_ref().and_then(&part).is_some())
}

/// Kernels by operator, the most time first; none, where no operator is known.
pub(crate) fn operators(job: &JobKernels<'_>) -> Vec<OperatorFigures> {
    if !has(job, |origin| origin.operator) {
        return Vec::new();
    }
    let by_operator = grouped(&job.kernels, |origin| origin.operator);
    let mut operators: Vec<OperatorFigures> = by_operator
        .into_iter()
        .map(|(operator, kernels)| OperatorFigures {
            operator: operator.map(str::to_owned),
            kernels: job.together(kernels.iter().copied()),
            shapes: shapes(job, &kernels),
        })
        .collect();
    sort(&mut operators, |operator| (&operator.kernels, operator.operator.clone()));
    operators
}

fn shapes(job: &JobKernels<'_>, kernels: &[&JobKernel<'_>]) -> Vec<ShapeFigures> {
    let by_shapes = grouped(kernels.iter().copied(), |origin| origin.shapes);
    let mut shapes: Vec<ShapeFigures> = by_shapes
        .into_iter()
        .map(|(shapes, kernels)| ShapeFigures {
            shapes: shapes.map(str::to_owned),
            kernels: job.together(kernels.iter().copied()),
            names: names(&kernels),
        })
        .collect();
    sort(&mut shapes, |shapes| (&shapes.kernels, shapes.shapes.clone()));
    shapes
}

/// The names of kernels, the most time first.
fn names(kernels: &[&JobKernel<'_>]) -> Vec<String> {
    let mut times: BTreeMap<&str, i64> = BTreeMap::new();
    for kernel in kernels {
        *times.entry(&kernel.key.name).or_default() += kernel.sum.total_ns;
    }
    let mut times: Vec<(&str, i64)> = times.into_iter().collect();
    times.sort_by_key(|(name, time)| (-time, *name));
    times.into_iter().map(|(name, _)| name.to_owned()).collect()
}

/// Kernels by function of the program, the most time first; none, where none is known.
pub(crate) fn sources(job: &JobKernels<'_>) -> Vec<SourceFigures> {
    if !has(job, |origin| origin.source) {
        return Vec::new();
    }
    let by_source = grouped(&job.kernels, |origin| origin.source);
    let mut sources: Vec<SourceFigures> = by_source
        .into_iter()
        .map(|(source, kernels)| SourceFigures { source: source.map(str::to_owned), kernels: job.together(kernels) })
        .collect();
    sort(&mut sources, |source| (&source.kernels, source.source.clone()));
    sources
}

/// The most time first, and what has no name last of what takes as long.
fn sort<T>(groups: &mut [T], key: impl Fn(&T) -> (&LaunchedKernels, Option<String>)) {
    groups.sort_by_cached_key(|group| {
        let (kernels, name) = key(group);
        (-kernels.total_ns, name.is_none(), name)
    });
}
