//! Folders of this user's own, for what can be made again: modules and machine code that programs load.
//!
//! Whoever can write there runs code in those programs. So such a folder is this user's, nobody else can write to it or
//! look into it, and that is checked each time.

use std::{
    env,
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;

/// Nobody but its owner.
const PRIVATE: u32 = 0o700;

/// Puts something into a folder for its kind: in the user's cache, or else, where that fails, in the folder for temporary
/// files. What comes of it.
pub fn in_folder<T>(kind: &str, put: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    let mut why = io::Error::new(io::ErrorKind::NotFound, "there is no cache directory");
    for place in places() {
        let folder = place.join(kind);
        match make_private(&place).and_then(|()| make_private(&folder)).and_then(|()| put(&folder)) {
            Ok(result) => return Ok(result),
            Err(error) => why = io::Error::new(error.kind(), format!("{}: {error}", folder.display())),
        }
    }
    Err(why)
}

/// Where such folders may be, the best one first.
fn places() -> Vec<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let chosen = absolute("XDG_CACHE_HOME").inspect(|cache| drop(fs::create_dir_all(cache)));
    // A home that is missing is not made.
    let usual = || Some(absolute("HOME")?.join(".cache")).inspect(|cache| drop(fs::create_dir(cache)));
    let cache = chosen.or_else(usual).map(|cache| cache.join("stepscope"));
    let temporary = env::temp_dir().join(format!("stepscope-{}", geteuid()));
    cache.into_iter().chain([temporary]).collect()
}

/// Makes a folder that is this user's alone, or sees to it that the one that is there is.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(PRIVATE).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let there = fs::symlink_metadata(folder)?;
    if !there.is_dir() || there.uid() != geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a directory of this user"));
    }
    if there.mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_folder_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("folder");
        make_private(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        make_private(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700, "it was ours and open to others");
    }

    #[test]
    fn what_stands_in_its_place_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link, elsewhere) =
            (directory.path().join("file"), directory.path().join("link"), directory.path().join("elsewhere"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &link).unwrap();
        assert!(make_private(&file).is_err() && make_private(&link).is_err());
        let others = Path::new("/proc");
        assert!(make_private(&others.join("self")).is_err(), "a link of the system's");
    }
}
