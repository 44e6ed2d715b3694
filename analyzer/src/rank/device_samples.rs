//! Samples of a rank's device: activity, power, clocks, memory in use.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_traces::{CounterId, CounterSamples, Names};

use crate::{
    figures::{Ledger, MEMORY_USED},
    rank::{
        held_samples::{self, HeldSamples},
        ledger::{BesideAllocator, Parts, ledger},
        step_windows::StepWindow,
    },
    stored::fields,
};

/// How counters of devices and of the links between them begin.
const PREFIXES: [&str; 3] = ["gpu.", "pcie.", "nvlink."];
/// What the process that asked has of what a device says is in use: others may be on the device.
pub(crate) const MEMORY_USED_BY_PROCESS: &str = "gpu.memory_used_by_process";

/// How long it may take to ask a device, in nanoseconds.
const ASKING: i64 = 2_000_000;
/// How long ago a step may have begun that is not known yet, in nanoseconds.
const STEP_IS_KNOWN_WITHIN: i64 = 5_000_000_000;
/// For how long after its first allocation the context of a program is looked for, in nanoseconds.
const SOON: i64 = 1_000_000_000;

/// What a device drew since it was first asked, in joules.
const ENERGY: &str = "gpu.energy";

/// When a program took memory, and how much it had at its peak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// When it took some first.
    pub(crate) first: i64,
    pub(crate) first_step_start: Option<i64>,
    pub(crate) first_step_end: Option<i64>,
    pub(crate) peak: i64,
    /// What it had allocated then.
    pub(crate) allocated: u64,
    /// What its allocator had taken from the device then.
    pub(crate) at_peak: u64,
}

/// What is known of these moments while a recording goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LedgerMoments {
    /// When the program took memory first.
    pub(crate) began: Option<i64>,
    pub(crate) first_step_start: Option<i64>,
    pub(crate) first_step_end: Option<i64>,
    pub(crate) peak: Option<i64>,
}

/// The samples of a rank's device: time and value of each, by counter, in order.
#[derive(Default)]
pub(crate) struct DeviceSamples {
    by_counter: BTreeMap<String, Vec<(i64, f64)>>,
    held: HeldSamples,
    is_shared: bool,
}

fields!(DeviceSamples { by_counter, held, is_shared });

impl DeviceSamples {
    pub(crate) fn of(samples: &CounterSamples, names: &Names, is_shared: bool) -> DeviceSamples {
        let mut by_id = BTreeMap::<CounterId, Vec<(i64, f64)>>::new();
        for sample in samples.rows().filter(|sample| sample.value.is_finite()) {
            by_id.entry(sample.counter).or_default().push((sample.time_ns.0, sample.value));
        }
        let named = by_id.into_iter().filter_map(|(id, mut samples)| {
            let is_of_device = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            let name = names.counter(id).filter(|name| is_of_device(name) || HeldSamples::is_held(name))?;
            samples.sort_by_key(|(time, _)| *time);
            Some((name.to_owned(), samples))
        });
        let (held, by_counter): (BTreeMap<_, _>, _) = named.partition(|(name, _)| HeldSamples::is_held(name));
        DeviceSamples { by_counter, held: HeldSamples::of(held.into_iter()), is_shared }
    }

    /// The highest value of a counter, at any time.
    pub(crate) fn highest(&self, counter: &str) -> Option<f64> {
        self.by_counter.get(counter)?.iter().map(|(_, value)| *value).reduce(f64::max)
    }

