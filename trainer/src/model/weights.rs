//! The tensors of a unit, by name: views of its part of the flat allocation. Gradients lie as parameters do.

use stepscope_plan::{Placement, Slot, Unit};

use crate::backend::Tensor;

/// The tensors of a layer.
pub(crate) struct LayerTensors {
    /// hidden
    pub(crate) attention_norm: Tensor,
    /// queries, keys and values × hidden
    pub(crate) qkv: Tensor,
    /// hidden × queries
    pub(crate) output: Tensor,
    /// hidden
    pub(crate) ffn_norm: Tensor,
    /// gate and up × hidden
    pub(crate) gate_up: Tensor,
    /// hidden × ffn
    pub(crate) down: Tensor,
}

impl LayerTensors {
    pub(crate) fn of(placement: &Placement, unit: &Unit, tensor: &Tensor) -> LayerTensors {
        let named = |first: &str, last: &str| between(placement, unit, tensor, first, last);
        LayerTensors {
            attention_norm: named("attention_norm", "attention_norm"),
            qkv: named("q", "v"),
            output: named("output", "output"),
            ffn_norm: named("ffn_norm", "ffn_norm"),
            gate_up: named("gate", "up"),
            down: named("down", "down"),
        }
    }
}

/// A tensor of a unit.
pub(crate) fn named(placement: &Placement, unit: &Unit, tensor: &Tensor, name: &str) -> Tensor {
    between(placement, unit, tensor, name, name)
}

/// Neighbours in a unit, as one tensor.
///
/// # Panics
/// When the unit has no such tensors: models are checked to be Llama-style before.
fn between(placement: &Placement, unit: &Unit, tensor: &Tensor, first: &str, last: &str) -> Tensor {
    let slots = placement.slots_of(unit);
    let find = |name: &str| -> &Slot {
        match slots.iter().find(|slot| slot.name == name) {
            Some(slot) => slot,
            None => panic!("{:?} has no {name}", unit.part),
        }
    };
    let place = |offset: u64| (offset - unit.range.start) as usize;
    tensor.slice(place(find(first).offset)..place(find(last).range().end))
}
