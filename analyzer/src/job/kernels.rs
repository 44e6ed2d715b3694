//! Kernels by name and by family.
//!
//! For users, it is defined in `docs/src/metrics.md#kernels`.

use std::collections::BTreeMap;

use stepscope_traces::Family;

use crate::{
    figures::{FamilyFigures, KernelFigures},
    job::{
        launched::{JobKernel, JobKernels},
        roofline::{WorkRate, peak, rates},
    },
    rank::kernel_sums::KernelSum,
};

/// Kernels by name and by family over all ranks, the most time first.
pub(crate) fn kernels(job: &JobKernels<'_>) -> (Vec<KernelFigures>, Vec<FamilyFigures>) {
    let mut by_name: BTreeMap<(&str, Family), Vec<&JobKernel<'_>>> = BTreeMap::new();
    for kernel in &job.kernels {
        by_name.entry((&kernel.key.name, kernel.kind.family)).or_default().push(kernel);
    }
    let mut kernels: Vec<KernelFigures> =
        by_name.into_iter().map(|((name, family), same)| of_name(job, name, family, &same)).collect();
    kernels.sort_by(|one, other| other.total_ns.cmp(&one.total_ns).then_with(|| one.name.cmp(&other.name)));
    (kernels, families(job))
}

fn of_name(job: &JobKernels<'_>, name: &str, family: Family, same: &[&JobKernel<'_>]) -> KernelFigures {
    let mut sum = KernelSum::default();
    same.iter().for_each(|kernel| sum.add(&kernel.sum));
    let times = of_ranks(same);
    // A rank without such a kernel spent nothing on it.
    let absent = (times.len() < job.ranks).then_some(0);
    let times = || times.iter().copied().chain(absent);
    let features = same.iter().find_map(|kernel| kernel.kind.gemm).unwrap_or_default();
    let numbers = same.iter().find_map(|kernel| kernel.numbers);
    KernelFigures {
        name: name.to_owned(),
        family,
        library: same.iter().find_map(|kernel| kernel.kind.library),
        precision: numbers,
        tile: features.tile,
        count: sum.count,
        total_ns: sum.total_ns,
        mean_ns: sum.total_ns as f64 / sum.count.max(1) as f64,
        share: job.share(sum.total_ns),
        least_rank_ns: times().min().unwrap_or(0),
        most_rank_ns: times().max().unwrap_or(0),
        rates: rates(
            WorkRate::of_name(&sum),
            !matches!(family, Family::Communication | Family::Copy),
            job.roofline.as_ref().map(|roofline| peak(roofline, numbers)),
            job.roofline.as_ref(),
        ),
    }
}

/// The time of each rank that has some of the kernels.
fn of_ranks(same: &[&JobKernel<'_>]) -> Vec<i64> {
    let mut times: BTreeMap<usize, i64> = BTreeMap::new();
    for (rank, time) in same.iter().flat_map(|kernel| &kernel.of_ranks) {
        *times.entry(*rank).or_default() += time;
    }
    times.into_values().collect()
}

fn families(job: &JobKernels<'_>) -> Vec<FamilyFigures> {
    let mut by_family: BTreeMap<Family, Vec<&JobKernel<'_>>> = BTreeMap::new();
    for kernel in &job.kernels {
        by_family.entry(kernel.kind.family).or_default().push(kernel);
    }
    let mut families: Vec<FamilyFigures> = by_family
        .into_iter()
        .map(|(family, same)| {
            let together = job.together(same);
            FamilyFigures {
                family,
                count: together.count,
                total_ns: together.total_ns,
                share: together.share,
                flops_per_second: together.rates.flops_per_second,
                peak_share: together.rates.peak_share,
            }
        })
        .collect();
    families.sort_by_key(|family| (-family.total_ns, family.family));
    families
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{Span, SpanKind};

    use crate::test_runs::{TestRun, ranks, span};

    /// A kernel of 600 FLOPs and 100 bytes in 10 ns, and the same that says nothing of itself.
    #[test]
    fn rates_are_of_what_is_known() {
        let known = Span { flops: Some(600), bytes: Some(100), ..span(SpanKind::Kernel, 0, 10) };
        let unknown = span(SpanKind::Kernel, 20, 50);
        let kernel = &TestRun::of(&[], &ranks(&[&[known, unknown]])).analyze().kernels[0];
        assert_eq!((kernel.count, kernel.total_ns), (2, 40));
        let rates = kernel.rates;
        assert_eq!((rates.flops_per_second, rates.bytes_per_second), (Some(60e9), Some(10e9)));
        assert_eq!(rates.arithmetic_intensity, Some(6.0));
        assert_eq!((rates.peak_share, rates.bound, rates.roof_share), (None, None, None), "of no known device");
    }
}
