//! Context parallelism: each rank has a part of every sequence, and comes by the keys and values of all.
//!
//! ```text
//! ring         rank 0 ─► rank 1 ─► rank 2 ─► rank 0   keys and values; backward, their gradients go along and come home
//! all-gather   every rank gathers all keys and values, and scatters all gradients
//! ```

use std::sync::Arc;

use stepscope_plan::{ContextExchange, ParallelLayout};

use crate::{
    backend::{Backend, Event, Stream, Tensor},
    comm::{Communicator, ProcessGroup, Reduction},
};

/// The ranks that have parts of the same sequences.
#[derive(Clone)]
pub(crate) struct ContextParallel {
    backend: Arc<dyn Backend>,
    communicator: Arc<dyn Communicator>,
    /// Nobody, if sequences are whole.
    pub(crate) group: Option<ProcessGroup>,
    pub(crate) exchange: ContextExchange,
    /// Where in a sequence the chunks of each part begin.
    starts: Vec<Vec<usize>>,
}

/// Something that goes around the ring.
pub(crate) struct OnTheWay {
    /// What comes from the rank before.
    pub(crate) coming: Tensor,
    came: Event,
    /// What goes to the rank after, which must stay until it has gone.
    _going: Tensor,
    gone: Event,
}

impl ContextParallel {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        communicator: Arc<dyn Communicator>,
        group: Option<ProcessGroup>,
        layout: &ParallelLayout,
    ) -> ContextParallel {
        let of = |index: u64| layout.chunk_starts(index).into_iter().map(|start| start as usize).collect();
        let starts = (0..layout.cp).map(of).collect();
        ContextParallel { backend, communicator, group, exchange: layout.context, starts }
    }

    /// How many parts sequences have.
    pub(crate) fn parts(&self) -> usize {
        self.starts.len()
    }

    /// Which part this rank has.
    pub(crate) fn index(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.index)
    }

    /// Where in a sequence the chunks of a part begin.
    pub(crate) fn starts(&self, part: usize) -> &[usize] {
        &self.starts[part]
    }

    /// Whose keys and values are here after so many steps of the ring.
    pub(crate) fn part_after(&self, steps: usize) -> usize {
        (self.index() + self.parts() - steps) % self.parts()
    }

    /// Begins to send something to the rank after this one, once it is computed, and to take the like from the one before.
    pub(crate) fn pass_on(&self, group: &ProcessGroup, going: Tensor, coming: Tensor) -> OnTheWay {
        let computed = self.backend.record(Stream::Compute);
        let (next, last) = ((group.index + 1) % group.size(), (group.index + group.size() - 1) % group.size());
        self.backend.wait(Stream::Messages, &computed);
        self.communicator.send(group, Stream::Messages, &going, next);
        let gone = self.backend.record(Stream::Messages);
        self.backend.wait(Stream::Communication, &computed);
        self.communicator.receive(group, Stream::Communication, &coming, last);
        let came = self.backend.record(Stream::Communication);
        OnTheWay { coming, came, _going: going, gone }
    }

    /// What has come, ready for the compute stream. What went is free from then on.
    pub(crate) fn arrived(&self, passed: OnTheWay) -> Tensor {
        self.backend.wait(Stream::Compute, &passed.came);
        self.backend.wait(Stream::Compute, &passed.gone);
        passed.coming
    }

    /// Sums what each rank has of its part of the sequences.
    pub(crate) fn sum(&self, partial: &Tensor) {
        if let Some(group) = &self.group {
            self.communicator.all_reduce(group, Stream::Compute, partial, Reduction::Sum);
        }
    }

    /// What all ranks have, one after the other.
    pub(crate) fn gather(&self, group: &ProcessGroup, mine: &Tensor, all: &Tensor) {
        self.communicator.all_gather(group, Stream::Compute, mine, all);
    }

    /// This rank's part of the sum of all.
    pub(crate) fn reduce_scatter(&self, group: &ProcessGroup, all: &Tensor, mine: &Tensor) {
        self.communicator.reduce_scatter(group, Stream::Compute, all, mine);
    }
}
