//! The tensors of a unit, by name: views of its part of the flat allocation. Gradients lie as parameters do.

use stepscope_plan::{Part, Placement, Slot, Unit};

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
    /// The network that every token goes through, if there is one.
    dense: Option<NetworkTensors>,
    /// experts × hidden, if there are experts. These have units of their own.
    router: Option<Tensor>,
}

/// The tensors of a feed-forward network, or of an expert.
pub(crate) struct NetworkTensors {
    /// gate and up × hidden
    pub(crate) gate_up: Tensor,
    /// hidden × width
    pub(crate) down: Tensor,
}

impl NetworkTensors {
    pub(crate) fn of(slots: &[Slot], unit: &Unit, tensor: &Tensor) -> NetworkTensors {
        NetworkTensors {
            gate_up: between_slots(slots, unit, tensor, "gate", "up"),
            down: between_slots(slots, unit, tensor, "down", "down"),
        }
    }

    /// How wide it is here, between its matrices.
    pub(crate) fn width(&self, hidden: usize) -> usize {
        self.down.elements() / hidden
    }
}

impl LayerTensors {
    /// Those of a layer of a unit, of which `tensor` has all.
    pub(crate) fn of(placement: &Placement, (unit, layer): (usize, u64), tensor: &Tensor) -> LayerTensors {
        let unit = &placement.units[unit];
        let slots = placement.slots_of_part(unit, Part::Layer(layer));
        let named = |first: &str, last: &str| between_slots(slots, unit, tensor, first, last);
        let has = |name: &str| slots.iter().any(|slot| slot.name == name);
        LayerTensors {
            attention_norm: named("attention_norm", "attention_norm"),
            qkv: named("q", "v"),
            output: named("output", "output"),
            ffn_norm: named("ffn_norm", "ffn_norm"),
            dense: has("down").then(|| NetworkTensors::of(slots, unit, tensor)),
            router: has("router").then(|| named("router", "router")),
        }
    }

    /// Whether there is a network that every token goes through.
    pub(crate) fn is_dense(&self) -> bool {
        self.dense.is_some()
    }

    /// Whether there are experts.
    pub(crate) fn has_experts(&self) -> bool {
        self.router.is_some()
    }

    /// The network that every token goes through.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn dense(&self) -> &NetworkTensors {
        self.dense.as_ref().unwrap_or_else(|| panic!("all tokens of this layer go through experts they chose"))
    }

    /// What experts are chosen by.
    ///
    /// # Panics
    /// When there are none.
    pub(crate) fn router(&self) -> &Tensor {
        self.router.as_ref().unwrap_or_else(|| panic!("this layer has no experts"))
    }
}

/// A tensor of a unit.
pub(crate) fn named(placement: &Placement, unit: &Unit, tensor: &Tensor, name: &str) -> Tensor {
    between_slots(placement.slots_of(unit), unit, tensor, name, name)
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
