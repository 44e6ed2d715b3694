//! Where a whole process is in its training, for threads that do not say themselves.
//!
//! A framework may launch its backward pass on threads of its own, which know nothing of the step that the main thread is
//! in. There is one such context in a process: ranks that are threads say on each of them where they are.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use stepscope_traces::{Nanos, Phase, Step, now};

use crate::context::Context;

/// Whose it is.
static RECORDER: AtomicU64 = AtomicU64::new(0);
/// A step and a phase in one word, so that nobody reads half of a change. Nothing is said where it is 0.
static CONTEXT: AtomicU64 = AtomicU64::new(0);

/// Where the process was, and since when: for launches of which is told only afterwards. A step has some ten changes.
static HISTORY: Mutex<VecDeque<(Nanos, u64)>> = Mutex::new(VecDeque::new());
const MOST_CHANGES: usize = 16 << 10;

const HAS_STEP: u64 = 1 << 32;
/// Above it the phase, from 1 on.
const PHASE_SHIFT: u32 = 40;

/// Where a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessContext {
    step: Option<Step>,
    pub(crate) phase: Option<Phase>,
}

impl ProcessContext {
    fn pack(self) -> u64 {
        let step = self.step.map_or(0, |step| HAS_STEP | u64::from(step.0.cast_unsigned()));
        step | self.phase.map_or(0, |phase| (phase as u64 + 1) << PHASE_SHIFT)
    }

    fn unpack(packed: u64) -> ProcessContext {
        let step = (packed & HAS_STEP != 0).then_some(Step((packed as u32).cast_signed()));
        let phase = (packed >> PHASE_SHIFT).checked_sub(1).and_then(|phase| Phase::ALL.get(phase as usize).copied());
        ProcessContext { step, phase }
    }

    /// For a thread that says nothing.
    pub(crate) fn context(self) -> Context {
        Context { step: self.step, phase: self.phase, ..Context::default() }
    }

    /// For a thread that says where it is, as far as it does. One in another step is in no phase of this one.
    pub(crate) fn unless_said(self, context: Context) -> Context {
        match context.step {
            Some(step) if Some(step) != self.step => context,
            _ => Context { step: context.step.or(self.step), phase: context.phase.or(self.phase), ..context },
        }
    }
}

/// Says where the process of a recorder is.
pub(crate) fn set(recorder: u64, step: Option<Step>, phase: Option<Phase>) {
    let packed = ProcessContext { step, phase }.pack();
    RECORDER.store(recorder, Relaxed);
    CONTEXT.store(packed, Release);
    let mut history = HISTORY.lock().unwrap_or_else(PoisonError::into_inner);
    if history.len() == MOST_CHANGES {
        history.pop_front();
    }
    history.push_back((now(), packed));
}

/// Where the process is, and for which recorder; `None` if unknown.
#[inline]
pub(crate) fn get() -> Option<(u64, ProcessContext)> {
    of_recorder(CONTEXT.load(Acquire))
}

/// Where the process was at a time, and for which recorder; `None` if unknown.
pub(crate) fn at(time: Nanos) -> Option<(u64, ProcessContext)> {
    let history = HISTORY.lock().unwrap_or_else(PoisonError::into_inner);
    let after = history.partition_point(|(since, _)| *since <= time);
    of_recorder(history.get(after.checked_sub(1)?)?.1)
}

fn of_recorder(packed: u64) -> Option<(u64, ProcessContext)> {
    (packed != 0).then(|| (RECORDER.load(Relaxed), ProcessContext::unpack(packed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_fits_in_a_word() {
        for step in [None, Some(Step(0)), Some(Step(-1)), Some(Step(i32::MAX)), Some(Step(i32::MIN))] {
            for phase in Phase::ALL.iter().copied().map(Some).chain([None]) {
                let context = ProcessContext { step, phase };
                assert_eq!(ProcessContext::unpack(context.pack()), context);
                assert_eq!(context.pack() == 0, step.is_none() && phase.is_none());
            }
        }
    }

    #[test]
    fn what_a_thread_says_comes_first() {
        let process = ProcessContext { step: Some(Step(3)), phase: Some(Phase::Backward) };
        let said = |step, phase| Context { step, phase, ..Context::default() };
        let (step, phase) = (Some(Step(3)), Some(Phase::Backward));
        assert_eq!(process.unless_said(said(None, None)), said(step, phase));
        assert_eq!(process.unless_said(said(step, None)), said(step, phase));
        assert_eq!(process.unless_said(said(None, Some(Phase::Forward))), said(step, Some(Phase::Forward)));
        assert_eq!(process.unless_said(said(Some(Step(4)), None)), said(Some(Step(4)), None));
    }
}
