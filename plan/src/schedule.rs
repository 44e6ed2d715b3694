//! Pipeline schedules as data: what each stage does, in order.

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
}

/// Forward or backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Forward.
    Forward,
    /// Backward.
    Backward,
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
        }
    }
}

impl Schedule {
    /// Every schedule.
    pub const ALL: [Schedule; 3] = [Schedule::Gpipe, Schedule::OneForwardOneBackward, Schedule::Interleaved];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Gpipe => "gpipe",
            Schedule::OneForwardOneBackward => "1f1b",
            Schedule::Interleaved => "interleaved",
        }
    }

    /// What a stage does, in order: forwards to warm up, then a forward and a backward in turn, then the backwards
    /// that are left. An interleaved schedule needs micro-batches in multiples of the stages.
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
                (_, Pass::Backward) => {
                    Work { pass, micro_batch: index / round * stages + index % stages, chunk: chunks - 1 - chunk }
                }
            }
        };
        let steady =
            (warm_up..total).flat_map(|next| [work(Pass::Forward, next), work(Pass::Backward, next - warm_up)]);
        let cool_down = (total - warm_up..total).map(|index| work(Pass::Backward, index));
        (0..warm_up).map(|index| work(Pass::Forward, index)).chain(steady).chain(cool_down).collect()
    }

    /// Forwards before the first backward is due, less the one that goes with it.
    fn warm_up(self, stage: u64, stages: u64, micro_batches: u64, chunks: u64) -> u64 {
        let behind = stages - stage - 1;
        match self {
            Schedule::Gpipe => micro_batches,
            Schedule::OneForwardOneBackward => behind.min(micro_batches),
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
            Schedule::OneForwardOneBackward | Schedule::Interleaved => 1,
        }
    }

    /// The share of time a stage has nothing to do, when every pass takes the same time and transfers take none.
    pub fn ideal_bubble(self, stages: u64, micro_batches: u64, chunks: u64) -> f64 {
        let (p, work) = (stages as f64, (micro_batches * chunks) as f64);
        (p - 1.0) / (work + p - 1.0)
    }
}
