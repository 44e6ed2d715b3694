//! What a program says of the model that it trains, or what its modules show.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stepscope_plan::{CountedModel, Model, ModelShape, Zero};

use super::field::{NoteField, put_value};

/// No sequence is longer.
const LONGEST_SEQUENCE: u64 = 1 << 32;

/// The model that a program trains, as far as this rank knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramModel {
    /// What is known of it. What modules add up to are those of this rank alone.
    pub model: Model,
    /// How many tokens a sequence has, if it says so.
    pub sequence_length: Option<u64>,
    /// What replicas share, if it says so.
    pub zero: Option<Zero>,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shape: Option<ModelShape>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counted: Option<CountedModel>,
    #[serde(default)]
    sequence_length: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zero: Option<Value>,
}

impl NoteField for ProgramModel {
    fn take(map: &mut Map<String, Value>, key: &str) -> Option<ProgramModel> {
        let Written { shape, counted, sequence_length, zero } = Written::deserialize(map.get(key)?).ok()?;
        let counted = || Some(Model::Counted(counted?.check()?));
        let model = shape.map(Model::Shape).or_else(counted)?;
        map.remove(key);
        let sequence_length = sequence_length.filter(|length| (1..=LONGEST_SEQUENCE).contains(length));
        // The rest is known without.
        let zero = zero.and_then(|zero| Zero::deserialize(zero).ok());
        Some(ProgramModel { model, sequence_length, zero })
    }

    fn put(&self, map: &mut Map<String, Value>, key: &str) {
        let (shape, counted) = match self.model.clone() {
            Model::Shape(shape) => (Some(shape), None),
            Model::Counted(counted) => (None, Some(counted)),
        };
        put_value(
            &Written {
                shape,
                counted,
                sequence_length: self.sequence_length,
                zero: self.zero.map(|zero| Value::from(u8::from(zero))),
            },
            map,
            key,
        );
    }
}
