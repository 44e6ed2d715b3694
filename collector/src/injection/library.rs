//! The library that programs load: carried by this program, and unpacked for them.

use std::{env, fs::File, io, path::Path, path::PathBuf};

use nix::sys::statvfs::{FsFlags, fstatvfs};

use super::unpacked::unpack;
use crate::cache;

/// The library's file.
pub const LIBRARY_FILE: &str = "libstepscope_inject.so";
/// Names another library.
const LIBRARY_VARIABLE: &str = "STEPSCOPE_INJECT";

/// Why there is no library for programs to load.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The one that the environment names is not there.
    #[error("{LIBRARY_VARIABLE} names {}, which is not a file", .0.display())]
    Named(PathBuf),
    /// It cannot be unpacked.
    #[error("cannot unpack the library that programs load: {0}")]
    Unpack(#[source] io::Error),
}

impl LibraryError {
    /// What helps.
    pub fn hint(&self) -> String {
        match self {
            LibraryError::Named(_) => format!("unset {LIBRARY_VARIABLE} to use the library of this program"),
            LibraryError::Unpack(_) => {
                "set XDG_CACHE_HOME to a directory of yours with room for 3 MB, on a file system that may run programs"
                    .into()
            }
        }
    }
}

/// The library for programs to load: the one that the environment names, or else these bytes, as a file.
pub fn library(carried: &[u8]) -> Result<PathBuf, LibraryError> {
    if let Some(named) = env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) {
        // Programs may change their directory before they load it.
        let full = named.canonicalize().ok().filter(|path| path.is_file());
        return full.ok_or(LibraryError::Named(named));
    }
    let unpacked = |folder: &Path| match may_run_code(folder) {
        true => Ok(unpack(&[(LIBRARY_FILE, carried)], folder)?.join(LIBRARY_FILE)),
        false => Err(io::Error::other("programs may not run from there (noexec)")),
    };
    cache::in_folder("library", unpacked).map_err(LibraryError::Unpack)
}

/// Whether code may be loaded from a folder.
fn may_run_code(folder: &Path) -> bool {
    let flags = File::open(folder).ok().and_then(|folder| fstatvfs(folder).ok()).map(|system| system.flags());
    flags.is_none_or(|flags| !flags.contains(FsFlags::ST_NOEXEC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_not_loaded_from_where_none_may_run() {
        assert!(may_run_code(&env::temp_dir()));
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let forbidden = mounts.lines().filter(|line| line.split([' ', ',']).any(|word| word == "noexec"));
        for folder in forbidden.filter_map(|line| line.split(' ').nth(1)) {
            // Some are not ours to look into.
            assert!(File::open(folder).is_err() || !may_run_code(Path::new(folder)), "{folder}");
        }
    }
}
