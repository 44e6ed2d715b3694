//! Why a step takes longer: the change of the mean step, in causes that add up to it.
//!
//! A step is a sum of parts (`step_parts`), on the replica that the others wait for (`profile`). The mean over the steps
//! that count, and over the ranks of the replica, of each part is rounded so that parts add up to the mean step
//! (`figures/rounding`); so the changes of the parts add up to its change, to the nanosecond. A cause is one or more parts:
//!
//! - compute, by family: moments that belong to its kernels, but for those that compute again;
//! - recomputation: moments of kernels that compute again what was computed before;
//! - exposed communication, by operation and axis;
//! - exposed copies;
//! - pipeline bubble: moments in which the rank's stage is idle by the definition of the bubble, and nothing runs, or only
//!   messages between stages do; other activity in it is what it is;
//! - idle: moments in which nothing runs, for any other reason.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;

use super::{
    cause::CauseKind,
    kernel::KernelDiff,
    leaves::{Amounts, Leaf, leaves, scale},
    profile::{Profile, ProfileStep},
    resample::{Judged, Series},
    steady::Steady,
};
use crate::{error::AnalysisError, figures::divided};

/// A cause or a kernel is significant only from this share of the base's step on.
const FLOOR: f64 = 0.005;

/// How the mean step changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeDiff {
    /// The mean step of the base.
    pub base_ns: i64,
    /// The other's.
    pub other_ns: i64,
    /// How much longer the other's is.
    pub change_ns: i64,
    /// What the change is hardly below; none where a run has one step.
    pub low_ns: Option<i64>,
    /// What it is hardly above.
    pub high_ns: Option<i64>,
    /// Whether whole recordings are compared, and not steps: a recording stands for a step then.
    pub whole: bool,
    /// How many steps of the base count.
    pub base_steps: u64,
    /// Of the other.
    pub other_steps: u64,
    /// Why, the largest first; they add up to the change.
    pub causes: Vec<TimeCause>,
}

/// A part of the change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeCause {
    /// What it is, in words.
    pub cause: String,
    /// What kind of cause.
    #[serde(flatten)]
    pub kind: CauseKind,
    /// Its time in the mean step of the base.
    pub base_ns: i64,
    /// In the other's.
    pub other_ns: i64,
    /// How much longer it takes.
    pub change_ns: i64,
    /// What the change is hardly below.
    pub low_ns: Option<i64>,
    /// What it is hardly above.
    pub high_ns: Option<i64>,
    /// Whether it is more than chance, and more than half a percent of the step.
    pub significant: bool,
}

/// How the mean step changes and why; nothing where a run has no activity.
pub(crate) fn compare(
    base: &Profile<'_>,
    other: &Profile<'_>,
    steady: &Steady<'_>,
) -> Result<Option<(TimeDiff, Vec<KernelDiff>)>, AnalysisError> {
    let has_time = |steps: &[ProfileStep]| steps.iter().any(|step| step.time_ns > 0);
    if !has_time(steady.base) || !has_time(steady.other) {
        return Ok(None);
    }
    let leaves = leaves(base, other, steady)?;
    let [base_scale, other_scale] = [steady.base, steady.other].map(scale);
    let sums = |of: fn(&Leaf) -> &Amounts| -> Vec<i128> {
        leaves.iter().map(|leaf| of(leaf).times.iter().map(|time| i128::from(*time)).sum()).collect()
    };
    let base_means = divided(&sums(|leaf| &leaf.base), base_scale);
    let other_means = divided(&sums(|leaf| &leaf.other), other_scale);
    let (base_ns, other_ns) = (base_means.iter().sum::<i64>(), other_means.iter().sum::<i64>());
    let judge = |leaves: &[&Leaf], change: i64| {
        let [base, other] = [(steady.base, false), (steady.other, true)].map(|(steps, is_other)| {
            let replica = steps.first().map_or(1, |step| step.ranks.len()) as f64;
            let of = |leaf: &Leaf, step: usize| if is_other { leaf.other.times[step] } else { leaf.base.times[step] };
            let at = |step| leaves.iter().map(|leaf| of(leaf, step)).sum::<i64>() as f64 / replica;
            Series::mean((0..steps.len()).map(at).collect())
        });
        let interval = steady.change(&base, &other);
        let significant =
            interval.is_some_and(|interval| interval.excludes_zero()) && change.abs() as f64 >= FLOOR * base_ns as f64;
        let nanoseconds = |value: f64| value.round() as i64;
        Judged {
            low_ns: interval.map(|all| nanoseconds(all.low)),
            high_ns: interval.map(|all| nanoseconds(all.high)),
            significant,
        }
    };
    let mut kinds: BTreeMap<CauseKind, Vec<usize>> = BTreeMap::new();
    leaves.iter().enumerate().for_each(|(index, leaf)| kinds.entry(leaf.kind).or_default().push(index));
    let mut causes: Vec<TimeCause> = Vec::new();
    for (kind, members) in kinds {
        let sum = |means: &[i64]| members.iter().map(|index| means[*index]).sum::<i64>();
        let (base_ns, other_ns) = (sum(&base_means), sum(&other_means));
        let members: Vec<&Leaf> = members.iter().map(|index| &leaves[*index]).collect();
        let change_ns = other_ns - base_ns;
        let Judged { low_ns, high_ns, significant } = judge(&members, change_ns);
        causes.push(TimeCause {
            cause: kind.words(),
            kind,
            base_ns,
            other_ns,
            change_ns,
            low_ns,
            high_ns,
            significant,
        });
    }
    causes.sort_by_key(|cause| (Reverse(cause.change_ns.abs()), cause.kind));
    let mut kernels = Vec::new();
    for (index, leaf) in leaves.iter().enumerate() {
        let times = [base_means[index], other_means[index]];
        let judged = judge(&[leaf], times[1] - times[0]);
        kernels.extend(KernelDiff::of(leaf, times, [base_scale, other_scale], judged));
    }
    let order =
        |kernel: &KernelDiff| (Reverse(kernel.change_ns.abs()), kernel.base_names.clone(), kernel.other_names.clone());
    kernels.sort_by_cached_key(order);
    let change_ns = other_ns - base_ns;
    let Judged { low_ns, high_ns, .. } = judge(&leaves.iter().collect::<Vec<_>>(), change_ns);
    let time = TimeDiff {
        base_ns,
        other_ns,
        change_ns,
        low_ns,
        high_ns,
        whole: steady.is_whole(),
        base_steps: steady.base.len() as u64,
        other_steps: steady.other.len() as u64,
        causes,
    };
    Ok(Some((time, kernels)))
}
