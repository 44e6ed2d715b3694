//! The rows of tokens between matrices: what enters the first of a pair, and what comes out of the second.
//!
//! Each tensor rank has all of them, and sums are all-reduced. With sequence parallelism each has a part: norms and what passes
//! by them are shared.
//!
//! ```text
//! rows here ─► norm ─► gather ─► qkv, gate, up ─► attention, swiglu ─► output, down ─► reduce-scatter ─► rows here
//! ```
//!
//! Backward, the gradient is gathered where the forward pass reduced, and reduced where it gathered. What a gradient of
//! weights needs is gathered again instead of being kept, beside what is computed before it.

use stepscope_traces::MemoryCategory;

use super::Engine;
use crate::backend::{Event, Stream, Tensor};

/// Rows that come from other ranks, beside the computation where that is possible.
pub(crate) struct Arriving {
    rows: Tensor,
    /// What they are made of, which must stay until they are there.
    _source: Tensor,
    there: Option<Event>,
}

impl Engine {
    /// A hidden vector for each of this rank's rows.
    pub(crate) fn rows_here(&self, category: MemoryCategory) -> Tensor {
        self.backend.allocate(self.sizes.rows_here * self.sizes.hidden, self.numbers.compute, category)
    }

    /// All rows, of which this rank has some.
    pub(crate) fn gather(&self, rows: &Tensor) -> Tensor {
        let arriving = self.gather_on(Stream::Compute, rows);
        self.arrived(arriving)
    }

    /// Begins to gather all rows.
    pub(crate) fn gather_ahead(&self, rows: &Tensor) -> Arriving {
        self.gather_on(Stream::Communication, rows)
    }

    fn gather_on(&self, stream: Stream, rows: &Tensor) -> Arriving {
        if !self.tensor.shares_rows() {
            return Arriving { rows: rows.clone(), _source: rows.clone(), there: None };
        }
        let all = self.rows(self.sizes.hidden, MemoryCategory::Communication);
        let there = self.beside(stream, || self.tensor.gather(stream, rows, &all));
        Arriving { rows: all, _source: rows.clone(), there }
    }

    /// Computes a part of all rows on each rank: this rank's rows of the sum, as memory of this category.
    pub(crate) fn sum(&self, category: MemoryCategory, compute: impl FnOnce(&Tensor)) -> Tensor {
        let arriving = self.sum_on(Stream::Compute, category, compute);
        self.arrived(arriving)
    }

    /// Begins to sum what is computed.
    pub(crate) fn sum_ahead(&self, category: MemoryCategory, compute: impl FnOnce(&Tensor)) -> Arriving {
        self.sum_on(Stream::Communication, category, compute)
    }

    fn sum_on(&self, stream: Stream, category: MemoryCategory, compute: impl FnOnce(&Tensor)) -> Arriving {
        if !self.tensor.shares_rows() {
            let rows = self.rows(self.sizes.hidden, category);
            compute(&rows);
            self.tensor.sum(&rows);
            return Arriving { _source: rows.clone(), rows, there: None };
        }
        let partial = self.rows(self.sizes.hidden, MemoryCategory::Communication);
        compute(&partial);
        let rows = self.rows_here(category);
        let there = self.beside(stream, || self.tensor.reduce_scatter(stream, &partial, &rows));
        Arriving { rows, _source: partial, there }
    }

    /// Has a stream do something once what has been computed so far is there.
    fn beside(&self, stream: Stream, operation: impl FnOnce()) -> Option<Event> {
        if stream == Stream::Compute {
            operation();
            return None;
        }
        let computed = self.backend.record(Stream::Compute);
        self.backend.wait(stream, &computed);
        operation();
        Some(self.backend.record(stream))
    }

    /// Rows, ready for the compute stream, that are needed again.
    pub(crate) fn here(&self, arriving: &mut Arriving) -> Tensor {
        if let Some(there) = arriving.there.take() {
            self.backend.wait(Stream::Compute, &there);
        }
        arriving.rows.clone()
    }

    /// Rows, ready for the compute stream. What they were made of is free from then on.
    pub(crate) fn arrived(&self, mut arriving: Arriving) -> Tensor {
        self.here(&mut arriving)
    }
}
