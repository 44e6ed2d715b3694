//! A rank's time by phase, layer and axis, in parts that add up.
//!
//! Each moment belongs to one activity: to the compute kernel that began first, or where there is none to the
//! communication, or to the copy. So the parts of compute add up to compute, and those of exposed communication to it.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_plan::Axis;
use stepscope_traces::{Layer, Phase};

use crate::{
    activity::{Activities, Class},
    sweep::Slice,
};

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

/// The time of a phase; of none, what belongs to no phase that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseShare {
    /// Which phase.
    pub phase: Option<Phase>,
    /// Its time.
    #[serde(flatten)]
    pub share: Share,
}

/// The time of a layer; of none, what belongs to no layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LayerShare {
    /// Which layer.
    pub layer: Option<Layer>,
    /// Its time.
    #[serde(flatten)]
    pub share: Share,
}

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

impl AxisShare {
    fn along(axis: Option<Axis>) -> AxisShare {
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

/// Adds up stretches of time by the place that has them.
#[derive(Default)]
pub(crate) struct BreakdownSum {
    owned: Vec<i64>,
    axes: BTreeMap<Option<Axis>, AxisShare>,
}

impl BreakdownSum {
    pub(crate) fn new(activities: &Activities) -> BreakdownSum {
        BreakdownSum { owned: vec![0; activities.places.len()], axes: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, slice: &Slice<'_>, activities: &Activities) {
        let length = slice.length();
        if let Some(owner) = slice.owner() {
            self.owned[owner.place as usize] += length;
        }
        let [compute, communication, _] = slice.active;
        let mut seen: Vec<Option<Axis>> = Vec::new();
        for going in communication {
            let axis = activities.places[going.place as usize].axis;
            if seen.contains(&axis) {
                continue;
            }
            let first = seen.is_empty();
            seen.push(axis);
            let share = self.axes.entry(axis).or_insert(AxisShare::along(axis));
            share.communication_ns += length;
            if !compute.is_empty() {
                share.overlapped_ns += length;
            } else if first {
                share.exposed_ns += length;
            }
        }
    }

    pub(crate) fn finish(self, activities: &Activities) -> Breakdown {
        let (mut phases, mut layers) = (BTreeMap::new(), BTreeMap::new());
        for (place, time) in activities.places.iter().zip(self.owned).filter(|(_, time)| *time > 0) {
            for share in [phases.entry(place.phase).or_default(), layers.entry(place.layer).or_default()] {
                let share: &mut Share = share;
                *match place.class {
                    Class::Compute => &mut share.compute_ns,
                    Class::Communication => &mut share.exposed_communication_ns,
                    Class::Copy => &mut share.exposed_copy_ns,
                } += time;
            }
        }
        Breakdown {
            phases: phases.into_iter().map(|(phase, share)| PhaseShare { phase, share }).collect(),
            layers: layers.into_iter().map(|(layer, share)| LayerShare { layer, share }).collect(),
            axes: self.axes.into_values().collect(),
        }
    }
}
