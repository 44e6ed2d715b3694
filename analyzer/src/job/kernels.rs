//! Kernels by name and by family.
//!
//! For users, it is defined in `docs/src/metrics.md#kernels`.

use std::collections::{BTreeMap, HashMap};

use crate::{
    figures::{Bound, Family, FamilyFigures, KernelFigures, Roofline},
    job::roofline::{bound, roof_share},
    rank::kernel_sums::{KernelSum, KernelTable},
};

/// Kernels by name and by family over all ranks, the most time first.
pub(crate) fn kernels(tables: &[KernelTable], roofline: Option<&Roofline>) -> (Vec<KernelFigures>, Vec<FamilyFigures>) {
    let whole: i64 = tables.iter().flat_map(HashMap::values).map(|sum| sum.total_ns).sum();
    let share = |total: i64| if whole > 0 { total as f64 / whole as f64 } else { 0.0 };
    let peak_share = |sum: &KernelSum| Some(sum.flops_per_second()? / roofline?.peak_flops);
    // In the order of names, so that sums of fractions are the same each time.
    let mut by_name: BTreeMap<(&str, Family), Vec<&KernelSum>> = BTreeMap::new();
    for ((name, family), sum) in tables.iter().flatten() {
        by_name.entry((name, *family)).or_default().push(sum);
    }
    let mut by_family: BTreeMap<Family, KernelSum> = BTreeMap::new();
    let mut kernels: Vec<KernelFigures> = Vec::new();
    for ((name, family), of_ranks) in by_name {
        let mut sum = KernelSum::default();
        of_ranks.iter().for_each(|of_rank| sum.add(of_rank));
        by_family.entry(family).or_default().add(&sum);
        // A rank without such a kernel spent nothing on it.
        let absent = (of_ranks.len() < tables.len()).then_some(0);
        let times = || of_ranks.iter().map(|of_rank| of_rank.total_ns).chain(absent);
        let (flops, bytes) = (sum.flops_per_second(), sum.bytes_per_second());
        let bound = roofline.and_then(|roofline| bound_of(&sum, family, roofline));
        kernels.push(KernelFigures {
            name: name.to_owned(),
            family,
            count: sum.count,
            total_ns: sum.total_ns,
            mean_ns: sum.total_ns as f64 / sum.count.max(1) as f64,
            share: share(sum.total_ns),
            least_rank_ns: times().min().unwrap_or(0),
            most_rank_ns: times().max().unwrap_or(0),
            flops_per_second: flops,
            peak_share: peak_share(&sum),
            bytes_per_second: bytes,
            arithmetic_intensity: sum.arithmetic_intensity(),
            bound,
            roof_share: roofline.zip(bound).and_then(|(roofline, bound)| roof_share(roofline, bound, flops, bytes)),
        });
    }
    kernels.sort_by(|one, other| other.total_ns.cmp(&one.total_ns).then_with(|| one.name.cmp(&other.name)));
    let mut families: Vec<FamilyFigures> = by_family
        .iter()
        .map(|(family, sum)| FamilyFigures {
            family: *family,
            count: sum.count,
            total_ns: sum.total_ns,
            share: share(sum.total_ns),
            flops_per_second: sum.flops_per_second(),
            peak_share: peak_share(sum),
        })
        .collect();
    families.sort_by_key(|family| (-family.total_ns, family.family));
    (kernels, families)
}

/// What kernels wait for: what has bytes and no FLOPs at all waits for memory.
fn bound_of(sum: &KernelSum, family: Family, roofline: &Roofline) -> Option<Bound> {
    let computes = !matches!(family, Family::Communication | Family::Copy);
    let without_flops = (sum.flops_ns == 0 && sum.bytes_ns > 0).then_some(0.0);
    computes.then(|| bound(roofline, sum.arithmetic_intensity().or(without_flops)?))?
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{Device, Span, SpanKind};

    use super::*;
    use crate::{
        job::roofline::roofline,
        test_runs::{TestRun, ranks, span},
    };

    /// A kernel of 600 FLOPs and 100 bytes in 10 ns, and the same that says nothing of itself.
    #[test]
    fn rates_are_of_what_is_known() {
        let known = Span { flops: Some(600), bytes: Some(100), ..span(SpanKind::Kernel, 0, 10) };
        let unknown = span(SpanKind::Kernel, 20, 50);
        let kernel = &TestRun::of(&[], &ranks(&[&[known, unknown]])).analyze().kernels[0];
        assert_eq!((kernel.count, kernel.total_ns), (2, 40));
        assert_eq!(kernel.flops_per_second, Some(60e9));
        assert_eq!(kernel.bytes_per_second, Some(10e9));
        assert_eq!(kernel.arithmetic_intensity, Some(6.0));
        assert_eq!((kernel.peak_share, kernel.bound, kernel.roof_share), (None, None, None), "of no known device");
    }

    #[test]
    fn a_kernel_waits_for_memory_or_for_arithmetic() {
        let device = Device { name: "NVIDIA H200".into(), memory_bytes: None, peak_flops: None };
        let roofline = roofline(Some(960e12), Some(&device)).unwrap();
        let sum = |flops: f64, bytes: f64| KernelSum {
            flops,
            flops_ns: i64::from(flops > 0.0),
            bytes,
            bytes_ns: i64::from(bytes > 0.0),
            both: if flops > 0.0 { (flops, bytes) } else { (0.0, 0.0) },
            ..KernelSum::default()
        };
        assert_eq!(bound_of(&sum(300.0, 1.0), Family::Matmul, &roofline), Some(Bound::Compute));
        assert_eq!(bound_of(&sum(100.0, 1.0), Family::Matmul, &roofline), Some(Bound::Memory));
        assert_eq!(bound_of(&sum(0.0, 1.0), Family::Elementwise, &roofline), Some(Bound::Memory));
        assert_eq!(bound_of(&sum(0.0, 1.0), Family::Copy, &roofline), None, "its bytes cross a link");
        assert_eq!(bound_of(&sum(300.0, 0.0), Family::Matmul, &roofline), None, "its bytes are not known");
    }
}
