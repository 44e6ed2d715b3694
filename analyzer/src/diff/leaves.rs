//! The parts of two runs, put together: the least that is compared.

use std::collections::{BTreeSet, HashMap};

use super::{
    alignment::{Aligned, Calls, align, has_new_and_gone, renamed},
    cause::CauseKind,
    launches::launches,
    profile::{Profile, ProfileStep, StepPart},
    steady::Steady,
};
use crate::{error::AnalysisError, figures::Class};

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
    for recomputes in [false, true] {
        let calls = calls([(base, steady.base), (other, steady.other)], recomputes);
        let pairs = match has_new_and_gone(&calls) {
            true => renamed(&calls, &launches(base)?, &launches(other)?),
            false => BTreeSet::new(),
        };
        for group in align(&calls, &pairs) {
            let names: BTreeSet<&String> = group.base.union(&group.other).collect();
            let parts: Vec<StepPart> = names.iter().map(|name| kernel(name, recomputes)).collect();
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
        let place: Vec<Option<usize>> = profile.parts.iter().map(|part| places.get(part).copied()).collect();
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

fn kernel(name: &str, recomputes: bool) -> StepPart {
    let family = Class::Compute.family(name);
    StepPart::Kernel { family, name: name.into(), recomputes }
}

/// How often each kernel runs in a step.
fn calls(sides: [(&Profile<'_>, &[ProfileStep]); 2], recomputes: bool) -> Calls {
    let mut calls = Calls::new();
    for (side, (profile, steps)) in sides.into_iter().enumerate() {
        let mut counts: Vec<Option<u64>> = vec![None; profile.parts.len()];
        for (part, amount) in steps.iter().flat_map(|step| &step.parts) {
            *counts[*part].get_or_insert(0) += amount.count;
        }
        for (part, count) in profile.parts.iter().zip(counts) {
            let (StepPart::Kernel { name, recomputes: again, .. }, Some(count)) = (part, count) else { continue };
            if *again == recomputes {
                // One that began in the warm-up and ended after it is there, too.
                calls.entry(name.clone()).or_default()[side] = (count as f64).max(1e-9) / scale(steps).max(1) as f64;
            }
        }
    }
    calls
}
