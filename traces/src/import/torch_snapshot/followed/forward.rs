//! Where forward passes begin: nothing says so, but what they leave for the backward pass does.
//!
//! Between two passes that are known, the forward pass begins with the first block that the backward pass after it gives
//! back, and goes on until that begins. What comes before it is no pass: data is loaded there. A history that ends before a
//! backward pass has come ends in a forward pass, which begins with the first block that stays and is none of the model.

use std::collections::HashMap;

use crate::import::torch_snapshot::{
    frame::{Pass, Stack},
    records::{Action, Event},
};

/// Whether a history goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// More of it may come.
    Open,
    /// This is all.
    Final,
}

/// A part of a history in no pass that is known.
#[derive(Clone, Copy, Default)]
struct Stretch {
    begin: usize,
    end: usize,
    /// The pass after it.
    next: Option<Pass>,
    /// The first event of the forward pass.
    forward: Option<usize>,
}

/// Puts events into forward passes. `is_model` says of an allocation whether it is of the model; a history is of a training
/// if a pass of one was in it before, or is in it.
pub(super) fn find(events: &mut [Event], ending: Ending, is_training: bool, is_model: impl Fn(usize, u64) -> bool) {
    let mut stretches = stretches(events);
    let mut allocated: HashMap<u64, (usize, usize)> = HashMap::new();
    let mut current = 0;
    for (index, event) in events.iter().enumerate() {
        while stretches.get(current).is_some_and(|stretch| stretch.end <= index) {
            current += 1;
        }
        let in_stretch = stretches.get(current).is_some_and(|stretch| stretch.begin <= index);
        let Some(address) = event.address else { continue };
        match event.action {
            Action::Alloc if in_stretch => _ = allocated.insert(address, (index, current)),
            Action::Alloc => _ = allocated.remove(&address),
            Action::FreeRequested | Action::FreeCompleted => {
                let Some((at, stretch)) = allocated.remove(&address) else { continue };
                let by_backward = event.stack.and_then(Stack::surrounding_pass) == Some(Pass::Backward);
                let stretch = &mut stretches[stretch];
                if by_backward && stretch.next == Some(Pass::Backward) {
                    stretch.forward = Some(stretch.forward.map_or(at, |first| first.min(at)));
                }
            }
            _ => {}
        }
    }
    let is_training = is_training || stretches.len() > 1;
    if let Some(last) = stretches.last_mut().filter(|last| ending == Ending::Final && last.end == events.len()) {
        let is_of_model = |index: &usize| {
            let event = &events[*index];
            event.action == Action::Alloc && event.address.is_some_and(|address| is_model(*index, address))
        };
        let after_model = (last.begin..last.end).rev().find(is_of_model).map(|index| index + 1);
        if is_training || after_model.is_some() {
            let from = after_model.unwrap_or(last.begin);
            last.forward = allocated.values().map(|(at, _)| *at).filter(|at| *at >= from).min();
        }
    }
    for stretch in stretches {
        let forward = stretch.forward.map_or(stretch.end, |first| first.max(stretch.begin));
        events[forward..stretch.end]
            .iter_mut()
            .for_each(|event| event.stack = Some(Stack::of_pass(Some(Pass::Forward))));
    }
}

fn stretches(events: &[Event]) -> Vec<Stretch> {
    let pass = |event: &Event| event.stack.and_then(Stack::surrounding_pass);
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut index = 0;
    while index < events.len() {
        let end = (index..events.len()).find(|at| pass(&events[*at]).is_some()).unwrap_or(events.len());
        let next = events.get(end).and_then(pass);
        if index < end {
            stretches.push(Stretch { begin: index, end, next, forward: None });
        }
        index = (end..events.len()).find(|at| pass(&events[*at]).is_none()).unwrap_or(events.len());
    }
    stretches
}
