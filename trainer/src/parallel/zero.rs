//! ZeRO: replicas share what they would each hold. Sharding is one function, a gather and a reduce-scatter.
//!
//! | stage | optimizer state | gradients | parameters |
//! |---|---|---|---|
//! | 0 | whole | whole, all-reduced | whole |
//! | 1 | shards | whole, reduce-scattered once a step | whole, gathered after the update |
//! | 2 | shards | shards, reduce-scattered for each micro-batch | whole, gathered after the update |
//! | 3 | shards | shards, reduce-scattered for each micro-batch | shards, gathered before each use and freed after it |
//!
//! A shard is a replica's part of each unit, so a unit can be gathered and reduced alone. Where replicas share in groups, each
//! group has all shards, and groups sum what each shard has of a step's gradient.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
};

use stepscope_collector::Context;
use stepscope_traces::MemoryCategory;

use super::data::Replicas;
use crate::{
    backend::{Event, Tensor},
    comm::Reduction,
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

/// Parameters of which this replica holds its shards: ZeRO-3. While a unit computes, the next ones come in.
pub(crate) struct ShardedWeights {
    pub(crate) replicas: Replicas,
    pub(crate) shards: Tensor,
    /// Units that are whole right now, or will be.
    gathered: HashMap<usize, (Tensor, Option<Event>)>,
    /// Units that will be needed, in order; those that are needed together stand together.
    coming: VecDeque<Vec<usize>>,
    /// How far ahead they are gathered.
    prefetch: usize,
}

impl ShardedWeights {
    pub(crate) fn new(replicas: Replicas, shards: Tensor, prefetch: u64) -> ShardedWeights {
        let (gathered, coming) = (HashMap::new(), VecDeque::new());
        ShardedWeights { replicas, shards, gathered, coming, prefetch: prefetch as usize }
    }

    /// Says which units will be needed.
    pub(crate) fn expect(&mut self, coming: VecDeque<Vec<usize>>) {
        self.coming = coming;
    }

    /// Says that what was to come next is needed now.
    pub(crate) fn begin(&mut self, units: &[usize]) {
        let next = self.coming.pop_front();
        debug_assert!(next.is_none_or(|next| next == units), "{units:?} are not what was expected");
    }

    /// The units that should be on their way.
    pub(crate) fn ahead(&self) -> Vec<usize> {
        self.coming.iter().take(self.prefetch).flatten().copied().collect()
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

    /// Frees a unit, unless it is needed again so soon that it would be on its way now.
    pub(crate) fn release(&mut self, unit: usize) {
        if !self.ahead().contains(&unit) {
            self.gathered.remove(&unit);
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
    /// Shards that are being summed over groups.
    summing: Vec<Event>,
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
    /// Whether that makes the gradient of the step.
    is_last: bool,
}

impl ShardedGradients {
    pub(crate) fn new(replicas: Replicas, shards: LazyTensor) -> ShardedGradients {
        ShardedGradients { replicas, shards, open: HashMap::new(), reducing: None, summing: Vec::new() }
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
    pub(crate) fn complete(&mut self, unit: usize, range: &Range<usize>, is_last: bool) {
        self.settle();
        if let Some(buffer) = self.open.remove(&unit) {
            let mine = buffer.slice(self.replicas.shard(buffer.elements()));
            let done = self.replicas.start(|communicator, group, stream| {
                communicator.reduce_scatter(group, stream, &buffer, &mine);
            });
            let (place, context) = (self.replicas.place_among_shards(range), self.replicas.recorder.context());
            self.reducing = Some(Reducing { place, reduced: mine, done, context, is_last });
        }
    }

    /// Adds what has been reduced to the shards, and frees the buffer. Groups sum the gradient of the step.
    fn settle(&mut self) {
        if let Some(Reducing { place, reduced, done, context, is_last }) = self.reducing.take() {
            let _context = self.replicas.recorder.enter(context);
            self.replicas.wait(done);
            let shard = self.shards.get().slice(place);
            self.replicas.backend.add(&shard, &reduced);
            if let Some(copies) = self.replicas.copies.as_ref().filter(|_| is_last) {
                let started = self.replicas.start(|communicator, _, stream| {
                    communicator.all_reduce(copies, stream, &shard, Reduction::Sum);
                });
                self.summing.extend(started);
            }
        }
    }

    /// Ends a step: the shards are those of the gradient of all replicas.
    pub(crate) fn finish(&mut self) {
        self.settle();
        for event in self.summing.drain(..) {
            self.replicas.wait(Some(event));
        }
    }

    pub(crate) fn shards(&self) -> &Tensor {
        self.shards.get()
    }
}
