//! Samples of what libraries and the driver hold of a device beside a program's allocator.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_traces::{CounterId, CounterSample, MemoryHolder};

use crate::{
    figures::{LibraryMemory, MemoryLibrary},
    rank::ledger::HeldBeside,
    stored::fields,
};

/// How its counters begin.
const PREFIX: &str = "memory.";
/// That it is there says that somebody looked.
const MODULES: &str = MemoryHolder::Modules.counter();
const LOCAL_MEMORY: &str = MemoryHolder::LocalMemory.counter();
/// What the program and its allocator took, as the driver says.
const PROGRAM: &str = MemoryHolder::Program.counter();

/// Time and value of each sample, by counter, in order.
#[derive(Default)]
pub(crate) struct HeldSamples {
    by_counter: BTreeMap<String, Vec<(i64, f64)>>,
}

fields!(HeldSamples { by_counter });

impl HeldSamples {
    /// Those of some counters, if they are any of these.
    pub(crate) fn of(by_counter: impl Iterator<Item = (String, Vec<(i64, f64)>)>) -> HeldSamples {
        HeldSamples { by_counter: by_counter.collect() }
    }

    /// Whether a counter is one of these.
    pub(crate) fn is_held(counter: &str) -> bool {
        counter.starts_with(PREFIX)
    }

    /// What is held at a time, beside what the allocator says it has taken by then. None where nobody looked.
    pub(crate) fn at(&self, time: i64, reserved: u64) -> Option<HeldBeside> {
        self.by_counter.get(MODULES)?;
        let libraries = MemoryLibrary::ALL.into_iter().map(|library| {
            let bytes = self.value(holder(library).counter(), time);
            let around_allocator = match library {
                MemoryLibrary::Other => self.value(PROGRAM, time).saturating_sub(reserved),
                _ => 0,
            };
            LibraryMemory { library, bytes: bytes.saturating_add(around_allocator) }
        });
        Some(HeldBeside {
            modules: self.value(MODULES, time),
            local_memory: self.value(LOCAL_MEMORY, time),
            libraries: libraries.filter(|told| told.bytes > 0).collect(),
        })
    }

    fn value(&self, counter: &str, time: i64) -> u64 {
        let Some(samples) = self.by_counter.get(counter) else { return 0 };
        let after = samples.partition_point(|(other, _)| *other <= time);
        after.checked_sub(1).map_or(0, |last| samples[last].1 as u64)
    }
}

/// A library, as a recording names it.
fn holder(library: MemoryLibrary) -> MemoryHolder {
    match library {
        MemoryLibrary::Nccl => MemoryHolder::Nccl,
        MemoryLibrary::Cublas => MemoryHolder::Cublas,
        MemoryLibrary::Cudnn => MemoryHolder::Cudnn,
        MemoryLibrary::Nvshmem => MemoryHolder::Nvshmem,
        MemoryLibrary::SymmetricMemory => MemoryHolder::SymmetricMemory,
        MemoryLibrary::Other => MemoryHolder::Other,
    }
}

/// Which of these samples, by their rows, say what is held at some times and after the last one of all.
pub(crate) fn needed_at(held: impl Iterator<Item = (usize, CounterSample)>, times: &[i64]) -> BTreeSet<usize> {
    let mut newest = BTreeMap::<(CounterId, Option<i64>), (i64, usize)>::new();
    for (row, sample) in held {
        let found = (sample.time_ns.0, row);
        let until = times.iter().copied().filter(|time| *time >= found.0).map(Some).chain([None]);
        until.for_each(|until| {
            newest.entry((sample.counter, until)).and_modify(|known| *known = found.max(*known)).or_insert(found);
        });
    }
    newest.into_values().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use stepscope_traces::Nanos;

    use super::*;

    fn samples(samples: &[(&str, &[(i64, f64)])]) -> HeldSamples {
        HeldSamples::of(samples.iter().map(|(name, samples)| ((*name).to_owned(), samples.to_vec())))
    }

    #[test]
    fn what_is_held_is_what_was_said_last() {
        let held = samples(&[
            (MODULES, &[(0, 0.0), (20, 30.0)]),
            (LOCAL_MEMORY, &[(15, 5.0)]),
            ("memory.nccl", &[(10, 100.0), (30, 0.0)]),
            ("memory.other", &[(10, 1.0)]),
            (PROGRAM, &[(5, 50.0)]),
        ]);
        let told = |library, bytes| LibraryMemory { library, bytes };
        let at = held.at(25, 40).unwrap();
        assert_eq!((at.modules, at.local_memory), (30, 5));
        assert_eq!(at.libraries, [told(MemoryLibrary::Nccl, 100), told(MemoryLibrary::Other, 1 + 10)]);
        assert_eq!(at.sum(), 146);
        // What the allocator says it has taken is its own, whoever saw that.
        assert_eq!(held.at(30, 60).unwrap().libraries, [told(MemoryLibrary::Other, 1)]);
        assert_eq!(held.at(-1, 0), Some(HeldBeside::default()));
        assert_eq!(samples(&[("memory.nccl", &[(0, 1.0)])]).at(5, 0), None, "nobody looked");
    }

    #[test]
    fn what_is_needed_later_is_the_last_before_each_time() {
        let all =
            [0, 10, 20, 30].map(|time| CounterSample { time_ns: Nanos(time), counter: CounterId(50), value: 1.0 });
        let needed = |times: &[i64]| needed_at(all.into_iter().enumerate(), times).into_iter().collect::<Vec<_>>();
        assert_eq!(needed(&[15, 25]), [1, 2, 3]);
        assert_eq!(needed(&[-5]), [3]);
    }
}
