//! A rank's compute by what kind of work it is, in parts that add up.
//!
//! Each moment in which kernels compute belongs to the one that began first. What is computed again is apart.

use hashbrown::HashMap;
use stepscope_traces::{Family, NameId, Names, Phase};

use crate::{
    figures::{Class, FamilyTime},
    rank::{activity::Activities, sweep::Slice},
};

/// Adds up compute by family.
pub(crate) struct FamilyTimes<'a> {
    names: &'a Names,
    /// Of each name, outside of the optimizer's phase and in it.
    families: HashMap<NameId, [Family; 2]>,
    /// Without what is computed again.
    times: HashMap<Family, i64>,
    again_ns: i64,
}

impl<'a> FamilyTimes<'a> {
    pub(crate) fn new(names: &'a Names) -> FamilyTimes<'a> {
        FamilyTimes { names, families: HashMap::new(), times: HashMap::new(), again_ns: 0 }
    }

    /// Adds a stretch of time.
    pub(crate) fn add(&mut self, slice: &Slice<'_>, activities: &Activities) {
        let Some(owner) = slice.active[Class::Compute as usize].first() else { return };
        let phase = activities.places[owner.place as usize].phase;
        if phase == Some(Phase::Recompute) {
            self.again_ns += slice.length();
            return;
        }
        let families = self.families.entry(owner.name).or_insert_with(|| {
            let name = self.names.get(owner.name).unwrap_or_default();
            [false, true].map(|of_optimizer| Class::Compute.family_in(name, of_optimizer))
        });
        let family = families[usize::from(phase == Some(Phase::Optimizer))];
        *self.times.entry(family).or_default() += slice.length();
    }

    /// Compute by family, the most first; and what is computed again.
    pub(crate) fn finish(mut self) -> (Vec<FamilyTime>, i64) {
        (self.take(), self.again_ns)
    }

    /// Compute by family until now, the most first; from here on it is added up anew.
    pub(crate) fn take(&mut self) -> Vec<FamilyTime> {
        let times = self.times.drain().map(|(family, time_ns)| FamilyTime { family, time_ns });
        let mut times: Vec<FamilyTime> = times.collect();
        times.sort_by_key(|time| (-time.time_ns, time.family));
        times
    }
}
