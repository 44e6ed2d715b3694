//! The memory of one rank: what a step allocates and frees, and the balance.

use stepscope_plan::{Pass as Direction, Work};

use super::{
    MemoryTruth, Recipe,
    timeline::{GRADIENT_BYTES, StageTimeline, StepTimeline},
};
use crate::{
    ids::{Layer, Nanos, Pool, Step},
    tables::MemoryEvent,
    vocabulary::{MemoryCategory, MemoryOperation, Phase, SpanKind},
};

const ACTIVATION_BYTES: u64 = 48 << 20;
const LOGITS_BYTES: u64 = 96 << 20;
const INPUT_BYTES: u64 = 1 << 20;

/// What stays allocated for the whole run, at true time `time`, and the memory it is taken from.
pub(super) fn standing(recipe: &Recipe, time: i64) -> Vec<MemoryEvent> {
    let layers = u64::from(recipe.layers);
    let transient = layers * u64::from(recipe.micro_batches) * ACTIVATION_BYTES + 2 * LOGITS_BYTES;
    let blocks = [
        (MemoryCategory::Parameters, layers * GRADIENT_BYTES),
        (MemoryCategory::Gradients, layers * GRADIENT_BYTES),
        (MemoryCategory::OptimizerState, layers * GRADIENT_BYTES * 6),
    ];
    let reserve = MemoryEvent {
        op: MemoryOperation::Reserve,
        category: None,
        ..event(time, 1 << 40, layers * GRADIENT_BYTES * 9 + transient, MemoryCategory::Other)
    };
    let allocations = blocks
        .iter()
        .enumerate()
        .map(|(index, &(category, bytes))| event(time, (1 << 40) + ((index as u64) << 36), bytes, category));
    std::iter::once(reserve).chain(allocations).collect()
}

/// What one step allocates and frees, in order of true time.
pub(super) fn of_step(step: &StepTimeline, stage: &StageTimeline) -> Vec<MemoryEvent> {
    let mut events = Vec::new();
    let mut block =
        |(from, to): (i64, i64), address: u64, bytes, category, layer: Option<Layer>, phases: [Phase; 2]| {
            let alloc = MemoryEvent {
                layer,
                step: Some(step.step),
                phase: Some(phases[0]),
                ..event(from, address, bytes, category)
            };
            // A free names only the block: its size and use are known from the allocation.
            let free = MemoryEvent {
                time_ns: Nanos(to),
                op: MemoryOperation::Free,
                bytes: None,
                category: None,
                phase: Some(phases[1]),
                ..alloc
            };
            events.extend([alloc, free]);
        };

    let data = [Phase::Data, Phase::Optimizer];
    block((step.start, step.end), 1, INPUT_BYTES, MemoryCategory::Inputs, None, data);
    let both = [Phase::Forward, Phase::Backward];
    for forward in stage.passes.iter().filter(|pass| pass.work.pass == Direction::Forward) {
        let same = |pass| stage.passes.iter().find(|other| other.work == Work { pass, ..forward.work });
        let Some(backward) = same(Direction::Backward) else { continue };
        let last = same(Direction::Weights).unwrap_or(backward);
        let (micro_batch, chunk) = (forward.work.micro_batch, forward.work.chunk);
        for &(layer, from, _) in &forward.layers {
            let to = last.layers.iter().find(|(other, _, _)| *other == layer).map_or(last.end, |(_, _, to)| *to);
            let address = 2 << 40 | micro_batch << 32 | (layer.0 as u64) << 12;
            block((from, to), address, ACTIVATION_BYTES, MemoryCategory::Activations, Some(layer), both);
        }
        let logits = 3 << 40 | micro_batch << 32 | chunk;
        block((forward.end, backward.start), logits, LOGITS_BYTES, MemoryCategory::Workspace, None, both);
    }
    let reduces = stage.activities.iter().filter(|activity| activity.kind == SpanKind::AllReduce);
    for reduce in reduces {
        let address = 4 << 40 | (reduce.layer.unwrap_or_default().0 as u64) << 32;
        let phases = [Phase::Backward; 2];
        let interval = (reduce.start, reduce.end);
        block(interval, address, reduce.bytes, MemoryCategory::Communication, reduce.layer, phases);
    }
    events.sort_by_key(|event| event.time_ns);
    events
}

fn event(time: i64, address: u64, bytes: u64, category: MemoryCategory) -> MemoryEvent {
    MemoryEvent {
        time_ns: Nanos(time),
        op: MemoryOperation::Alloc,
        address,
        bytes: Some(bytes),
        category: Some(category),
        step: None,
        phase: None,
        layer: None,
        pool: Some(Pool(0)),
        site: None,
    }
}

/// Keeps the balance, event by event.
#[derive(Default)]
pub(super) struct Balance {
    live: std::collections::BTreeMap<u64, (MemoryCategory, u64)>,
    allocated: u64,
    reserved: u64,
    truth: MemoryTruth,
}

impl Balance {
    pub(super) fn add(&mut self, event: &MemoryEvent, step: Option<Step>) {
        let at_end = &mut self.truth.at_end;
        match (event.op, event.category, event.bytes) {
            (MemoryOperation::Alloc, Some(category), Some(bytes)) => {
                self.live.insert(event.address, (category, bytes));
                *at_end.entry(category).or_default() += bytes;
                self.allocated += bytes;
            }
            (MemoryOperation::Free, _, _) => {
                if let Some((category, bytes)) = self.live.remove(&event.address) {
                    *at_end.entry(category).or_default() -= bytes;
                    at_end.retain(|_, bytes| *bytes > 0);
                    self.allocated -= bytes;
                }
            }
            (MemoryOperation::Reserve, _, Some(bytes)) => self.reserved += bytes,
            _ => {}
        }
        if self.allocated > self.truth.peak_bytes {
            self.truth.peak_bytes = self.allocated;
            self.truth.peak_time = event.time_ns;
            self.truth.peak_step = step;
            self.truth.at_peak = self.truth.at_end.clone();
        }
        self.truth.reserved_peak_bytes = self.truth.reserved_peak_bytes.max(self.reserved);
    }

    pub(super) fn truth(self) -> MemoryTruth {
        self.truth
    }
}
