//! How kernels change: how often each runs, and how long it takes.
//!
//! The change of a kernel is that of how often it runs times its mean length, plus that of its length times its mean
//! count: count effect and duration effect, which add up to it. Of a kernel that is new or gone all is count effect.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{
    alignment::Aligned,
    leaves::{Amounts, Leaf},
    resample::Judged,
};

/// Whether a kernel of one run is in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelStatus {
    /// In both, under the same name.
    Same,
    /// In both, under other names.
    Renamed,
    /// In the other only.
    New,
    /// In the base only.
    Gone,
}

/// How a kernel changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelDiff {
    /// What it is called in the base.
    pub base_names: BTreeSet<String>,
    /// In the other.
    pub other_names: BTreeSet<String>,
    /// Whether it is in both.
    pub status: KernelStatus,
    /// The cause that it is a part of; the kernels of one add up to it.
    pub cause: String,
    /// How often it runs in a step of the base, on a rank.
    pub base_count: f64,
    /// Of the other.
    pub other_count: f64,
    /// Its time in the mean step of the base: moments that are its own, not its durations.
    pub base_ns: i64,
    /// In the other's.
    pub other_ns: i64,
    /// How much longer it takes.
    pub change_ns: i64,
    /// Of that, since it runs more or less often.
    pub count_effect_ns: i64,
    /// Of that, since it takes longer or shorter each time.
    pub duration_effect_ns: i64,
    /// What the change is hardly below.
    pub low_ns: Option<i64>,
    /// What it is hardly above.
    pub high_ns: Option<i64>,
    /// Whether it is more than chance, and more than half a percent of the step.
    pub significant: bool,
}

impl KernelDiff {
    /// A kernel's change; nothing, where it is none.
    pub(super) fn of(leaf: &Leaf, times: [i64; 2], scales: [i128; 2], judged: Judged) -> Option<KernelDiff> {
        let names = leaf.kernel.as_ref()?;
        let count = |amounts: &Amounts, scale: i128| amounts.count as f64 / scale.max(1) as f64;
        let counts = [count(&leaf.base, scales[0]), count(&leaf.other, scales[1])];
        let change_ns = times[1] - times[0];
        let count_effect_ns = count_effect(times, counts);
        Some(KernelDiff {
            status: status(names),
            base_names: names.base.clone(),
            other_names: names.other.clone(),
            cause: leaf.kind.words(),
            base_count: counts[0],
            other_count: counts[1],
            base_ns: times[0],
            other_ns: times[1],
            change_ns,
            count_effect_ns,
            duration_effect_ns: change_ns - count_effect_ns,
            low_ns: judged.low_ns,
            high_ns: judged.high_ns,
            significant: judged.significant,
        })
    }
}

fn status(names: &Aligned) -> KernelStatus {
    if names.base.is_empty() {
        KernelStatus::New
    } else if names.other.is_empty() {
        KernelStatus::Gone
    } else if names.base == names.other {
        KernelStatus::Same
    } else {
        KernelStatus::Renamed
    }
}

/// What of a change of time is one of the count: that times the mean of both lengths.
fn count_effect([base_ns, other_ns]: [i64; 2], [base, other]: [f64; 2]) -> i64 {
    if base == 0.0 || other == 0.0 {
        return other_ns - base_ns;
    }
    let length = f64::midpoint(base_ns as f64 / base, other_ns as f64 / other);
    ((other - base) * length).round() as i64
}
