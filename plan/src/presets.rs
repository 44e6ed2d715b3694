//! Models people know by name. Sizes are those of the published `config.json` files and papers.

use std::{fs::File, io::Read, path::Path};

use crate::{
    config_file,
    error::PlanError,
    shape::{Biases, Experts, FeedForward, ModelShape, Norm},
};

/// No description of a model is longer.
const LONGEST: u64 = 1 << 20;

/// The names of the presets.
const NAMES: [&str; 11] = [
    "tiny",
    "gpt2-124m",
    "gpt2-1.5b",
    "gpt3-175b",
    "llama-1b",
    "llama-3b",
    "llama-8b",
    "llama-70b",
    "llama-405b",
    "qwen3-8b",
    "mixtral-8x7b",
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
            "mixtral-8x7b" => ModelShape {
                experts: Some(Experts { count: 8, top_k: 2 }),
                ..llama(32, 4096, [32, 8, 128], 14_336, 32_000)
            },
            _ => return Err(PlanError::UnknownModel { name: name.into(), known: NAMES.join(", ") }),
        };
        ModelShape { name: name.into(), ..shape }.check()
    }

    /// A model by its name, or from a file: a Hugging Face `config.json`, or a TOML file of this project.
    pub fn load(name_or_file: &str) -> Result<ModelShape, PlanError> {
        match ModelShape::preset(name_or_file) {
            Err(PlanError::UnknownModel { .. }) if Path::new(name_or_file).exists() => {
                let wrong = |why: String| PlanError::ModelFile { file: name_or_file.into(), why };
                if !Path::new(name_or_file).is_file() {
                    return Err(wrong("it is not a plain file".into()));
                }
                let mut text = String::new();
                let read = File::open(name_or_file).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
                read.map_err(|error| wrong(error.to_string()))?;
                let stem = Path::new(name_or_file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
                config_file::parse(&text, &stem).map_err(wrong)?.check()
            }
            known => known,
        }
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
