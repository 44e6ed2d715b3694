//! What was asked of a communicator last, for when somebody asks why the program does not go on.
//!
//! NCCL does not tell when an operation is over on the device. So what was asked for last is told, and whoever knows all ranks
//! sees what some of them have not asked for.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use stepscope_traces::{AskedOperation, GroupProgress, Membership, Nanos, Sequence, SpanKind, now};

/// So many operations of a communicator are remembered.
const MOST: usize = 64;

/// What was asked of one communicator last.
#[derive(Default)]
pub(super) struct Recent(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    collectives: u64,
    /// Whether NCCL tells of calls, each of which comes before what becomes of it.
    has_calls: bool,
    last: VecDeque<(SpanKind, Sequence, Nanos)>,
}

impl Recent {
    /// A collective was called for.
    pub(super) fn call(&self, kind: SpanKind) {
        let mut counted = lock(&self.0);
        counted.has_calls = true;
        counted.collective(kind);
    }

    /// A collective becomes part of a kernel.
    pub(super) fn collective(&self, kind: SpanKind) {
        let mut counted = lock(&self.0);
        if !counted.has_calls {
            counted.collective(kind);
        }
    }

    /// A message was asked for.
    pub(super) fn message(&self, kind: SpanKind, sequence: Sequence) {
        lock(&self.0).add(kind, sequence);
    }

    /// How far the communicator of a group has come, and what was asked for last.
    pub(super) fn told(&self, membership: &Membership) -> (GroupProgress, Vec<AskedOperation>) {
        let (group, counted) = (membership.group, lock(&self.0));
        let asked =
            |(kind, sequence, time): &(SpanKind, Sequence, Nanos)| AskedOperation::new(*kind, group, *sequence, *time);
        let name = membership.name.clone().unwrap_or_default();
        let last_asked = Some(counted.collectives).filter(|count| *count > 0);
        (GroupProgress { group, name, ranks: Vec::new(), last_asked }, counted.last.iter().map(asked).collect())
    }
}

impl Counted {
    fn collective(&mut self, kind: SpanKind) {
        self.collectives += 1;
        self.add(kind, Sequence(self.collectives));
    }

    fn add(&mut self, kind: SpanKind, sequence: Sequence) {
        self.last.push_back((kind, sequence, now()));
        if self.last.len() > MOST {
            self.last.pop_front();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use stepscope_traces::Group;

    use super::*;

    #[test]
    fn each_collective_counts_once_however_often_it_is_told_of() {
        let membership =
            Membership { group: Group(77), index: Some(0), size: 2, name: Some("tp".into()), ranks: Vec::new() };
        let recent = Recent::default();
        let told = || {
            let (group, asked) = recent.told(&membership);
            assert_eq!((group.group, group.name.as_str()), (Group(77), "tp"));
            (group.last_asked, asked.into_iter().map(|asked| (asked.name, asked.sequence)).collect::<Vec<_>>())
        };
        assert_eq!(told(), (None, vec![]));
        recent.collective(SpanKind::AllReduce);
        recent.call(SpanKind::AllGather);
        recent.collective(SpanKind::AllGather);
        let reduce_and_gather = vec![("all_reduce".to_owned(), 1), ("all_gather".to_owned(), 2)];
        assert_eq!(told(), (Some(2), reduce_and_gather));
        (0..MOST).for_each(|_| recent.call(SpanKind::AllReduce));
        let (last, asked) = told();
        assert_eq!((last, asked.len(), asked[0].1), (Some(MOST as u64 + 2), MOST, 3));
    }
}
