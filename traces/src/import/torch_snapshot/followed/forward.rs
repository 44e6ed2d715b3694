//! Where forward passes begin: nothing says so, but what they leave for the backward pass does.
//!
//! Between two passes that are known, the forward pass begins with the first block that the backward pass after it gives
//! back, once the model is there, and goes on until that begins. What comes before it is no pass: data is loaded there. A history that ends before a
//! backward pass has come ends in a forward pass, which begins with the first block that stays and is none of the model.

use std::collections::HashMap;

use crate::import::torch_snapshot::{
    frame::{Pass, Stack},
    records::{Action, Event},
};

/// Whether a history goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistoryEnding {
    /// More of it may come.
    Open,
    /// This is all.
    Final,
}

/// A part of a history in no pass that is known.
#[derive(Clone, Copy)]
struct ForwardStretch {
    begin: usize,
    end: usize,
    /// The pass after it.
    next: Option<Pass>,
}

/// Puts events into forward passes. `is_model` says of an allocation whether it is of the model; a history is of a training
/// if a pass of one was in it before, or is in it.
pub(super) fn find(
    events: &mut [Event],
    ending: HistoryEnding,
    is_training: bool,
    is_model: impl Fn(usize, u64) -> bool,
) {
    let stretches = stretches(events);
    let Kept { for_backward, for_good } = Kept::of(events);
    let is_training = is_training || stretches.len() > 1;
    let mut model: Vec<usize> =
        for_good.iter().filter(|(address, at)| is_model(**at, **address)).map(|(_, at)| *at).collect();
    model.sort_unstable();
    let mut for_good: Vec<usize> = for_good.into_values().collect();
    for_good.sort_unstable();
    for stretch in stretches {
        let ForwardStretch { begin, end, next } = stretch;
        let first_in = |sorted: &[usize], from: usize| {
            sorted.get(sorted.partition_point(|at| *at < from)).copied().filter(|at| *at < end)
        };
        let models = model.partition_point(|at| *at < end);
        let after_model = models.checked_sub(1).map(|last| model[last] + 1).filter(|after| *after > begin);
        let from = after_model.unwrap_or(begin);
        let is_last = ending == HistoryEnding::Final && end == events.len();
        let forward = match next {
            Some(Pass::Backward) => first_in(&for_backward, from),
            None if is_last && (is_training || after_model.is_some()) => first_in(&for_good, from),
            _ => None,
        };
        let pass = Some(Stack::of_pass(Some(Pass::Forward)));
        events[forward.unwrap_or(end)..end].iter_mut().for_each(|event| event.stack = pass);
    }
}

/// What was allocated in no pass and is kept.
struct Kept {
    /// Until the next backward pass gave it back: where each was allocated, in order.
    for_backward: Vec<usize>,
    /// For good: where each was allocated, by its address.
    for_good: HashMap<u64, usize>,
}

impl Kept {
    fn of(events: &[Event]) -> Kept {
        let mut kept = Kept { for_backward: Vec::new(), for_good: HashMap::new() };
        // Where the last backward pass ended before the one that goes on, or went on last.
        let (mut in_backward, mut last_end, mut end_before) = (false, 0, 0);
        for (index, event) in events.iter().enumerate() {
            let pass = event.stack.and_then(Stack::surrounding_pass);
            match (in_backward, pass == Some(Pass::Backward)) {
                (false, true) => end_before = last_end,
                (true, false) => last_end = index,
                _ => {}
            }
            in_backward = pass == Some(Pass::Backward);
            let Some(address) = event.address else { continue };
            match event.action {
                Action::Alloc if pass.is_none() => _ = kept.for_good.insert(address, index),
                Action::Alloc => _ = kept.for_good.remove(&address),
                Action::FreeRequested | Action::FreeCompleted => {
                    let allocated = kept.for_good.remove(&address);
                    kept.for_backward.extend(allocated.filter(|at| in_backward && *at >= end_before));
                }
                _ => {}
            }
        }
        kept.for_backward.sort_unstable();
        kept
    }
}

fn stretches(events: &[Event]) -> Vec<ForwardStretch> {
    let pass = |event: &Event| event.stack.and_then(Stack::surrounding_pass);
    let mut stretches: Vec<ForwardStretch> = Vec::new();
    let mut index = 0;
    while index < events.len() {
        let end = (index..events.len()).find(|at| pass(&events[*at]).is_some()).unwrap_or(events.len());
        let next = events.get(end).and_then(pass);
        if index < end {
            stretches.push(ForwardStretch { begin: index, end, next });
        }
        index = (end..events.len()).find(|at| pass(&events[*at]).is_none()).unwrap_or(events.len());
    }
    stretches
}
