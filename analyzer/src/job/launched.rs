//! All kernels of a job: what each is, who launched it, and what those of all ranks come to.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use stepscope_plan::NumberType;
use stepscope_traces::{ElementType, Family, Gemm, KernelKind, OperatorWork, Origin, Shapes};

use crate::{
    figures::{Class, LaunchedKernels, Roofline},
    job::roofline::{WorkRate, peak, rates},
    rank::kernel_sums::{DurationCounts, KernelKey, KernelSum, KernelTable},
};

/// Kernels of one name that one operator launched in one place, over all ranks.
pub(crate) struct JobKernel<'a> {
    pub(crate) key: &'a KernelKey,
    pub(crate) kind: KernelKind,
    /// None, where nothing is known of it.
    pub(crate) origin: Option<Origin<'a>>,
    /// The product that its operator is.
    pub(crate) gemm: Option<Gemm>,
    /// What it multiplies, where that is known.
    pub(crate) numbers: Option<NumberType>,
    pub(crate) sum: KernelSum,
    /// The time of each rank that has it, by which of the tables that is.
    pub(crate) of_ranks: RankTimes,
}

/// Times of ranks, by which of the tables they are of.
type RankTimes = Vec<(usize, i64)>;

/// All kernels of a job.
pub(crate) struct JobKernels<'a> {
    /// By name and origin, so that sums of fractions are the same each time.
    pub(crate) kernels: Vec<JobKernel<'a>>,
    /// Whether it is known of any who launched it.
    has_origins: bool,
    pub(crate) ranks: usize,
    pub(crate) whole_ns: i64,
    pub(crate) durations: DurationCounts,
    pub(crate) roofline: Option<Roofline>,
}

impl<'a> JobKernels<'a> {
    pub(crate) fn of(tables: &'a [KernelTable], roofline: Option<Roofline>) -> JobKernels<'a> {
        let mut rows: BTreeMap<&KernelKey, (KernelSum, RankTimes)> = BTreeMap::new();
        let mut durations = DurationCounts::default();
        for (rank, table) in tables.iter().enumerate() {
            durations.add(&table.durations);
            for (key, sum) in &table.rows {
                let (all, of_ranks) = rows.entry(key).or_default();
                all.add(sum);
                of_ranks.push((rank, sum.total_ns));
            }
        }
        let mut kinds: HashMap<(&str, Class, bool), KernelKind> = HashMap::new();
        let mut given: HashMap<&str, (Option<Gemm>, Option<NumberType>)> = HashMap::new();
        let kernels: Vec<JobKernel<'a>> = rows
            .into_iter()
            .map(|(key, (sum, of_ranks))| {
                let kind = *kinds.entry((&key.name, key.class, key.of_optimizer)).or_insert_with(|| kind_of(key));
                let origin = key.origin.as_deref().map(Origin::of);
                let text = key.origin.as_deref().unwrap_or_default();
                let (gemm, element) = *given.entry(text).or_insert_with(|| given_to(&Origin::of(text)));
                let multiplies = matches!(kind.family, Family::Matmul | Family::Convolution | Family::Attention);
                let named = kind.gemm.and_then(|gemm| gemm.numbers);
                let numbers = multiplied(named, element).filter(|_| multiplies);
                let gemm = gemm.filter(|_| kind.family == Family::Matmul && sum.flops_ns > 0);
                JobKernel { key, kind, origin, gemm, numbers, sum, of_ranks }
            })
            .collect();
        let kernels: Vec<JobKernel<'a>> = kernels.into_iter().filter(|kernel| kernel.sum.is_any()).collect();
        let whole_ns = kernels.iter().map(|kernel| kernel.sum.total_ns).sum();
        let has_origins = kernels.iter().any(|kernel| kernel.origin.is_some());
        JobKernels { kernels, has_origins, ranks: tables.len(), whole_ns, durations, roofline }
    }

    /// A time as a share of that of all kernels.
    pub(crate) fn share(&self, total_ns: i64) -> f64 {
        if self.whole_ns > 0 { total_ns as f64 / self.whole_ns as f64 } else { 0.0 }
    }

    /// The time of a kernel that multiplies in which it is known what it computes. Where operators do not say it, the program
    /// did, which says it of one kernel of several.
    pub(crate) fn counted_ns(&self, kernel: &JobKernel<'_>) -> i64 {
        if self.has_origins { kernel.sum.counted_ns } else { kernel.sum.total_ns }
    }

    /// What some kernels come to.
    pub(crate) fn together<'k>(&self, kernels: impl IntoIterator<Item = &'k JobKernel<'a>>) -> LaunchedKernels
    where
        'a: 'k,
    {
        let (mut all, mut computing) = (KernelSum::default(), KernelSum::default());
        let (mut counted_ns, mut seconds_at_peak) = (0, 0.0);
        for kernel in kernels {
            all.add(&kernel.sum);
            if kernel.key.class == Class::Compute {
                computing.add(&kernel.sum);
                // What does not multiply computes nothing that counts.
                counted_ns += if kernel.multiplies() { self.counted_ns(kernel) } else { kernel.sum.total_ns };
                let peak = self.roofline.as_ref().map_or(f64::INFINITY, |roofline| peak(roofline, kernel.numbers));
                seconds_at_peak += kernel.sum.flops / peak;
            }
        }
        // Those of different numbers have peaks of their own.
        let peak = match seconds_at_peak > 0.0 {
            true => Some(computing.flops / seconds_at_peak),
            false => self.roofline.as_ref().map(|roofline| roofline.peak_flops),
        };
        let work = WorkRate::of_group(&computing, counted_ns);
        LaunchedKernels {
            count: all.count,
            total_ns: all.total_ns,
            share: self.share(all.total_ns),
            small_count: all.small_count,
            idle_before_ns: all.idle_before_ns,
            rates: rates(work, computing.count > 0, peak, self.roofline.as_ref()),
        }
    }
}

impl JobKernel<'_> {
    /// Whether it is one of those whose FLOPs count.
    pub(crate) fn multiplies(&self) -> bool {
        matches!(self.kind.family, Family::Matmul | Family::Convolution | Family::Attention)
    }
}