    /// What fills the device at the peak. Where nobody watched the driver's calls, what it said last before the program took
    /// anything is the driver's. What it says beside what the program's allocator has taken by then is the driver's and
    /// libraries': by the end of the first step they have what a step needs.
    pub(crate) fn ledger(&self, taken: &Taken, reserved: impl Fn(i64) -> u64) -> Option<Ledger> {
        let of_device = || self.by_counter.get(MEMORY_USED).filter(|_| !self.is_shared);
        let used = self.by_counter.get(MEMORY_USED_BY_PROCESS).or_else(of_device)?;
        let beside = |(time, used): &(i64, f64)| *used as i64 - i64::try_from(reserved(*time)).unwrap_or(i64::MAX);
        let first_after = |moment: i64| used.iter().find(|(time, _)| *time >= moment);
        let at_peak = first_after(taken.peak)?;
        let beside_at_peak = beside(at_peak);
        let parts = |driver, beside_allocator| Parts {
            allocated: taken.allocated,
            reserved: taken.at_peak,
            beside: beside_at_peak,
            driver,
            beside_allocator,
        };
        // Nothing is allocated while the device is asked.
        let is_quiet = |time: i64| reserved(time.saturating_sub(ASKING)) == reserved(time.saturating_add(ASKING));
        let allocated = || used.iter().filter(|(time, _)| (taken.first..=at_peak.0).contains(time));
        let mut soon = allocated().take_while(|(time, _)| *time <= taken.first.saturating_add(SOON));
        let early = || soon.find(|(time, _)| is_quiet(*time)).or_else(|| allocated().next());
        // Kernels and libraries are loaded when they are first used, most of them before the first step.
        let before_step = taken.first_step_start.and_then(|start| {
            let mut before = allocated().rev().skip_while(|(time, _)| *time > start);
            before.find(|(time, _)| is_quiet(*time)).filter(|(time, _)| *time >= start.saturating_sub(SOON))
        });
        let with_context = before_step.or_else(early)?;
        let held = |time: i64| self.held.at(time, reserved(time));
        if let (Some(counted), Some(held)) = (held(with_context.0), held(at_peak.0)) {
            let driver = used.first().filter(|(time, _)| *time < taken.first).map_or(0, |(_, used)| *used as u64);
            let beside = u64::try_from(beside(with_context)).unwrap_or(0);
            let context = beside.saturating_sub(driver).saturating_sub(counted.sum());
            return ledger(parts(driver, BesideAllocator::Told { context, held }));
        }
        let (_, before) = used.iter().rfind(|(time, _)| *time <= taken.first)?;
        let of_first_step = taken.first_step_end.and_then(|end| first_after(end.min(taken.peak))).map(beside);
        let driver = *before as u64;
        let libraries = of_first_step.map_or(0, |beside| u64::try_from(beside).unwrap_or(0).saturating_sub(driver));
        ledger(parts(driver, BesideAllocator::OfFirstStep(libraries)))
    }

    /// What the device drew from one time to another, in joules: between samples it drew evenly. None where it did not say at both
    /// ends.
    pub(crate) fn energy(&self, start: i64, end: i64) -> Option<f64> {
        let samples = self.by_counter.get(ENERGY)?;
        let at = |time: i64| {
            let after = samples.partition_point(|(other, _)| *other < time);
            let (later, more) = samples.get(after)?;
            let (earlier, less) = samples.get(after.checked_sub(1)?)?;
            let share = (time - earlier) as f64 / (later - earlier).max(1) as f64;
            Some(less + share * (more - less))
        };
        Some(at(end)? - at(start)?)
    }

    /// What each counter says in a step, in the mean.
    pub(crate) fn means_in(&self, step: &StepWindow) -> BTreeMap<String, f64> {
        let mean = |samples: &[(i64, f64)]| samples.iter().map(|(_, value)| value).sum::<f64>() / samples.len() as f64;
        self.during(&[step], true).map(|(name, samples)| (name.clone(), mean(samples))).collect()
    }

    /// The samples of each counter in some steps; where a rank has none, all there are.
    pub(crate) fn during(
        &self,
        steps: &[&StepWindow],
        has_steps: bool,
    ) -> impl Iterator<Item = (&String, &[(i64, f64)])> {
        let extent = match (steps.first(), steps.last()) {
            (Some(first), Some(last)) => Some((first.start, last.end)),
            _ if has_steps => None,
            _ => Some((i64::MIN, i64::MAX)),
        };
        let within = move |samples: &'_ [(i64, f64)]| {
            let (start, end) = extent?;
            // What is measured over the time since the sample before must have been measured in the steps.
            let begin = samples.partition_point(|(time, _)| *time < start) + usize::from(start > i64::MIN);
            let end = samples.partition_point(|(time, _)| *time <= end);
            (begin < end).then_some((begin, end))
        };
        self.by_counter.iter().filter_map(move |(name, samples)| {
            let (begin, end) = within(samples)?;
            Some((name, &samples[begin..end]))
        })
    }
}

