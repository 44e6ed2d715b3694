//! Memory of a schedule that puts the gradients of weights off.

use crate::{
    layout::ParallelLayout,
    schedule::Schedule,
    shape::{FeedForward, ModelShape},
};

/// What a stage holds of micro-batches whose gradients of weights are put off: the inputs of every matrix, and the gradients of
/// its outputs.
pub(crate) struct PutOff {
    /// Inputs of the matrices of one micro-batch, gradients of their outputs, and of either what is made of all ranks' rows.
    inputs: u128,
    gradients: u128,
    gathered: u128,
    /// How many there are while most micro-batches are in flight, and at most.
    count: u128,
    most: u128,
    layers: u128,
}

impl PutOff {
    pub(crate) fn of(model: &ModelShape, layout: &ParallelLayout, stage: u64) -> PutOff {
        // Of networks as wide as those of the last layer.
        let widths = [model.hidden, model.attended_width(), model.active_width(model.layers - 1)];
        let [h, o, f] = widths.map(u128::from);
        let (qkv, [normed, down]) = match model.latent {
            None => (model.query_width() + 2 * model.kv_width(), [0; 2]),
            Some(latent) => (model.query_width() + latent.up(model), [latent.normed(), latent.down()]),
        };
        let [qkv, normed, down] = [qkv, normed, down].map(u128::from);
        let shares = u128::from(layout.token_shares());
        // What is put off is of one chunk.
        let ways = if layout.schedule.is_dual() { 2 } else { 1 };
        let layers = u128::from(layout.stage_layers(model, stage).div_ceil(ways));
        let tokens = layers * u128::from(layout.micro_batch_tokens() * layout.precision.bytes());
        let tensor = u128::from(layout.tp);
        let networks = match model.feed_forward {
            FeedForward::Plain => 1,
            FeedForward::Gated => 2,
        };
        let (whole, gathered) = if layout.sequence_parallel { (0, 4 * h) } else { (2 * h, 0) };
        let most = match layout.schedule {
            Schedule::ZeroBubble => (stage + 1).min(layout.micro_batches),
            // As many as there are stages up to this one, from the end that is nearer.
            Schedule::DualPipe => stage.min(layout.pp - 1 - stage) + 1,
            Schedule::DualPipeV => stage + 1,
            _ => 0,
        };
        PutOff {
            inputs: tokens * (whole + normed / shares + (o + f) / tensor),
            gradients: tokens * (whole + down / shares + (qkv + networks * f) / tensor),
            gathered: tokens * gathered,
            count: u128::from(layout.schedule.put_off(stage, layout.pp, layout.micro_batches)),
            most: u128::from(most),
            layers,
        }
    }

    /// The most that is kept of micro-batches in flight and of those that are put off, besides what is computed again for one
    /// layer: as the last micro-batch goes forward; or, where less is kept than is put off, in the last layer through which the
    /// last ones come back.
    pub(crate) fn most_activations(&self, kept: u128, in_flight: u64) -> u128 {
        let in_flight = u128::from(in_flight);
        let forward = in_flight * kept + self.count * self.inputs;
        let came_back = self.most.saturating_sub(self.count).min(in_flight);
        let back = (in_flight - came_back) * kept + (self.count + came_back) * self.inputs;
        forward.max(back.saturating_sub(self.inputs.saturating_sub(kept) / self.layers))
    }

    pub(crate) fn workspace(&self) -> u128 {
        self.most * self.gradients
    }

    pub(crate) fn communication(&self) -> u128 {
        self.most * self.gathered
    }
}
