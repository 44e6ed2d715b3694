//! The parts of two runs, put together: the least that is compared.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stepscope_traces::Family;

use super::{
    alignment::{Aligned, Calls, align, has_new_and_gone, renamed},
    cause::CauseKind,
    launches::launches,
    profile::{Profile, ProfileStep, StepPart},
    steady::Steady,
};
use crate::error::AnalysisError;

/// Of so much of the time of kernels it must be known what they were launched for.
const LEAST_KNOWN: f64 = 0.9;

/// What is compared as one: parts of a run that are the same.
pub(super) struct Leaf {
    pub(super) kind: CauseKind,
    pub(super) kernel: Option<Aligned>,
    pub(super) base: Amounts,
    pub(super) other: Amounts,
}

/// A leaf on one side.
#[derive(Default)]
pub(super) struct Amounts {
    /// Its time in each step, of all ranks of the replica.
    pub(super) times: Vec<i64>,
    pub(super) count: u64,
}

/// What sums over steps and ranks of a replica are divided by.
pub(super) fn scale(steps: &[ProfileStep]) -> i128 {
    steps.iter().map(|step| step.ranks.len() as i128).sum()
}

/// The parts of both runs, put together.
pub(super) fn leaves(base: &Profile<'_>, other: &Profile<'_>, steady: &Steady<'_>) -> Result<Vec<Leaf>, AnalysisError> {
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut places: HashMap<StepPart, usize> = HashMap::new();
    let compared = Compared::of(base, other);
    for recomputes in [false, true] {
        let calls = calls([(base, steady.base), (other, steady.other)], &compared, recomputes);
        let pairs = match has_new_and_gone(&calls) && !compared.by_work {
            true => renamed(&calls, &launches(base)?, &launches(other)?),
            false => BTreeSet::new(),
        };
        for group in align(&calls, &pairs) {
            let names: BTreeSet<&String> = group.base.union(&group.other).collect();
            let parts: Vec<StepPart> = names.iter().map(|name| compared.kernel(name, recomputes)).collect();
            let Some(kind) = parts.first().map(CauseKind::of) else { continue };
            places.extend(parts.into_iter().map(|part| (part, leaves.len())));
            leaves.push(Leaf { kind, kernel: Some(group), base: Amounts::default(), other: Amounts::default() });
        }
    }
    // In an order that is the same each time: rounding goes by it.
    let all: BTreeSet<&StepPart> = base.parts.iter().chain(&other.parts).collect();
    for part in all.into_iter().filter(|part| !matches!(part, StepPart::Kernel { .. })) {
        places.insert(part.clone(), leaves.len());
        let kind = CauseKind::of(part);
        leaves.push(Leaf { kind, kernel: None, base: Amounts::default(), other: Amounts::default() });
    }
    for (profile, steps, is_other) in [(base, steady.base, false), (other, steady.other, true)] {
        let place: Vec<Option<usize>> =
            profile.parts.iter().map(|part| places.get(&compared.part(part)).copied()).collect();
        let mut amounts: Vec<Amounts> =
            leaves.iter().map(|_| Amounts { times: vec![0; steps.len()], count: 0 }).collect();
        for (index, step) in steps.iter().enumerate() {
            for (part, amount) in &step.parts {
                // What ran in steps of the warm-up alone has no place, and nothing here.
                let Some(place) = place[*part] else { continue };
                amounts[place].times[index] += amount.time_ns;
                amounts[place].count += amount.count;
            }
        }
        for (leaf, amounts) in leaves.iter_mut().zip(amounts) {
            *(if is_other { &mut leaf.other } else { &mut leaf.base }) = amounts;
        }
    }
    leaves.retain(|leaf| {
        [&leaf.base, &leaf.other].iter().any(|side| side.count > 0 || side.times.iter().any(|time| *time != 0))
    });
    Ok(leaves)
}

/// By what kernels of two runs are compared: by the work that they were launched for, where both runs know it; else by their
/// names. A library may do the same work by another kernel, and the same kernel may do other work.
struct Compared {
    by_work: bool,
    /// What kind of work each is, by the kernel that comes first.
    families: BTreeMap<String, Family>,
}

impl Compared {
    fn of(base: &Profile<'_>, other: &Profile<'_>) -> Compared {
        let by_work = [base, other].iter().all(|profile| knows_work(profile));
        let mut families = BTreeMap::new();
        for part in base.parts.iter().chain(&other.parts) {
            if let StepPart::Kernel { family, name, work, .. } = part {
                let name = work.as_ref().filter(|_| by_work).unwrap_or(name);
                families.entry(name.clone()).or_insert(*family);
            }
        }
        Compared { by_work, families }
    }

    /// What a kernel is compared by.
    fn name<'a>(&self, name: &'a String, work: &'a Option<String>) -> &'a String {
        work.as_ref().filter(|_| self.by_work).unwrap_or(name)
    }

    /// A part as it is compared.
    fn part(&self, part: &StepPart) -> StepPart {
        match part {
            StepPart::Kernel { name, work, recomputes, .. } => self.kernel(self.name(name, work), *recomputes),
            other => other.clone(),
        }
    }

    fn kernel(&self, name: &str, recomputes: bool) -> StepPart {
        let family = self.families.get(name).copied().unwrap_or(Family::Other);
        StepPart::Kernel { family, name: name.into(), work: None, recomputes }
    }
}

/// Whether it is known of most of the time of a run's kernels what they were launched for.
fn knows_work(profile: &Profile<'_>) -> bool {
    let (mut known, mut all) = (0_i64, 0_i64);
    for (part, amount) in profile.steps.iter().flat_map(|step| &step.parts) {
        if let StepPart::Kernel { work, .. } = &profile.parts[*part] {
            all += amount.time_ns;
            known += if work.is_some() { amount.time_ns } else { 0 };
        }
    }
    all > 0 && known as f64 >= LEAST_KNOWN * all as f64
}

/// How often each kernel runs in a step.
fn calls(sides: [(&Profile<'_>, &[ProfileStep]); 2], compared: &Compared, recomputes: bool) -> Calls {
    let mut calls = Calls::new();
    for (side, (profile, steps)) in sides.into_iter().enumerate() {
        let mut counts: Vec<Option<u64>> = vec![None; profile.parts.len()];
        for (part, amount) in steps.iter().flat_map(|step| &step.parts) {
            *counts[*part].get_or_insert(0) += amount.count;
        }
        for (part, count) in profile.parts.iter().zip(counts) {
            let (StepPart::Kernel { name, work, recomputes: again, .. }, Some(count)) = (part, count) else { continue };
            if *again == recomputes {
                // One that began in the warm-up and ended after it is there, too.
                let count = (count as f64).max(1e-9) / scale(steps).max(1) as f64;
                calls.entry(compared.name(name, work).clone()).or_default()[side] += count;
            }
        }
    }
    calls
}