/// Which samples the ledger needs, of all there are: what was used first, last before memory was taken, soon after that and
/// first after some moments, and what was held then.
pub(crate) fn needed_for_ledger(samples: &CounterSamples, names: &Names, moments: LedgerMoments) -> BTreeSet<usize> {
    let LedgerMoments { began, first_step_start, first_step_end, peak } = moments;
    let mut needed = BTreeSet::new();
    let mut needed_times = Vec::new();
    for used in [MEMORY_USED, MEMORY_USED_BY_PROCESS] {
        let times = samples.rows().enumerate().filter(|(_, sample)| names.counter(sample.counter) == Some(used));
        let times: Vec<(i64, usize)> = times.map(|(row, sample)| (sample.time_ns.0, row)).collect();
        // Before anything was taken, each one may be the last.
        let before = times.iter().filter(|(time, _)| began.is_none_or(|began| *time <= began)).max();
        let after = [first_step_end, peak, began].into_iter().flatten();
        let after = after.filter_map(|moment| times.iter().filter(|(time, _)| *time >= moment).min());
        let is_soon = |time: i64| began.is_some_and(|began| (began..=began.saturating_add(SOON)).contains(&time));
        // Until the first step is known, it may begin at any time that is not long ago.
        let newest = times.iter().max().map_or(i64::MIN, |(time, _)| *time);
        let (start, until_start) = first_step_start.map_or((newest, STEP_IS_KNOWN_WITHIN), |start| (start, SOON));
        let is_before_step = |time: i64| (start.saturating_sub(until_start)..=start).contains(&time);
        let soon = times.iter().filter(|(time, _)| is_soon(*time) || is_before_step(*time));
        for (time, row) in times.iter().min().into_iter().chain(before).chain(after).chain(soon) {
            needed.insert(*row);
            needed_times.push(*time);
        }
    }
    needed_times.sort_unstable();
    needed_times.dedup();
    let is_held = |counter| names.counter(counter).is_some_and(HeldSamples::is_held);
    let held = samples.rows().enumerate().filter(|(_, sample)| is_held(sample.counter));
    needed.extend(held_samples::needed_at(held, &needed_times));
    needed
}

