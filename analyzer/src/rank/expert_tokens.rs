//! Tokens that went through the experts of a rank.

use std::collections::{BTreeMap, HashMap};

use stepscope_traces::{CounterSamples, Names, layer_and_expert};

use crate::{figures::CountedSteps, rank::step_windows::StepWindow};

/// Tokens by layer and expert, in the steps that count. They are counted when a step is done.
pub(crate) fn expert_tokens(
    samples: &CounterSamples,
    names: &Names,
    steps: &[StepWindow],
    counted: &CountedSteps,
) -> BTreeMap<(u64, u64), f64> {
    let places = names.iter().filter_map(|(id, name)| Some((id.0, layer_and_expert(name)?)));
    let places: HashMap<u32, (u64, u64)> = places.collect();
    let mut tokens = BTreeMap::new();
    if places.is_empty() {
        return tokens;
    }
    for sample in samples.rows() {
        let Some(place) = places.get(&u32::from(sample.counter.0)) else { continue };
        let begun = steps.partition_point(|step| step.start <= sample.time_ns.0);
        let step = begun.checked_sub(1).map(|index| steps[index].step);
        if counted.has(step) {
            *tokens.entry(*place).or_default() += sample.value;
        }
    }
    tokens
}