/// What a kernel is.
fn kind_of(key: &KernelKey) -> KernelKind {
    let kind = KernelKind::of(&key.name);
    let family = key.class.family_in(&key.name, key.of_optimizer);
    match key.class {
        Class::Compute => KernelKind { family, ..kind },
        _ => KernelKind {
            family,
            library: kind.library.filter(|_| kind.family == family),
            gemm: None,
            is_softmax: false,
        },
    }
}

/// What a kernel multiplies. What its operator is given says it, but for two: of fp32 tensor cores may take less, and numbers
/// of few bits are given as bytes, or made on the way.
fn multiplied(named: Option<NumberType>, given: Option<NumberType>) -> Option<NumberType> {
    match (named, given) {
        (Some(NumberType::Fp4 | NumberType::Fp8 | NumberType::Int8), _) | (_, None | Some(NumberType::Fp32)) => {
            named.or(given)
        }
        (_, given) => given,
    }
}

/// The product that an operator is, and what it multiplies.
fn given_to(origin: &Origin<'_>) -> (Option<Gemm>, Option<NumberType>) {
    let shapes = origin.shapes.and_then(|shapes| shapes.parse::<Shapes>().ok());
    let (Some(shapes), Some(operator)) = (shapes, origin.operator) else { return (None, None) };
    let element = shapes.matrix_element().and_then(|element| match element {
        ElementType::Bf16 => Some(NumberType::Bf16),
        ElementType::F16 => Some(NumberType::Fp16),
        ElementType::F32 => Some(NumberType::Fp32),
        ElementType::F64 => Some(NumberType::Fp64),
        ElementType::F8 => Some(NumberType::Fp8),
        ElementType::F4 => Some(NumberType::Fp4),
        ElementType::I8 => Some(NumberType::Int8),
        _ => None,
    });
    (OperatorWork::of(operator, &shapes, &[]).gemm, element)
}