#[cfg(test)]
impl DeviceSamples {
    /// Samples by counter, of a device that no other rank has.
    pub(crate) fn made_of(samples: &[(&str, &[(i64, f64)])]) -> DeviceSamples {
        let named = samples.iter().map(|(name, samples)| ((*name).to_owned(), samples.to_vec()));
        let (held, by_counter): (BTreeMap<_, _>, _) = named.partition(|(name, _)| HeldSamples::is_held(name));
        DeviceSamples { by_counter, held: HeldSamples::of(held.into_iter()), is_shared: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_between_samples_is_drawn_evenly() {
        let samples = DeviceSamples::made_of(&[(ENERGY, &[(0, 0.0), (10, 100.0), (20, 400.0)])]);
        assert_eq!(samples.energy(5, 15), Some(200.0));
        assert_eq!(samples.energy(5, 21), None, "nothing is known of after");
    }

    const TAKEN: Taken =
        Taken { first: 12, first_step_start: None, first_step_end: None, peak: 15, allocated: 1000, at_peak: 1350 };

    #[test]
    fn a_ledger_takes_what_was_there_before_and_what_is_there_after_the_peak() {
        let samples = DeviceSamples::made_of(&[(MEMORY_USED, &[(0, 500.0), (10, 600.0), (20, 2000.0), (30, 2100.0)])]);
        let told = |samples: &DeviceSamples, taken: Taken| samples.ledger(&taken, |_| 1350);
        let ledger = told(&samples, TAKEN).unwrap();
        assert_eq!((ledger.driver_bytes, ledger.device_used_bytes, ledger.residual_bytes), (600, 2000, 50));
        assert_eq!(told(&samples, Taken { first: -1, ..TAKEN }), None, "nothing is known of before");
        assert_eq!(told(&samples, Taken { peak: 31, ..TAKEN }), None, "nothing is known of after");
        let shared = DeviceSamples { is_shared: true, ..samples };
        assert_eq!(told(&shared, TAKEN), None, "others have taken of it too");
    }

    #[test]
    fn a_ledger_of_watched_calls_has_a_line_for_each_library() {
        let samples = |used_at_peak: f64| {
            DeviceSamples::made_of(&[
                (MEMORY_USED_BY_PROCESS, &[(0, 10.0), (11, 400.0), (13, 900.0), (20, used_at_peak)]),
                ("memory.modules", &[(1, 0.0), (12, 50.0), (14, 80.0)]),
                ("memory.local", &[(12, 20.0), (14, 60.0)]),
                ("memory.nccl", &[(14, 200.0)]),
                ("memory.program", &[(12, 300.0), (14, 1360.0)]),
            ])
        };
        let reserved = |time: i64| if time < 14 { 300 } else { 1350 };
        let ledger = samples(2300.0).ledger(&TAKEN, reserved).unwrap();
        // 900 - 300 of the allocator, 10 of the driver, 50 of modules, 20 for stacks.
        assert_eq!((ledger.driver_bytes, ledger.context_bytes), (10, Some(520)));
        assert_eq!((ledger.modules_bytes, ledger.local_memory_bytes), (Some(80), Some(60)));
        let libraries: Vec<_> = ledger.libraries.iter().map(|told| (told.library.spelled(), told.bytes)).collect();
        assert_eq!(libraries, [("NCCL", 200), ("other libraries", 10)]);
        assert_eq!((ledger.libraries_bytes, ledger.device_used_bytes), (210, 2300));
        assert_eq!(ledger.residual_bytes, 2300 - 1350 - 10 - 520 - 80 - 60 - 210);
        // The context stays what it was, so that the device can say otherwise.
        assert_eq!(samples(2200.0).ledger(&TAKEN, reserved).unwrap().residual_bytes, ledger.residual_bytes - 100);
        // Whoever looks at the process only after it allocated knows no driver.
        let late =
            samples(2300.0).ledger(&Taken { first: -1, ..TAKEN }, |time| if time < 14 { 0 } else { 1350 }).unwrap();
        assert_eq!((late.driver_bytes, late.context_bytes), (0, Some(10)));
    }

    #[test]
    fn a_context_is_measured_while_the_allocator_rests() {
        let ms = |ms: i64| ms * 1_000_000;
        let used = [(ms(10), 700.0), (ms(20), 900.0), (ms(90), 1500.0)];
        let samples = DeviceSamples::made_of(&[(MEMORY_USED_BY_PROCESS, &used), ("memory.modules", &[(0, 0.0)])]);
        // At 10 ms the allocator has more than the device has told.
        let reserved = |time: i64| {
            if time < ms(9) {
                100
            } else if time < ms(80) {
                400
            } else {
                1000
            }
        };
        let taken = Taken { first: ms(8), peak: ms(85), at_peak: 1000, ..TAKEN };
        let ledger = samples.ledger(&taken, reserved).unwrap();
        assert_eq!((ledger.context_bytes, ledger.residual_bytes), (Some(500), 0));
    }

    #[test]
    fn a_context_is_whole_before_the_first_step() {
        let ms = |ms: i64| ms * 1_000_000;
        let used = [(0, 10.0), (ms(120), 300.0), (ms(200), 800.0), (ms(300), 1100.0)];
        let modules = [(0, 0.0), (ms(180), 40.0), (ms(280), 50.0)];
        let samples = DeviceSamples::made_of(&[(MEMORY_USED_BY_PROCESS, &used), ("memory.modules", &modules)]);
        let taken = Taken { first: ms(110), peak: ms(290), allocated: 400, at_peak: 400, ..TAKEN };
        let of = |start| {
            let taken = Taken { first_step_start: start, ..taken };
            samples.ledger(&taken, |time| if time < ms(250) { 200 } else { 400 }).unwrap()
        };
        let told = of(Some(ms(210)));
        assert_eq!((told.context_bytes, told.residual_bytes), (Some(800 - 200 - 10 - 40), 1100 - 400 - 10 - 550 - 50));
        let early = Some(300 - 200 - 10);
        assert_eq!(of(None).context_bytes, early);
        assert_eq!(of(Some(ms(115))).context_bytes, early, "nobody had looked by then");
    }

    #[test]
    fn what_comes_with_the_first_step_is_the_libraries_and_what_comes_later_is_left_over() {
        let used = [(0, 20.0), (10, 900.0), (20, 1700.0), (30, 2600.0), (40, 2600.0)];
        let samples = DeviceSamples::made_of(&[(MEMORY_USED, &used)]);
        // The allocator takes more right after the peak, before the device is asked.
        let reserved = |time: i64| {
            if time < 10 {
                0
            } else if time < 29 {
                800
            } else {
                1600
            }
        };
        let taken = Taken { first: 5, first_step_end: Some(15), peak: 25, allocated: 700, at_peak: 800, ..TAKEN };
        let ledger = samples.ledger(&taken, reserved).unwrap();
        assert_eq!((ledger.driver_bytes, ledger.libraries_bytes), (20, 900 - 20));
        assert_eq!((ledger.device_used_bytes, ledger.residual_bytes), (800 + 1000, 100));
        // A peak in the first step has no more than that step.
        let first = samples.ledger(&Taken { peak: 8, at_peak: 0, allocated: 0, ..taken }, reserved).unwrap();
        assert_eq!((first.libraries_bytes, first.residual_bytes), (80, 0));
    }
}
