//! Why a summary is not read.

use std::io;

/// Why a summary is passed over.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SummaryError {
    /// Another version wrote it.
    #[error("it has format {found}, and this stepscope reads format {wanted}")]
    OtherFormat {
        /// The format that it has.
        found: u32,
        /// The one that is read.
        wanted: u32,
    },
    /// It was made from other files.
    #[error("the recording has changed since it was made")]
    OtherFiles,
    /// Something else was known of the run, such as its layout.
    #[error("the description of the run has changed since it was made")]
    OtherDescription,
    /// Not all of it is there, or something else.
    #[error("it is damaged")]
    Damaged,
    /// The operating system refused.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

impl From<io::Error> for SummaryError {
    fn from(error: io::Error) -> SummaryError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => SummaryError::Damaged,
            _ => SummaryError::Unreadable(error.to_string()),
        }
    }
}
