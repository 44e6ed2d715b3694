//! The model that the program says it trains.

use std::sync::{Mutex, PoisonError};

use stepscope_collector::Recorder;
use stepscope_plan::ModelShape;
use stepscope_traces::{CollectorNote, ProgramModel};

use crate::recording::recorder;

/// No description is longer. A longer one is cut off, and then it is no JSON.
pub(super) const LONGEST: usize = 1 << 20;
/// What a model is called that does not say its name.
const UNNAMED: &str = "model";

static MODEL: Mutex<Option<ProgramModel>> = Mutex::new(None);

/// Says what is trained; a later description replaces an earlier one. Tells why, if it is not understood.
pub(super) fn say(description: &str, sequence_length: u64) -> Result<(), String> {
    let shape = ModelShape::of_json(description, UNNAMED).map_err(|error| error.to_string())?;
    let model = ProgramModel { shape, sequence_length: Some(sequence_length).filter(|length| *length > 0) };
    *MODEL.lock().unwrap_or_else(PoisonError::into_inner) = Some(model);
    recorder().into_iter().for_each(tell);
    Ok(())
}

/// Tells a recording of the model, if the program has said it.
pub(crate) fn tell(recorder: &Recorder) {
    let model = MODEL.lock().unwrap_or_else(PoisonError::into_inner).clone();
    model.into_iter().for_each(|model| recorder.note(CollectorNote::ProgramModel(model)));
}
