//! Launches of which CUPTI tells only afterwards, by records of calls. That is so while another profiler of the process has
//! its callbacks.

use std::collections::{HashMap, VecDeque};

use stepscope_traces::Nanos;

use crate::launch::LaunchInfo;

/// A call, as a record tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    /// Which call it is, among those of its kind.
    pub(crate) number: u32,
    /// On CUPTI's clock.
    pub(crate) start: u64,
    /// As CUPTI numbers threads.
    pub(crate) thread: u32,
    pub(crate) correlation: u32,
}

/// Who was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallKind {
    Driver,
    Runtime,
}

impl CallKind {
    pub(crate) const ALL: [CallKind; 2] = [CallKind::Driver, CallKind::Runtime];
}

/// How many calls of a thread are kept, and of how many threads.
const MOST_CALLS: usize = 16 << 10;
const MOST_THREADS: usize = 256;
/// What has no call by then gets none.
const MOST_WAITING: usize = 16 << 10;

/// The latest calls of each thread, and what was said of some before they were known.
#[derive(Default)]
pub(crate) struct Calls {
    by_thread: HashMap<u32, VecDeque<(Nanos, u32)>>,
    waiting: VecDeque<Described>,
}

/// What is said of the last call of a thread before a time.
struct Described {
    thread: u32,
    before: Nanos,
    info: LaunchInfo,
}

impl Calls {
    pub(crate) fn add(&mut self, call: Call, start: Nanos) {
        if self.by_thread.len() >= MOST_THREADS && !self.by_thread.contains_key(&call.thread) {
            return;
        }
        let calls = self.by_thread.entry(call.thread).or_default();
        if calls.len() >= MOST_CALLS {
            calls.pop_front();
        }
        // Nearly always the last: records come in the order of calls.
        let at = calls.partition_point(|(other, _)| *other <= start);
        calls.insert(at, (start, call.correlation));
    }

    /// Takes what is said of the last call of a thread before a time.
    pub(crate) fn describe(&mut self, thread: u32, before: Nanos, info: LaunchInfo) {
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Described { thread, before, info });
    }

    /// Gives `each` the number of a call and what was said of it, as far as all calls up to a time are known.
    pub(crate) fn settle(&mut self, known_until: Nanos, mut each: impl FnMut(u32, LaunchInfo)) {
        let Calls { by_thread, waiting } = self;
        waiting.retain(|Described { thread, before, info }| {
            if *before > known_until {
                return true;
            }
            let calls = by_thread.get(thread);
            let last =
                calls.and_then(|calls| calls.get(calls.partition_point(|(start, _)| start <= before).checked_sub(1)?));
            last.into_iter().for_each(|(_, correlation)| each(*correlation, *info));
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(thread: u32, correlation: u32) -> Call {
        Call { kind: CallKind::Driver, number: 0, start: 0, thread, correlation }
    }

    #[test]
    fn what_is_said_is_of_the_last_call_before_it_on_that_thread() {
        let info = |bytes| LaunchInfo { bytes: Some(bytes), ..LaunchInfo::default() };
        let mut calls = Calls::default();
        calls.describe(1, Nanos(25), info(7));
        calls.describe(2, Nanos(25), info(8));
        calls.describe(3, Nanos(25), info(9));
        calls.describe(1, Nanos(50), info(10));
        for (thread, correlation, start) in [(1, 100, 10), (1, 102, 30), (1, 101, 20), (2, 200, 15), (2, 201, 26)] {
            calls.add(call(thread, correlation), Nanos(start));
        }
        let mut settled = Vec::new();
        calls.settle(Nanos(20), |correlation, info| settled.push((correlation, info.bytes)));
        assert!(settled.is_empty(), "a later call may still come");
        calls.settle(Nanos(40), |correlation, info| settled.push((correlation, info.bytes)));
        assert_eq!(settled, [(101, Some(7)), (200, Some(8))], "the third thread made none");
        calls.settle(Nanos(60), |correlation, info| settled.push((correlation, info.bytes)));
        assert_eq!(settled[2..], [(102, Some(10))]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut calls = Calls::default();
        for number in 0..3 * MOST_CALLS as u32 {
            calls.add(call(0, number), Nanos(i64::from(number)));
            calls.add(call(number, 0), Nanos(0));
            calls.describe(0, Nanos(i64::MAX), LaunchInfo::default());
        }
        assert!(calls.by_thread.len() <= MOST_THREADS && calls.waiting.len() <= MOST_WAITING);
        assert_eq!(calls.by_thread[&0].len(), MOST_CALLS);
    }
}
