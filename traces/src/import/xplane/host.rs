//! The threads of a host: which calls launched something, and what the program and its framework say of their time.

use hashbrown::{HashMap, HashSet};

use super::{
    super::profile::{Call, Profile, TrainingContext},
    plane::{Plane, StatName, TimedEvent},
};
use crate::{
    ids::{Nanos, Step},
    loss::Loss,
};

/// How many calls, and how many ranges, are kept.
const MOST_ROWS: usize = 1 << 22;

/// Threads whose numbers are too large get numbers of ours, from this one on.
const FIRST_OWN_THREAD: u32 = 1 << 30;

/// What the threads of a host did. All devices of a profile share them.
#[derive(Default)]
pub(super) struct Host {
    calls: Vec<HostCall>,
    ranges: Vec<HostRange>,
    names: Vec<String>,
    ids: HashMap<String, u32>,
    threads: HashMap<i64, u32>,
    pub(super) loss: Loss,
}

#[derive(Clone, Copy)]
struct HostCall {
    correlation: u64,
    start: Nanos,
    duration: Nanos,
    thread: u32,
    name: u32,
}

#[derive(Clone, Copy)]
struct HostRange {
    thread: u32,
    start: Nanos,
    duration: Nanos,
    place: TrainingContext,
    name: u32,
}

/// Whether a plane has threads of the host. Older profiles have the calls of the driver in planes of their own.
pub(super) fn is_host(plane: &str) -> bool {
    matches!(plane, "/host:CPU" | "/host:CUPTI" | "/host:ROCTRACER")
}

impl Host {
    /// Takes the threads of a plane.
    pub(super) fn take(&mut self, plane: &Plane<'_>, base: i64) {
        let mut loss = plane.loss;
        for line in plane.lines() {
            let thread = self.thread(line.id);
            plane.events(&line, base, &mut loss, |event| self.event(thread, &event));
        }
        self.loss += loss;
    }

    /// Whether it says which step is when.
    pub(super) fn has_steps(&self) -> bool {
        self.ranges.iter().any(|range| range.place.step.is_some())
    }

    fn thread(&mut self, id: i64) -> u32 {
        let next = FIRST_OWN_THREAD + self.threads.len() as u32;
        *self
            .threads
            .entry(id)
            .or_insert_with(|| u32::try_from(id).ok().filter(|own| *own < FIRST_OWN_THREAD).unwrap_or(next))
    }

    fn event(&mut self, thread: u32, event: &TimedEvent<'_>) {
        let (start, duration, name) = (event.start, event.duration, event.kind.name.as_str());
        if let Some(correlation) = event.whole(StatName::Correlation) {
            let name = self.name(name);
            self.keep(|host| &mut host.calls, HostCall { correlation, start, duration, thread, name });
            return;
        }
        let step = event.whole(StatName::StepNumber).and_then(|step| i32::try_from(step).ok()).map(Step);
        // Functions of Python begin so. They are where a launch was asked for, not where its operation comes from.
        if step.is_none() && (name.starts_with('$') || duration.0 == 0) {
            return;
        }
        let named = TrainingContext::named(name);
        let place = TrainingContext { step: step.or(named.step), ..named };
        let name = self.name(name);
        self.keep(|host| &mut host.ranges, HostRange { thread, start, duration, place, name });
    }

    fn keep<T>(&mut self, rows: impl FnOnce(&mut Host) -> &mut Vec<T>, row: T) {
        let kept = rows(self);
        if kept.len() < MOST_ROWS { kept.push(row) } else { self.loss.dropped_events += 1 }
    }

    fn name(&mut self, name: &str) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// Gives a device what concerns it: the calls that launched its work, the steps, and what was around those calls. Threads
    /// that launched nothing on any device go to the `first` one.
    pub(super) fn give(&self, profile: &mut Profile, launching: &HashSet<u32>, is_first: bool, takes_steps: bool) {
        let launched: HashSet<u64> =
            profile.rows.activities.iter().filter_map(|activity| activity.span.correlation).map(|id| id.0).collect();
        let mut threads: HashSet<u32> = HashSet::new();
        for call in self.calls.iter().filter(|call| launched.contains(&call.correlation)) {
            threads.insert(call.thread);
            let HostCall { correlation, start, duration, thread, .. } = *call;
            let name = profile.names.id(&self.names[call.name as usize]);
            profile.call(Call { correlation, start, duration, thread: Some(thread), name });
        }
        for range in &self.ranges {
            let is_step = range.place.step.is_some();
            let is_own = threads.contains(&range.thread) || (is_first && !launching.contains(&range.thread));
            if is_own || (is_step && takes_steps) {
                let place = TrainingContext { step: range.place.step.filter(|_| takes_steps), ..range.place };
                let name = &self.names[range.name as usize];
                profile.annotation(Some(range.thread), range.start, range.duration, place, name);
            }
        }
    }

    /// The threads that make calls.
    pub(super) fn launching(&self) -> HashSet<u32> {
        self.calls.iter().map(|call| call.thread).collect()
    }
}
