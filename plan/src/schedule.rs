//! Pipeline schedules as data: what each stage does, in order.

use std::iter;

use serde::{Deserialize, Serialize};

use crate::{
    dual_pipe::{self, Place, Way},
    error::PlanError,
};

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
    /// From both ends, with two copies of the model and passes that overlap: DeepSeek-AI, 2024.
    #[serde(rename = "dualpipe")]
    DualPipe,
    /// The same folded in its middle: through the stages and back, with one copy.
    #[serde(rename = "dualpipev")]
    DualPipeV,
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

/// What a stage does at a time: one pass, or a forward and a backward pass that overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The pass, or the forward one.
    pub work: Work,
    /// The backward pass beside it.
    pub beside: Option<Work>,
}

impl Turn {
    /// One pass.
    pub fn alone(work: Work) -> Turn {
        Turn { work, beside: None }
    }

    /// What is done in it.
    pub fn passes(self) -> impl Iterator<Item = Work> {
        [Some(self.work), self.beside].into_iter().flatten()
    }
}

impl Schedule {
    /// Every schedule.
    pub const ALL: [Schedule; 6] = [
        Schedule::Gpipe,
        Schedule::OneForwardOneBackward,
        Schedule::Interleaved,
        Schedule::ZeroBubble,
        Schedule::DualPipe,
        Schedule::DualPipeV,
    ];

