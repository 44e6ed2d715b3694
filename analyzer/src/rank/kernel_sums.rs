//! What the kernels of one rank come to, name by name.
//!
//! Which steps count is known when all of the rank has been read. So sums are kept step by step, and those of many steps
//! are put together: all but the first ones, of which some may be warm-up, and the latest.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use stepscope_traces::{NameId, Names, Phase, Spans, Step};

use crate::{
    figures::{Class, CountedSteps},
    stored::{fields, inside},
};

/// So many steps are kept apart at the beginning, and after that at least.
const FIRST: usize = 32;
const MOST: usize = 256;

/// No more sums than this are kept apart by step: there are thousands for each, where it is known who launched what.
const MOST_SUMS: usize = 1 << 19;

/// Kernels from this long on are not small, in nanoseconds.
pub(crate) const SMALL_NS: i64 = 10_000;

/// What makes kernels be of one sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelId {
    pub(crate) name: NameId,
    pub(crate) class: Class,
    /// Who launched them.
    pub(crate) origin: Option<NameId>,
    /// Whether they run in the optimizer's phase.
    pub(crate) of_optimizer: bool,
}

/// Sums of kernels, and how long those took.
#[derive(Default)]
struct Sums {
    by_kernel: HashMap<KernelId, KernelSum>,
    durations: DurationCounts,
}

/// Sums of a rank's kernels, by step and name.
#[derive(Default)]
pub(crate) struct KernelSums {
    by_step: BTreeMap<Option<Step>, Sums>,
    /// Steps that are no longer apart, and their sums.
    together: (BTreeSet<Step>, Sums),
    /// Which steps count, where that is known from the beginning; and the sums of those that do, and of the others.
    known: Option<(CountedSteps, [Sums; 2])>,
}

/// What the kernels of the steps that count come to.
pub(crate) struct CountedKernels {
    sums: Sums,
}

/// What the kernels of a rank come to.
#[derive(Default)]
pub(crate) struct KernelTable {
    pub(crate) rows: HashMap<KernelKey, KernelSum>,
    pub(crate) durations: DurationCounts,
}

fields!(KernelTable { rows, durations });

/// What makes kernels be of one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KernelKey {
    pub(crate) name: String,
    pub(crate) class: Class,
    /// Who launched them, as the text of an origin.
    pub(crate) origin: Option<String>,
    /// Whether they run in the optimizer's phase.
    pub(crate) of_optimizer: bool,
}

fields!(KernelKey { name, class, origin, of_optimizer });

/// How many compute kernels took how long, and their time: below each of [`DurationCounts::BELOW_NS`], and the longer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DurationCounts(pub(crate) [(u64, i64); 8]);

inside!(DurationCounts([(u64, i64); 8]));

impl DurationCounts {
    /// Where the counts end.
    pub(crate) const BELOW_NS: [i64; 7] = [2_000, 5_000, SMALL_NS, 20_000, 50_000, 100_000, 1_000_000];

    fn take(&mut self, duration: i64) {
        let place = DurationCounts::BELOW_NS.partition_point(|below| *below <= duration);
        self.0[place].0 += 1;
        self.0[place].1 += duration;
    }

    pub(crate) fn add(&mut self, other: &DurationCounts) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, (count, time))| *sum = (sum.0 + count, sum.1 + time));
    }
}

/// What the kernels of one name come to.
#[derive(Clone, Copy, Default)]
pub(crate) struct KernelSum {
    pub(crate) count: u64,
    pub(crate) total_ns: i64,
    pub(crate) flops: f64,
    pub(crate) flops_ns: i64,
    pub(crate) bytes: f64,
    pub(crate) bytes_ns: i64,
    /// FLOPs and bytes where both are known.
    pub(crate) both: (f64, f64),
    /// The time of those whose FLOPs are known, or are counted with another kernel of the same operator.
    pub(crate) counted_ns: i64,
    /// FLOPs that were done before, in a checkpoint; and those of the backward pass.
    pub(crate) flops_again: f64,
    pub(crate) flops_backward: f64,
    /// Those that are small.
    pub(crate) small_count: u64,
    pub(crate) small_ns: i64,
    /// How long nothing ran before them.
    pub(crate) idle_before_ns: i64,
}

