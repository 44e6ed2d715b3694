//! What a program says of the model that it trains.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stepscope_plan::ModelShape;

use super::field::NoteField;

/// No sequence is longer.
const LONGEST_SEQUENCE: u64 = 1 << 32;

/// What a program says of the model that it trains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramModel {
    /// Its sizes.
    pub shape: ModelShape,
    /// How many tokens a sequence has, if it says so.
    #[serde(default)]
    pub sequence_length: Option<u64>,
}

impl NoteField for ProgramModel {
    fn take(map: &mut Map<String, Value>, key: &str) -> Option<ProgramModel> {
        let mut model = ProgramModel::deserialize(map.get(key)?).ok()?;
        model.sequence_length = model.sequence_length.filter(|length| (1..=LONGEST_SEQUENCE).contains(length));
        map.remove(key);
        Some(model)
    }

    fn put(&self, map: &mut Map<String, Value>, key: &str) {
        // Numbers and texts can always be written.
        if let Ok(written) = serde_json::to_value(self) {
            map.insert(key.to_owned(), written);
        }
    }
}
