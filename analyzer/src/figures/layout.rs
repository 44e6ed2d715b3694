//! How a run is spread over ranks.

use crate::stored::fields;
use serde::Serialize;
use stepscope_plan::{ParallelLayout, Precision, Recompute, Schedule, Zero, text};

/// How a run is spread over ranks: as it says itself, or as its communication tells. What is not known is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunLayout {
    /// Replicas that each see other data.
    pub dp: u64,
    /// Ranks that share each matrix.
    pub tp: u64,
    /// Whether these share the tokens between matrices, too.
    pub sequence_parallel: Option<bool>,
    /// Stages that each hold some of the layers.
    pub pp: u64,
    /// Ranks that share each sequence.
    pub cp: u64,
    /// Ranks that share the experts.
    pub ep: u64,
    /// What the replicas share instead of each holding it.
    pub zero: Option<Zero>,
    /// In how many groups they do: more than one is hybrid sharding.
    pub dp_replicate: Option<u64>,
    /// How many units are gathered ahead, if they share the parameters.
    pub prefetch: Option<u64>,
    /// Layers of a unit, which replicas gather, reduce and free at once.
    pub unit_layers: Option<u64>,
    /// In which order the stages work.
    pub schedule: Option<Schedule>,
    /// Chunks of layers on a stage.
    pub chunks: Option<u64>,
    /// Sequences of a micro-batch.
    pub micro_batch: Option<u64>,
    /// Micro-batches of a step, on each replica.
    pub micro_batches: Option<u64>,
    /// Tokens of a sequence.
    pub sequence_length: Option<u64>,
    /// What is computed again instead of being kept.
    pub recompute: Option<Recompute>,
    /// What parameters and activations are in.
    pub precision: Option<Precision>,
    /// What gradients are in.
    pub gradients: Option<Precision>,
    /// Whether it was told from communication.
    pub inferred: bool,
    /// The layout as the run says it, if it does.
    #[serde(skip)]
    pub said: Option<ParallelLayout>,
    /// A layout whose ranks lie where those of this one do, if they lie in our order: shards nearest to each other, then
    /// replicas, then stages.
    #[serde(skip)]
    pub grid: Option<ParallelLayout>,
}

fields!(RunLayout {
    dp,
    tp,
    sequence_parallel,
    pp,
    cp,
    ep,
    zero,
    dp_replicate,
    prefetch,
    unit_layers,
    schedule,
    chunks,
    micro_batch,
    micro_batches,
    sequence_length,
    recompute,
    precision,
    gradients,
    inferred,
    said,
    grid,
});

impl From<ParallelLayout> for RunLayout {
    fn from(layout: ParallelLayout) -> RunLayout {
        RunLayout {
            dp: layout.dp,
            tp: layout.tp,
            sequence_parallel: Some(layout.sequence_parallel),
            pp: layout.pp,
            cp: layout.cp,
            ep: layout.ep,
            zero: Some(layout.zero),
            dp_replicate: Some(layout.dp_replicate),
            prefetch: Some(layout.prefetch),
            unit_layers: Some(layout.unit_layers),
            schedule: Some(layout.schedule),
            chunks: Some(layout.chunks),
            micro_batch: Some(layout.micro_batch),
            micro_batches: Some(layout.micro_batches),
            sequence_length: Some(layout.sequence_length),
            recompute: Some(layout.recompute),
            precision: Some(layout.precision),
            gradients: Some(layout.gradients),
            inferred: false,
            said: Some(layout),
            grid: Some(layout),
        }
    }
}

impl RunLayout {
    /// It, in one line.
    pub fn words(&self) -> String {
        if let Some(said) = &self.said {
            return text::layout(said);
        }
        let shared = if self.sequence_parallel == Some(true) { "+sp" } else { "" };
        let sizes = [("dp", self.dp, ""), ("tp", self.tp, shared), ("pp", self.pp, "")];
        let others = [("cp", self.cp, ""), ("ep", self.ep, "")].into_iter().filter(|(_, size, _)| *size > 1);
        let mut words: Vec<String> =
            sizes.into_iter().chain(others).map(|(axis, size, shared)| format!("{axis} {size}{shared}")).collect();
        words.extend(self.zero.map(|zero| format!("zero {}", u8::from(zero))));
        words.join(" · ") + if self.inferred { " (inferred)" } else { "" }
    }
}
