//! Expert parallelism: replicas, or parts of sequences, share the experts of each layer, and tokens go to those they chose.
//!
//! ```text
//! sorted by expert ─► all-to-all ─► rows of the experts here, by expert ─► experts ─► all-to-all ─► sorted by expert
//! ```
//!
//! No token is dropped, so how many rows go where differs from layer to layer and from step to step. All ranks tell each other
//! before, and the host waits for that: it has to know how much memory the rows take.

use std::sync::Arc;

use stepscope_traces::MemoryCategory;

use crate::{
    backend::{Backend, DType, Stream, Tensor},
    comm::{Communicator, Exchange, ProcessGroup},
};

/// The ranks that share experts; `None` for a single one.
#[derive(Clone)]
pub(crate) struct ExpertParallel {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) communicator: Arc<dyn Communicator>,
    pub(crate) group: Option<ProcessGroup>,
}

/// Where the rows of a layer go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Routes {
    /// Rows of each expert here.
    pub(crate) rows: Vec<usize>,
    exchange: Exchange,
}

impl Routes {
    /// All rows of the experts here.
    pub(crate) fn all_rows(&self) -> usize {
        self.rows.iter().sum()
    }
}

impl ExpertParallel {
    fn ranks(&self) -> usize {
        self.group.as_ref().map_or(1, ProcessGroup::size)
    }

    /// Tells the other ranks how many rows each expert gets from here, and hears it from them.
    pub(crate) fn agree(&self, counts: &[usize], width: usize) -> Routes {
        let Some(group) = &self.group else { return Routes::of(&[counts.to_vec()], 0, width) };
        let take = |elements| self.backend.allocate(elements, DType::F32, MemoryCategory::Communication);
        let (mine, all) = (take(counts.len()), take(counts.len() * group.size()));
        self.backend.upload(counts.iter().map(|count| *count as f32).collect(), &mine);
        self.communicator.all_gather(group, Stream::Compute, &mine, &all);
        // If this fails, so does all that comes after it.
        let all = self.backend.download(&all).unwrap_or_else(|error| {
            self.backend.tell_later(error);
            vec![0.0; all.elements()]
        });
        let all: Vec<Vec<usize>> =
            all.chunks(counts.len()).map(|counts| counts.iter().map(|count| *count as usize).collect()).collect();
        Routes::of(&all, group.index, width)
    }

    /// Brings rows that are sorted by expert to where the experts are.
    pub(crate) fn there(&self, routes: &Routes, rows: Tensor, width: usize, category: MemoryCategory) -> Tensor {
        self.exchange(&routes.exchange, rows, routes.all_rows() * width, category)
    }

    /// Brings rows of the experts here back to where they came from: so many.
    pub(crate) fn back(&self, routes: &Routes, rows: Tensor, elements: usize, category: MemoryCategory) -> Tensor {
        self.exchange(&routes.exchange.reversed(), rows, elements, category)
    }

    fn exchange(&self, exchange: &Exchange, rows: Tensor, elements: usize, category: MemoryCategory) -> Tensor {
        let Some(group) = &self.group else { return rows };
        let received = self.backend.allocate(elements, rows.dtype(), category);
        self.communicator.all_to_all(group, Stream::Compute, &rows, &received, exchange);
        received
    }

    /// The category of rows that are made to be sent, and of this one where they stay.
    pub(crate) fn sent(&self, category: MemoryCategory) -> MemoryCategory {
        if self.ranks() > 1 { MemoryCategory::Communication } else { category }
    }
}

impl Routes {
    /// By how many rows of this width each member has for each expert. Members have equally many experts, one after the other;
    /// what an expert gets lies together, member after member.
    fn of(counts: &[Vec<usize>], index: usize, width: usize) -> Routes {
        let here = counts[0].len() / counts.len();
        let mut routes = Routes::default();
        let mut sent = 0;
        for experts in counts[index].chunks(here) {
            let rows: usize = experts.iter().sum();
            let part = sent * width..(sent + rows) * width;
            routes.exchange.sent.push(vec![part]);
            sent += rows;
        }
        routes.exchange.received = vec![Vec::new(); counts.len()];
        let mut received = 0;
        for expert in index * here..(index + 1) * here {
            for (member, counts) in counts.iter().enumerate() {
                let rows = counts[expert];
                routes.exchange.received[member].push(received * width..(received + rows) * width);
                received += rows;
            }
            routes.rows.push(counts.iter().map(|counts| counts[expert]).sum());
        }
        routes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_an_expert_lie_together() {
        // Two ranks with two experts each; rows of two numbers.
        let counts = [vec![1, 0, 2, 3], vec![4, 1, 0, 1]];
        let first = Routes::of(&counts, 0, 2);
        assert_eq!(first.rows, [5, 1]);
        assert_eq!(first.exchange.sent.concat(), [0..2, 2..12]);
        assert_eq!(first.exchange.received, [vec![0..2, 10..10], vec![2..10, 10..12]]);
        let second = Routes::of(&counts, 1, 2);
        assert_eq!(second.rows, [2, 4]);
        assert_eq!(second.exchange.sent.concat(), [0..10, 10..12]);
        assert_eq!(second.exchange.received, [vec![0..4, 4..10], vec![4..4, 10..12]]);
    }
}
