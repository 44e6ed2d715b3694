//! Memory that the forward pass leaves for the backward pass.
//!
//! Per token of one layer, in elements of the compute precision unless said otherwise, `h` hidden, `q`, `k` and `v` the
//! widths of queries, keys and values, `f` the feed-forward width, `a` heads, `s` the sequence length, `t` tensor ranks:
//!
//! | kept | elements |
//! |---|---|
//! | inputs and outputs of both norms | 4h, on every tensor rank; 4h / t with sequence parallelism |
//! | queries, keys, values, attention's output | (2q + 2k) / t; (q + k + 2v) / t where attention is latent |
//! | latent attention: what queries, keys and values are made of, and its norms' outputs | their widths; / t with sequence parallelism |
//! | inside a plain network: before and after its activation | 2f / t |
//! | inside a gated network: gate, up and their product | 3f / t |
//! | naive attention: softmax, its dropout mask (a byte), and the result | (2as + as/2) / t |
//! | two dropout masks (a byte each), with naive attention | 2h bytes; 2h / t with sequence parallelism |
//! | flash attention: the logarithm of each row's sum, in fp32 | a / t |
//! | experts, `k` of `e` for a token: inside them | 2fk / t or 3fk / t, as above |
//! | what goes to them and what comes back | 2hk |
//! | a probability for each, in fp32, and the weights, places and order of those chosen, four bytes each | e + 4k |
//!
//! Of each sequence, not of each token: how often it chose each expert, in fp32, e. With experts these are means: a rank whose experts are chosen more often than others keeps more.
//!
//! Recomputing selectively repeats attention. Where it is naive, its square of scores is not kept, and queries, keys
//! and values are; where it is flash, none of its tensors is kept, and it is repeated from the output of its norm.
//! Recomputing fully keeps the input of the layer, h (h / t with sequence parallelism), and repeats everything.
//!
//! With naive attention, a plain network of 4h and bf16 this is the classic 34·s·b·h + 5·a·s²·b bytes of a GPT layer
//! (Korthikanti et al., 2022), and all of it is divided by t with sequence parallelism.

use serde::{Deserialize, Serialize};

use crate::{
    layout::{ParallelLayout, Recompute},
    shape::{FeedForward, ModelShape},
};

/// How attention is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attention {
    /// In tiles: the square of scores is never there.
    #[default]
    Flash,
    /// As the formula has it, with dropout.
    Naive,
}

impl ModelShape {
    /// Bytes that a layer keeps of one micro-batch, on one tensor rank, from the forward pass to the backward pass.
    pub fn kept_activation_bytes(&self, layout: &ParallelLayout, attention: Attention, layer: u64) -> u128 {
        match layout.recompute {
            // The input of the layer.
            Recompute::Full => self.norm_bytes_per_token(layout) * u128::from(layout.micro_batch_tokens()),
            recompute => self.activation_bytes(layout, attention, recompute, layer),
        }
    }

    /// Bytes that a layer needs besides what all layers keep, while it is done or repeated.
    pub fn recomputed_activation_bytes(&self, layout: &ParallelLayout, attention: Attention, layer: u64) -> u128 {
        let whole = self.activation_bytes(layout, attention, Recompute::None, layer);
        let again = whole.saturating_sub(self.kept_activation_bytes(layout, attention, layer));
        match layout.recompute {
            // What the network keeps is not there yet, or no more: its norm's output, and what is inside it.
            Recompute::Selective => {
                let network = self.norm_bytes_per_token(layout) + self.network_bytes_per_token(layout, layer);
                let network = u128::from(layout.micro_batch_tokens()) * network + self.choice_bytes(layout, layer);
                again.saturating_sub(network)
            }
            _ => again,
        }
    }

    /// Of a layer that keeps all but what is computed again.
    fn activation_bytes(
        &self,
        layout: &ParallelLayout,
        attention: Attention,
        recompute: Recompute,
        layer: u64,
    ) -> u128 {
        let per_token = self.activation_bytes_per_token(layout, attention, recompute, layer);
        per_token * u128::from(layout.micro_batch_tokens()) + self.choice_bytes(layout, layer)
    }

    /// Of how often each sequence chose each expert of a layer.
    fn choice_bytes(&self, layout: &ParallelLayout, layer: u64) -> u128 {
        self.layer_experts(layer).map_or(0, |experts| u128::from(layout.choice_count_bytes(experts)))
    }

    /// Of a norm's input, or its output: each token is on one of the ranks that share tokens.
    fn norm_bytes_per_token(&self, layout: &ParallelLayout) -> u128 {
        u128::from(self.hidden * layout.precision.bytes()) / u128::from(layout.token_shares())
    }

    /// Of the network of a layer, or of the experts that a token goes through and of their router.
    fn network_bytes_per_token(&self, layout: &ParallelLayout, layer: u64) -> u128 {
        let inside = match self.feed_forward {
            FeedForward::Plain => 2,
            FeedForward::Gated => 3,
        } * u128::from(self.active_width(layer));
        let element = u128::from(layout.precision.bytes());
        let on_the_way = self.layer_experts(layer).map_or(0, |experts| {
            let [e, k, h] = [experts.count, experts.top_k, self.hidden].map(u128::from);
            2 * element * h * k + 4 * (e + 4 * k)
        });
        element * inside / u128::from(layout.tp) + on_the_way
    }

