//! Attention to whole sequences, or to those of which each rank has a part.
//!
//! Chunks of queries attend to chunks of keys in blocks, each as if it were all there is: causally to their own chunk, wholly to
//! those before it. What blocks give is merged by the sums of their rows. Backward, each block starts from the merged result, so
//! that the gradients of blocks only need to be added up.

use std::ops::Range;

use stepscope_plan::ContextExchange;
use stepscope_traces::MemoryCategory;

use super::Engine;
use crate::{
    backend::{AttentionTensors, Columns, Direction, Heads, Tensor},
    comm::ProcessGroup,
    parallel::context::OnTheWay,
};

/// Attention of a chunk of queries to a chunk of keys, by their places among those of a rank.
struct Block {
    query: usize,
    key: usize,
    /// Whether they are the same chunk.
    causal: bool,
}

impl Engine {
    /// Rotates queries and keys by their positions, which go on where a chunk ends only if sequences are whole.
    pub(crate) fn rope(&self, qkv: &Tensor, direction: Direction) {
        let heads = self.sizes.heads;
        for (chunk, start) in self.context.starts(self.context.index()).iter().enumerate() {
            let rows = qkv.slice(self.chunk(chunk, heads.qkv_width()));
            self.backend.rope(heads, *start, &rows, direction);
        }
    }

    /// Attends to all keys before each query, wherever they are. Tokens × width of the queries, and logarithms of sums.
    pub(crate) fn attend(&self, qkv: &Tensor) -> (Tensor, Tensor) {
        let heads = self.sizes.heads;
        let out = self.activation(heads.out_width());
        let lse = self.sums(heads.heads, MemoryCategory::Activations);
        match self.context.group.clone() {
            None => self.backend.attention(heads, qkv, &out, &lse),
            Some(group) => {
                let merged = self.sums(heads.out_width(), MemoryCategory::Workspace);
                self.with_keys_of_all(&group, self.keys_of(qkv), |part, keys| {
                    for block in self.blocks(part) {
                        self.attend_block(&block, qkv, keys, (&merged, &lse));
                    }
                });
                self.backend.copy(&merged, &out);
            }
        }
        (out, lse)
    }

    /// The gradient of queries, keys and values.
    pub(crate) fn attend_backward(&self, of: AttentionTensors<'_>, d_out: &Tensor) -> Tensor {
        let heads = self.sizes.heads;
        let d_qkv = self.temporary(heads.qkv_width());
        let Some(group) = self.context.group.clone() else {
            self.backend.attention_backward(heads, of, d_out, &d_qkv);
            return d_qkv;
        };
        let (query, keys) = (heads.out_width(), heads.qkv_width() - heads.out_width());
        let d_query = self.sums(query, MemoryCategory::Workspace);
        self.backend.zero(&d_query);
        let d_keys = self.with_gradients_of_all(&group, self.keys_of(of.qkv), |part, keys, d_keys| {
            for block in self.blocks(part) {
                self.attend_block_backward(&block, of, d_out, keys, (&d_query, d_keys));
            }
        });
        let whole = heads.qkv_width();
        let of_queries = Columns { count: query, from: (query, 0), to: (whole, 0), accumulate: false };
        self.backend.columns(of_queries, &d_query, &d_qkv);
        let of_keys = Columns { count: keys, from: (keys, 0), to: (whole, query), accumulate: false };
        self.backend.columns(of_keys, &d_keys, &d_qkv);
        d_qkv
    }

    /// Keys and values without the queries beside them, to be passed on.
    fn keys_of(&self, qkv: &Tensor) -> Tensor {
        let heads = self.sizes.heads;
        let (width, query) = (heads.qkv_width(), heads.out_width());
        let keys = self.keys_rows();
        let columns = Columns { count: width - query, from: (width, query), to: (width - query, 0), accumulate: false };
        self.backend.columns(columns, qkv, &keys);
        keys
    }

