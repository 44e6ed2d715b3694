//! Where the library is that programs load.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The library's file.
pub const LIBRARY_FILE: &str = "libstepscope_inject.so";
/// Names the library, wherever it is.
const LIBRARY_VARIABLE: &str = "STEPSCOPE_INJECT";

/// The library is in none of the places where it may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{LIBRARY_FILE} not found: not at {}", looked_at.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", nor at "))]
pub struct LibraryMissing {
    /// Where it was looked for.
    pub looked_at: Vec<PathBuf>,
}

impl LibraryMissing {
    /// How to get it.
    pub fn hint(&self) -> String {
        format!(
            "`cargo build --release --workspace` builds it next to the program; {LIBRARY_VARIABLE}=FILE names one elsewhere"
        )
    }
}

/// Finds the library: where [`LIBRARY_VARIABLE`] says, else beside this program.
pub fn library() -> Result<PathBuf, LibraryMissing> {
    let named = env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let program = env::current_exe().and_then(|program| program.canonicalize()).unwrap_or_default();
    find(named, &program)
}

fn find(named: Option<PathBuf>, program: &Path) -> Result<PathBuf, LibraryMissing> {
    let folder = program.parent().unwrap_or(Path::new("."));
    // Where it is installed; where cargo puts what the program depends on; and where it is installed apart.
    let beside =
        || [folder.to_owned(), folder.join("deps"), folder.join("../lib")].map(|f| f.join(LIBRARY_FILE)).into();
    let looked_at: Vec<PathBuf> = named.map_or_else(beside, |named| vec![named]);
    // A build tree may have an old one beside a new one.
    let age = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    let there = looked_at.iter().filter(|path| path.is_file()).max_by_key(|path| age(path));
    // Programs may go elsewhere before they load it.
    let full = there.and_then(|path| path.canonicalize().ok());
    full.ok_or(LibraryMissing { looked_at })
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        time::{Duration, SystemTime},
    };

    use super::*;

    #[test]
    fn the_newest_beside_the_program_is_taken_unless_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("release/deps")).unwrap();
        let program = root.join("release/stepscope");
        let missing = find(None, &program).unwrap_err();
        assert_eq!(missing.looked_at.len(), 3);
        assert!(missing.to_string().contains("release/deps/libstepscope_inject.so"), "{missing}");
        let make = |path: &str, age: u64| {
            let file = File::create(root.join(path)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            root.join(path)
        };
        let old = make("release/libstepscope_inject.so", 100);
        assert_eq!(find(None, &program), Ok(old));
        let new = make("release/deps/libstepscope_inject.so", 10);
        assert_eq!(find(None, &program), Ok(new));
        let named = make("mine.so", 1000);
        assert_eq!(find(Some(named.clone()), &program), Ok(named));
        let gone = root.join("gone.so");
        assert_eq!(find(Some(gone.clone()), &program), Err(LibraryMissing { looked_at: vec![gone] }));
    }
}