    /// Those in which all micro-batches go the same way, and a stage does one thing at a time: what the trainer does.
    pub const ONE_WAY: [Schedule; 4] =
        [Schedule::Gpipe, Schedule::OneForwardOneBackward, Schedule::Interleaved, Schedule::ZeroBubble];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Gpipe => "gpipe",
            Schedule::OneForwardOneBackward => "1f1b",
            Schedule::Interleaved => "interleaved",
            Schedule::ZeroBubble => "zero-bubble",
            Schedule::DualPipe => "dualpipe",
            Schedule::DualPipeV => "dualpipev",
        }
    }

    /// Whether micro-batches go through a stage both ways.
    pub fn is_dual(self) -> bool {
        matches!(self, Schedule::DualPipe | Schedule::DualPipeV)
    }

    /// How many passes each micro-batch makes through a chunk, at most.
    pub fn passes(self) -> u64 {
        match self {
            Schedule::ZeroBubble | Schedule::DualPipe | Schedule::DualPipeV => 3,
            Schedule::Gpipe | Schedule::OneForwardOneBackward | Schedule::Interleaved => 2,
        }
    }

    /// The fewest chunks of layers that a stage has.
    pub fn fewest_chunks(self) -> u64 {
        if self == Schedule::Interleaved || self.is_dual() { 2 } else { 1 }
    }

    /// Says what does not work with a schedule that goes both ways.
    pub(crate) fn check_both_ways(self, stages: u64, micro_batches: u64, chunks: u64) -> Result<(), PlanError> {
        let (name, has_copies) = (self.name(), self == Schedule::DualPipe);
        let least = stages.saturating_mul(2);
        let why = [
            (stages < 2, format!("{name} needs at least 2 stages")),
            (has_copies && !stages.is_multiple_of(2), format!("{name} needs an even number of stages")),
            (chunks != 2, format!("{name} needs 2 chunks")),
            (micro_batches < least, format!("{name} needs at least {least} micro-batches for pp {stages}")),
            (has_copies && !micro_batches.is_multiple_of(2), format!("{name} needs an even number of micro-batches")),
        ];
        match why.into_iter().find(|(is_so, _)| *is_so) {
            Some((_, why)) => Err(PlanError::Layout(why)),
            None => Ok(()),
        }
    }

    /// In how many pieces the model is that a micro-batch goes through.
    pub fn pieces(self, stages: u64, chunks: u64) -> u64 {
        if self == Schedule::DualPipe { stages } else { stages * chunks }
    }

    /// Which piece a chunk of a stage is.
    pub fn piece(self, stage: u64, stages: u64, chunk: u64) -> u64 {
        match self {
            Schedule::DualPipe if chunk == 1 => stages - 1 - stage,
            Schedule::DualPipeV if chunk == 1 => 2 * stages - 1 - stage,
            _ => chunk * stages + stage,
        }
    }

    /// Who has a piece, on the way through a chunk: a stage, and which of its chunks.
    fn holder(self, piece: u64, stages: u64, chunk: u64) -> (u64, u64) {
        match self {
            Schedule::DualPipe if chunk == 1 => (stages - 1 - piece, 1),
            Schedule::DualPipeV if piece >= stages => (2 * stages - 1 - piece, 1),
            _ => (piece % stages, piece / stages),
        }
    }

    /// What work waits for, and on which stage: the pass before it, through the piece before it. The first forward pass waits
    /// for nothing.
    pub fn input(self, work: Work, stage: u64, stages: u64, chunks: u64) -> Option<(u64, Work)> {
        let piece = self.piece(stage, stages, work.chunk);
        let through = |piece: u64| {
            let (stage, chunk) = self.holder(piece, stages, work.chunk);
            Some((stage, Work { chunk, ..work }))
        };
        match work.pass {
            Pass::Forward if piece == 0 => None,
            Pass::Forward => through(piece - 1),
            Pass::Backward if piece + 1 < self.pieces(stages, chunks) => through(piece + 1),
            Pass::Backward => Some((stage, Work { pass: Pass::Forward, ..work })),
            Pass::Weights => Some((stage, Work { pass: Pass::Backward, ..work })),
        }
    }

    /// What a stage does, in order.
    pub fn order(self, stage: u64, stages: u64, micro_batches: u64, chunks: u64) -> Vec<Work> {
        self.turns(stage, stages, micro_batches, chunks).into_iter().flat_map(Turn::passes).collect()
    }

    /// What a stage does, in order and at a time. Schedules that go both ways need an even number of micro-batches, and of stages
    /// if there are two copies, and at least two micro-batches for each piece.
    pub fn turns(self, stage: u64, stages: u64, micro_batches: u64, chunks: u64) -> Vec<Turn> {
        match self {
            Schedule::DualPipe => {
                let half = micro_batches / 2;
                let mut ways = [Way { chunk: 0, first: 0 }, Way { chunk: 1, first: half }];
                if stage >= stages / 2 {
                    ways.reverse();
                }
                let place = Place { index: stage.min(stages - 1 - stage), count: stages / 2 };
                dual_pipe::turns(place, half, ways)
            }
            Schedule::DualPipeV => {
                let ways = [0, 1].map(|chunk| Way { chunk, first: 0 });
                dual_pipe::turns(Place { index: stage, count: stages }, micro_batches, ways)
            }
            _ => self.one_way(stage, stages, micro_batches, chunks).into_iter().map(Turn::alone).collect(),
        }
    }

    /// Forwards to warm up, then a forward and a backward in turn, then the backwards
    /// that are left. An interleaved schedule needs micro-batches in multiples of the stages. A zero-bubble one has the
    /// gradients of weights follow each backward, as many micro-batches later as there are stages before this one: what
    /// others wait for goes first, and a stage that ends early has them left to do.
    fn one_way(self, stage: u64, stages: u64, micro_batches: u64, chunks: u64) -> Vec<Work> {
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
            // Both ways until the first one is back.
            Schedule::DualPipe | Schedule::DualPipeV => self.pieces(stages, chunks),
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
            _ => 1,
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

    /// The share of forward passes beside which a backward pass goes on, on the stage of which that is least.
    pub(crate) fn overlapped(self, stages: u64, micro_batches: u64) -> f64 {
        let passes = match self {
            Schedule::DualPipe => micro_batches,
            Schedule::DualPipeV => 2 * micro_batches,
            _ => return 0.0,
        };
        // Before the first comes back, and after the last has come in, a pass is alone.
        let alone = (3 * self.pieces(stages, 2) / 2).saturating_sub(1).max(3);
        1.0 - alone as f64 / passes as f64
    }

    /// The share of time a stage has nothing to do, when every pass takes the same time and transfers take none.
    pub fn ideal_bubble(self, stages: u64, micro_batches: u64, chunks: u64) -> f64 {
        let (p, work) = (stages as f64, (micro_batches * chunks) as f64);
        match self {
            // The gradients of weights fill two thirds of it, if there are enough of them.
            Schedule::ZeroBubble => (p - 1.0 + work.max(p) - work) / (2.0 * work + p - 1.0 + work.max(p)),
            // A micro-batch of one copy goes through one of its two chunks.
            Schedule::DualPipe => (p - 2.0).max(0.0) / (3.0 * work / 2.0 + (p - 2.0).max(0.0)),
            Schedule::DualPipeV => 2.0 * (p - 1.0) / (3.0 * work + 2.0 * (p - 1.0)),
            _ => (p - 1.0) / (work + p - 1.0),
        }
    }
}
