//! Kernels by name and by family.

use polars::prelude::*;

use crate::{
    error::AnalysisError,
    figures::{Bound, Family, FamilyFigures, KernelFigures, Roofline},
    job::{
        roofline::{bound, roof_share},
        row_groups::row_groups,
    },
    rank::kernel_sums::KernelSum,
};

/// Kernels by name and by family over all ranks, the most time first.
pub(crate) fn kernels(
    tables: &[DataFrame],
    roofline: Option<&Roofline>,
) -> Result<(Vec<KernelFigures>, Vec<FamilyFigures>), AnalysisError> {
    let mut all = DataFrame::empty();
    for table in tables {
        all.vstack_mut(table)?;
    }
    if all.height() == 0 {
        return Ok((Vec::new(), Vec::new()));
    }
    all.rechunk_mut();
    let columns = KernelColumns::of(&all)?;
    let whole: i64 = columns.total_ns.iter().sum();
    let share = |total: i64| if whole > 0 { total as f64 / whole as f64 } else { 0.0 };
    let mut kernels: Vec<KernelFigures> = Vec::new();
    for rows in row_groups(&all, ["name", "family"])? {
        let sum = columns.sum(&rows);
        let of_ranks = || rows.iter().map(|row| columns.total_ns[*row as usize]);
        // A rank without such a kernel spent nothing on it.
        let least = if rows.len() < tables.len() { Some(0) } else { of_ranks().min() };
        let (family, flops, bytes) = (columns.family(rows[0]), sum.flops_per_second(), sum.bytes_per_second());
        let bound = roofline.and_then(|roofline| bound_of(&sum, family, roofline));
        kernels.push(KernelFigures {
            name: columns.name.get(rows[0] as usize).unwrap_or_default().to_owned(),
            family,
            count: sum.count,
            total_ns: sum.total_ns,
            mean_ns: sum.total_ns as f64 / sum.count.max(1) as f64,
            share: share(sum.total_ns),
            least_rank_ns: least.unwrap_or(0),
            most_rank_ns: of_ranks().max().unwrap_or(0),
            flops_per_second: flops,
            peak_share: flops.zip(roofline).map(|(flops, roofline)| flops / roofline.peak_flops),
            bytes_per_second: bytes,
            arithmetic_intensity: sum.arithmetic_intensity(),
            bound,
            roof_share: roofline.zip(bound).and_then(|(roofline, bound)| roof_share(roofline, bound, flops, bytes)),
        });
    }
    kernels.sort_by(|one, other| other.total_ns.cmp(&one.total_ns).then_with(|| one.name.cmp(&other.name)));
    let mut families: Vec<FamilyFigures> = Vec::new();
    for rows in row_groups(&all, ["family"])? {
        let sum = columns.sum(&rows);
        families.push(FamilyFigures {
            family: columns.family(rows[0]),
            count: sum.count,
            total_ns: sum.total_ns,
            share: share(sum.total_ns),
            flops_per_second: sum.flops_per_second(),
            peak_share: sum.flops_per_second().zip(roofline).map(|(flops, roofline)| flops / roofline.peak_flops),
        });
    }
    families.sort_by_key(|family| (-family.total_ns, family.family));
    Ok((kernels, families))
}

/// What kernels wait for: what has bytes and no FLOPs at all waits for memory.
fn bound_of(sum: &KernelSum, family: Family, roofline: &Roofline) -> Option<Bound> {
    let computes = !matches!(family, Family::Communication | Family::Copy);
    let without_flops = (sum.flops_ns == 0 && sum.bytes_ns > 0).then_some(0.0);
    computes.then(|| bound(roofline, sum.arithmetic_intensity().or(without_flops)?))?
}

/// The columns of a table of sums.
struct KernelColumns<'a> {
    name: &'a StringChunked,
    family: &'a StringChunked,
    count: &'a [u64],
    total_ns: &'a [i64],
    flops: &'a [f64],
    flops_ns: &'a [i64],
    bytes: &'a [f64],
    bytes_ns: &'a [i64],
    both: [&'a [f64]; 2],
}

impl<'a> KernelColumns<'a> {
    fn of(table: &'a DataFrame) -> Result<KernelColumns<'a>, AnalysisError> {
        let floats = |name: &str| Ok::<_, AnalysisError>(table.column(name)?.f64()?.cont_slice()?);
        Ok(KernelColumns {
            name: table.column("name")?.str()?,
            family: table.column("family")?.str()?,
            count: table.column("count")?.u64()?.cont_slice()?,
            total_ns: table.column("total_ns")?.i64()?.cont_slice()?,
            flops: floats("flops")?,
            flops_ns: table.column("flops_ns")?.i64()?.cont_slice()?,
            bytes: floats("bytes")?,
            bytes_ns: table.column("bytes_ns")?.i64()?.cont_slice()?,
            both: [floats("both_flops")?, floats("both_bytes")?],
        })
    }

    fn family(&self, row: u32) -> Family {
        Family::from_word(self.family.get(row as usize).unwrap_or_default())
    }

    fn sum(&self, rows: &[u32]) -> KernelSum {
        rows.iter().map(|row| *row as usize).fold(KernelSum::default(), |sum, row| KernelSum {
            count: sum.count + self.count[row],
            total_ns: sum.total_ns + self.total_ns[row],
            flops: sum.flops + self.flops[row],
            flops_ns: sum.flops_ns + self.flops_ns[row],
            bytes: sum.bytes + self.bytes[row],
            bytes_ns: sum.bytes_ns + self.bytes_ns[row],
            both: (sum.both.0 + self.both[0][row], sum.both.1 + self.both[1][row]),
        })
    }
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
