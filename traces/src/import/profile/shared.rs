//! Puts together what several readers saw of one trace, part by part, in the order of the trace.

use std::sync::Arc;

use super::{
    operator::{AddedCalls, CalledIds},
    rows::{Profile, Rows, keep_all},
};
use crate::{ids::NameId, names::FIRST_NAME};

/// A part of a trace as one of its readers saw it, and the names that it added for that.
#[derive(Debug)]
pub(crate) struct Part {
    rows: Rows,
    names: Vec<Arc<str>>,
    called: AddedCalls,
    dropped_names: u64,
}

/// Which ids the names of a reader have in the whole.
#[derive(Debug, Default)]
pub(crate) struct ReaderIds {
    names: Vec<NameId>,
    called: CalledIds,
}

impl Profile {
    /// Takes out what came since the last part; the names stay, for the next ones.
    pub(crate) fn part(&mut self) -> Part {
        Part {
            rows: self.rows.take_all(),
            names: self.names.added(),
            called: self.called.added(),
            dropped_names: std::mem::take(&mut self.names.dropped),
        }
    }

    /// Appends the next part, of the reader with these ids.
    pub(crate) fn append(&mut self, part: Part, ids: &mut ReaderIds) {
        ids.names.extend(part.names.iter().map(|name| self.names.id(name)));
        self.called.take_in(part.called, &mut ids.called);
        self.names.dropped += part.dropped_names;
        self.rows.append(part.rows, ids);
    }
}

impl Rows {
    fn append(&mut self, mut other: Rows, ids: &ReaderIds) {
        let name = |id: NameId| ids.names.get((id.0 - FIRST_NAME.0) as usize).copied().unwrap_or(id);
        other.activities.iter_mut().for_each(|activity| activity.span.name = name(activity.span.name));
        other.calls.iter_mut().for_each(|call| call.name = name(call.name));
        other.annotations.iter_mut().for_each(|(_, id)| *id = name(*id));
        other.operators.iter_mut().for_each(|call| ids.called.rename_operator(call));
        other.functions.iter_mut().for_each(|call| ids.called.rename_function(call));
        let dropped = &mut self.dropped;
        keep_all(&mut self.activities, other.activities, dropped);
        keep_all(&mut self.calls, other.calls, dropped);
        keep_all(&mut self.annotations, other.annotations, dropped);
        keep_all(&mut self.operators, other.operators, dropped);
        keep_all(&mut self.functions, other.functions, dropped);
        keep_all(&mut self.memory, other.memory, dropped);
        keep_all(&mut self.messages, other.messages, dropped);
        keep_all(&mut self.collectives, other.collectives, dropped);
        self.autograd.extend(other.autograd);
        self.timeless += other.timeless;
        self.dropped += other.dropped;
    }
}