    /// Room for a rank's keys and values, or their gradients.
    fn keys_rows(&self) -> Tensor {
        let heads = self.sizes.heads;
        self.rows(heads.qkv_width() - heads.out_width(), MemoryCategory::Communication)
    }

    /// Does something with the keys and values of every part of the sequences, this rank's first.
    fn with_keys_of_all(&self, group: &ProcessGroup, mine: Tensor, mut work: impl FnMut(usize, &Tensor)) {
        let (context, parts) = (&self.context, self.context.parts());
        match context.exchange {
            ContextExchange::Ring => {
                let mut keys = mine;
                for step in 0..parts {
                    let next = self.next_keys(group, step, &keys);
                    work(context.part_after(step), &keys);
                    if let Some(next) = next {
                        keys = context.arrived(next);
                    }
                }
            }
            ContextExchange::AllGather => {
                let all = self.gathered(group, &mine);
                for part in (0..parts).map(|step| context.part_after(step)) {
                    work(part, &all.slice(part_of(&all, parts, part)));
                }
            }
        }
    }

    /// The same where something is added to the gradients of those keys and values: the sum of what all ranks add to this one's.
    fn with_gradients_of_all(
        &self,
        group: &ProcessGroup,
        mine: Tensor,
        mut work: impl FnMut(usize, &Tensor, &Tensor),
    ) -> Tensor {
        let (context, parts) = (&self.context, self.context.parts());
        match context.exchange {
            ContextExchange::Ring => {
                let mut added = |step: usize, keys: &Tensor| {
                    let d_keys = self.keys_rows();
                    self.backend.zero(&d_keys);
                    work(context.part_after(step), keys, &d_keys);
                    d_keys
                };
                let mut keys = mine;
                let mut next = self.next_keys(group, 0, &keys);
                let mut passed = context.pass_on(group, added(0, &keys), self.keys_rows());
                for step in 1..parts {
                    if let Some(next) = next.take() {
                        keys = context.arrived(next);
                    }
                    next = self.next_keys(group, step, &keys);
                    let d_keys = added(step, &keys);
                    // What others have added so far came along meanwhile.
                    self.backend.add(&d_keys, &context.arrived(passed));
                    passed = context.pass_on(group, d_keys, self.keys_rows());
                }
                context.arrived(passed)
            }
            ContextExchange::AllGather => {
                let all = self.gathered(group, &mine);
                let d_all = self.backend.allocate(all.elements(), all.dtype(), MemoryCategory::Communication);
                self.backend.zero(&d_all);
                for part in (0..parts).map(|step| context.part_after(step)) {
                    let place = part_of(&all, parts, part);
                    work(part, &all.slice(place.clone()), &d_all.slice(place));
                }
                context.reduce_scatter(group, &d_all, &mine);
                mine
            }
        }
    }

    /// Passes on the keys and values that are here, unless everyone has had them.
    fn next_keys(&self, group: &ProcessGroup, step: usize, keys: &Tensor) -> Option<OnTheWay> {
        let is_last = step + 1 == self.context.parts();
        (!is_last).then(|| self.context.pass_on(group, keys.clone(), self.keys_rows()))
    }

    fn gathered(&self, group: &ProcessGroup, mine: &Tensor) -> Tensor {
        let elements = mine.elements() * group.size();
        let all = self.backend.allocate(elements, mine.dtype(), MemoryCategory::Communication);
        self.context.gather(group, mine, &all);
        all
    }

    /// What of this rank's queries attends to what of a part's keys: its own chunk first.
    fn blocks(&self, part: usize) -> Vec<Block> {
        let (queries, keys) = (self.context.starts(self.context.index()), self.context.starts(part));
        let blocks = queries.iter().enumerate().flat_map(|(query, at)| {
            let seen = keys.iter().enumerate().filter(move |(_, start)| *start <= at);
            seen.map(move |(key, start)| Block { query, key, causal: start == at })
        });
        let mut blocks: Vec<Block> = blocks.collect();
        blocks.sort_by_key(|block| !block.causal);
        blocks
    }

