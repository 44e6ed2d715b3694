//! Data parallelism: replicas see different data and must agree on the gradient.
//!
//! The naive way waits for the whole backward pass and then reduces everything at once, on the compute stream. The
//! bucketed way reduces each unit as soon as its gradient is complete, on the communication stream, while the backward
//! pass goes on; it is what everyone uses, and the naive one stands beside it to be compared with.

use std::{ops::Range, sync::Arc};

use stepscope_collector::Recorder;
use stepscope_plan::shard;

use crate::{
    backend::{Backend, Event, Stream, Tensor},
    comm::{Communicator, ProcessGroup, Reduction},
    lazy_tensor::LazyTensor,
};

/// The replicas, as one of them reaches the others.
#[derive(Clone)]
pub(crate) struct Replicas {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) communicator: Arc<dyn Communicator>,
    pub(crate) recorder: Recorder,
    /// Those that share, or all. Nobody, if there is one.
    pub(crate) group: Option<ProcessGroup>,
    /// Those of other groups that hold the same shards, if there are any.
    pub(crate) copies: Option<ProcessGroup>,
    /// Whether communication goes on beside computation.
    pub(crate) overlap: bool,
}

impl Replicas {
    /// Those that hold the same experts, of which these share them. Where none of the group has the same, those of other groups do.
    pub(crate) fn of_experts(&self, group: Option<ProcessGroup>) -> Replicas {
        let (group, copies) = match group {
            None => (self.copies.clone(), None),
            group => (group, self.copies.clone()),
        };
        Replicas { group, copies, ..self.clone() }
    }

    /// How many share, or how many there are.
    pub(crate) fn count(&self) -> usize {
        self.group.as_ref().map_or(1, ProcessGroup::size)
    }

    /// Which one this is.
    pub(crate) fn index(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.index)
    }

    /// Which elements of a unit this replica's shard has.
    pub(crate) fn shard(&self, elements: usize) -> Range<usize> {
        let shard = shard(elements as u64, self.count() as u64, self.index() as u64);
        shard.start as usize..shard.end as usize
    }

    /// Where a unit's shard lies among this replica's shards of all units: units are padded to multiples of the
    /// replicas.
    pub(crate) fn place_among_shards(&self, unit: &Range<usize>) -> Range<usize> {
        unit.start / self.count()..unit.end / self.count()
    }

    /// Starts an operation once what has been computed so far is there; the event says when it is done.
    pub(crate) fn start(&self, operation: impl FnOnce(&dyn Communicator, &ProcessGroup, Stream)) -> Option<Event> {
        let group = self.group.as_ref()?;
        if !self.overlap {
            operation(&*self.communicator, group, Stream::Compute);
            return None;
        }
        let computed = self.backend.record(Stream::Compute);
        self.backend.wait(Stream::Communication, &computed);
        operation(&*self.communicator, group, Stream::Communication);
        Some(self.backend.record(Stream::Communication))
    }

    /// Whether another group has the same, and comes before.
    pub(crate) fn is_copy(&self) -> bool {
        self.copies.as_ref().is_some_and(|copies| copies.index > 0)
    }

    /// Lets the compute stream go on only when an operation is done.
    pub(crate) fn wait(&self, started: Option<Event>) {
        if let Some(event) = started {
            self.backend.wait(Stream::Compute, &event);
        }
    }
}

/// Gradients that every replica holds whole.
pub(crate) struct WholeGradients {
    replicas: Replicas,
    /// Of all units, one after the other.
    flat: LazyTensor,
    /// What becomes of a unit's gradient.
    to: Reduced,
    started: Vec<Event>,
}

/// What replicas make of a gradient.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduced {
    /// Every replica gets all of it.
    Everywhere,
    /// Every replica gets its shard of each unit, in place: ZeRO-1. With several groups, that of all groups.
    ToShards,
}

impl WholeGradients {
    pub(crate) fn new(replicas: Replicas, flat: LazyTensor, to: Reduced) -> WholeGradients {
        WholeGradients { replicas, flat, to, started: Vec::new() }
    }

    /// Where a unit's gradient is added up.
    pub(crate) fn of(&self, unit: &Range<usize>) -> Tensor {
        self.flat.get().slice(unit.clone())
    }

    pub(crate) fn clear(&self) {
        self.flat.clear();
    }

    /// Says that a unit's gradient of this step is complete. Bucketed: it is reduced now, beside the backward pass.
    pub(crate) fn complete(&mut self, unit: &Range<usize>) {
        if self.replicas.overlap {
            self.started.extend(self.reduce(unit));
        }
    }

    /// Says that all gradients are complete, and waits for them. Naive: everything is reduced now, at once.
    pub(crate) fn finish(&mut self, units: &[Range<usize>]) {
        if !self.replicas.overlap {
            match self.to {
                Reduced::Everywhere => drop(self.reduce(&(0..self.flat.elements()))),
                Reduced::ToShards => units.iter().for_each(|unit| drop(self.reduce(unit))),
            }
        }
        for event in self.started.drain(..) {
            self.replicas.wait(Some(event));
        }
    }

    fn reduce(&self, unit: &Range<usize>) -> Option<Event> {
        let gradient = self.of(unit);
        self.replicas.start(|communicator, group, stream| match self.to {
            Reduced::Everywhere => communicator.all_reduce(group, stream, &gradient, Reduction::Sum),
            Reduced::ToShards => {
                let shard = gradient.slice(self.replicas.shard(gradient.elements()));
                communicator.reduce_scatter(group, stream, &gradient, &shard);
                if let Some(copies) = &self.replicas.copies {
                    communicator.all_reduce(copies, stream, &shard, Reduction::Sum);
                }
            }
        })
    }
}
