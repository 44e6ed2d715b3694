//! What each block is for, inferred from who asked for it, who gave it back, and what happened in between.
//!
//! A snapshot does not say what a block is for. These rules do; the first one that fits counts. Passes are told by
//! stacks (`frame`, `passes`): a module is called (forward), autograd runs (backward), an optimizer runs, `zero_grad`
//! included, or none of these. A block was *kept* if it outlived the pass it was allocated in.
//!
//! | allocated | and then | it is |
//! |---|---|---|
//! | by cuBLAS or cuDNN for themselves | whatever | workspace |
//! | by a collective or DDP's reducer, not in autograd | whatever | communication |
//! | the same, in autograd | given back in the same pass | communication |
//! | while FSDP gathers or shards | there from the beginning, and for good | parameters |
//! | while FSDP reduces, in the backward pass | kept | gradients |
//! | while FSDP gathers or shards | otherwise | communication |
//! | in the optimizer | given back in the same pass | workspace |
//! | in the optimizer | kept | optimizer state |
//! | in the forward pass repeated during backward | given back in such a pass | workspace |
//! | in the forward pass repeated during backward | otherwise | activations |
//! | in the backward pass | given back in the same pass | workspace |
//! | in the backward pass | never given back, while later ones were by `zero_grad` | workspace |
//! | in the backward pass | otherwise kept | gradients |
//! | by a loss over the vocabulary | whatever | workspace, as logits are |
//! | in the forward pass | given back before a backward pass began | workspace |
//! | in the forward pass | never given back, and there in a later forward pass after a backward pass | workspace |
//! | in the forward pass | otherwise | activations |
//! | in no pass, by nobody knows whom | whatever | other |
//! | while a module is built, moved, cast or loaded | whatever | parameters |
//! | by a data loader, by a function named for getting batches, or drawn as random integers | whatever | inputs |
//! | in no pass, before the first forward pass | never given back | parameters |
//! | in no pass | given back in the backward pass, or after one began, without being there when a forward pass began | activations |
//! | in no pass | there when a forward pass began | inputs |
//! | in no pass | given back before any pass began | workspace |
//! | before the history began, by nobody knows whom | given back in a backward pass | activations |
//! | the same | given back in the optimizer, by its `step` | optimizer state |
//! | the same | given back in the optimizer otherwise, by `zero_grad` | gradients |
//! | the same | never given back, and it is known what the optimizer's state is | parameters |
//! | the same | never given back, no optimizer ran, and there are not three of each size, as with Adam's state | parameters |
//! | otherwise | | other |

use std::collections::HashMap;

use super::{
    frame::{Pass, Sign, Stack},
    lives::{Life, Lives},
    passes::Passes,
    records::Event,
};
use crate::vocabulary::MemoryCategory;

/// What the rules need to know of a history as a whole.
pub(super) struct Rules<'history> {
    events: &'history [Event],
    passes: &'history Passes,
    /// The newest allocation of a backward pass that was kept, and given back later.
    last_gradient_freed: Option<usize>,
    /// Whether it is known which blocks an optimizer's state is: they were made during the history, or have stacks, and are as
    /// large as all that nothing is known of.
    optimizer_state_is_known: bool,
    /// Whether what was there from the beginning for good has no such state in it.
    is_without_state: bool,
}

