//! What can go wrong with object storage.

use std::{io, path::PathBuf};

/// What can go wrong with object storage. No secret is in it.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A URL that names no place.
    #[error("cannot use {url}: {why}")]
    Url {
        /// The URL, without what may be a secret in it.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// What the environment says makes no client.
    #[error("cannot set up access to {location}: {why}")]
    Client {
        /// The place.
        location: String,
        /// What is missing or wrong.
        why: String,
    },
    /// A variable of the environment that no client can be set up with.
    #[error("cannot use {variable}: {why}")]
    Setting {
        /// Its name. What it says may be a secret.
        variable: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Nothing says who asks.
    #[error("cannot {action} {location}: no credentials were found ({why})")]
    NoCredentials {
        /// What was tried.
        action: &'static str,
        /// The place.
        location: String,
        /// What came of looking for them.
        why: String,
    },
    /// The store does not let whoever asks do this.
    #[error("cannot {action} {location}: access was refused ({why})")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// The place.
        location: String,
        /// In the words of the store.
        why: String,
    },
    /// There is no such bucket or container.
    #[error("cannot {action} {location}: there is no such {}", if location.starts_with("az:") { "container" } else { "bucket" })]
    NoBucket {
        /// What was tried.
        action: &'static str,
        /// The place.
        location: String,
    },
    /// There is no such object, and nothing under that name.
    #[error("cannot {action} {location}: nothing is there")]
    Missing {
        /// What was tried.
        action: &'static str,
        /// The place.
        location: String,
    },
    /// Nobody answers.
    #[error("cannot {action} {location}: the store cannot be reached ({why})")]
    Unreachable {
        /// What was tried.
        action: &'static str,
        /// The place.
        location: String,
        /// What the network said.
        why: String,
    },
    /// Anything else that the store says.
    #[error("cannot {action} {location}: {why}")]
    Failed {
        /// What was tried.
        action: &'static str,
        /// The place.
        location: String,
        /// What came of it.
        why: String,
    },
    /// A folder with runs in it is no run.
    #[error("{location} is not a run: there are runs in it")]
    RunsInside {
        /// The place.
        location: String,
        /// The last of those in it, by name.
        last: String,
    },
    /// More objects than a run has.
    #[error("{location} has more than {most} objects in it")]
    TooMany {
        /// The place.
        location: String,
        /// How many are listed at most.
        most: usize,
    },
    /// Another run is there already.
    #[error("cannot upload to {location}: another run is there")]
    OtherRun {
        /// The place.
        location: String,
    },
    /// A disk would be full.
    #[error("cannot fetch {location}: {needed} bytes are needed in {folder}, and {free} are free")]
    NoRoom {
        /// The place.
        location: String,
        /// What would be fetched.
        needed: u64,
        /// What the disk has.
        free: u64,
        /// Where it would go.
        folder: PathBuf,
    },
    /// A file of this machine.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl StorageError {
    /// Says of a file what was tried with it.
    pub(crate) fn file(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> StorageError {
        let path = path.to_owned();
        move |source| StorageError::File { action, path, source }
    }

    /// Whether the same may succeed a little later.
    pub fn may_pass(&self) -> bool {
        matches!(self, StorageError::Unreachable { .. } | StorageError::Failed { .. } | StorageError::File { .. })
    }
}
