//! What is said of a model: in the words of Hugging Face's `config.json`, or in our own.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    error::PlanError,
    latent::Latent,
    shape::{Biases, Experts, FeedForward, ModelShape, Norm},
};

impl ModelShape {
    /// A model from JSON: a configuration of Hugging Face's, or an object in our own words (`layers`, `hidden`, `heads`,
    /// `ffn`, `vocabulary` and what else differs from most models). What does not say its name has the fallback.
    pub fn of_json(text: &str, fallback: &str) -> Result<ModelShape, PlanError> {
        of_json(text, fallback).map_err(PlanError::Shape)?.check()
    }
}

/// Reads a model from JSON, which has still to be checked.
pub(crate) fn of_json(text: &str, fallback: &str) -> Result<ModelShape, String> {
    let config: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    if config.get("layers").is_some() && config.get("model_type").is_none() {
        return Words::deserialize(config).map_err(|error| error.to_string())?.shape(fallback);
    }
    from_hugging_face(&config, fallback)
}

/// A model in our own words. What most models have alike may be left out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Words {
    name: Option<String>,
    layers: u64,
    hidden: u64,
    heads: u64,
    kv_heads: Option<u64>,
    head_dim: Option<u64>,
    latent: Option<WordsOfLatent>,
    ffn: u64,
    feed_forward: Option<FeedForward>,
    vocabulary: u64,
    #[serde(default)]
    tied_embeddings: bool,
    norm: Option<Norm>,
    #[serde(default)]
    biases: WordsOfBiases,
    #[serde(default)]
    qk_norm: bool,
    learned_positions: Option<u64>,
    experts: Option<WordsOfExperts>,
}

/// As [`Biases`], but a word too many is a typing error.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WordsOfBiases {
    qkv: bool,
    output: bool,
    ffn: bool,
}

/// As [`Experts`], but a word too many is a typing error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WordsOfExperts {
    count: u64,
    top_k: u64,
    #[serde(default)]
    shared: u64,
    #[serde(default)]
    dense_layers: u64,
    #[serde(default)]
    dense_ffn: u64,
    #[serde(default)]
    router_bias: bool,
}

/// As [`Latent`], but a word too many is a typing error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WordsOfLatent {
    query_rank: Option<u64>,
    kv_rank: u64,
    rotary_dim: u64,
    value_dim: u64,
}

impl From<WordsOfLatent> for Latent {
    fn from(words: WordsOfLatent) -> Latent {
        let WordsOfLatent { query_rank, kv_rank, rotary_dim, value_dim } = words;
        Latent { query_rank, kv_rank, rotary_dim, value_dim }
    }
}

impl From<WordsOfExperts> for Experts {
    fn from(words: WordsOfExperts) -> Experts {
        let WordsOfExperts { count, top_k, shared, dense_layers, dense_ffn, router_bias } = words;
        Experts { count, top_k, shared, dense_layers, dense_ffn, router_bias }
    }
}

impl Words {
    pub(crate) fn shape(self, fallback: &str) -> Result<ModelShape, String> {
        let WordsOfBiases { qkv, output, ffn } = self.biases;
        Ok(ModelShape {
            name: self.name.unwrap_or_else(|| fallback.into()),
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.kv_heads.unwrap_or(self.heads),
            head_dim: head_dim(self.head_dim, self.hidden, self.heads)?,
            latent: self.latent.map(Latent::from),
            ffn: self.ffn,
            feed_forward: self.feed_forward.unwrap_or(FeedForward::Gated),
            vocabulary: self.vocabulary,
            tied_embeddings: self.tied_embeddings,
            norm: self.norm.unwrap_or(Norm::Rms),
            biases: Biases { qkv, output, ffn },
            qk_norm: self.qk_norm,
            learned_positions: self.learned_positions,
            experts: self.experts.map(Experts::from),
        })
    }
}

/// The width of a head, if it is not said: an equal share.
fn head_dim(said: Option<u64>, hidden: u64, heads: u64) -> Result<u64, String> {
    match said {
        Some(width) => Ok(width),
        None if heads > 0 && !hidden.is_multiple_of(heads) => {
            Err(format!("{hidden} is not divisible by {heads} heads, and head_dim is missing"))
        }
        None => Ok(hidden.checked_div(heads).unwrap_or(1)),
    }
}

/// Decoders whose configurations have the same words, beside GPT-2.
const DECODERS: [&str; 9] =
    ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "deepseek", "deepseek_v2", "deepseek_v3"];