fields!(KernelSum {
    count,
    total_ns,
    flops,
    flops_ns,
    bytes,
    bytes_ns,
    both,
    counted_ns,
    flops_again,
    flops_backward,
    small_count,
    small_ns,
    idle_before_ns,
});

impl KernelSum {
    /// Whether there is any, or a gap before one.
    pub(crate) fn is_any(&self) -> bool {
        self.count > 0 || self.idle_before_ns > 0
    }

    pub(crate) fn add(&mut self, other: &KernelSum) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.flops += other.flops;
        self.flops_ns += other.flops_ns;
        self.bytes += other.bytes;
        self.bytes_ns += other.bytes_ns;
        self.both = (self.both.0 + other.both.0, self.both.1 + other.both.1);
        self.counted_ns += other.counted_ns;
        self.flops_again += other.flops_again;
        self.flops_backward += other.flops_backward;
        self.small_count += other.small_count;
        self.small_ns += other.small_ns;
        self.idle_before_ns += other.idle_before_ns;
    }
}

fn add_all(sums: &mut Sums, others: &Sums) {
    others.by_kernel.iter().for_each(|(id, other)| sums.by_kernel.entry(*id).or_default().add(other));
    sums.durations.add(&others.durations);
}

impl KernelSums {
    /// Of a rank of which it is known which steps count.
    pub(crate) fn knowing(counted: &CountedSteps) -> KernelSums {
        KernelSums { known: Some((counted.clone(), Default::default())), ..KernelSums::default() }
    }

    pub(crate) fn take(&mut self, spans: &Spans) {
        self.take_rows(spans);
        match &mut self.known {
            Some((window, [counting, others])) => {
                for (step, sums) in std::mem::take(&mut self.by_step) {
                    add_all(if window.has(step) { counting } else { others }, &sums);
                }
            }
            None if self.by_step.len() > 2 * MOST => self.put_together(MOST),
            None => {
                let sums: usize = self.by_step.values().map(|sums| sums.by_kernel.len()).sum();
                if sums > MOST_SUMS {
                    self.put_together(self.by_step.len() / 2);
                }
            }
        }
    }

    /// Puts the sums of the oldest steps together, but for the first ones and the latest.
    fn put_together(&mut self, latest: usize) {
        let steps: Vec<Step> = self.by_step.keys().flatten().copied().skip(FIRST).collect();
        for step in &steps[..steps.len().saturating_sub(latest)] {
            if let Some(sums) = self.by_step.remove(&Some(*step)) {
                self.together.0.insert(*step);
                add_all(&mut self.together.1, &sums);
            }
        }
    }

    fn take_rows(&mut self, spans: &Spans) {
        // Neighbours are of one step, mostly.
        let mut last: Option<(Option<Step>, Sums)> = None;
        for row in 0..spans.len() {
            let Some(class) = Class::of(spans.kind.get(row)) else { continue };
            let step = spans.step.get(row);
            if last.as_ref().is_none_or(|(other, _)| *other != step) {
                let sums = self.by_step.remove(&step).unwrap_or_default();
                self.by_step.extend(last.replace((step, sums)));
            }
            let Some((_, sums)) = &mut last else { continue };
            let of_optimizer = spans.phase.get(row) == Some(Phase::Optimizer);
            let id = KernelId { name: spans.name.get(row), class, origin: spans.origin.get(row), of_optimizer };
            let sum = sums.by_kernel.entry(id).or_default();
            let duration = spans.duration_ns.get(row).0.max(0);
            sum.count += 1;
            sum.total_ns += duration;
            if class == Class::Compute {
                sums.durations.take(duration);
                if duration < SMALL_NS {
                    sum.small_count += 1;
                    sum.small_ns += duration;
                }
            }
            let flops = spans.flops.get(row).filter(|flops| *flops > 0).map(|flops| flops as f64);
            // Of communication they are the message's, and its time is not its own.
            let bytes = spans.bytes.get(row).filter(|bytes| *bytes > 0 && class != Class::Communication);
            let bytes = bytes.map(|bytes| bytes as f64);
            if spans.flops.get(row).is_some() {
                sum.counted_ns += duration;
            }
            if let Some(flops) = flops {
                sum.flops += flops;
                sum.flops_ns += duration;
                match spans.phase.get(row) {
                    Some(Phase::Recompute) => sum.flops_again += flops,
                    Some(Phase::Backward) => sum.flops_backward += flops,
                    _ => {}
                }
            }
            if let Some(bytes) = bytes {
                sum.bytes += bytes;
                sum.bytes_ns += duration;
            }
            if let (Some(flops), Some(bytes)) = (flops, bytes) {
                sum.both = (sum.both.0 + flops, sum.both.1 + bytes);
            }
        }
        self.by_step.extend(last);
    }

