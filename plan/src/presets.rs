//! Models people know by name. Sizes are those of the published `config.json` files and papers.

use crate::{
    error::PlanError,
    latent::Latent,
    shape::{Biases, Experts, FeedForward, ModelShape, Norm},
};

/// The names of the presets.
const NAMES: [&str; 17] = [
    "tiny",
    "tiny-moe",
    "gpt2-124m",
    "gpt2-1.5b",
    "gpt3-175b",
    "llama-1b",
    "llama-3b",
    "llama-8b",
    "llama-70b",
    "llama-405b",
    "qwen3-8b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "mixtral-8x7b",
    "mixtral-8x22b",
    "deepseek-moe-16b",
    "deepseek-v3",
];

impl ModelShape {
    /// The names of the presets.
    pub fn presets() -> &'static [&'static str] {
        &NAMES
    }

    /// A model by its name.
    pub fn preset(name: &str) -> Result<ModelShape, PlanError> {
        let shape = match name {
            // The CPU default: divides by tp 4, pp 4 and interleaved pp 2.
            "tiny" => llama(8, 128, [8, 4, 16], 384, 512),
            // The same with experts: a token goes through two of eight.
            "tiny-moe" => with_experts(8, 2, llama(8, 128, [8, 4, 16], 96, 512)),
            "gpt2-124m" => gpt(12, 768, 12, 1024),
            "gpt2-1.5b" => gpt(48, 1600, 25, 1024),
            "gpt3-175b" => gpt(96, 12_288, 96, 2048),
            // Llama 3.2
            "llama-1b" => ModelShape { tied_embeddings: true, ..llama(16, 2048, [32, 8, 64], 8192, 128_256) },
            "llama-3b" => ModelShape { tied_embeddings: true, ..llama(28, 3072, [24, 8, 128], 8192, 128_256) },
            // Llama 3 and 3.1
            "llama-8b" => llama(32, 4096, [32, 8, 128], 14_336, 128_256),
            "llama-70b" => llama(80, 8192, [64, 8, 128], 28_672, 128_256),
            "llama-405b" => llama(126, 16_384, [128, 8, 128], 53_248, 128_256),
            "qwen3-8b" => ModelShape { qk_norm: true, ..llama(36, 4096, [32, 8, 128], 12_288, 151_936) },
            "qwen3-30b-a3b" => qwen3_moe(48, 2048, [32, 4, 128], 768),
            "qwen3-235b-a22b" => qwen3_moe(94, 4096, [64, 4, 128], 1536),
            "mixtral-8x7b" => with_experts(8, 2, llama(32, 4096, [32, 8, 128], 14_336, 32_000)),
            "mixtral-8x22b" => with_experts(8, 2, llama(56, 6144, [48, 8, 128], 16_384, 32_000)),
            "deepseek-moe-16b" => ModelShape {
                experts: Some(deepseek_experts(64, 6, 2, [1, 10_944])),
                ..llama(28, 2048, [16, 16, 128], 1408, 102_400)
            },
            "deepseek-v3" => ModelShape {
                latent: Some(Latent { query_rank: Some(1536), kv_rank: 512, rotary_dim: 64, value_dim: 128 }),
                experts: Some(Experts { router_bias: true, ..deepseek_experts(256, 8, 1, [3, 18_432]) }),
                ..llama(61, 7168, [128, 128, 128 + 64], 2048, 129_280)
            },
            _ => return Err(PlanError::UnknownModel { name: name.into(), known: NAMES.join(", ") }),
        };
        ModelShape { name: name.into(), ..shape }.check()
    }
}

fn llama(layers: u64, hidden: u64, [heads, kv_heads, head_dim]: [u64; 3], ffn: u64, vocabulary: u64) -> ModelShape {
    ModelShape {
        name: String::new(),
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim,
        latent: None,
        ffn,
        feed_forward: FeedForward::Gated,
        vocabulary,
        tied_embeddings: false,
        norm: Norm::Rms,
        biases: Biases::default(),
        qk_norm: false,
        learned_positions: None,
        experts: None,
    }
}

fn with_experts(count: u64, top_k: u64, model: ModelShape) -> ModelShape {
    ModelShape { experts: Some(Experts { count, top_k, ..Experts::default() }), ..model }
}

fn deepseek_experts(count: u64, top_k: u64, shared: u64, [dense_layers, dense_ffn]: [u64; 2]) -> Experts {
    Experts { count, top_k, shared, dense_layers, dense_ffn, ..Experts::default() }
}

fn qwen3_moe(layers: u64, hidden: u64, heads: [u64; 3], ffn: u64) -> ModelShape {
    ModelShape { qk_norm: true, ..with_experts(128, 8, llama(layers, hidden, heads, ffn, 151_936)) }
}

fn gpt(layers: u64, hidden: u64, heads: u64, positions: u64) -> ModelShape {
    ModelShape {
        feed_forward: FeedForward::Plain,
        tied_embeddings: true,
        norm: Norm::Layer,
        biases: Biases::ALL,
        learned_positions: Some(positions),
        ..llama(layers, hidden, [heads, heads, hidden / heads], 4 * hidden, 50_257)
    }
}
