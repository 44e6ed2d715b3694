//! Why kernels cannot be recorded.

use crate::libraries::Missing;

/// Why kernels cannot be recorded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// A library is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// CUPTI serves one client at a time.
    #[error("another profiler uses CUPTI in this process")]
    AnotherClient,
    /// The driver is set up so.
    #[error("the driver allows only administrators to profile")]
    NotPermitted,
    /// Anything else CUPTI says.
    #[error("CUPTI refused to {attempt}: {reason}")]
    Refused {
        /// What it was asked to do.
        attempt: &'static str,
        /// What it said.
        reason: String,
    },
    /// There is no recording to add to.
    #[error("nothing is being recorded")]
    NotRecording,
    /// This recorder has kernels already.
    #[error("kernels of this recording are already being recorded")]
    AlreadyStarted,
    /// The system has no thread left.
    #[error("cannot start a thread to read kernels")]
    NoThread,
}
