//! Floating-point operations of training, by every convention people quote.
//!
//! A matrix product of m×k by k×n takes 2·m·k·n. Training does each one three times: forward, and backward for its
//! two arguments. So a parameter of a matrix takes six a token. Attention multiplies queries with keys and weights with
//! values, each of sequence × width, which is 12·sequence·width a token and layer; 6·sequence·(width of keys + width of values),
//! where these differ.

use serde::{Deserialize, Serialize};

use crate::{activations::Attention, experts::Layers, layout::Recompute, shape::ModelShape, tensors::Tensor};

/// What is counted as the work of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Convention {
    /// Six for each parameter of a matrix, and attention over the whole square. The default.
    #[default]
    Model,
    /// As `Model`, with half the attention: a causal mask needs no more.
    Causal,
    /// Six for each parameter, whatever it is, and nothing for attention.
    #[serde(rename = "6n")]
    SixN,
    /// As torchtitan counts: six for each parameter but the embedding's, and attention over the whole square.
    Torchtitan,
    /// As Megatron-LM counts: as `Causal`, without the router of experts.
    Megatron,
}

impl Convention {
    /// Every convention.
    pub const ALL: [Convention; 5] =
        [Convention::Model, Convention::Causal, Convention::SixN, Convention::Torchtitan, Convention::Megatron];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Convention::Model => "model",
            Convention::Causal => "causal",
            Convention::SixN => "6n",
            Convention::Torchtitan => "torchtitan",
            Convention::Megatron => "megatron",
        }
    }
}

impl ModelShape {
    /// FLOPs of training on one token, without what is computed twice.
    pub fn flops_per_token(&self, convention: Convention, sequence_length: u64) -> f64 {
        let attention = self.layers as f64 * self.attention_flops(sequence_length);
        let matrices = 6.0 * (self.matrices_of_layers() + self.head_matrix());
        match convention {
            Convention::Model => matrices + attention,
            Convention::Causal => matrices + attention / 2.0,
            Convention::SixN => 6.0 * self.parameters() as f64,
            Convention::Torchtitan => {
                6.0 * (self.active_parameters() - self.vocabulary * self.hidden) as f64 + attention
            }
            Convention::Megatron => matrices - 6.0 * self.router_matrices() + attention / 2.0,
        }
    }

    /// FLOPs of training on one token, with what is computed again.
    pub fn hardware_flops_per_token(&self, recompute: Recompute, attention: Attention, sequence_length: u64) -> f64 {
        let layers = self.layers as f64;
        let forward_attention = layers * self.attention_flops(sequence_length) / 3.0;
        let again = match (recompute, attention) {
            (Recompute::None, _) => 0.0,
            (Recompute::Selective, Attention::Naive) => forward_attention,
            // From the output of the norm: queries, keys and values too.
            (Recompute::Selective, Attention::Flash) => {
                2.0 * layers * self.matrices_before_attention() + forward_attention
            }
            // The forward pass of every layer.
            (Recompute::Full, _) => 2.0 * self.matrices_of_layers() + forward_attention,
        };
        self.flops_per_token(Convention::Model, sequence_length) + again
    }

    /// FLOPs of the gradients of the layers' matrices, for one token.
    pub(crate) fn weight_gradient_flops_per_token(&self) -> f64 {
        2.0 * self.matrices_of_layers()
    }

    /// FLOPs of attention itself, forward and backward, for one token in one layer.
    fn attention_flops(&self, sequence_length: u64) -> f64 {
        6.0 * sequence_length as f64 * (self.query_width() + self.attended_width()) as f64
    }

    /// Parameters of the matrices of all layers that a token goes through.
    fn matrices_of_layers(&self) -> f64 {
        let Layers { dense, sparse } = self.layers_of(0..self.layers);
        let (first, last) = self.kinds_of_layers();
        dense as f64 * self.matrices_of_layer(first) + sparse as f64 * self.matrices_of_layer(last)
    }

    /// Those of one layer.
    fn matrices_of_layer(&self, layer: u64) -> f64 {
        let of_a_token = |tensor: &Tensor| (self.active_copies(tensor) * tensor.rows * tensor.columns) as f64;
        self.layer_tensors(layer).iter().filter(|tensor| tensor.multiplies).map(of_a_token).sum()
    }

