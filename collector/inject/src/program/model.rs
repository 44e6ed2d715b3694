//! The model that the program trains: as it says itself, or else as was found out.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stepscope_collector::Recorder;
use stepscope_plan::{Model, ModelShape};
use stepscope_traces::{CollectorNote, ProgramModel};

use crate::recording::recorder;

/// No description is longer. A longer one is cut off, and then it is no JSON.
pub(super) const LONGEST: usize = 1 << 20;
/// What a model is called that does not say its name.
const UNNAMED: &str = "model";

static MODEL: Mutex<Option<Known>> = Mutex::new(None);

struct Known {
    model: ProgramModel,
    /// Whether the program itself says it, and nobody found it out.
    is_said: bool,
}

fn lock() -> MutexGuard<'static, Option<Known>> {
    MODEL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A model from its description.
pub(crate) fn shape(description: &str) -> Result<ModelShape, String> {
    ModelShape::of_json(description, UNNAMED).map_err(|error| error.to_string())
}

/// Says what is trained; a later description replaces an earlier one. Tells why, if it is not understood.
pub(super) fn say(description: &str, sequence_length: u64) -> Result<(), String> {
    let model = Model::Shape(shape(description)?);
    let sequence_length = Some(sequence_length).filter(|length| *length > 0);
    let model = ProgramModel { model, sequence_length, zero: None };
    *lock() = Some(Known { model, is_said: true });
    recorder().into_iter().for_each(tell);
    Ok(())
}

/// Says what was found to be trained, which is what the program says if it says anything.
pub(crate) fn find(model: ProgramModel) {
    let mut known = lock();
    if known.as_ref().is_none_or(|known| !known.is_said) {
        *known = Some(Known { model, is_said: false });
        drop(known);
        recorder().into_iter().for_each(tell);
    }
}

/// Tells a recording of the model, if the program has said it.
pub(crate) fn tell(recorder: &Recorder) {
    let model = lock().as_ref().map(|known| known.model.clone());
    model.into_iter().for_each(|model| recorder.note(CollectorNote::ProgramModel(model)));
}
