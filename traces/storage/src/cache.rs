//! A folder with copies of what is in object storage. It can be removed at any time.
//!
//! ```text
//! a-name-0f3a5c…/       one place
//!   lock                held by whoever brings something here
//!   index.json          which version of each object the files are
//!   files/a-name/       the run, or what another tool recorded, called as it is there
//! ```

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    contents::{Contents, StoredFile},
    error::StorageError,
    fetching::{self, path_in},
    location::Location,
    store::{Store, Version},
};

/// What all copies together may take, the newest excepted.
const MOST_BYTES: u64 = 20_000_000_000;
/// A disk is not filled to the last byte.
const SPARE_BYTES: u64 = 500_000_000;
const LONGEST_NAME: usize = 40;
const LONGEST_FOLDER: usize = 200;
const INDEX: &str = "index.json";
const FILES: &str = "files";

/// What was brought here.
#[derive(Clone, Debug)]
pub struct Brought {
    /// Where it is now.
    pub path: PathBuf,
    /// How many objects had to be fetched, and how many bytes.
    pub objects: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Which version of which objects the files are.
#[derive(Default, Serialize, Deserialize)]
struct Index {
    files: BTreeMap<String, Vec<Version>>,
}

/// Copies what is at a place into a folder of a cache; of a run, the tables only of ranks that are chosen by their number and
/// the bytes of their spans. Fetches what is not there already, and tells how many bytes of how many are.
pub fn bring(
    place: &Location,
    cache: &Path,
    is_chosen: &dyn Fn(u32, u64) -> bool,
    tell: &dyn Fn(u64, u64),
) -> Result<Brought, StorageError> {
    let store = Store::open(place)?;
    let contents = Contents::of(&store)?;
    let needed = contents.needed(&store, is_chosen)?;
    let folder = cache.join(folder_name(place));
    let files = folder.join(FILES).join(shortened(place.name()));
    fs::create_dir_all(&files).map_err(StorageError::file("create", &files))?;
    let lock = folder.join("lock");
    let held = File::create(&lock).map_err(StorageError::file("create", &lock))?;
    held.lock().map_err(StorageError::file("lock", &lock))?;
    let mut index = Index::read(&folder);
    forget_others(&mut index, &contents, &needed, &store, &files)?;
    let is_here = |file: &StoredFile| {
        let is_same = index.files.get(&file.path).is_some_and(|there| is_version_of(there, file));
        is_same && path_in(&files, &store, &file.path).is_ok_and(|path| length(&path) == Some(file.bytes()))
    };
    let missing: Vec<&StoredFile> = needed.into_iter().filter(|file| !is_here(file)).collect();
    let all = missing.iter().map(|file| file.bytes()).sum();
    check_room(place, &folder, all)?;
    let done = std::cell::Cell::new(0);
    let count = |bytes| {
        done.set(done.get() + bytes);
        tell(done.get(), all);
    };
    let fetched = fetching::fetch(&store, &missing, &files, &count)?;
    let objects = fetched.iter().map(|(_, versions)| versions.len()).sum();
    index.files.extend(fetched);
    index.write(&folder)?;
    remove_oldest(cache, &folder);
    let is_one_object = contents.files.iter().all(|file| file.path.is_empty());
    let path = if is_one_object { path_in(&files, &store, "")? } else { files };
    Ok(Brought { path, objects, bytes: done.get() })
}

impl Index {
    /// An index that cannot be read is none: everything is fetched.
    fn read(folder: &Path) -> Index {
        let text = fs::read(folder.join(INDEX)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn write(&self, folder: &Path) -> Result<(), StorageError> {
        let path = folder.join(INDEX);
        let text = serde_json::to_vec(self).map_err(std::io::Error::from);
        text.and_then(|text| fs::write(&path, text)).map_err(StorageError::file("write", &path))
    }
}

/// Removes files that the store has no longer, or has in another version that is not fetched now.
fn forget_others(
    index: &mut Index,
    contents: &Contents,
    needed: &[&StoredFile],
    store: &Store,
    folder: &Path,
) -> Result<(), StorageError> {
    let is_needed: std::collections::BTreeSet<&str> = needed.iter().map(|file| file.path.as_str()).collect();
    let there: BTreeMap<&str, &StoredFile> = contents.files.iter().map(|file| (file.path.as_str(), file)).collect();
    let stale: Vec<String> = index
        .files
        .iter()
        .filter(|(name, _)| !is_needed.contains(name.as_str()))
        .filter(|(name, versions)| there.get(name.as_str()).is_none_or(|file| !is_version_of(versions, file)))
        .map(|(name, _)| name.clone())
        .collect();
    for name in stale {
        let path = path_in(folder, store, &name)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StorageError::file("remove", &path)(error));
            }
            _ => _ = index.files.remove(&name),
        }
    }
    Ok(())
}

fn is_version_of(versions: &[Version], file: &StoredFile) -> bool {
    versions.iter().eq(file.pieces.iter().map(|piece| &piece.version))
}

fn length(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|file| file.len())
}

/// A name that people recognize, and that no other place has.
fn folder_name(place: &Location) -> String {
    // Two stores may have buckets of one name.
    let endpoint = std::env::var("AWS_ENDPOINT_URL").unwrap_or_default();
    let digest = Sha256::digest(format!("{place}\n{endpoint}"));
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name: String = place.name().chars().take(LONGEST_NAME).collect();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '-' };
    format!("{}-{hash}", name.chars().map(plain).collect::<String>().trim_start_matches('.'))
}

/// A name of a folder: file systems take 255 bytes.
fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST_FOLDER)]
}

fn check_room(place: &Location, folder: &Path, needed: u64) -> Result<(), StorageError> {
    // A file system that does not say may have enough.
    let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if needed.saturating_add(SPARE_BYTES) <= free || needed == 0 {
        return Ok(());
    }
    Err(StorageError::NoRoom { location: place.to_string(), needed, free, folder: folder.to_owned() })
}

/// Removes copies that nobody asked for the longest, where all of them take too much. One that cannot be removed stays.
fn remove_oldest(cache: &Path, newest: &Path) {
    let folders = fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
    let used = |folder: &Path| folder.join(INDEX).metadata().and_then(|index| index.modified()).ok();
    let mut others: Vec<(SystemTime, u64, PathBuf)> = folders
        .filter(|folder| folder != newest)
        .filter_map(|folder| {
            let bytes = Index::read(&folder).files.values().flatten().map(|version| version.bytes).sum();
            Some((used(&folder)?, bytes, folder))
        })
        .collect();
    others.sort();
    let mut all: u64 = others.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, folder) in others {
        if all <= MOST_BYTES {
            return;
        }
        let is_free = File::open(folder.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok());
        if is_free && fs::remove_dir_all(&folder).is_ok() {
            all -= bytes;
        }
    }
}
