//! Where a new run goes.

use std::path::{Path, PathBuf};

/// A path that is not taken: two runs may begin in one second.
pub(crate) fn free(path: &Path) -> PathBuf {
    let numbered = (2..).map(|number| PathBuf::from(format!("{}-{number}", path.display())));
    std::iter::once(path.to_owned()).chain(numbered).find(|path| !path.exists()).unwrap_or_else(|| path.to_owned())
}