    /// Parameters of the matrices that make queries, keys and values, in one layer.
    fn matrices_before_attention(&self) -> f64 {
        let tensors = self.tensors_before_attention();
        tensors.iter().filter(|tensor| tensor.multiplies).map(|tensor| tensor.parameters() as f64).sum()
    }

    fn head_matrix(&self) -> f64 {
        (self.vocabulary * self.hidden) as f64
    }

    fn router_matrices(&self) -> f64 {
        let layers = self.layers_of(0..self.layers).sparse;
        self.experts.map_or(0.0, |experts| (layers * experts.count * self.hidden) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contract's formula, term by term.
    fn by_hand(model: &ModelShape, sequence: f64) -> f64 {
        let (l, d, f, v) = (model.layers as f64, model.hidden as f64, model.ffn as f64, model.vocabulary as f64);
        let kv = model.kv_heads as f64 / model.heads as f64;
        l * d * d * (12.0 + 12.0 * kv + 18.0 * f / d + 12.0 * sequence / d) + 6.0 * d * v
    }

    fn close(one: f64, two: f64) -> bool {
        (one / two - 1.0).abs() < 1e-12
    }

    #[test]
    fn the_default_convention_is_the_contracts() {
        for name in ["tiny", "llama-1b", "llama-8b", "llama-70b", "llama-405b", "qwen3-8b"] {
            let model = ModelShape::preset(name).unwrap();
            for sequence in [128, 2048, 131_072] {
                let counted = model.flops_per_token(Convention::Model, sequence);
                assert!(close(counted, by_hand(&model, sequence as f64)), "{name} {sequence}: {counted}");
            }
        }
    }

    #[test]
    fn the_conventions_differ_as_their_definitions_say() {
        let (model, s) = (ModelShape::preset("llama-8b").unwrap(), 8192);
        let at = |convention| model.flops_per_token(convention, s);
        let attention = 12.0 * 32.0 * 8192.0 * 4096.0;
        assert!(close(at(Convention::Model) - at(Convention::Causal), attention / 2.0));
        assert!(close(at(Convention::SixN), 6.0 * 8_030_261_248.0));
        assert!(close(at(Convention::Torchtitan), 6.0 * (8_030_261_248.0 - 128_256.0 * 4096.0) + attention));
        assert!(close(at(Convention::Megatron), at(Convention::Causal)));
    }

    #[test]
    fn a_token_pays_for_the_experts_it_goes_through() {
        let (model, s) = (ModelShape::preset("mixtral-8x7b").unwrap(), 4096);
        let dense = ModelShape { experts: None, ..model.clone() };
        let at = |model: &ModelShape, convention| model.flops_per_token(convention, s);
        let ffn = 18.0 * 32.0 * 4096.0 * 14_336.0;
        let router = 6.0 * 32.0 * 8.0 * 4096.0;
        assert!(close(at(&model, Convention::Model), at(&dense, Convention::Model) + ffn + router));
        assert!(close(at(&model, Convention::Megatron), at(&dense, Convention::Megatron) + ffn));
    }

    #[test]
    fn full_recomputation_adds_a_forward_pass_of_the_layers() {
        let (model, s) = (ModelShape::preset("llama-8b").unwrap(), 4096);
        let hardware = |recompute, attention| model.hardware_flops_per_token(recompute, attention, s);
        let none = hardware(Recompute::None, Attention::Flash);
        assert!(close(none, model.flops_per_token(Convention::Model, s)));
        let layers = none - 6.0 * 4096.0 * 128_256.0;
        assert!(close(hardware(Recompute::Full, Attention::Flash), none + layers / 3.0));
        let attention = 4.0 * 32.0 * 4096.0 * 4096.0;
        assert!(close(hardware(Recompute::Selective, Attention::Naive), none + attention));
        let projections = 2.0 * 32.0 * 4096.0 * (4096.0 + 2.0 * 1024.0);
        assert!(close(hardware(Recompute::Selective, Attention::Flash), none + attention + projections));
    }

    #[test]
    fn llama_3_8b_took_about_8e23_flops() {
        let flops = ModelShape::preset("llama-8b").unwrap().flops_per_token(Convention::Model, 8192) * 15e12;
        assert!((7.5e23..9.5e23).contains(&flops), "{flops:e}");
        let a100_days = flops / (0.4 * 312e12) / 86_400.0;
        assert!((6.5e4..9e4).contains(&a100_days), "{a100_days:e}");
    }
}