    fn attend_block(&self, block: &Block, qkv: &Tensor, keys: &Tensor, (merged, merged_lse): (&Tensor, &Tensor)) {
        let heads = Heads { causal: block.causal, ..self.sizes.heads };
        let (rows, dtype) = (heads.tokens(), qkv.dtype());
        let together = self.together(block, qkv, keys);
        let out = self.backend.allocate(rows * heads.out_width(), dtype, MemoryCategory::Workspace);
        let lse = self.backend.allocate(rows * heads.heads, dtype.sum(), MemoryCategory::Workspace);
        self.backend.attention(heads, &together, &out, &lse);
        let merged = merged.slice(self.chunk(block.query, heads.out_width()));
        let merged_lse = merged_lse.slice(self.chunk(block.query, heads.heads));
        match block.causal {
            // The first there is.
            true => {
                self.backend.copy(&out, &merged);
                self.backend.copy(&lse, &merged_lse);
            }
            false => self.backend.merge_attention(heads, [&merged, &merged_lse], [&out, &lse]),
        }
    }

    fn attend_block_backward(
        &self,
        block: &Block,
        of: AttentionTensors<'_>,
        d_out: &Tensor,
        keys: &Tensor,
        (d_query, d_keys): (&Tensor, &Tensor),
    ) {
        let heads = Heads { causal: block.causal, ..self.sizes.heads };
        let (whole, query) = (heads.qkv_width(), heads.out_width());
        let together = self.together(block, of.qkv, keys);
        let d_together = self.backend.allocate(together.elements(), together.dtype(), MemoryCategory::Workspace);
        let out = of.out.slice(self.chunk(block.query, query));
        let lse = of.lse.slice(self.chunk(block.query, heads.heads));
        let d_out = d_out.slice(self.chunk(block.query, query));
        let of_block = AttentionTensors { qkv: &together, out: &out, lse: &lse };
        self.backend.attention_backward(heads, of_block, &d_out, &d_together);
        let of_query = Columns { count: query, from: (whole, 0), to: (query, 0), accumulate: true };
        self.backend.columns(of_query, &d_together, &d_query.slice(self.chunk(block.query, query)));
        let width = whole - query;
        let of_keys = Columns { count: width, from: (whole, query), to: (width, 0), accumulate: true };
        self.backend.columns(of_keys, &d_together, &d_keys.slice(self.chunk(block.key, width)));
    }

    /// A block's queries, with its keys and values beside them.
    fn together(&self, block: &Block, qkv: &Tensor, keys: &Tensor) -> Tensor {
        let heads = self.sizes.heads;
        let (whole, query) = (heads.qkv_width(), heads.out_width());
        let width = whole - query;
        let together = self.backend.allocate(heads.tokens() * whole, qkv.dtype(), MemoryCategory::Workspace);
        let of_query = Columns { count: query, from: (whole, 0), to: (whole, 0), accumulate: false };
        self.backend.columns(of_query, &qkv.slice(self.chunk(block.query, whole)), &together);
        let of_keys = Columns { count: width, from: (width, 0), to: (whole, query), accumulate: false };
        self.backend.columns(of_keys, &keys.slice(self.chunk(block.key, width)), &together);
        together
    }

    /// Where the rows of a chunk lie among those of a rank.
    fn chunk(&self, chunk: usize, width: usize) -> Range<usize> {
        let rows = self.sizes.heads.tokens();
        chunk * rows * width..(chunk + 1) * rows * width
    }
}

/// Where a part lies among all of them.
fn part_of(all: &Tensor, parts: usize, part: usize) -> Range<usize> {
    let elements = all.elements() / parts;
    part * elements..(part + 1) * elements
}
