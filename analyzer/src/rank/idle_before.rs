//! What the device waits for when it is idle: what runs next.
//!
//! Each stretch in which nothing runs belongs to the activity that ends it, so they add up to the idle time. Of a program that
//! launches too slowly these are the launches that come late.

use hashbrown::HashMap;
use stepscope_traces::Phase;

use crate::rank::{activity::Activities, kernel_sums::KernelId, sweep::Slice};

/// Idle time by what runs next.
#[derive(Default)]
pub(crate) struct IdleBefore {
    by_kernel: HashMap<KernelId, i64>,
    /// Since something ran.
    waiting: i64,
}

impl IdleBefore {
    /// Adds a stretch of time. Stretches come in order; `counts`: whether its time does.
    pub(crate) fn add(&mut self, slice: &Slice<'_>, counts: bool, activities: &Activities) {
        match slice.owner() {
            None if counts => self.waiting += slice.length(),
            None => {}
            Some(next) => {
                let waited = std::mem::take(&mut self.waiting);
                if waited > 0 {
                    let place = &activities.places[next.place as usize];
                    let of_optimizer = place.phase == Some(Phase::Optimizer);
                    let id = KernelId { name: next.name, class: place.class, origin: next.origin, of_optimizer };
                    *self.by_kernel.entry(id).or_default() += waited;
                }
            }
        }
    }

    /// All of it.
    pub(crate) fn into_sums(self) -> HashMap<KernelId, i64> {
        self.by_kernel
    }
}
