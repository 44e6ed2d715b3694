//! Multi-head latent attention (DeepSeek-AI, 2024): keys and values are made of a narrow vector for each token, and queries may be.
//!
//! ```text
//! h ─┬─ q_down ─ norm ─ q_up ──────────────────────────► queries   a heads of head_dim
//!    └─ kv_down ┬ norm ─ kv_up ┬────────────────────────► values    a heads of value_dim
//!               │              └─ head_dim − rotary_dim ┬► keys     a heads of head_dim
//!               └─ rotary_dim, the same for all heads ──┘
//! ```
//!
//! Tensor ranks share the heads, and so both matrices that go up. Those that go down are on each of them; with sequence parallelism
//! each rank goes down with its own tokens. In training, keys and values are there as wide as they are for attention.

use serde::{Deserialize, Serialize};

use crate::{
    error::PlanError,
    shape::ModelShape,
    tensors::{Split, Tensor, matrix},
};

/// Widths of latent attention. The `head_dim` of the model is that of queries and keys, rotary part and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latent {
    /// What queries are made of, if they are not made of the hidden state itself.
    #[serde(default)]
    pub query_rank: Option<u64>,
    /// What keys and values are made of.
    pub kv_rank: u64,
    /// The part of a head of queries and keys that says positions; all heads have the same of a key.
    pub rotary_dim: u64,
    /// Width of one head of values.
    pub value_dim: u64,
}

impl Latent {
    /// Says what cannot be.
    pub(crate) fn check(&self, model: &ModelShape) -> Result<(), PlanError> {
        let wrong = |why: String| Err(PlanError::Shape(why));
        let bounds = [
            ("query_rank", self.query_rank.unwrap_or(1), 1 << 20),
            ("kv_rank", self.kv_rank, 1 << 20),
            ("rotary_dim", self.rotary_dim, model.head_dim),
            ("value_dim", self.value_dim, 1 << 16),
        ];
        for (what, value, most) in bounds {
            if value == 0 || value > most {
                return wrong(format!("{what} is {value}; it must be between 1 and {most}"));
            }
        }
        if model.kv_heads != model.heads {
            return wrong("latent attention has as many kv_heads as heads".into());
        }
        if model.biases.qkv || model.qk_norm {
            return wrong("latent attention with biases or norms on queries and keys is not supported".into());
        }
        Ok(())
    }

    /// What is normalized of a token.
    pub(crate) fn normed(&self) -> u64 {
        self.query_rank.unwrap_or(0) + self.kv_rank
    }

    /// What matrices that go down make of a token.
    pub(crate) fn down(&self) -> u64 {
        self.normed() + self.rotary_dim
    }

    /// What the matrix makes that goes up to keys and values.
    pub(crate) fn up(&self, model: &ModelShape) -> u64 {
        model.heads * (model.head_dim - self.rotary_dim + self.value_dim)
    }

    /// What queries, keys and values are made by.
    pub(crate) fn tensors(&self, model: &ModelShape) -> Vec<Tensor> {
        let (query, hidden) = (model.query_width(), model.hidden);
        let down = |name, rows| Tensor { split: None, ..matrix(name, rows, hidden, Split::Rows) };
        let mut tensors = match self.query_rank {
            Some(rank) => vec![down("q_down", rank)],
            None => vec![matrix("q", query, hidden, Split::Rows)],
        };
        // What has the same input stands together.
        tensors.push(down("kv_down", self.kv_rank + self.rotary_dim));
        if let Some(rank) = self.query_rank {
            tensors.extend(model.norm_tensors(["q_down_norm", "q_down_norm.bias"], rank));
            tensors.push(matrix("q_up", query, rank, Split::Rows));
        }
        tensors.extend(model.norm_tensors(["kv_down_norm", "kv_down_norm.bias"], self.kv_rank));
        tensors.push(matrix("kv_up", self.up(model), self.kv_rank, Split::Rows));
        tensors
    }
}

impl ModelShape {
    /// Width of one head of values.
    pub fn value_dim(&self) -> u64 {
        self.latent.map_or(self.head_dim, |latent| latent.value_dim)
    }

    /// Width of all values together.
    pub fn value_width(&self) -> u64 {
        self.kv_heads * self.value_dim()
    }

