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
    pub(crate) network: NetworkTensors,
}

/// The tensors of a layer's feed-forward network that are in its own unit.
pub(crate) enum NetworkTensors {
    Dense {
        /// gate and up × hidden
        gate_up: Tensor,
        /// hidden × ffn
        down: Tensor,
    },
    /// Experts have units of their own.
    Experts {
        /// experts × hidden
        router: Tensor,
    },
}

impl LayerTensors {
    pub(crate) fn of(placement: &Placement, unit: &Unit, tensor: &Tensor) -> LayerTensors {
        let named = |first: &str, last: &str| between(placement, unit, tensor, first, last);
        LayerTensors {
            attention_norm: named("attention_norm", "attention_norm"),
            qkv: named("q", "v"),
            output: named("output", "output"),
            ffn_norm: named("ffn_norm", "ffn_norm"),
            network: if placement.slots_of(unit).iter().any(|slot| slot.name == "router") {
                NetworkTensors::Experts { router: named("router", "router") }
            } else {
                NetworkTensors::Dense { gate_up: named("gate", "up"), down: named("down", "down") }
            },
        }
    }

    /// What the network multiplies its input by: gate and up, or the router.
    pub(crate) fn first_matrix(&self) -> &Tensor {
        match &self.network {
            NetworkTensors::Dense { gate_up, .. } => gate_up,
            NetworkTensors::Experts { router } => router,
        }
    }

    /// The second matrix of a dense network.
    ///
    /// # Panics
    /// When the layer has experts.
    pub(crate) fn down(&self) -> &Tensor {
        match &self.network {
            NetworkTensors::Dense { down, .. } => down,
            NetworkTensors::Experts { .. } => panic!("a layer with experts has no network beside them"),
        }
    }
}

/// A tensor of a unit.
pub(crate) fn named(placement: &Placement, unit: &Unit, tensor: &Tensor, name: &str) -> Tensor {
    between(placement, unit, tensor, name, name)
}

/// Neighbours in a unit, as one tensor.
fn between(placement: &Placement, unit: &Unit, tensor: &Tensor, first: &str, last: &str) -> Tensor {
    between_slots(placement.slots_of(unit), unit, tensor, first, last)
}

/// Neighbours among some slots of a unit, as one tensor.
///
/// # Panics
/// When there are no such tensors: models are checked to be Llama-style before.
pub(crate) fn between_slots(slots: &[Slot], unit: &Unit, tensor: &Tensor, first: &str, last: &str) -> Tensor {
    let find = |name: &str| -> &Slot {
        match slots.iter().find(|slot| slot.name == name) {
            Some(slot) => slot,
            None => panic!("{:?} has no {name}", unit.part),
        }
    };
    let place = |offset: u64| (offset - unit.range.start) as usize;
    tensor.slice(place(find(first).offset)..place(find(last).range().end))
}