    /// Those of the steps that count, and how many kernels there were in all. None, where steps are no longer apart of which
    /// some count and some do not.
    pub(crate) fn counted(self, window: &CountedSteps) -> (Option<CountedKernels>, u64) {
        if let Some((_, [counting, others])) = self.known {
            let count = kernel_count(&counting) + kernel_count(&others);
            return (Some(CountedKernels { sums: counting }), count);
        }
        let (steps, together) = self.together;
        let count = kernel_count(&together) + self.by_step.values().map(kernel_count).sum::<u64>();
        let (counting, others): (Vec<Step>, Vec<Step>) = steps.iter().partition(|step| window.has(Some(**step)));
        if !counting.is_empty() && !others.is_empty() {
            return (None, count);
        }
        let mut sums = if counting.is_empty() { Sums::default() } else { together };
        for (_, more) in self.by_step.iter().filter(|(step, _)| window.has(**step)) {
            add_all(&mut sums, more);
        }
        (Some(CountedKernels { sums }), count)
    }
}

/// How many kernels there were, those that communicate included.
fn kernel_count(sums: &Sums) -> u64 {
    sums.by_kernel.iter().filter(|(id, _)| id.class != Class::Copy).map(|(_, sum)| sum.count).sum()
}

impl CountedKernels {
    pub(crate) fn kernel_count(&self) -> u64 {
        kernel_count(&self.sums)
    }

    /// By what they are called: several ids may have one name. With how long nothing ran before them.
    pub(crate) fn table(&self, names: &Names, idle_before: &HashMap<KernelId, i64>) -> KernelTable {
        let mut table = KernelTable { durations: self.sums.durations, ..KernelTable::default() };
        let key = |id: &KernelId| KernelKey {
            name: names.get(id.name).unwrap_or("unnamed").to_owned(),
            class: id.class,
            origin: id.origin.and_then(|origin| names.get(origin)).map(str::to_owned),
            of_optimizer: id.of_optimizer,
        };
        for (id, sum) in &self.sums.by_kernel {
            table.rows.entry(key(id)).or_default().add(sum);
        }
        for (id, idle) in idle_before {
            table.rows.entry(key(id)).or_default().idle_before_ns += idle;
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{Nanos, Span, SpanKind};

    use super::*;

    fn window(first: i32, last: i32, cut_off: &[i32]) -> CountedSteps {
        let cut_off = cut_off.iter().copied().map(Step).collect();
        CountedSteps { steps: Some([Step(first), Step(last)]), cut_off, ..CountedSteps::default() }
    }

    /// A kernel in each of many steps, one batch after another.
    fn sums(mut sums: KernelSums, steps: i32) -> KernelSums {
        for begin in (0..steps).step_by(50) {
            let mut spans = Spans::default();
            for step in begin..steps.min(begin + 50) {
                let kernel = Span::new(SpanKind::Kernel, NameId(5000), Nanos(0), Nanos(1));
                spans.push(&Span { step: Some(Step(step)), ..kernel });
            }
            sums.take(&spans);
        }
        sums
    }

    #[test]
    fn of_many_steps_those_that_count_are_told_apart() {
        let counted = |window: &CountedSteps| {
            let (counted, all) = sums(KernelSums::default(), 2000).counted(window);
            (counted.map(|counted| counted.kernel_count()), all)
        };
        assert_eq!(counted(&window(1, 1998, &[])), (Some(1998), 2000), "the first ones and the last ones are apart");
        assert_eq!(counted(&window(1, 1998, &[700])), (None, 2000), "one in the middle is not any more");
        let cut = window(1, 1998, &[700, 900]);
        let (known, all) = sums(KernelSums::knowing(&cut), 2000).counted(&cut);
        assert_eq!((known.unwrap().kernel_count(), all), (1996, 2000));
    }
}
