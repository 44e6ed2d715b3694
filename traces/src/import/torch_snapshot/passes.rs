//! Which pass of the training each event of a history is in.

use super::{
    annotations::Stretch,
    frame::{Pass, Sign, Stack},
    records::{Action, Event},
};

/// The passes of a history: a pass goes on until an event is in another one.
#[derive(Debug)]
pub(super) struct Passes {
    /// Of each event.
    of_event: Vec<Option<Pass>>,
    /// Of each event, how many passes had begun by then.
    begun: Vec<u32>,
    /// How many of the first passes are forward and how many are backward.
    counts: Vec<Counts>,
    /// The event that the first forward pass begins with.
    pub(super) first_forward: Option<usize>,
}

/// How many passes of a kind there were.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    forward: u32,
    backward: u32,
}

impl Passes {
    /// By each event's own stack. Where it has none:
    /// - in a history with stacks of Python only, an allocation without any is of autograd's own thread, which runs no
    ///   Python; a free too, if frees have stacks there;
    /// - otherwise an annotation of PyTorch's around it tells;
    /// - otherwise it is in the pass that the events before and after it are in, if that is the same.
    pub(super) fn of(events: &[Event], times: &[i64], stretches: &[Stretch]) -> Passes {
        let has = |sign: Sign| move |stack: &Stack| stack.has(sign);
        let stacks = || events.iter().filter_map(|event| event.stack);
        let python_only =
            stacks().any(|stack| has(Sign::Python)(&stack)) && !stacks().any(|stack| has(Sign::Native)(&stack));
        let is_free = |event: &Event| matches!(event.action, Action::FreeRequested | Action::FreeCompleted);
        let frees_have_stacks = events.iter().any(|event| is_free(event) && event.stack.is_some());
        let without_stack = |index: usize, event: &Event| {
            let in_autograd = python_only && (event.action == Action::Alloc || (is_free(event) && frees_have_stacks));
            if in_autograd { Some(Pass::Backward) } else { annotated_pass(stretches, times[index]) }
        };
        let mut of_event: Vec<Option<Pass>> = (events.iter().enumerate())
            .map(|(index, event)| event.stack.map_or_else(|| without_stack(index, event), Stack::surrounding_pass))
            .collect();
        fill_gaps(&mut of_event, events);
        Passes::number(of_event)
    }

    fn number(of_event: Vec<Option<Pass>>) -> Passes {
        let (mut begun, mut counts) = (Vec::with_capacity(of_event.len()), vec![Counts::default()]);
        let mut count = Counts::default();
        let mut current = None;
        let mut first_forward = None;
        for (index, pass) in of_event.iter().enumerate() {
            if pass.is_some() && *pass != current {
                current = *pass;
                match current {
                    Some(Pass::Forward) => {
                        count.forward += 1;
                        first_forward.get_or_insert(index);
                    }
                    Some(Pass::Backward) => count.backward += 1,
                    _ => {}
                }
                counts.push(count);
            }
            begun.push(counts.len() as u32 - 1);
        }
        Passes { of_event, begun, counts, first_forward }
    }

    /// The passes of a history that goes on: nothing in it is there from before the training.
    pub(super) fn going_on(self) -> Passes {
        Passes { first_forward: None, ..self }
    }

    /// The pass an event is in.
    pub(super) fn at(&self, event: usize) -> Option<Pass> {
        self.of_event[event]
    }

    /// Whether an optimizer ran.
    pub(super) fn has_optimizer(&self) -> bool {
        self.of_event.contains(&Some(Pass::Optimizer))
    }

    /// Which pass goes on at an event, or was the last one; the beginning is before all passes.
    fn number_at(&self, event: Option<usize>) -> u32 {
        event.map_or(0, |event| self.begun[event])
    }

    /// Whether the same pass goes on at two events.
    pub(super) fn same(&self, one: Option<usize>, other: usize) -> bool {
        self.number_at(one) == self.number_at(Some(other))
    }

    /// Whether a backward pass began after one event and before or at another, the end of the history if there is none.
    pub(super) fn backward_between(&self, from: Option<usize>, to: Option<usize>) -> bool {
        self.backwards_between(from, to) > 0
    }

    /// How many backward passes began then.
    pub(super) fn backwards_between(&self, from: Option<usize>, to: Option<usize>) -> u32 {
        self.counts_until(to).backward - self.counts[self.number_at(from) as usize].backward
    }

    /// Whether a forward pass began then.
    pub(super) fn forward_between(&self, from: Option<usize>, to: Option<usize>) -> bool {
        self.counts_until(to).forward > self.counts[self.number_at(from) as usize].forward
    }

    fn counts_until(&self, event: Option<usize>) -> Counts {
        event.map_or(self.counts[self.counts.len() - 1], |event| self.counts[self.begun[event] as usize])
    }
}

/// The pass of PyTorch's own annotation around a time.
fn annotated_pass(stretches: &[Stretch], time: i64) -> Option<Pass> {
    let before = stretches.partition_point(|stretch| stretch.from <= time);
    // They hardly overlap: a few back is far enough.
    let around = stretches[before.saturating_sub(8)..before].iter().rev();
    around.filter(|stretch| stretch.to >= time).find_map(|stretch| stretch.pass)
}

/// Puts events without a stack into the pass around them.
fn fill_gaps(of_event: &mut [Option<Pass>], events: &[Event]) {
    let mut before = None;
    let mut index = 0;
    while index < of_event.len() {
        if of_event[index].is_some() || events[index].stack.is_some() {
            before = of_event[index];
            index += 1;
            continue;
        }
        let is_known = |at: &usize| of_event[*at].is_some() || events[*at].stack.is_some();
        let end = (index..of_event.len()).find(is_known).unwrap_or(of_event.len());
        let after = of_event.get(end).copied().flatten();
        if before == after {
            of_event[index..end].fill(before);
        }
        index = end;
    }
}
