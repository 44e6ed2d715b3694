//! A rank's time by phase, layer and axis.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_plan::Axis;
use stepscope_traces::{Layer, Phase};

use crate::stored::fields;

/// The time that belongs to one part of the training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Compute.
    pub compute_ns: i64,
    /// Communication that nothing hides.
    pub exposed_communication_ns: i64,
    /// Copies that nothing hides.
    pub exposed_copy_ns: i64,
}

fields!(Share { compute_ns, exposed_communication_ns, exposed_copy_ns });

/// The time of a phase; of none, what belongs to no phase that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseShare {
    /// Which phase.
    pub phase: Option<Phase>,
    /// Its time.
    #[serde(flatten)]
    pub share: Share,
}

fields!(PhaseShare { phase, share });

/// The time of a layer; of none, what belongs to no layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LayerShare {
    /// Which layer.
    pub layer: Option<Layer>,
    /// Its time.
    #[serde(flatten)]
    pub share: Share,
}

fields!(LayerShare { layer, share });

/// Communication along an axis; along none, where that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AxisShare {
    /// Which axis.
    pub axis: Option<Axis>,
    /// Covered by it.
    pub communication_ns: i64,
    /// Covered by it, and by compute.
    pub overlapped_ns: i64,
    /// Covered by it and not by compute; where two axes talk at once, it is the first one's. Those of all axes add up.
    pub exposed_ns: i64,
}

fields!(AxisShare { axis, communication_ns, overlapped_ns, exposed_ns });

impl AxisShare {
    /// No communication, to add to.
    pub(crate) fn along(axis: Option<Axis>) -> AxisShare {
        AxisShare { axis, communication_ns: 0, overlapped_ns: 0, exposed_ns: 0 }
    }

    /// The communication of some ranks, added up; without axes along which there was none.
    pub fn sum<'a>(shares: impl IntoIterator<Item = &'a AxisShare>) -> Vec<AxisShare> {
        let mut sums: BTreeMap<Option<Axis>, AxisShare> = BTreeMap::new();
        for share in shares {
            let sum = sums.entry(share.axis).or_insert(AxisShare::along(share.axis));
            sum.communication_ns += share.communication_ns;
            sum.overlapped_ns += share.overlapped_ns;
            sum.exposed_ns += share.exposed_ns;
        }
        sums.into_values().filter(|sum| sum.communication_ns > 0).collect()
    }

    /// The part of it that compute hides.
    pub fn overlap(&self) -> f64 {
        self.overlapped_ns as f64 / self.communication_ns.max(1) as f64
    }
}

/// A rank's time by what it was for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Breakdown {
    /// By phase.
    pub phases: Vec<PhaseShare>,
    /// By layer.
    pub layers: Vec<LayerShare>,
    /// Communication by axis.
    pub axes: Vec<AxisShare>,
}

fields!(Breakdown { phases, layers, axes });
