//! Why a run cannot be planned.

use crate::text;

/// Why a plan is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An impossible model.
    #[error("invalid model: {0}")]
    Shape(String),
    /// A layout that contradicts the model or itself.
    #[error("invalid layout: {0}")]
    Layout(String),
    /// An unknown model.
    #[error("unknown model `{name}`: not a file, and not one of {known}")]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// An unknown device.
    #[error("unknown device `{name}`; known devices are {known}")]
    UnknownDevice {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A file that does not describe a model.
    #[error("cannot read a model from {file}: {why}")]
    ModelFile {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A number that overflows.
    #[error("{0} is too large")]
    TooLarge(&'static str),
    /// Values that no layout has, whatever its memory.
    #[error("no layout of {} GPUs has {wanted}{why}", text::count(*gpus))]
    NoLayout {
        /// What was asked for, as options.
        wanted: String,
        /// Of how many GPUs.
        gpus: u64,
        /// What is wrong with one that would have it, if there is one.
        why: String,
        /// An option that could be changed, and to what.
        instead: Option<String>,
    },
    /// An invalid request.
    #[error("{0}")]
    Request(String),
}
