//! Kernels by name and by family.

use std::collections::HashMap;

use polars::prelude::*;
use serde::Serialize;
use stepscope_traces::{NameId, Names, Spans};

use crate::{activity::Class, error::AnalysisError, family::Family, selection::StepRange};

/// All activity of one name, over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelFigures {
    /// Its name.
    pub name: String,
    /// What kind of work it is.
    pub family: Family,
    /// How often it ran.
    pub count: u64,
    /// The sum of its durations: not a union.
    pub total_ns: i64,
    /// Of one.
    pub mean_ns: f64,
    /// Of the sum of all.
    pub share: f64,
    /// The sum on the rank that spent least on it.
    pub least_rank_ns: i64,
    /// The sum on the rank that spent most on it.
    pub most_rank_ns: i64,
    /// FLOP/s while it ran, where FLOPs are known.
    pub flops_per_second: Option<f64>,
}

/// All activity of one family, over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilyFigures {
    /// Which family.
    pub family: Family,
    /// How many kernels.
    pub count: u64,
    /// The sum of their durations.
    pub total_ns: i64,
    /// Of the sum of all.
    pub share: f64,
    /// FLOP/s while they ran, of those whose FLOPs are known.
    pub flops_per_second: Option<f64>,
    /// Those, as a share of a device's peak.
    pub peak_share: Option<f64>,
}

/// Sums of a rank's kernels, by name.
#[derive(Default)]
pub(crate) struct KernelSums {
    sums: HashMap<(NameId, Class), Sum>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    total_ns: i64,
    flops: f64,
    flops_ns: i64,
}

impl Sum {
    fn flops_per_second(&self) -> Option<f64> {
        (self.flops_ns > 0).then(|| self.flops / (self.flops_ns as f64 / 1e9))
    }
}

impl KernelSums {
    pub(crate) fn take(&mut self, spans: &Spans, steps: StepRange) {
        for row in 0..spans.len() {
            let Some(class) = Class::of(spans.kind.get(row)) else { continue };
            if !steps.has(spans.step.get(row)) {
                continue;
            }
            let sum = self.sums.entry((spans.name.get(row), class)).or_default();
            let duration = spans.duration_ns.get(row).0.max(0);
            sum.count += 1;
            sum.total_ns += duration;
            if let Some(flops) = spans.flops.get(row).filter(|flops| *flops > 0) {
                sum.flops += flops as f64;
                sum.flops_ns += duration;
            }
        }
    }

    /// How many kernels there were, those that communicate included.
    pub(crate) fn kernel_count(&self) -> u64 {
        self.sums.iter().filter(|((_, class), _)| *class != Class::Copy).map(|(_, sum)| sum.count).sum()
    }

    /// A row for each name.
    pub(crate) fn table(&self, names: &Names) -> Result<DataFrame, AnalysisError> {
        let rows: Vec<_> = self.sums.iter().collect();
        let name = |id: NameId| names.get(id).unwrap_or("unnamed");
        let family = |(id, class): (NameId, Class)| Family::of(class, name(id)).word();
        Ok(df!(
            "name" => rows.iter().map(|((id, _), _)| name(*id)).collect::<Vec<_>>(),
            "family" => rows.iter().map(|(key, _)| family(**key)).collect::<Vec<_>>(),
            "count" => rows.iter().map(|(_, sum)| sum.count).collect::<Vec<u64>>(),
            "total_ns" => rows.iter().map(|(_, sum)| sum.total_ns).collect::<Vec<i64>>(),
            "flops" => rows.iter().map(|(_, sum)| sum.flops).collect::<Vec<f64>>(),
            "flops_ns" => rows.iter().map(|(_, sum)| sum.flops_ns).collect::<Vec<i64>>(),
        )?)
    }
}