    /// Width of what attention gives: the values of all query heads.
    pub fn attended_width(&self) -> u64 {
        self.heads * self.value_dim()
    }

    /// What tensor ranks need of a token before attention, and sum up of its gradient: what the matrices that they share multiply.
    pub(crate) fn width_before_attention(&self) -> u64 {
        match self.latent {
            None => self.hidden,
            Some(latent) if latent.query_rank.is_some() => latent.down(),
            Some(latent) => self.hidden + latent.down(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Convention, ParallelLayout, activations::Attention};

    fn model() -> ModelShape {
        ModelShape::preset("deepseek-v3").unwrap()
    }

    #[test]
    fn matrices_have_the_shapes_of_the_published_checkpoint() {
        let tensors = model().layer_tensors(0);
        let shape =
            |name| tensors.iter().find(|tensor| tensor.name == name).map(|tensor| (tensor.rows, tensor.columns));
        for (name, rows, columns) in [
            ("q_down", 1536, 7168),
            ("q_down_norm", 1536, 1),
            ("q_up", 24_576, 1536),
            ("kv_down", 576, 7168),
            ("kv_down_norm", 512, 1),
            ("kv_up", 32_768, 512),
            ("output", 7168, 16_384),
        ] {
            assert_eq!(shape(name), Some((rows, columns)), "{name}");
        }
        assert_eq!(shape("k"), None);
    }

    #[test]
    fn scores_are_as_wide_as_keys_and_results_as_values() {
        let (model, s) = (model(), 4096.0);
        let at = |convention| model.flops_per_token(convention, 4096);
        let attention = 61.0 * 6.0 * s * 128.0 * (192.0 + 128.0);
        assert_eq!(at(Convention::Model) - at(Convention::Causal), attention / 2.0);
        // Attention, three dense networks, eight experts and a shared one with their router in the others, and the head.
        let projections = 7168.0 * (1536.0 + 576.0 + 16_384.0) + 1536.0 * 24_576.0 + 512.0 * 32_768.0;
        let networks = 3.0 * 3.0 * 18_432.0 + 58.0 * (9.0 * 3.0 * 2048.0 + 256.0);
        let matrices = 61.0 * projections + 7168.0 * (networks + 129_280.0);
        assert_eq!(at(Convention::Model), 6.0 * matrices + attention);
    }

    #[test]
    fn narrow_vectors_are_kept_beside_queries_keys_and_values() {
        let kept = |layout: ParallelLayout| {
            let layout = ParallelLayout { sequence_length: 8, ..layout };
            model().kept_activation_bytes(&layout, Attention::Flash, 0) / 8
        };
        let norms = 4 * 7168;
        let narrow = 2 * (1536 + 512) + 64;
        let split = 128 * (2 * 192 + 2 * 128) + 3 * 18_432;
        let one = ParallelLayout::default();
        assert_eq!(kept(one), 2 * (norms + narrow + split) + 4 * 128);
        let tensor = ParallelLayout { tp: 8, ..one };
        assert_eq!(kept(tensor), 2 * (norms + narrow + split / 8) + 4 * 16);
        let shared = ParallelLayout { sequence_parallel: true, ..tensor };
        assert_eq!(kept(shared), 2 * (norms + narrow + split) / 8 + 4 * 16);
        let selective = ParallelLayout { recompute: crate::Recompute::Selective, ..one };
        assert_eq!(kept(selective), 2 * (norms + 3 * 18_432));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let usual = model().latent.unwrap();
        let with = |latent: Latent| ModelShape { latent: Some(latent), ..model() }.check().unwrap_err().to_string();
        assert!(with(Latent { kv_rank: 0, ..usual }).contains("kv_rank is 0"));
        assert!(with(Latent { rotary_dim: 193, ..usual }).contains("rotary_dim is 193; it must be between 1 and 192"));
        let of = |model: ModelShape| model.check().unwrap_err().to_string();
        assert!(of(ModelShape { kv_heads: 64, ..model() }).contains("as many kv_heads as heads"));
        assert!(of(ModelShape { qk_norm: true, ..model() }).contains("norms on queries and keys"));
    }
}
