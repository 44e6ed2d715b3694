//! Kernels by module: a tree, in which each module has the time of those in it.
//!
//! For users, it is defined in `docs/src/metrics.md#operators-modules-and-lines`.

use std::collections::BTreeMap;

use crate::{
    figures::ModuleFigures,
    job::{
        launched::{JobKernel, JobKernels},
        operators::has,
    },
};

/// No modules are nested deeper, whatever a file says.
const MOST_NESTED: usize = 128;

/// Kernels by module, each module before those in it, the most time first; none, where none is known.
pub(crate) fn modules(job: &JobKernels<'_>) -> Vec<ModuleFigures> {
    if !has(job, |origin| origin.module) {
        return Vec::new();
    }
    let mut tree = Branch::default();
    for kernel in &job.kernels {
        let path = kernel.origin.and_then(|origin| origin.module);
        let path: Vec<&str> = path.into_iter().flat_map(|path| path.split('/')).take(MOST_NESTED).collect();
        tree.add(&path, kernel);
    }
    let mut modules = Vec::new();
    tree.write(job, "", 0, &mut modules);
    if !tree.own.is_empty() {
        let kernels = job.together(tree.own.iter().copied());
        modules.push(ModuleFigures { module: None, depth: 0, own_ns: kernels.total_ns, kernels });
    }
    modules
}

/// A module: what it launched itself, and those in it.
#[derive(Default)]
struct Branch<'k, 'a> {
    own: Vec<&'k JobKernel<'a>>,
    inner: BTreeMap<&'a str, Branch<'k, 'a>>,
}

impl<'k, 'a> Branch<'k, 'a> {
    fn add(&mut self, path: &[&'a str], kernel: &'k JobKernel<'a>) {
        match path {
            [] => self.own.push(kernel),
            [first, rest @ ..] => self.inner.entry(first).or_default().add(rest, kernel),
        }
    }

    fn all(&self, into: &mut Vec<&'k JobKernel<'a>>) {
        into.extend(&self.own);
        self.inner.values().for_each(|inner| inner.all(into));
    }

    /// Writes the modules in this one.
    fn write(&self, job: &JobKernels<'a>, path: &str, depth: usize, into: &mut Vec<ModuleFigures>) {
        let mut inner: Vec<(i64, &str, &Branch<'k, 'a>, Vec<&JobKernel<'a>>)> = Vec::new();
        for (name, branch) in &self.inner {
            let mut all = Vec::new();
            branch.all(&mut all);
            inner.push((-all.iter().map(|kernel| kernel.sum.total_ns).sum::<i64>(), name, branch, all));
        }
        inner.sort_by_key(|(time, name, ..)| (*time, *name));
        for (_, name, branch, all) in inner {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            let own_ns = branch.own.iter().map(|kernel| kernel.sum.total_ns).sum();
            into.push(ModuleFigures { module: Some(path.clone()), depth, own_ns, kernels: job.together(all) });
            branch.write(job, &path, depth + 1, into);
        }
    }
}
