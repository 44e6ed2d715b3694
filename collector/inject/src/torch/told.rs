//! What the module says that holds on: groups of ranks, and what it could not find out. Each recording is told all of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use stepscope_collector::Recorder;
use stepscope_plan::{CountedModel, Model, Zero};
use stepscope_traces::{CollectorNote, FailedSources, NamedGroups, ProgramModel, REPLICA_TOKENS};

use crate::{program, recording::recorder};

/// So many sources may have failed; there are fewer.
const MOST_FAILURES: usize = 32;

static TOLD: Mutex<Told> =
    Mutex::new(Told { groups: None, failures: FailedSources(std::collections::BTreeMap::new()) });

struct Told {
    groups: Option<NamedGroups>,
    failures: FailedSources,
}

/// A model, as the module describes it.
#[derive(Deserialize)]
struct Described {
    /// In Hugging Face's words, or ours.
    configuration: Option<serde_json::Value>,
    counted: Option<CountedModel>,
    sequence_length: Option<u64>,
    zero: Option<Zero>,
}

fn lock() -> MutexGuard<'static, Told> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells a recording.
pub(crate) fn tell(recorder: &Recorder) {
    let told = lock();
    told.groups.iter().for_each(|groups| recorder.note(CollectorNote::ProcessGroups(groups.clone())));
    if !told.failures.0.is_empty() {
        recorder.note(CollectorNote::FailedSources(told.failures.clone()));
    }
}

/// Says that a source of knowledge has failed.
pub(super) fn fail(source: String, why: String) {
    let mut told = lock();
    if told.failures.0.len() < MOST_FAILURES {
        told.failures.0.insert(source, why);
    }
    drop(told);
    recorder().into_iter().for_each(tell);
}

/// Says which groups there are, in JSON. Tells whether it is understood.
pub(super) fn say_groups(description: &str) -> bool {
    let Ok(groups) = serde_json::from_str(description) else { return false };
    lock().groups = Some(groups);
    recorder().into_iter().for_each(tell);
    true
}

/// Says what is trained, in JSON. Tells whether it is understood.
pub(super) fn say_model(description: &str) -> bool {
    let Ok(Described { configuration, counted, sequence_length, zero }) = serde_json::from_str(description) else {
        return false;
    };
    let model = match (configuration, counted) {
        (Some(configuration), _) => program::shape(&configuration.to_string()).ok().map(Model::Shape),
        (None, counted) => counted.and_then(CountedModel::check).map(Model::Counted),
    };
    let found = model.map(|model| ProgramModel { model, sequence_length, zero });
    let is_understood = found.is_some();
    found.into_iter().for_each(program::find_model);
    is_understood
}

/// Counts tokens of a backward pass.
pub(super) fn count_tokens(tokens: f64) {
    if tokens.is_finite()
        && tokens > 0.0
        && let Some(recorder) = recorder()
        && let Some(counter) = recorder.counter(REPLICA_TOKENS)
    {
        recorder.count(counter, tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz;

    /// Modules of other versions may say anything.
    #[test]
    fn fuzzed_models() {
        let seeds = [
            r#"{"configuration": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2,
                "num_attention_heads": 4, "vocab_size": 1000}, "sequence_length": 128, "zero": 3}"#,
            r#"{"counted": {"name": "GPT", "layers": 2, "width": 64, "vocabulary": 1000, "parameters": 100000,
                "embeddings": 64000, "matrices": 30000, "longest_side": 1000}}"#,
        ];
        fuzz!(seeds.map(|seed| seed.as_bytes().to_vec()).to_vec(), |bytes: &[u8]| {
            say_model(&String::from_utf8_lossy(bytes))
        });
    }

    #[test]
    fn fuzzed_groups() {
        let seed = br#"[{"name": "tp", "ranks": [0, 1]}, {"name": "dp", "ranks": [0, 2]}]"#.to_vec();
        fuzz!(vec![seed], |bytes: &[u8]| say_groups(&String::from_utf8_lossy(bytes)));
    }
}
