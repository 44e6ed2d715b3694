//! A rank's time by phase, layer and axis, in parts that add up.
//!
//! Each moment belongs to one activity: to the compute kernel that began first, or where there is none to the
//! communication, or to the copy. So the parts of compute add up to compute, and those of exposed communication to it.

use std::collections::BTreeMap;

use stepscope_plan::Axis;

use crate::{
    figures::{AxisShare, Breakdown, Class, LayerShare, PhaseShare, Share},
    rank::{activity::Activities, sweep::Slice},
};

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

    /// Adds what others are for, of the same activities.
    pub(crate) fn add_all(&mut self, others: &BreakdownSum) {
        self.owned.iter_mut().zip(&others.owned).for_each(|(sum, more)| *sum += more);
        for share in others.axes.values() {
            let sum = self.axes.entry(share.axis).or_insert(AxisShare::along(share.axis));
            sum.communication_ns += share.communication_ns;
            sum.overlapped_ns += share.overlapped_ns;
            sum.exposed_ns += share.exposed_ns;
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
