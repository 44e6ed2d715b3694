//! Who reads what there is to draw: threads, which answer with events.

mod detail_reader;
mod incident_reader;
mod loader;
mod run_states;
mod step_reader;

pub(crate) use detail_reader::{DetailReader, DetailThread};
pub(crate) use loader::{Loader, load};
pub(crate) use run_states::look_at_runs;
pub(crate) use step_reader::StepReader;
#[cfg(test)]
pub(crate) use step_reader::read_step;
