//! Goes through a rank's activity once, in stretches of time in which nothing begins or ends.

use stepscope_traces::NameId;

use crate::{
    figures::Class,
    rank::activity::{Activities, Activity},
};

/// A stretch of time in which nothing begins or ends.
pub(crate) struct Slice<'a> {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// What is going on, by [`Class`]: places, what began first first.
    pub(crate) active: [&'a [Going]; 3],
}

/// An activity that is going on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    end: i64,
    /// Which of the places.
    pub(crate) place: u32,
    pub(crate) name: NameId,
    pub(crate) origin: Option<NameId>,
}

impl Slice<'_> {
    pub(crate) fn length(&self) -> i64 {
        self.end.saturating_sub(self.start)
    }

    /// What has this time: compute, else communication, else a copy, and of several what began first; nothing has idle
    /// time.
    pub(crate) fn owner(&self) -> Option<&Going> {
        self.active.iter().find_map(|going| going.first())
    }
}

/// Shows every stretch from the first start to the last end, cut at `borders` too, which are sorted. The activities are
/// sorted by start.
pub(crate) fn sweep(activities: &Activities, borders: &[i64], mut show: impl FnMut(&Slice<'_>)) {
    let mut active: [Vec<Going>; 3] = Default::default();
    let mut borders = borders.iter().copied().peekable();
    let mut now = i64::MIN;
    let mut coming = activities.items.iter().peekable();
    if let Some(first) = coming.peek() {
        now = first.start;
    }
    loop {
        while let Some(activity) = coming.next_if(|activity| activity.start <= now) {
            // Without length it covers nothing.
            if activity.end > now {
                let class = activities.place(activity).class as usize;
                let Activity { end, place, name, .. } = *activity;
                active[class].push(Going { end, place, name, origin: activity.origin() });
            }
        }
        while borders.next_if(|border| *border <= now).is_some() {}
        let ends = active.iter().flatten().map(|going| going.end).min();
        let next = [ends, coming.peek().map(|activity| activity.start)].into_iter().flatten().min();
        let Some(next) = next else { break };
        // A border after the last end cuts nothing.
        let next = borders.peek().map_or(next, |border| next.min(*border));
        show(&Slice { start: now, end: next, active: [&active[0], &active[1], &active[2]] });
        now = next;
        active.iter_mut().for_each(|going| going.retain(|going| going.end > now));
    }
}

// The order of the classes is that of the slices.
const _: () = assert!(Class::Compute as usize == 0 && Class::Communication as usize == 1 && Class::Copy as usize == 2);