/// Kernels by name and by family over all ranks, the most time first.
pub(crate) fn kernels(
    tables: &[DataFrame],
    peak_flops: Option<f64>,
) -> Result<(Vec<KernelFigures>, Vec<FamilyFigures>), AnalysisError> {
    let mut all = DataFrame::empty();
    for table in tables {
        all.vstack_mut(table)?;
    }
    if all.height() == 0 {
        return Ok((Vec::new(), Vec::new()));
    }
    all.rechunk_mut();
    let columns = Columns::of(&all)?;
    let whole: i64 = columns.total_ns.iter().sum();
    let share = |total: i64| if whole > 0 { total as f64 / whole as f64 } else { 0.0 };
    let mut kernels: Vec<KernelFigures> = Vec::new();
    for rows in groups(&all, ["name", "family"])? {
        let sum = columns.sum(&rows);
        let of_ranks = || rows.iter().map(|row| columns.total_ns[*row as usize]);
        // A rank without such a kernel spent nothing on it.
        let least = if rows.len() < tables.len() { Some(0) } else { of_ranks().min() };
        kernels.push(KernelFigures {
            name: columns.name.get(rows[0] as usize).unwrap_or_default().to_owned(),
            family: columns.family(rows[0]),
            count: sum.count,
            total_ns: sum.total_ns,
            mean_ns: sum.total_ns as f64 / sum.count.max(1) as f64,
            share: share(sum.total_ns),
            least_rank_ns: least.unwrap_or(0),
            most_rank_ns: of_ranks().max().unwrap_or(0),
            flops_per_second: sum.flops_per_second(),
        });
    }
    kernels.sort_by(|one, other| other.total_ns.cmp(&one.total_ns).then_with(|| one.name.cmp(&other.name)));
    let mut families: Vec<FamilyFigures> = Vec::new();
    for rows in groups(&all, ["family"])? {
        let sum = columns.sum(&rows);
        families.push(FamilyFigures {
            family: columns.family(rows[0]),
            count: sum.count,
            total_ns: sum.total_ns,
            share: share(sum.total_ns),
            flops_per_second: sum.flops_per_second(),
            peak_share: sum.flops_per_second().zip(peak_flops).map(|(flops, peak)| flops / peak),
        });
    }
    families.sort_by_key(|family| (-family.total_ns, family.family));
    Ok((kernels, families))
}

/// The columns of a table of sums.
struct Columns<'a> {
    name: &'a StringChunked,
    family: &'a StringChunked,
    count: &'a [u64],
    total_ns: &'a [i64],
    flops: &'a [f64],
    flops_ns: &'a [i64],
}

impl<'a> Columns<'a> {
    fn of(table: &'a DataFrame) -> Result<Columns<'a>, AnalysisError> {
        Ok(Columns {
            name: table.column("name")?.str()?,
            family: table.column("family")?.str()?,
            count: table.column("count")?.u64()?.cont_slice()?,
            total_ns: table.column("total_ns")?.i64()?.cont_slice()?,
            flops: table.column("flops")?.f64()?.cont_slice()?,
            flops_ns: table.column("flops_ns")?.i64()?.cont_slice()?,
        })
    }

    fn family(&self, row: u32) -> Family {
        Family::from_word(self.family.get(row as usize).unwrap_or_default())
    }

    fn sum(&self, rows: &[u32]) -> Sum {
        rows.iter().map(|row| *row as usize).fold(Sum::default(), |sum, row| Sum {
            count: sum.count + self.count[row],
            total_ns: sum.total_ns + self.total_ns[row],
            flops: sum.flops + self.flops[row],
            flops_ns: sum.flops_ns + self.flops_ns[row],
        })
    }
}

/// The rows of a table that are alike in some columns.
pub(crate) fn groups<const N: usize>(table: &DataFrame, keys: [&str; N]) -> Result<Vec<Vec<u32>>, AnalysisError> {
    let grouped = table.group_by(keys)?;
    let rows = |group: GroupsIndicator<'_>| match group {
        GroupsIndicator::Idx((_, rows)) => rows.to_vec(),
        GroupsIndicator::Slice([first, count]) => (first..first + count).collect(),
    };
    Ok(grouped.get_groups().iter().map(rows).collect())
}
