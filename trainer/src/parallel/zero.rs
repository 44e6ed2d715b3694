//! ZeRO: replicas share what they would each hold. Sharding is one function, a gather and a reduce-scatter.
//!
//! | stage | optimizer state | gradients | parameters |
//! |---|---|---|---|
//! | 0 | whole | whole, all-reduced | whole |
//! | 1 | shards | whole, reduce-scattered once a step | whole, gathered after the update |
//! | 2 | shards | shards, reduce-scattered for each micro-batch | whole, gathered after the update |
//! | 3 | shards | shards, reduce-scattered for each micro-batch | shards, gathered before each use and freed after it |
//!
//! A shard is a replica's part of each unit, so a unit can be gathered and reduced alone.

use std::{collections::HashMap, ops::Range};

use stepscope_collector::Context;
use stepscope_traces::MemoryCategory;

use super::data::Replicas;
use crate::{
    backend::{Event, Tensor},
    lazy_tensor::LazyTensor,
};

/// Parameters that every replica holds whole.
pub(crate) struct WholeWeights {
    pub(crate) replicas: Replicas,
    pub(crate) flat: Tensor,
    /// Units that are being gathered after an update.
    arriving: HashMap<usize, Event>,
}

impl WholeWeights {
    pub(crate) fn new(replicas: Replicas, flat: Tensor) -> WholeWeights {
        WholeWeights { replicas, flat, arriving: HashMap::new() }
    }

    /// A unit's parameters, ready for the compute stream.
    pub(crate) fn of(&mut self, unit: usize, range: &Range<usize>) -> Tensor {
        self.replicas.wait(self.arriving.remove(&unit));
        self.flat.slice(range.clone())
    }

    /// Gathers what each replica has updated of a unit: ZeRO-1 and ZeRO-2.
    pub(crate) fn gather(&mut self, unit: usize, range: &Range<usize>) {
        let whole = self.flat.slice(range.clone());
        let mine = whole.slice(self.replicas.shard(whole.elements()));
        let started = self.replicas.start(|communicator, group, stream| {
            communicator.all_gather(group, stream, &mine, &whole);
        });
        self.arriving.extend(started.map(|event| (unit, event)));
    }
}

/// Parameters of which this replica holds its shards: ZeRO-3.
pub(crate) struct ShardedWeights {
    pub(crate) replicas: Replicas,
    pub(crate) shards: Tensor,
    /// Units that are whole right now, or will be.
    gathered: HashMap<usize, (Tensor, Option<Event>)>,
}

impl ShardedWeights {
    pub(crate) fn new(replicas: Replicas, shards: Tensor) -> ShardedWeights {
        ShardedWeights { replicas, shards, gathered: HashMap::new() }
    }

    /// Begins to gather a unit, if that has not begun.
    pub(crate) fn prefetch(&mut self, unit: usize, range: &Range<usize>) {
        if !self.gathered.contains_key(&unit) {
            self.gathered.insert(unit, self.gather(range));
        }
    }

    fn gather(&self, range: &Range<usize>) -> (Tensor, Option<Event>) {
        let dtype = self.shards.dtype();
        let whole = self.replicas.backend.allocate(range.len(), dtype, MemoryCategory::Communication);
        let mine = self.shards.slice(self.replicas.place_among_shards(range));
        let started = self.replicas.start(|communicator, group, stream| {
            communicator.all_gather(group, stream, &mine, &whole);
        });
        (whole, started)
    }

    /// A unit's parameters, ready for the compute stream.
    pub(crate) fn of(&mut self, unit: usize, range: &Range<usize>) -> Tensor {
        let (whole, started) = self.gathered.remove(&unit).unwrap_or_else(|| self.gather(range));
        self.replicas.wait(started);
        self.gathered.insert(unit, (whole.clone(), None));
        whole
    }

    /// Frees a unit until it is needed again.
    pub(crate) fn release(&mut self, unit: usize) {
        if let Some((_, started)) = self.gathered.remove(&unit) {
            // Memory may go only after what uses it.
            self.replicas.wait(started);
        }
    }
}

/// Gradients of which this replica keeps its shards: ZeRO-2 and ZeRO-3.
pub(crate) struct ShardedGradients {
    replicas: Replicas,
    shards: LazyTensor,
    /// Units whose backward pass is going on, whole.
    open: HashMap<usize, Tensor>,
    /// The unit that is being reduced.
    reducing: Option<Reducing>,
}

/// A unit's gradient on its way to the shards.
struct Reducing {
    /// Where its shard belongs.
    place: Range<usize>,
    /// Where its shard is, in the buffer.
    reduced: Tensor,
    done: Option<Event>,
    /// To which micro-batch and layer it belongs: adding it up comes when another one is at work.
    context: Context,
}

impl ShardedGradients {
    pub(crate) fn new(replicas: Replicas, shards: LazyTensor) -> ShardedGradients {
        ShardedGradients { replicas, shards, open: HashMap::new(), reducing: None }
    }

    pub(crate) fn clear(&self) {
        self.shards.clear();
    }

    /// Where a unit's gradient of this micro-batch is added up.
    pub(crate) fn of(&mut self, unit: usize, range: &Range<usize>) -> Tensor {
        let (backend, dtype) = (&self.replicas.backend, self.shards.dtype());
        let buffer = self.open.entry(unit).or_insert_with(|| {
            let buffer = backend.allocate(range.len(), dtype, MemoryCategory::Communication);
            backend.zero(&buffer);
            buffer
        });
        buffer.clone()
    }

    /// Says that a unit's gradient of this micro-batch is complete: its sum goes to the shards.
    pub(crate) fn complete(&mut self, unit: usize, range: &Range<usize>) {
        self.settle();
        if let Some(buffer) = self.open.remove(&unit) {
            let mine = buffer.slice(self.replicas.shard(buffer.elements()));
            let done = self.replicas.start(|communicator, group, stream| {
                communicator.reduce_scatter(group, stream, &buffer, &mine);
            });
            let (place, context) = (self.replicas.place_among_shards(range), self.replicas.recorder.context());
            self.reducing = Some(Reducing { place, reduced: mine, done, context });
        }
    }

    /// Adds what has been reduced to the shards, and frees the buffer.
    pub(crate) fn settle(&mut self) {
        if let Some(Reducing { place, reduced, done, context }) = self.reducing.take() {
            let _context = self.replicas.recorder.enter(context);
            self.replicas.wait(done);
            self.replicas.backend.add(&self.shards.get().slice(place), &reduced);
        }
    }

    pub(crate) fn shards(&self) -> &Tensor {
        self.shards.get()
    }
}