    fn activation_bytes_per_token(
        &self,
        layout: &ParallelLayout,
        attention: Attention,
        recompute: Recompute,
        layer: u64,
    ) -> u128 {
        let widths = [self.query_width(), self.kv_width(), self.value_width(), self.attended_width()];
        let qkv: u128 = widths.into_iter().map(u128::from).sum();
        let [h, a] = [self.hidden, self.heads].map(u128::from);
        let narrow = self.latent.map_or(0, |latent| u128::from(latent.down() + latent.normed()));
        let (s, t) = (u128::from(layout.sequence_length), u128::from(layout.tp));
        let (element, shares) = (u128::from(layout.precision.bytes()), u128::from(layout.token_shares()));
        let norms = 4 * self.norm_bytes_per_token(layout);
        let selective = recompute == Recompute::Selective;
        let inside = self.network_bytes_per_token(layout, layer);
        match attention {
            Attention::Naive => {
                let scores = if selective { 0 } else { a * s * (2 * element + 1) };
                norms + (2 * h + element * narrow) / shares + inside + (element * qkv + scores) / t
            }
            Attention::Flash => {
                let attention = if selective { 0 } else { element * narrow / shares + (element * qkv + 4 * a) / t };
                norms + inside + attention
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A classic GPT layer: plain network of 4h, as many kv heads as heads.
    fn kept(layout: ParallelLayout, attention: Attention) -> f64 {
        ModelShape::preset("gpt3-175b").unwrap().kept_activation_bytes(&layout, attention, 0) as f64
    }

    #[test]
    fn a_classic_layer_keeps_what_the_paper_says() {
        let (s, b, h, a) = (2048.0, 3.0, 12_288.0, 96.0);
        for t in [1.0, 8.0] {
            let base =
                ParallelLayout { sequence_length: 2048, micro_batch: 3, tp: t as u64, ..ParallelLayout::default() };
            let none = s * b * h * (10.0 + 24.0 / t + 5.0 * a * s / (h * t));
            assert_eq!(kept(base, Attention::Naive), none);
            let selective = s * b * h * (10.0 + 24.0 / t);
            assert_eq!(kept(ParallelLayout { recompute: Recompute::Selective, ..base }, Attention::Naive), selective);
            let full = 2.0 * s * b * h;
            assert_eq!(kept(ParallelLayout { recompute: Recompute::Full, ..base }, Attention::Naive), full);
            let shared = ParallelLayout { sequence_parallel: true, ..base };
            assert_eq!(kept(shared, Attention::Naive), s * b * h * (34.0 + 5.0 * a * s / h) / t);
            assert_eq!(kept(ParallelLayout { recompute: Recompute::Full, ..shared }, Attention::Naive), full / t);
        }
        let one = ParallelLayout { sequence_length: 2048, micro_batch: 3, ..ParallelLayout::default() };
        assert_eq!(kept(one, Attention::Naive), 34.0 * s * b * h + 5.0 * a * s * s * b);
    }

    #[test]
    fn flash_attention_keeps_no_square() {
        let model = ModelShape::preset("llama-8b").unwrap();
        let at = |sequence_length, recompute| {
            let layout = ParallelLayout { sequence_length, recompute, ..ParallelLayout::default() };
            model.kept_activation_bytes(&layout, Attention::Flash, 0) as f64
        };
        assert_eq!(at(8192, Recompute::None), 4.0 * at(2048, Recompute::None));
        // Per token: 4·4096 + 2·4096 + 2·1024 + 3·14336 elements, and 32 logarithms.
        assert_eq!(at(1, Recompute::None), 2.0 * (16_384.0 + 8192.0 + 2048.0 + 43_008.0) + 128.0);
        assert_eq!(at(1, Recompute::Selective), 2.0 * (16_384.0 + 43_008.0));
        assert_eq!(at(1, Recompute::Full), 8192.0);
        let layout = ParallelLayout { sequence_length: 1, recompute: Recompute::Full, ..ParallelLayout::default() };
        let again = |layout: &ParallelLayout, attention| model.recomputed_activation_bytes(layout, attention, 0) as f64;
        assert_eq!(again(&layout, Attention::Flash) + at(1, Recompute::Full), at(1, Recompute::None));
        // Attention has room where the network's tensors will be, unless it has a square of scores: 5·32·4096 bytes a
        // token, less 3·14336 and 4096 elements.
        let selective =
            ParallelLayout { sequence_length: 4096, recompute: Recompute::Selective, ..ParallelLayout::default() };
        assert_eq!(again(&selective, Attention::Flash), 0.0);
        let scores = 5.0 * 32.0 * 4096.0 - 2.0 * (3.0 * 14_336.0 + 4096.0);
        assert_eq!(again(&selective, Attention::Naive), 4096.0 * scores);
    }
}
