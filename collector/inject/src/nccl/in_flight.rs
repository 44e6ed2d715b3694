//! How far all communicators of this process have come.

use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use stepscope_traces::{AskedOperation, InFlight};

use super::communicator::Communicator;

/// Those of this process.
static COMMUNICATORS: Mutex<Vec<Weak<Communicator>>> = Mutex::new(Vec::new());

/// Remembers a communicator.
pub(super) fn remember(communicator: Weak<Communicator>) {
    let mut all = communicators();
    all.retain(|one| one.strong_count() > 0);
    all.push(communicator);
}

/// How far all communicators of this process have come; none, if there are none that say who is in them.
pub(crate) fn in_flight() -> Option<InFlight> {
    let all: Vec<_> = communicators().iter().filter_map(Weak::upgrade).collect();
    let told = all.iter().filter_map(|one| Some(one.recent.told(one.membership.as_ref()?)));
    let (groups, waiting): (Vec<_>, Vec<_>) = told.unzip();
    let mut waiting: Vec<AskedOperation> = waiting.into_iter().flatten().collect();
    waiting.sort_by_key(|asked| asked.asked_ns);
    (!groups.is_empty()).then(|| InFlight { groups, waiting, are_ends_unknown: true, ..InFlight::default() })
}

fn communicators() -> MutexGuard<'static, Vec<Weak<Communicator>>> {
    COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stepscope_traces::{Group, Membership, SpanKind};

    use super::{super::communicator::Identity, *};

    #[test]
    fn communicators_are_told_of_as_long_as_they_are_there() {
        let membership = Membership { group: Group(78), index: Some(0), size: 2, name: None, ranks: Vec::new() };
        let communicator = Arc::new(Communicator::of(Identity { hash: 78, size: 2 }, membership));
        remember(Arc::downgrade(&communicator));
        communicator.recent.call(SpanKind::AllReduce);
        let is_told = || in_flight().is_some_and(|said| said.groups.iter().any(|group| group.group == Group(78)));
        let said = in_flight().unwrap();
        assert!(is_told() && said.are_ends_unknown && said.waiting.iter().any(|asked| asked.group == Group(78)));
        drop(communicator);
        assert!(!is_told());
    }
}
