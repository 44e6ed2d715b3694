//! Who asked for memory: the calls of Python that were open then, each stack of them kept once.

use std::collections::HashMap;

use crate::call_text::call_text;

/// How many stacks are kept, and how long their texts may be together.
const MOST_STACKS: usize = 1 << 20;
const MOST_BYTES: usize = 64 << 20;
/// How many calls of a stack are told.
const MOST_TOLD: usize = 64;

/// A stack of calls; none of them where it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CallsId(u32);

/// All stacks of a snapshot.
#[derive(Debug, Default)]
pub(super) struct Calls {
    texts: HashMap<String, u32>,
    calls: Vec<String>,
    bytes: usize,
    /// The outermost call of each stack, and the stack of those that are further in.
    stacks: Vec<(u32, CallsId)>,
    ids: HashMap<(u32, CallsId), CallsId>,
}

impl Calls {
    /// A stack of one call. Without a line it is not known where.
    pub(super) fn one(&mut self, function: &str, file: &str, line: Option<u64>) -> CallsId {
        let text = call_text(function, file, line);
        let next = self.calls.len() as u32;
        let call = match self.texts.get(&text) {
            Some(call) => *call,
            None if self.bytes + text.len() > MOST_BYTES => return CallsId::default(),
            None => {
                self.bytes += text.len();
                self.calls.push(text.clone());
                self.texts.insert(text, next);
                next
            }
        };
        self.stack(call, CallsId::default())
    }

    /// A stack with another one further out.
    pub(super) fn within(&mut self, inner: CallsId, outer: CallsId) -> CallsId {
        let Some((call, _)) = self.at(outer) else { return inner };
        if inner == CallsId::default() { outer } else { self.stack(call, inner) }
    }

    fn stack(&mut self, call: u32, inner: CallsId) -> CallsId {
        if let Some(known) = self.ids.get(&(call, inner)) {
            return *known;
        }
        if self.stacks.len() >= MOST_STACKS {
            return inner;
        }
        self.stacks.push((call, inner));
        let id = CallsId(self.stacks.len() as u32);
        self.ids.insert((call, inner), id);
        id
    }

    fn at(&self, CallsId(number): CallsId) -> Option<(u32, CallsId)> {
        self.stacks.get((number as usize).checked_sub(1)?).copied()
    }

    /// The calls of a stack, the innermost first.
    pub(super) fn of(&self, stack: CallsId) -> Vec<&str> {
        let mut calls: Vec<&str> = std::iter::successors(self.at(stack), |(_, inner)| self.at(*inner))
            .map(|(call, _)| self.calls[call as usize].as_str())
            .collect();
        calls.reverse();
        calls.truncate(MOST_TOLD);
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_kept_once_and_told_from_the_inside() {
        let mut calls = Calls::default();
        let mut stack = || {
            let inner =
                calls.one("cross_entropy", "/venv/lib/python3.12/site-packages/torch/nn/functional.py", Some(3504));
            let outer = calls.one("train", "train.py", Some(12));
            let none = calls.within(CallsId::default(), inner);
            let both = calls.within(none, outer);
            calls.within(both, CallsId::default())
        };
        let (one, other) = (stack(), stack());
        assert_eq!(one, other);
        assert_eq!(calls.of(one), ["torch/nn/functional.py:3504 cross_entropy", "train.py:12 train"]);
        assert!(calls.of(CallsId::default()).is_empty());
    }
}
