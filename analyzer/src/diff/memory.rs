//! Why more memory is needed: the change of the peak, by category, in parts that add up to it.
//!
//! The peak is the most that was allocated at once on the fullest rank of each run. Each category's change is that of
//! what it had then, so they add up to the change of the peak, to the byte. Beside it stands fragmentation, what was taken
//! from the device and not allocated at that moment.
//!
//! Where both runs say their model and layout, the change of a category is divided by what of it the plan predicts for
//! each setting that differs: settings are changed one after another, in the order of [`Setting`], and each has what its
//! step changes. What is left is not explained by them.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_plan::{Attention, MemoryPlan, Model, ParallelLayout};
use stepscope_traces::{MemoryCategory, Rank};

use super::profile::Profile;
use crate::figures::{Analysis, RankMemory};

/// How the peak of memory changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryDiff {
    /// What was allocated at the peak of the base's fullest rank.
    pub base_bytes: i64,
    /// Of the other's.
    pub other_bytes: i64,
    /// How much more that is.
    pub change_bytes: i64,
    /// Which rank is fullest in the base.
    pub base_rank: Rank,
    /// In the other.
    pub other_rank: Rank,
    /// Whether categories of either were told from something else than what the program said.
    pub inferred: bool,
    /// Why, the largest first; they add up to the change.
    pub causes: Vec<MemoryCause>,
    /// Taken from the device and not allocated, at those peaks; none where a run does not say.
    pub fragmentation: Option<BytesDiff>,
    /// The peaks of all ranks together.
    pub all_ranks: BytesDiff,
}

/// A size in both runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BytesDiff {
    /// In the base.
    pub base_bytes: i64,
    /// In the other.
    pub other_bytes: i64,
    /// How much more that is.
    pub change_bytes: i64,
}

/// How a category changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryCause {
    /// What it is, in words.
    pub cause: String,
    /// Which category.
    pub category: MemoryCategory,
    /// What it had at the base's peak.
    pub base_bytes: i64,
    /// At the other's.
    pub other_bytes: i64,
    /// How much more that is.
    pub change_bytes: i64,
    /// By which setting, as the plan predicts; none where a run does not say its settings. They add up to the change.
    pub parts: Vec<MemoryPart>,
}

/// What of a category's change is one of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryPart {
    /// Which setting.
    pub cause: Setting,
    /// How much more.
    pub change_bytes: i64,
    /// Whether that is a prediction; what is left over is measured.
    pub predicted: bool,
}

/// Settings that memory depends on, in the order in which they are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// Over how many ranks the model and its state are spread.
    Sharding,
    /// How much goes through at once.
    MicroBatch,
    /// In which order stages work.
    Schedule,
    /// What is computed again instead of being kept.
    Recompute,
    /// How many bytes a number has.
    Precision,
    /// None of these.
    Unexplained,
}

impl Setting {
    /// It, in words.
    pub fn words(self) -> &'static str {
        match self {
            Setting::Sharding => "sharding",
            Setting::MicroBatch => "micro-batch",
            Setting::Schedule => "schedule",
            Setting::Recompute => "recompute",
            Setting::Precision => "precision",
            Setting::Unexplained => "rest",
        }
    }

    /// A layout with this setting as in another.
    fn changed(self, layout: ParallelLayout, other: &ParallelLayout) -> ParallelLayout {
        let ParallelLayout { dp, tp, sequence_parallel, cp, context, ep, pp, zero, dp_replicate, .. } = *other;
        let ParallelLayout { prefetch, unit_layers, .. } = *other;
        let ParallelLayout { micro_batch, micro_batches, sequence_length, recompute, precision, gradients, .. } =
            *other;
        let ParallelLayout { schedule, chunks, .. } = *other;
        match self {
            Setting::Sharding => ParallelLayout {
                dp,
                tp,
                sequence_parallel,
                cp,
                context,
                ep,
                pp,
                zero,
                dp_replicate,
                prefetch,
                unit_layers,
                ..layout
            },
            Setting::MicroBatch => ParallelLayout { micro_batch, micro_batches, sequence_length, ..layout },
            Setting::Schedule => ParallelLayout { schedule, chunks, ..layout },
            Setting::Recompute => ParallelLayout { recompute, ..layout },
            Setting::Precision => ParallelLayout { precision, gradients, ..layout },
            Setting::Unexplained => layout,
        }
    }
}

const CHANGED: [Setting; 5] =
    [Setting::Sharding, Setting::MicroBatch, Setting::Schedule, Setting::Recompute, Setting::Precision];

/// No device has more; so that sums of a damaged recording do not overflow.
const MOST: u64 = 1 << 56;

