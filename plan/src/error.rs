//! Why a run cannot be planned.

/// Something that does not add up, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A model that cannot be.
    #[error("this model cannot be: {0}")]
    Shape(String),
    /// A layout that does not fit the model, or itself.
    #[error("this layout does not work: {0}")]
    Layout(String),
    /// A model nobody knows.
    #[error("there is no model `{name}`: it is neither a file nor one of {known}")]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A device nobody knows.
    #[error("there is no device `{name}` in the table; it has {known}")]
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
    /// A number beyond what any machine holds.
    #[error("{0} is beyond anything that can be built")]
    TooLarge(&'static str),
    /// A question that makes no sense.
    #[error("{0}")]
    Request(String),
}
