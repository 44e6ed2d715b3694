//! What one kernel does of several operations, as one event.
//!
//! | operations | operation | bytes | number |
//! |---|---|---|---|
//! | one | its own | its own | its own |
//! | collectives of one kind | that kind | their sum | the first one's |
//! | sends, or receives | that | their sum | none |
//! | as many sends and receives as there are ranks, itself among them | all-to-all | of what it sends, or receives if that is more | none |
//! | anything else | communication | their sum | none |
//!
//! An all-to-all has no number since ranks that send nothing to some others do not look like one.

use stepscope_collector::LaunchInfo;
use stepscope_traces::{Group, Sequence, SpanKind};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) kind: SpanKind,
    /// The message's.
    pub(super) bytes: Option<u64>,
    pub(super) group: Option<Group>,
    pub(super) sequence: Option<Sequence>,
    /// How many ranks take part, if that is known.
    pub(super) size: Option<u32>,
    /// Whether a message goes to the rank that sends it.
    pub(super) is_to_itself: bool,
}

/// The operations of one kernel, put together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Operations {
    first: Option<Operation>,
    count: u32,
    /// Whether not all are of one kind, or not all of one group.
    is_mixed: bool,
    is_of_many_groups: bool,
    sends: Messages,
    receives: Messages,
    others: Bytes,
}

/// Some messages.
#[derive(Clone, Copy, Debug, Default)]
struct Messages {
    count: u32,
    has_own: bool,
    bytes: Bytes,
}

/// A sum, or that it is not known.
#[derive(Clone, Copy, Debug)]
struct Bytes(Option<u64>);

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes(Some(0))
    }
}

impl Bytes {
    fn add(&mut self, bytes: Option<u64>) {
        self.0 = self.0.zip(bytes).and_then(|(sum, bytes)| sum.checked_add(bytes));
    }
}

impl Messages {
    fn add(&mut self, operation: &Operation) {
        self.count = self.count.saturating_add(1);
        self.has_own |= operation.is_to_itself;
        self.bytes.add(operation.bytes);
    }
}

impl Operations {
    pub(super) fn add(&mut self, operation: Operation) {
        let first = self.first.get_or_insert(operation);
        self.is_mixed |= first.kind != operation.kind;
        self.is_of_many_groups |= first.group != operation.group;
        self.count = self.count.saturating_add(1);
        match operation.kind {
            SpanKind::Send => self.sends.add(&operation),
            SpanKind::Receive => self.receives.add(&operation),
            _ => self.others.add(operation.bytes),
        }
    }

    /// What the kernel is; `None` when nothing was said of it, or it is of several groups, which none is.
    pub(super) fn info(&self) -> Option<LaunchInfo> {
        let first = self.first.filter(|_| !self.is_of_many_groups)?;
        let mut bytes = self.others;
        bytes.add(self.sends.bytes.0);
        bytes.add(self.receives.bytes.0);
        let (kind, bytes) = if self.is_all_to_all(first.size) {
            let [sent, received] = [self.sends, self.receives].map(|messages| messages.bytes.0);
            (SpanKind::AllToAll, sent.zip(received).map(|(sent, received)| sent.max(received)))
        } else {
            (if self.is_mixed { SpanKind::Communication } else { first.kind }, bytes.0)
        };
        let is_collective = !matches!(kind, SpanKind::Send | SpanKind::Receive);
        let is_numbered = self.count == 1 || (is_collective && !self.is_mixed);
        let sequence = first.sequence.filter(|_| is_numbered);
        let collective = first.group.map(|group| (group, sequence));
        Some(LaunchInfo { kind: Some(kind), bytes, collective, ..LaunchInfo::default() })
    }

    fn is_all_to_all(&self, size: Option<u32>) -> bool {
        let Operations { sends, receives, .. } = self;
        let has_all = |messages: &Messages| Some(messages.count) == size && messages.has_own;
        self.count == sends.count.saturating_add(receives.count) && has_all(sends) && has_all(receives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Group = Group(3);

    fn operation(kind: SpanKind, bytes: u64, sequence: u64) -> Operation {
        Operation {
            kind,
            bytes: Some(bytes),
            group: Some(GROUP),
            sequence: Some(Sequence(sequence)),
            size: Some(4),
            is_to_itself: false,
        }
    }

    fn together(operations: &[Operation]) -> Option<(SpanKind, Option<u64>, Option<u64>)> {
        let mut all = Operations::default();
        operations.iter().for_each(|operation| all.add(*operation));
        let info = all.info()?;
        let (group, sequence) = info.collective.unwrap();
        assert_eq!((group, info.name, info.flops), (GROUP, None, None));
        Some((info.kind.unwrap(), info.bytes, sequence.map(|sequence| sequence.0)))
    }

    #[test]
    fn several_operations_are_one_event() {
        use SpanKind::{AllGather, AllReduce, Communication, Receive, Send};
        assert_eq!(together(&[]), None);
        for kind in [AllReduce, Send, Receive] {
            assert_eq!(together(&[operation(kind, 10, 7)]), Some((kind, Some(10), Some(7))));
        }
        let gathers = [operation(AllGather, 10, 7), operation(AllGather, 20, 8), operation(AllGather, 30, 9)];
        assert_eq!(together(&gathers), Some((AllGather, Some(60), Some(7))));
        let unknown = Operation { bytes: None, ..gathers[1] };
        assert_eq!(together(&[gathers[0], unknown, gathers[2]]), Some((AllGather, None, Some(7))));
        let mixed = [operation(AllGather, 10, 7), operation(AllReduce, 20, 7)];
        assert_eq!(together(&mixed), Some((Communication, Some(30), None)));
        assert_eq!(together(&[operation(Send, 1, 7), operation(Send, 2, 8)]), Some((Send, Some(3), None)));
        assert_eq!(together(&[operation(Send, 1, 7), operation(Receive, 2, 8)]), Some((Communication, Some(3), None)));
        let elsewhere = Operation { group: Some(Group(4)), ..gathers[1] };
        assert_eq!(together(&[gathers[0], elsewhere]), None);
    }

    #[test]
    fn all_send_to_all_where_one_sends_to_itself() {
        let messages = |ranks: std::ops::Range<u64>, own: Option<u64>| -> Vec<Operation> {
            let one = |rank, kind, bytes| Operation { is_to_itself: Some(rank) == own, ..operation(kind, bytes, rank) };
            ranks.flat_map(|rank| [one(rank, SpanKind::Send, 10), one(rank, SpanKind::Receive, 11)]).collect()
        };
        assert_eq!(together(&messages(0..4, Some(2))), Some((SpanKind::AllToAll, Some(44), None)));
        assert_eq!(together(&messages(0..4, None)), Some((SpanKind::Communication, Some(84), None)));
        assert_eq!(together(&messages(0..3, Some(2))), Some((SpanKind::Communication, Some(63), None)));
    }
}