fn signed(bytes: u64) -> i64 {
    bytes.min(MOST) as i64
}

impl BytesDiff {
    fn of(base: i64, other: i64) -> BytesDiff {
        BytesDiff { base_bytes: base, other_bytes: other, change_bytes: other - base }
    }
}

/// How the peak changes and why; nothing where a run has no memory.
pub(crate) fn compare(base: &Profile<'_>, other: &Profile<'_>) -> Option<MemoryDiff> {
    let (base_rank, other_rank) = (fullest(&base.analysis)?, fullest(&other.analysis)?);
    let settings = by_setting(base, other);
    let mut causes: Vec<MemoryCause> = Vec::new();
    for category in MemoryCategory::ALL {
        let at = |memory: &RankMemory| signed(memory.at_peak.get(category).copied().unwrap_or(0));
        let BytesDiff { base_bytes, other_bytes, change_bytes } = BytesDiff::of(at(base_rank), at(other_rank));
        if base_bytes == 0 && other_bytes == 0 {
            continue;
        }
        let parts = settings.as_ref().map_or_else(Vec::new, |settings| parts(settings, *category, change_bytes));
        let cause = category.word().replace('_', " ");
        causes.push(MemoryCause { cause, category: *category, base_bytes, other_bytes, change_bytes, parts });
    }
    causes.sort_by_key(|cause| (std::cmp::Reverse(cause.change_bytes.abs()), cause.category));
    let sum = |of: fn(&MemoryCause) -> i64| causes.iter().map(of).sum::<i64>();
    let BytesDiff { base_bytes, other_bytes, change_bytes } =
        BytesDiff::of(sum(|cause| cause.base_bytes), sum(|cause| cause.other_bytes));
    let all = |analysis: &Analysis| {
        analysis.memory.iter().fold(0_i64, |sum, memory| sum.saturating_add(signed(memory.peak_bytes)))
    };
    let fragmentation = base_rank.fragmentation_bytes.zip(other_rank.fragmentation_bytes);
    Some(MemoryDiff {
        base_bytes,
        other_bytes,
        change_bytes,
        base_rank: base_rank.rank,
        other_rank: other_rank.rank,
        inferred: base_rank.inferred || other_rank.inferred,
        causes,
        fragmentation: fragmentation.map(|(base, other)| BytesDiff::of(signed(base), signed(other))),
        all_ranks: BytesDiff::of(all(&base.analysis), all(&other.analysis)),
    })
}

/// The rank that has most memory allocated at once.
pub(crate) fn fullest(analysis: &Analysis) -> Option<&RankMemory> {
    analysis.memory.iter().rev().max_by_key(|memory| memory.peak_bytes)
}

/// What the plan predicts each setting to change, of each category; nothing where a run does not say enough.
fn by_setting(base: &Profile<'_>, other: &Profile<'_>) -> Option<Vec<(Setting, BTreeMap<&'static str, i64>)>> {
    let (model, target) = (base.analysis.run.model.as_ref()?.shape()?, other.analysis.run.layout?.said?);
    if other.analysis.run.model.as_ref().and_then(Model::shape) != Some(model) {
        return None;
    }
    let planned = |layout: &ParallelLayout| MemoryPlan::fullest(model, layout, Attention::Flash).ok();
    let mut layout = base.analysis.run.layout?.said?;
    let mut before = planned(&layout)?;
    let mut effects = Vec::new();
    for setting in CHANGED {
        let changed = setting.changed(layout, &target);
        let after = planned(&changed)?;
        let change = |((name, before), (_, after)): ((_, u64), (_, u64))| (name, signed(after) - signed(before));
        effects.push((setting, before.categories().into_iter().zip(after.categories()).map(change).collect()));
        (layout, before) = (changed, after);
    }
    Some(effects)
}

fn parts(
    settings: &[(Setting, BTreeMap<&'static str, i64>)],
    category: MemoryCategory,
    change: i64,
) -> Vec<MemoryPart> {
    let effect = |effects: &BTreeMap<&str, i64>| effects.get(category.word()).copied().unwrap_or(0);
    let predicted = settings.iter().map(|(cause, effects)| MemoryPart {
        cause: *cause,
        change_bytes: effect(effects),
        predicted: true,
    });
    let mut parts: Vec<MemoryPart> = predicted.filter(|part| part.change_bytes != 0).collect();
    let left = change - parts.iter().map(|part| part.change_bytes).sum::<i64>();
    if left != 0 {
        parts.push(MemoryPart { cause: Setting::Unexplained, change_bytes: left, predicted: false });
    }
    parts
}