fn from_hugging_face(config: &Value, fallback: &str) -> Result<ModelShape, String> {
    if config.get("vision_config").is_some() || config.get("image_size").is_some() {
        return Err("it describes an image model; only language models are supported".into());
    }
    let model_type = config.get("model_type").and_then(Value::as_str).ok_or("it has no model_type")?;
    let name = config.get("_name_or_path").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.unwrap_or(if fallback == "config" { model_type } else { fallback }).to_owned();
    let number = |key: &str| config.get(key).filter(|value| !value.is_null());
    let optional = |key: &str| {
        number(key)
            .map(|value| value.as_u64().ok_or(format!("{key} is {value}, not a positive whole number")))
            .transpose()
    };
    let required = |key: &str| optional(key)?.ok_or(format!("it has no {key}"));
    let flag = |key: &str, default: bool| {
        number(key).map_or(Some(default), Value::as_bool).ok_or(format!("{key} is neither true nor false"))
    };

    if model_type == "gpt2" {
        let (hidden, heads) = (required("n_embd")?, required("n_head")?);
        return Ok(ModelShape {
            name,
            layers: required("n_layer")?,
            hidden,
            heads,
            kv_heads: heads,
            head_dim: head_dim(None, hidden, heads)?,
            latent: None,
            ffn: optional("n_inner")?.unwrap_or(hidden.saturating_mul(4)),
            feed_forward: FeedForward::Plain,
            vocabulary: required("vocab_size")?,
            tied_embeddings: flag("tie_word_embeddings", true)?,
            norm: Norm::Layer,
            biases: Biases::ALL,
            qk_norm: false,
            learned_positions: Some(required("n_positions")?),
            experts: None,
        });
    }
    if !DECODERS.contains(&model_type) {
        return Err(format!("its model_type is {model_type}; supported are {} and gpt2", DECODERS.join(", ")));
    }
    let (hidden, heads) = (required("hidden_size")?, required("num_attention_heads")?);
    let attention_bias = flag("attention_bias", false)?;
    let top_k = || required("num_experts_per_tok");
    let experts = match model_type {
        "mixtral" => Some(Experts { count: required("num_local_experts")?, top_k: top_k()?, ..Experts::default() }),
        "qwen3_moe" => {
            let only_dense =
                number("mlp_only_layers").and_then(Value::as_array).is_some_and(|layers| !layers.is_empty());
            if only_dense || optional("decoder_sparse_step")?.is_some_and(|step| step != 1) {
                return Err("only some of its layers have experts, which is not supported".into());
            }
            Some(Experts { count: required("num_experts")?, top_k: top_k()?, ..Experts::default() })
        }
        "deepseek" | "deepseek_v2" | "deepseek_v3" => {
            if optional("moe_layer_freq")?.is_some_and(|every| every != 1) {
                return Err("only some of its layers have experts, which is not supported".into());
            }
            let dense_layers = optional("first_k_dense_replace")?.unwrap_or(0);
            Some(Experts {
                count: required("n_routed_experts")?,
                top_k: top_k()?,
                shared: optional("n_shared_experts")?.unwrap_or(0),
                dense_layers,
                dense_ffn: if dense_layers > 0 { required("intermediate_size")? } else { 0 },
                router_bias: model_type == "deepseek_v3",
            })
        }
        _ => None,
    };
    let latent = match model_type {
        "deepseek_v2" | "deepseek_v3" => Some(Latent {
            query_rank: optional("q_lora_rank")?,
            kv_rank: required("kv_lora_rank")?,
            rotary_dim: required("qk_rope_head_dim")?,
            value_dim: required("v_head_dim")?,
        }),
        _ => None,
    };
    let head_dim = match latent {
        Some(latent) => required("qk_nope_head_dim")?.saturating_add(latent.rotary_dim),
        None => head_dim(optional("head_dim")?, hidden, heads)?,
    };
    let is_of_experts = model_type == "qwen3_moe" || model_type.starts_with("deepseek");
    let ffn = if is_of_experts { "moe_intermediate_size" } else { "intermediate_size" };
    Ok(ModelShape {
        name,
        layers: required("num_hidden_layers")?,
        hidden,
        heads,
        kv_heads: optional("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        latent,
        ffn: required(ffn)?,
        feed_forward: FeedForward::Gated,
        vocabulary: required("vocab_size")?,
        tied_embeddings: flag("tie_word_embeddings", false)?,
        norm: Norm::Rms,
        // Qwen2 has them on queries, keys and values, and no key that says so.
        biases: Biases {
            qkv: attention_bias || model_type == "qwen2",
            output: attention_bias,
            ffn: flag("mlp_bias", false)?,
        },
        qk_norm: model_type.starts_with("qwen3"),
        learned_positions: None,
        experts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_its_model_in_either_words() {
        let ours = r#"{"layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "vocabulary": 100, "feed_forward": "plain"}"#;
        let model = ModelShape::of_json(ours, "mine").unwrap();
        assert_eq!((model.name.as_str(), model.kv_heads, model.feed_forward), ("mine", 4, FeedForward::Plain));
        let theirs = r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
            "vocab_size": 50257, "_name_or_path": "gpt2", "layers": 3}"#;
        assert_eq!(ModelShape::of_json(theirs, "mine").unwrap().parameters(), 124_439_808);
        for (text, why) in [
            ("{", "it is not JSON"),
            ("{}", "it has no model_type"),
            (r#"{"layers": 2}"#, "missing field"),
            (r#"{"layers": 2, "colour": 1}"#, "unknown field `colour`"),
            (&ours.replace('2', "0"), "layers is 0"),
        ] {
            let error = ModelShape::of_json(text, "mine").unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
