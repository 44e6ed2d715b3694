//! What this rank has asked of its groups, for when somebody asks why it does not go on.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};

use stepscope_traces::{AskedOperation, Group, GroupProgress, InFlight, OperationState, Sequence, SpanKind, now};

use crate::lock::lock;

/// So many operations are remembered of which nobody here sees the end.
const MOST_ASKED: usize = 64;

/// What goes on between this rank and others.
#[derive(Default)]
pub(crate) struct Communication(Mutex<State>);

/// An operation that has begun, among all of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationNumber(u64);

#[derive(Default)]
struct State {
    /// The number of the last collective of each group.
    groups: BTreeMap<Group, Option<u64>>,
    /// What has begun and is not over, in the order in which it began.
    open: Vec<(OperationNumber, AskedOperation)>,
    /// What was asked of a device last, which nobody here sees the end of.
    asked: VecDeque<AskedOperation>,
    last: Option<AskedOperation>,
    begun: u64,
}

impl Communication {
    /// A device is asked for an operation.
    pub(crate) fn ask(&self, kind: SpanKind, group: Group, sequence: Sequence) {
        let asked = AskedOperation::new(kind, group, sequence, now());
        let mut state = lock(&self.0);
        state.count(&asked);
        state.asked.push_back(asked);
        if state.asked.len() > MOST_ASKED {
            state.asked.pop_front();
        }
    }

    /// An operation begins.
    pub(crate) fn begin(&self, kind: SpanKind, group: Group, sequence: Sequence) -> OperationNumber {
        let asked = AskedOperation::new(kind, group, sequence, now());
        let mut state = lock(&self.0);
        state.count(&asked);
        state.begun += 1;
        let number = OperationNumber(state.begun);
        state.open.push((number, asked));
        number
    }

    /// It is over.
    pub(crate) fn end(&self, number: OperationNumber) {
        let mut state = lock(&self.0);
        if let Some(at) = state.open.iter().position(|(open, _)| *open == number) {
            let (_, asked) = state.open.remove(at);
            state.last = Some(AskedOperation { state: OperationState::Completed, ..asked });
        }
    }

    /// What is not over; none, if there never was any communication.
    pub(crate) fn in_flight(&self) -> Option<InFlight> {
        let state = lock(&self.0);
        let groups = state.groups.iter().map(|(group, last_asked)| GroupProgress {
            group: *group,
            name: String::new(),
            ranks: Vec::new(),
            last_asked: *last_asked,
        });
        (!state.groups.is_empty()).then(|| InFlight {
            groups: groups.collect(),
            waiting: state.open.iter().map(|(_, asked)| asked).chain(&state.asked).cloned().collect(),
            last_completed: state.last.clone(),
            are_ends_unknown: !state.asked.is_empty(),
            ..InFlight::default()
        })
    }
}

impl State {
    fn count(&mut self, asked: &AskedOperation) {
        let last = self.groups.entry(asked.group).or_default();
        if asked.peer_place.is_none() {
            *last = Some(asked.sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_begun_waits_until_it_is_over() {
        let communication = Communication::default();
        assert_eq!(communication.in_flight(), None);
        let first = communication.begin(SpanKind::AllReduce, Group(1), Sequence(4));
        let second = communication.begin(SpanKind::AllGather, Group(2), Sequence(0));
        communication.end(first);
        let said = communication.in_flight().unwrap();
        let asked: Vec<_> = said.groups.iter().map(|group| (group.group.0, group.last_asked)).collect();
        assert_eq!(asked, [(1, Some(4)), (2, Some(0))]);
        let waiting: Vec<_> = said.waiting.iter().map(|one| (one.name.as_str(), one.sequence)).collect();
        assert_eq!((waiting, said.last_completed.unwrap().sequence), (vec![("all_gather", 0)], 4));
        communication.end(second);
        communication.end(second);
        assert!(communication.in_flight().unwrap().waiting.is_empty());
    }

    #[test]
    fn of_what_a_device_is_asked_for_the_last_is_remembered() {
        let communication = Communication::default();
        (0..100).for_each(|number| communication.ask(SpanKind::AllReduce, Group(1), Sequence(number)));
        let said = communication.in_flight().unwrap();
        assert_eq!(
            (said.groups[0].last_asked, said.waiting.len(), said.are_ends_unknown),
            (Some(99), MOST_ASKED, true)
        );
        assert_eq!(said.waiting.last().unwrap().sequence, 99);
    }
}
