//! Folders of this user's own, for what can be made again: modules and machine code that programs load.
//!
//! Whoever can write there runs code in those programs. So such a folder and what is in it are this user's, nobody else can
//! write to them, and that is checked each time. A folder that others could once write to may hold files of theirs: those
//! are not opened.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::{fcntl::OFlag, unistd::geteuid};

/// Nobody but its owner.
const PRIVATE: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Others may write.
const SHARED: u32 = 0o022;
/// Everyone may put something into a directory, and nobody may take away what others put there.
const EVERYONE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Puts something into a folder for its kind: in the user's cache, or else, where that fails, in the folder for temporary
/// files. What comes of it.
pub fn in_folder<T>(kind: &str, put: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    let mut why = io::Error::new(io::ErrorKind::NotFound, "there is no cache directory");
    for place in places() {
        let folder = place.join(kind);
        let made = check_way(&place).and_then(|()| make_private(&place)).and_then(|()| make_private(&folder));
        match made.and_then(|()| put(&folder)) {
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

/// Makes sure that not everyone can put another folder in the place of this one.
fn check_way(folder: &Path) -> io::Result<()> {
    let parent = folder.parent().unwrap_or(folder).canonicalize()?;
    for directory in parent.ancestors() {
        if fs::metadata(directory)?.mode() & (EVERYONE | STICKY) == EVERYONE {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("everyone can replace what is in {}", directory.display()),
            ));
        }
    }
    Ok(())
}

/// Opens a file of such a folder to read it: one that is this user's, and that nobody else can write to or has put there by
/// another name.
pub fn open_own(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let there = file.metadata()?;
    let is_own = there.is_file() && there.uid() == geteuid().as_raw() && there.nlink() == 1;
    if is_own && there.mode() & SHARED == 0 {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a file of this user alone"))
    }
}

/// Makes a file of such a folder, where there is none.
pub fn create_own(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path)
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

    use nix::unistd::{Uid, chown};

    use super::*;
    use crate::skipped::skipped;

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
    fn a_file_that_others_could_have_put_there_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let [own, elsewhere, link, other_name] =
            ["own", "elsewhere", "link", "other-name"].map(|name| directory.path().join(name));
        drop(create_own(&own).unwrap());
        assert_eq!(mode(&own), 0o600);
        assert!(open_own(&own).is_ok() && create_own(&own).is_err());
        fs::write(&elsewhere, "").unwrap();
        symlink(&own, &link).unwrap();
        assert!(open_own(&link).is_err(), "a link");
        fs::set_permissions(&own, Permissions::from_mode(0o620)).unwrap();
        assert!(open_own(&own).is_err(), "others write to it");
        fs::set_permissions(&elsewhere, Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(&elsewhere, &other_name).unwrap();
        assert!(open_own(&other_name).is_err(), "it has another name elsewhere");
        if !geteuid().is_root() {
            return skipped("privileges", &"only root can make files of others");
        }
        fs::remove_file(&other_name).unwrap();
        assert!(open_own(&elsewhere).is_ok());
        chown(&elsewhere, Some(Uid::from_raw(65_534)), None).unwrap();
        assert!(open_own(&elsewhere).is_err(), "another user's");
    }

    #[test]
    fn a_folder_that_everyone_can_replace_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let (open, folder) = (directory.path().join("open"), directory.path().join("open/inner/stepscope"));
        fs::create_dir_all(folder.parent().unwrap()).unwrap();
        assert!(check_way(&folder).is_ok());
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        assert!(check_way(&folder).is_err());
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
        assert!(check_way(&folder).is_ok(), "as in the folder for temporary files");
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
