//! Memory of a schedule that puts the gradients of weights off.

use crate::{
    experts::Layers,
    layout::ParallelLayout,
    schedule::Schedule,
    shape::{FeedForward, ModelShape},
};

/// What a stage holds of micro-batches whose gradients of weights are put off: the inputs of every matrix, and the gradients of
/// its outputs.
pub(crate) struct PutOff {
    /// Inputs of the matrices of one micro-batch, gradients of their outputs, and of either what came from other ranks.
    inputs: u128,
    gradients: u128,
    gathered: u128,
    /// How many there are while most micro-batches are in flight, and at most.
    count: u128,
    most: u128,
    layers: u128,
}

/// What a stage holds at a moment, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) activations: u128,
    pub(crate) workspace: u128,
}

/// The same of one token in one layer, in elements.
#[derive(Clone, Copy)]
struct OfToken {
    inputs: u128,
    gradients: u128,
    gathered: u128,
}

impl OfToken {
    fn new(model: &ModelShape, layout: &ParallelLayout, layer: u64) -> OfToken {
        let widths = [model.hidden, model.attended_width(), model.active_width(layer)];
        let [h, o, f] = widths.map(u128::from);
        let (qkv, [normed, down]) = match model.latent {
            None => (model.query_width() + 2 * model.kv_width(), [0; 2]),
            Some(latent) => (model.query_width() + latent.up(model), [latent.normed(), latent.down()]),
        };
        let [qkv, normed, down] = [qkv, normed, down].map(u128::from);
        let (shares, tensor) = (u128::from(layout.token_shares()), u128::from(layout.tp));
        let networks = match model.feed_forward {
            FeedForward::Plain => 1,
            FeedForward::Gated => 2,
        };
        let experts = model.layer_experts(layer);
        // Experts have rows of their own, of tokens that chose them; all others have all tokens' gradient.
        let rows = experts.map_or(0, |experts| u128::from(experts.top_k) * h);
        let wholes = if model.dense_width(layer) > 0 { 2 } else { 1 };
        let logits = experts.map_or(0, |experts| u128::from(experts.count));
        let (inputs, gradients, gathered) = match layout.sequence_parallel {
            true => (0, 0, (2 + wholes) * h),
            false => (2 * h, wholes * h, 0),
        };
        let (kept_rows, sent_rows) = if layout.ep > 1 { (0, rows) } else { (rows, 0) };
        OfToken {
            inputs: inputs + rows + normed / shares + (o + f) / tensor,
            gradients: gradients + kept_rows + logits + down / shares + (qkv + networks * f) / tensor,
            gathered: gathered + sent_rows,
        }
    }
}

impl PutOff {
    pub(crate) fn of(model: &ModelShape, layout: &ParallelLayout, stage: u64) -> PutOff {
        // What is put off is of one chunk.
        let chunks = (0..layout.chunks).map(|chunk| model.layers_of(layout.chunk_layers(model, stage, chunk)));
        let Layers { dense, sparse } = chunks.max_by_key(|of| (of.dense + of.sparse, of.sparse)).unwrap_or_default();
        let (first, last) = model.kinds_of_layers();
        let [of_dense, of_sparse] = [first, last].map(|layer| OfToken::new(model, layout, layer));
        let tokens = u128::from(layout.micro_batch_tokens() * layout.precision.bytes());
        let sum =
            |of: fn(OfToken) -> u128| tokens * (u128::from(dense) * of(of_dense) + u128::from(sparse) * of(of_sparse));
        let most = match layout.schedule {
            Schedule::ZeroBubble => (stage + 1).min(layout.micro_batches),
            // As many as there are stages up to this one, from the end that is nearer.
            Schedule::DualPipe => stage.min(layout.pp - 1 - stage) + 1,
            Schedule::DualPipeV => stage + 1,
            _ => 0,
        };
        PutOff {
            inputs: sum(|of| of.inputs),
            gradients: sum(|of| of.gradients),
            gathered: sum(|of| of.gathered),
            count: u128::from(layout.schedule.put_off(stage, layout.pp, layout.micro_batches)),
            most: u128::from(most),
            layers: u128::from(dense + sparse),
        }
    }

    /// What is held of micro-batches in flight, of which each keeps so much, and of those that are put off, besides what is
    /// computed again for one layer: as the last micro-batch goes forward; and in the last layer through which the last ones come
    /// back.
    pub(crate) fn moments(&self, kept: u128, in_flight: u64) -> [Held; 2] {
        let in_flight = u128::from(in_flight);
        let forward =
            Held { activations: in_flight * kept + self.count * self.inputs, workspace: self.count * self.gradients };
        let came_back = self.most.saturating_sub(self.count).min(in_flight);
        let put_off = self.count + came_back;
        let activations = (in_flight - came_back) * kept + put_off * self.inputs;
        // Of this layer, gradients are put off once it has been left.
        let activations = activations.saturating_sub(self.inputs.saturating_sub(kept) / self.layers);
        [forward, Held { activations, workspace: put_off * self.gradients }]
    }

    /// With as many micro-batches in flight and put off as there are at most.
    pub(crate) fn at_most(&self, activations: u128) -> Held {
        Held { activations, workspace: self.most * self.gradients }
    }

    pub(crate) fn communication(&self) -> u128 {
        self.most * self.gathered
    }
}
