//! Models from files: Hugging Face's `config.json`, and TOML in our own words.

use std::{fs, io::Read, path::Path};

use crate::{
    description::{self, Words},
    error::PlanError,
    shape::ModelShape,
};

/// No description of a model is longer.
const LONGEST: u64 = 1 << 20;

impl ModelShape {
    /// A model by its name, or from a file: a Hugging Face `config.json`, or a TOML file of this project.
    pub fn load(name_or_file: &str) -> Result<ModelShape, PlanError> {
        match ModelShape::preset(name_or_file) {
            Err(PlanError::UnknownModel { .. }) if Path::new(name_or_file).exists() => {
                let wrong = |why: String| PlanError::ModelFile { file: name_or_file.into(), why };
                if !Path::new(name_or_file).is_file() {
                    return Err(wrong("it is not a regular file".into()));
                }
                let mut text = String::new();
                let read = fs::File::open(name_or_file).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
                read.map_err(|error| wrong(error.to_string()))?;
                let stem = Path::new(name_or_file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
                parse(&text, &stem).map_err(wrong)?.check()
            }
            known => known,
        }
    }
}

/// Reads a model from the text of a file: JSON is Hugging Face's, everything else is TOML.
fn parse(text: &str, file_stem: &str) -> Result<ModelShape, String> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with(['{', '[']) {
        description::of_json(text, file_stem)
    } else {
        let words: Words = toml::from_str(text).map_err(|error| error.to_string())?;
        words.shape(file_stem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        activations::Attention,
        flops::Convention,
        fuzz::fuzz,
        layout::ParallelLayout,
        memory::MemoryPlan,
        shape::{Biases, Experts, Norm},
    };

    fn parameters(text: &str) -> u64 {
        parse(text, "config").unwrap().check().unwrap().parameters()
    }

    /// Whatever is a model after all has sizes that can be added up.
    #[test]
    fn fuzzed_files() {
        let seeds = [
            r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "tie_word_embeddings": true}"#,
            r#"{"model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 256, "moe_intermediate_size": 32,
                "num_hidden_layers": 4, "num_attention_heads": 4, "num_experts": 8, "num_experts_per_tok": 2, "head_dim": 16,
                "vocab_size": 1000, "decoder_sparse_step": 1, "mlp_only_layers": []}"#,
            "layers = 8\nhidden = 1024\nheads = 8\nkv_heads = 4\nffn = 512\nvocabulary = 32000\n\
             experts = { count = 64, top_k = 4 }\n",
        ];
        fuzz!(seeds.map(|seed| seed.as_bytes().to_vec()).to_vec(), |bytes: &[u8]| {
            let Ok(model) = parse(&String::from_utf8_lossy(bytes), "config") else { return false };
            let Ok(model) = model.check() else { return false };
            let flops = model.flops_per_token(Convention::Model, 4096);
            assert!(model.parameters() > 0 && flops > 0.0, "{model:?}");
            MemoryPlan::fullest(&model, &ParallelLayout::default(), Attention::Flash).is_ok()
        });
    }

    #[test]
    fn the_configurations_of_known_models_have_their_parameters() {
        let llama = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "attention_bias": false}"#;
        assert_eq!(parameters(llama), 8_030_261_248);
        let qwen2 = r#"{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
            "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": false}"#;
        assert_eq!(parameters(qwen2), 7_615_616_512);
        let qwen3 = r#"{"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}"#;
        assert_eq!(parameters(qwen3), 8_190_735_360);
        let mistral = r#"{"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
            "head_dim": null}"#;
        assert_eq!(parameters(mistral), 7_241_732_096);
        let mixtral = r#"{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
            "num_local_experts": 8, "num_experts_per_tok": 2}"#;
        assert_eq!(parameters(mixtral), 46_702_792_704);
        let qwen3_moe = r#"{"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
            "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
            "head_dim": 128, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
            "decoder_sparse_step": 1, "mlp_only_layers": []}"#;
        assert_eq!(parameters(qwen3_moe), 30_532_122_624);
        let error = parse(&qwen3_moe.replace("[]", "[0]"), "config").unwrap_err();
        assert!(error.contains("only some of its layers have experts"), "{error}");
        let deepseek = r#"{"model_type": "deepseek", "hidden_size": 2048, "intermediate_size": 10944,
            "moe_intermediate_size": 1408, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
            "vocab_size": 102400, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
            "first_k_dense_replace": 1, "moe_layer_freq": 1}"#;
        assert_eq!(parameters(deepseek), 16_375_728_128);
        // The layer that predicts a second token is not counted.
        let deepseek_v3 = r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
            "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
            "num_key_value_heads": 128, "vocab_size": 129280, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1, "q_lora_rank": 1536,
            "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "head_dim": 64,
            "num_nextn_predict_layers": 1}"#;
        let model = parse(deepseek_v3, "deepseek-v3").unwrap().check().unwrap();
        assert_eq!(model, ModelShape::preset("deepseek-v3").unwrap());
        let deepseek_v2_lite = r#"{"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
            "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16,
            "num_key_value_heads": 16, "vocab_size": 102400, "n_routed_experts": 64, "n_shared_experts": 2,
            "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1, "q_lora_rank": null,
            "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}"#;
        assert_eq!(parameters(deepseek_v2_lite), 15_706_484_224);
        let error = parse(&deepseek_v3.replace("kv_lora_rank", "rank"), "config").unwrap_err();
        assert!(error.contains("it has no kv_lora_rank"), "{error}");
        let gpt2 = r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": null,
            "n_positions": 1024, "vocab_size": 50257}"#;
        assert_eq!(parameters(gpt2), 124_439_808);
    }

    #[test]
    fn our_own_words_say_little_for_what_is_usual() {
        let model = parse("layers = 2\nhidden = 64\nheads = 4\nffn = 128\nvocabulary = 100", "mine").unwrap();
        assert_eq!((model.name.as_str(), model.kv_heads, model.head_dim, model.norm), ("mine", 4, 16, Norm::Rms));
        let text = "name = 'moe'\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 2\nhead_dim = 32\nffn = 128\n\
                    feed_forward = 'plain'\nvocabulary = 100\ntied_embeddings = true\nnorm = 'layer'\n\
                    learned_positions = 32\nqk_norm = true\nbiases = { qkv = true }\nexperts = { count = 4, top_k = 2 }";
        let model = parse(text, "file").unwrap().check().unwrap();
        assert_eq!(
            (model.name.as_str(), model.experts),
            ("moe", Some(Experts { count: 4, top_k: 2, ..Experts::default() }))
        );
        assert_eq!(model.biases, Biases { qkv: true, ..Biases::default() });
    }

    #[test]
    fn what_is_not_a_language_model_is_refused_in_words() {
        let llama = |key: &str, value: &str| {
            format!(
                r#"{{"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
                   "num_attention_heads": 4, "vocab_size": 100, "{key}": {value}}}"#
            )
        };
        for (text, why) in [
            (r#"{"model_type": "clip", "vision_config": {}}"#, "image model"),
            (r#"{"model_type": "vit", "image_size": 224, "hidden_size": 768}"#, "image model"),
            (r#"{"model_type": "t5", "d_model": 512}"#, "its model_type is t5; supported are llama"),
            (r#"{"hidden_size": 512}"#, "it has no model_type"),
            (r#"{"model_type": "llama", "hidden_size": 64}"#, "it has no num_attention_heads"),
            (r#"{"model_type": "#, "it is not JSON"),
            (&llama("num_key_value_heads", "\"two\""), "num_key_value_heads is \"two\", not a positive whole number"),
            (&llama("num_key_value_heads", "-1"), "num_key_value_heads is -1, not a positive whole number"),
            (&llama("tie_word_embeddings", "3"), "tie_word_embeddings is neither true nor false"),
            ("[1, 2]", "it has no model_type"),
            ("layers = 2\nhidden = 100\nheads = 3\nffn = 64\nvocabulary = 9", "100 is not divisible by 3 heads"),
            ("layers = 2", "missing field"),
            ("layers = 2\ncolour = 3", "unknown field"),
            ("layers = 2\nbiases = { qvk = true }", "unknown field"),
            ("layers = 2\nexperts = { count = 2, top_k = 1, topk = 1 }", "unknown field"),
            ("layers = 2\nlatent = { kv_rank = 2, rotary_dim = 1, value_dim = 1, rank = 1 }", "unknown field"),
            ("not even toml", "expected"),
        ] {
            let error = parse(text, "config").unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, why) in [
            ("layers = 2\nhidden = 64\nheads = 0\nffn = 64\nvocabulary = 100", "heads is 0"),
            ("layers = 0\nhidden = 64\nheads = 4\nffn = 64\nvocabulary = 100", "layers is 0"),
            (
                "layers = 2\nhidden = 64\nheads = 4\nkv_heads = 3\nffn = 64\nvocabulary = 100",
                "not divisible by 3 kv_heads",
            ),
            (
                "layers = 2\nhidden = 100000000\nheads = 4\nffn = 64\nvocabulary = 100",
                "hidden is 100000000; the maximum is",
            ),
            (
                "layers = 16000\nhidden = 1000000\nheads = 1000\nffn = 4000000\nvocabulary = 100",
                "parameters; the maximum is",
            ),
            (
                "layers = 2\nhidden = 64\nheads = 4\nffn = 64\nvocabulary = 100\nexperts = { count = 2, top_k = 3 }",
                "top_k 3 is impossible with 2 experts",
            ),
        ] {
            let error = parse(text, "x").unwrap().check().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
