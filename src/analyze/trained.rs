//! What is trained, for sources that do not say it.

use std::path::PathBuf;

use anyhow::Result;
use stepscope_analyzer::Selection;
use stepscope_plan::ModelShape;

/// No sequence is longer, and no step has more tokens.
const MOST_TOKENS: u64 = 1 << 48;

/// Options that say what is trained.
#[derive(clap::Args)]
pub(crate) struct Trained {
    /// What is trained: a preset, a Hugging Face config.json or a TOML file [default: what the source says]
    #[arg(long, value_name = "NAME|FILE", help_heading = "MFU")]
    model: Option<PathBuf>,
    /// Tokens in a sequence [default: what the source says]
    #[arg(long = "seq-len", value_name = "S", value_parser = tokens(), help_heading = "MFU")]
    sequence_length: Option<u64>,
    /// Tokens that the whole job trains on in a step [default: what the source says]
    #[arg(long, value_name = "N", value_parser = tokens(), help_heading = "MFU")]
    tokens_per_step: Option<u64>,
}

fn tokens() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=MOST_TOKENS)
}

impl Trained {
    /// What they say, as part of a selection.
    pub(crate) fn selection(&self) -> Result<Selection> {
        let model = self.model.as_ref().map(|model| ModelShape::load(&model.to_string_lossy())).transpose()?;
        Ok(Selection {
            model,
            sequence_length: self.sequence_length,
            tokens_per_step: self.tokens_per_step.map(|tokens| tokens as f64),
            ..Selection::default()
        })
    }
}