impl<'history> Rules<'history> {
    pub(super) fn new(events: &'history [Event], lives: &Lives, passes: &'history Passes) -> Rules<'history> {
        let mut rules = Rules {
            events,
            passes,
            last_gradient_freed: None,
            optimizer_state_is_known: state_has_stacks(lives),
            is_without_state: false,
        };
        rules.is_without_state = passes.first_forward.is_some() && !passes.has_optimizer() && is_without_state(lives);
        for life in &lives.lives {
            let Some(from) = life.from else { continue };
            match passes.at(from) {
                Some(Pass::Backward) if life.given_back().is_some() && !rules.given_back_in_its_pass(life) => {
                    rules.last_gradient_freed = rules.last_gradient_freed.max(Some(from));
                }
                Some(Pass::Optimizer) if life.given_back().is_none() => rules.optimizer_state_is_known = true,
                _ => {}
            }
        }
        rules
    }

    /// What a block is for.
    pub(super) fn category(&self, life: &Life) -> MemoryCategory {
        // Without a stack, an event's place in the history may still tell its pass.
        let pass = match (life.stack, life.from) {
            (Some(stack), _) => stack.surrounding_pass(),
            (None, Some(from)) => self.passes.at(from),
            (None, None) => return self.unknown(life),
        };
        let stack = life.stack.unwrap_or_default();
        if stack.has(Sign::Workspace) {
            return MemoryCategory::Workspace;
        }
        let in_same_pass = self.given_back_in_its_pass(life);
        if stack.has(Sign::Collective) && (!stack.has(Sign::Autograd) || in_same_pass) {
            return MemoryCategory::Communication;
        }
        if stack.has(Sign::Sharding) {
            let is_kept = pass == Some(Pass::Backward) && !in_same_pass;
            return if self.is_from_the_beginning_for_good(life) {
                MemoryCategory::Parameters
            } else if is_kept {
                MemoryCategory::Gradients
            } else {
                MemoryCategory::Communication
            };
        }
        match pass {
            Some(Pass::Optimizer) if in_same_pass => MemoryCategory::Workspace,
            Some(Pass::Optimizer) => MemoryCategory::OptimizerState,
            Some(Pass::Backward) if stack.is_recomputation() => self.recomputed(life),
            Some(Pass::Backward) => self.backward(life, in_same_pass),
            _ if stack.has(Sign::Loss) => MemoryCategory::Workspace,
            Some(Pass::Forward) => self.forward(life),
            None if life.stack.is_none() => MemoryCategory::Other,
            None => self.no_pass(life, stack),
        }
    }

    /// Whether a block did not outlive the pass that it was allocated in. Where the optimizer allocates nothing, no event
    /// of another pass comes between the backward pass and whoever drops the gradients.
    fn given_back_in_its_pass(&self, life: &Life) -> bool {
        let Some(back) = life.given_back() else { return false };
        let of_backward = life.from.and_then(|from| self.passes.at(from)) == Some(Pass::Backward);
        let after_it = of_backward && self.events[back].stack.is_some() && self.passes.at(back).is_none();
        self.passes.same(life.from, back) && !after_it
    }

    fn recomputed(&self, life: &Life) -> MemoryCategory {
        let given_back_by = life.given_back().and_then(|back| self.events[back].stack);
        match given_back_by {
            Some(stack) if stack.is_recomputation() => MemoryCategory::Workspace,
            _ => MemoryCategory::Activations,
        }
    }

    fn backward(&self, life: &Life, in_same_pass: bool) -> MemoryCategory {
        let left_behind = life.given_back().is_none() && self.last_gradient_freed > life.from;
        if in_same_pass || left_behind { MemoryCategory::Workspace } else { MemoryCategory::Gradients }
    }

    fn forward(&self, life: &Life) -> MemoryCategory {
        let back = life.given_back();
        let met_backward = self.passes.backward_between(life.from, back);
        let outlived_step = back.is_none() && met_backward && self.passes.forward_between(life.from, None);
        if outlived_step || (back.is_some() && !met_backward) {
            MemoryCategory::Workspace
        } else {
            MemoryCategory::Activations
        }
    }

    fn no_pass(&self, life: &Life, stack: Stack) -> MemoryCategory {
        if stack.has(Sign::Module) {
            return MemoryCategory::Parameters;
        }
        if stack.has(Sign::Data) || stack.has(Sign::Batch) {
            return MemoryCategory::Inputs;
        }
        if self.is_from_the_beginning_for_good(life) {
            return MemoryCategory::Parameters;
        }
        let back = life.given_back();
        if self.passes.forward_between(life.from, back) {
            MemoryCategory::Inputs
        } else if self.passes.backward_between(life.from, back) {
            MemoryCategory::Activations
        } else if back.is_some_and(|back| self.passes.same(life.from, back)) {
            MemoryCategory::Workspace
        } else {
            MemoryCategory::Other
        }
    }

    fn unknown(&self, life: &Life) -> MemoryCategory {
        match life.given_back() {
            Some(back) => match self.passes.at(back) {
                Some(Pass::Backward) => MemoryCategory::Activations,
                Some(Pass::Optimizer) if self.is_given_back_by_step(back) => MemoryCategory::OptimizerState,
                Some(Pass::Optimizer) => MemoryCategory::Gradients,
                _ => MemoryCategory::Other,
            },
            None if self.optimizer_state_is_known || self.is_without_state => MemoryCategory::Parameters,
            None => MemoryCategory::Other,
        }
    }

    /// Whether an optimizer replaces a block rather than dropping a gradient.
    fn is_given_back_by_step(&self, event: usize) -> bool {
        let stack = self.events[event].stack;
        stack.is_some_and(|stack| stack.pass == Some(Pass::Optimizer) && !stack.has(Sign::ZeroGrad))
    }

    /// Whether a block was there before the first forward pass, and is for good.
    fn is_from_the_beginning_for_good(&self, life: &Life) -> bool {
        let before = |first: usize| life.from.is_none_or(|from| from < first);
        life.given_back().is_none() && self.passes.first_forward.is_some_and(before)
    }
}

/// Whether what an optimizer made before the history has stacks: as much of it as of blocks of which nothing is known, which
/// it would be too else.
fn state_has_stacks(lives: &Lives) -> bool {
    let kept = || lives.lives.iter().filter(|life| life.from.is_none() && life.given_back().is_none());
    let state = kept().filter(|life| life.stack.is_some_and(|stack| stack.surrounding_pass() == Some(Pass::Optimizer)));
    let unknown = kept().filter(|life| life.stack.is_none());
    let [state, unknown] = [state.map(|life| life.bytes).sum(), unknown.map(|life| life.bytes).sum::<u64>()];
    state > 0 && state >= unknown
}

/// Whether blocks that were there from the beginning, for good, are parameters alone. Adam keeps two blocks of each
/// parameter's size, so that with its state there are three of each.
fn is_without_state(lives: &Lives) -> bool {
    const LEAST_SHARE: f64 = 0.9;
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for life in lives.there_from_the_beginning().filter(|life| life.stack.is_none() && life.given_back().is_none()) {
        *counts.entry(life.bytes).or_default() += 1;
    }
    let bytes = |is_wanted: fn(u64) -> bool| {
        let wanted = counts.iter().filter(move |(_, count)| is_wanted(**count));
        wanted.map(|(bytes, count)| *bytes as f64 * *count as f64).sum::<f64>()
    };
    bytes(|count| count % 3 == 0) < LEAST_SHARE * bytes(|_| true)
}
