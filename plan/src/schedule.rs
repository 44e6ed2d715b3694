//! Pipeline schedules as data: what each stage does, in order.

use std::iter;

use serde::{Deserialize, Serialize};

/// A pipeline schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Schedule {
    /// All forwards, then all backwards.
    #[serde(rename = "gpipe")]
    Gpipe,
    /// One forward, one backward, as soon as the first backward can be done.
    #[default]
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// As 1F1B, with several chunks of layers on each stage.
    #[serde(rename = "interleaved")]
    Interleaved,
    /// As 1F1B, with the gradients of weights put off until a stage would have nothing to do: ZB-H1 of Qi et al., 2024.
    #[serde(rename = "zero-bubble")]
    ZeroBubble,
}

/// What is computed of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Forward.
    Forward,
    /// Backward; without the gradients of weights, where they have a pass of their own.
    Backward,
    /// The gradients of weights, which nobody waits for.
    Weights,
}

/// One pass of one micro-batch through one chunk of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work {
    /// Which way.
    pub pass: Pass,
    /// Which micro-batch.
    pub micro_batch: u64,
    /// Which of the stage's chunks.
    pub chunk: u64,
}

impl Work {
    /// What this work waits for, and on which stage: the pass before it, through the chunk before it. The first
    /// forward pass waits for nothing.
    pub fn input(self, stage: u64, stages: u64, chunks: u64) -> Option<(u64, Work)> {
        let last = stages - 1;
        match self.pass {
            Pass::Forward if stage > 0 => Some((stage - 1, self)),
            Pass::Forward if self.chunk > 0 => Some((last, Work { chunk: self.chunk - 1, ..self })),
            Pass::Forward => None,
            Pass::Backward if stage < last => Some((stage + 1, self)),
            Pass::Backward if self.chunk + 1 < chunks => Some((0, Work { chunk: self.chunk + 1, ..self })),
            Pass::Backward => Some((stage, Work { pass: Pass::Forward, ..self })),
            Pass::Weights => Some((stage, Work { pass: Pass::Backward, ..self })),
        }
    }
}

impl Schedule {
    /// Every schedule.
    pub const ALL: [Schedule; 4] =
        [Schedule::Gpipe, Schedule::OneForwardOneBackward, Schedule::Interleaved, Schedule::ZeroBubble];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Gpipe => "gpipe",
            Schedule::OneForwardOneBackward => "1f1b",
            Schedule::Interleaved => "interleaved",
            Schedule::ZeroBubble => "zero-bubble",
        }
    }

    /// How many passes each micro-batch makes through a chunk.
    pub fn passes(self) -> u64 {
        if self == Schedule::ZeroBubble { 3 } else { 2 }
    }

    /// What a stage does, in order: forwards to warm up, then a forward and a backward in turn, then the backwards
    /// that are left. An interleaved schedule needs micro-batches in multiples of the stages. A zero-bubble one has the
    /// gradients of weights follow each backward, as many micro-batches later as there are stages before this one: what
    /// others wait for goes first, and a stage that ends early has them left to do.
    pub fn order(self, stage: u64, stages: u64, micro_batches: u64, chunks: u64) -> Vec<Work> {
        let total = micro_batches * chunks;
        let warm_up = self.warm_up(stage, stages, micro_batches, chunks);
        // Chunks are gone through in rounds: as many micro-batches through one chunk as there are stages, then the
        // next chunk; the backward pass goes through the chunks the other way.
        let work = |pass: Pass, index: u64| {
            let round = stages * chunks;
            let chunk = index % round / stages;
            match (chunks, pass) {
                (1, _) => Work { pass, micro_batch: index, chunk: 0 },
                (_, Pass::Forward) => Work { pass, micro_batch: index / round * stages + index % stages, chunk },
                (_, Pass::Backward | Pass::Weights) => {
                    Work { pass, micro_batch: index / round * stages + index % stages, chunk: chunks - 1 - chunk }
                }
            }
        };
        let backward = |index: u64| {
            let put_off = index.checked_sub(stage).filter(|_| self == Schedule::ZeroBubble);
            [Some(work(Pass::Backward, index)), put_off.map(|index| work(Pass::Weights, index))].into_iter().flatten()
        };
        let forward = |index: u64| work(Pass::Forward, index);
        let steady = (warm_up..total).flat_map(|next| iter::once(forward(next)).chain(backward(next - warm_up)));
        let cool_down = (total - warm_up..total).flat_map(backward);
        let left = if self == Schedule::ZeroBubble { total.saturating_sub(stage)..total } else { 0..0 };
        let left = left.map(|index| work(Pass::Weights, index));
        (0..warm_up).map(forward).chain(steady).chain(cool_down).chain(left).collect()
    }

    /// Forwards before the first backward is due, less the one that goes with it.
    fn warm_up(self, stage: u64, stages: u64, micro_batches: u64, chunks: u64) -> u64 {
        let behind = stages - stage - 1;
        match self {
            Schedule::Gpipe => micro_batches,
            Schedule::OneForwardOneBackward | Schedule::ZeroBubble => behind.min(micro_batches),
            Schedule::Interleaved => (2 * behind + (chunks - 1) * stages).min(micro_batches * chunks),
        }
    }

    /// How many micro-batches (of a chunk each) a stage holds the activations of, at most.
    pub fn in_flight(self, stage: u64, stages: u64, micro_batches: u64, chunks: u64) -> u64 {
        (self.warm_up(stage, stages, micro_batches, chunks) + 1).min(micro_batches * chunks)
    }

    /// How many micro-batches have been forward through the last chunk of the last stage and not back through it, at
    /// most. Unless all forwards come first, each is followed by its backward there.
    pub fn in_flight_at_head(self, micro_batches: u64) -> u64 {
        match self {
            Schedule::Gpipe => micro_batches,
            Schedule::OneForwardOneBackward | Schedule::Interleaved | Schedule::ZeroBubble => 1,
        }
    }

    /// How many micro-batches a stage has been back through and holds for the gradients of weights, at most, while it holds
    /// as many as it ever does that are yet to come back.
    pub fn put_off(self, stage: u64, stages: u64, micro_batches: u64) -> u64 {
        match self {
            Schedule::ZeroBubble => stage.min(micro_batches - self.in_flight(stage, stages, micro_batches, 1)),
            _ => 0,
        }
    }

    /// The share of time a stage has nothing to do, when every pass takes the same time and transfers take none.
    pub fn ideal_bubble(self, stages: u64, micro_batches: u64, chunks: u64) -> f64 {
        let (p, work) = (stages as f64, (micro_batches * chunks) as f64);
        match self {
            // The gradients of weights fill two thirds of it, if there are enough of them.
            Schedule::ZeroBubble => 1.0 - 3.0 * work / (2.0 * work + p - 1.0 + work.max(p)),
            _ => (p - 1.0) / (work + p - 1.0),
        }
    }
}
