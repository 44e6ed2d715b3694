//! The rows that a reader fills, within bounds.

use std::mem;

use hashbrown::HashSet;

use super::{
    annotation::TrainingContext,
    memory::MemoryChange,
    names::NameBook,
    operator::{FunctionCall, OperatorCall, OperatorNames},
    places::Annotated,
};
use crate::{
    beside::beside,
    ids::{Group, NameId, Nanos},
    tables::Span,
    vocabulary::SpanKind,
};

/// How many rows of each kind are kept. Files of ten gigabytes have fewer.
const MOST_ROWS: usize = 1 << 23;

/// What a profiler saw of a rank.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    pub(crate) rows: Rows,
    pub(crate) names: NameBook,
    /// What operators and functions are called, and what they are given.
    pub(crate) called: OperatorNames,
}

/// What happened, in any order. Times are the tool's own.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) activities: Vec<Activity>,
    pub(crate) calls: Vec<Call>,
    pub(crate) annotations: Vec<(Annotated, NameId)>,
    pub(crate) operators: Vec<OperatorCall>,
    pub(crate) functions: Vec<FunctionCall>,
    pub(crate) memory: Vec<MemoryChange>,
    /// Sends and receives that the program asked for.
    pub(crate) messages: Vec<AskedMessage>,
    /// Collectives that the program asked for.
    pub(crate) collectives: Vec<AskedCollective>,
    /// The threads on which autograd works.
    pub(crate) autograd: HashSet<u32>,
    /// Events that do not say when they were, or say that they were at no time.
    pub(crate) timeless: u64,
    /// Events for which there was no room.
    pub(crate) dropped: u64,
}

/// Something a device did. Its place in the training is not known yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activity {
    pub(crate) span: Span,
    pub(crate) device: Option<u32>,
    /// The number of the operator that launched it.
    pub(crate) external: Option<u64>,
}

/// A call of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) correlation: u64,
    pub(crate) start: Nanos,
    pub(crate) duration: Nanos,
    pub(crate) thread: Option<u32>,
    pub(crate) name: NameId,
}

/// A send or a receive that a thread asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedMessage {
    pub(crate) thread: Option<u32>,
    pub(crate) start: Nanos,
    pub(crate) kind: SpanKind,
    pub(crate) group: Option<Group>,
    pub(crate) bytes: Option<u64>,
    /// From whom and to whom, by their places in the group.
    pub(crate) ends: Option<(u16, u16)>,
}

/// A range in which a thread asks for communication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedCollective {
    pub(crate) thread: Option<u32>,
    pub(crate) start: Nanos,
    pub(crate) duration: Nanos,
    pub(crate) kind: SpanKind,
    /// The bytes of the message, if they are known.
    pub(crate) bytes: Option<u64>,
}

impl Profile {
    /// Keeps what the device did.
    pub(crate) fn activity(&mut self, activity: Activity) {
        keep(&mut self.rows.activities, activity, &mut self.rows.dropped);
    }

    /// Keeps a call of the host.
    pub(crate) fn call(&mut self, call: Call) {
        keep(&mut self.rows.calls, call, &mut self.rows.dropped);
    }

    /// Keeps a range that the program, or its framework, named.
    pub(crate) fn annotation(
        &mut self,
        thread: Option<u32>,
        start: Nanos,
        duration: Nanos,
        place: TrainingContext,
        name: &str,
    ) {
        let annotated = Annotated { thread, start, end: start + duration, place };
        let name = self.names.id(name);
        keep(&mut self.rows.annotations, (annotated, name), &mut self.rows.dropped);
    }

    /// Keeps a call of an operator.
    pub(crate) fn operator(&mut self, operator: OperatorCall) {
        keep(&mut self.rows.operators, operator, &mut self.rows.dropped);
    }

    /// Keeps a call of a function.
    pub(crate) fn function(&mut self, function: FunctionCall) {
        keep(&mut self.rows.functions, function, &mut self.rows.dropped);
    }

    /// Keeps an allocation or a free.
    pub(crate) fn memory(&mut self, change: MemoryChange) {
        keep(&mut self.rows.memory, change, &mut self.rows.dropped);
    }

    /// Keeps a send or a receive.
    pub(crate) fn message(&mut self, message: AskedMessage) {
        keep(&mut self.rows.messages, message, &mut self.rows.dropped);
    }

    /// Keeps a range in which communication is asked for.
    pub(crate) fn collective(&mut self, collective: AskedCollective) {
        keep(&mut self.rows.collectives, collective, &mut self.rows.dropped);
    }
}

impl Rows {
    /// Puts all times off. What would not be over before the last time there is, is left out and counted.
    pub(crate) fn move_times(&mut self, by: i64) {
        let moved = |start: &mut Nanos, duration: Nanos| {
            let there = start.0.checked_add(by).map(Nanos).filter(|there| there.has_end(duration));
            *start = there.unwrap_or_default();
            there.is_some()
        };
        let before = self.count();
        let of_host = || {
            self.operators.retain_mut(|operator| moved(&mut operator.start, operator.duration));
            self.functions.retain_mut(|function| moved(&mut function.start, function.duration));
        };
        beside("host times", of_host, || {
            self.activities.retain_mut(|Activity { span, .. }| moved(&mut span.start_ns, span.duration_ns));
            self.calls.retain_mut(|call| moved(&mut call.start, call.duration));
            self.annotations.retain_mut(|(annotated, _)| {
                let duration = annotated.end - annotated.start;
                let is_kept = moved(&mut annotated.start, duration);
                annotated.end = annotated.start + duration;
                is_kept
            });
            self.memory.retain_mut(|change| moved(&mut change.time, Nanos(0)));
            self.messages.retain_mut(|message| moved(&mut message.start, Nanos(0)));
            self.collectives.retain_mut(|collective| moved(&mut collective.start, collective.duration));
        });
        self.timeless += (before - self.count()) as u64;
    }

    /// Takes all of it, and makes room for as much again.
    pub(super) fn take_all(&mut self) -> Rows {
        Rows {
            activities: take_rows(&mut self.activities),
            calls: take_rows(&mut self.calls),
            annotations: take_rows(&mut self.annotations),
            operators: take_rows(&mut self.operators),
            functions: take_rows(&mut self.functions),
            memory: take_rows(&mut self.memory),
            messages: take_rows(&mut self.messages),
            collectives: take_rows(&mut self.collectives),
            autograd: mem::take(&mut self.autograd),
            timeless: mem::take(&mut self.timeless),
            dropped: mem::take(&mut self.dropped),
        }
    }

    fn count(&self) -> usize {
        let host = self.calls.len() + self.annotations.len() + self.operators.len() + self.functions.len();
        self.activities.len() + host + self.memory.len() + self.messages.len() + self.collectives.len()
    }
}

/// Keeps a row if there is room for it, and counts it if not.
fn keep<T>(rows: &mut Vec<T>, row: T, dropped: &mut u64) {
    if rows.len() < MOST_ROWS { rows.push(row) } else { *dropped += 1 }
}

/// Keeps rows as long as there is room for them, and counts the others.
pub(super) fn keep_all<T>(rows: &mut Vec<T>, mut more: Vec<T>, dropped: &mut u64) {
    let room = MOST_ROWS - rows.len();
    *dropped += more.len().saturating_sub(room) as u64;
    more.truncate(room);
    rows.append(&mut more);
}

/// Takes all rows, and makes room for as many again.
fn take_rows<T>(rows: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(rows.len());
    mem::replace(rows, room)
}
