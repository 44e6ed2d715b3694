//! Copies files from a store, several at a time.

use std::{
    fs::{self, File},
    io::Write,
    path::{Component, Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    contents::StoredFile,
    error::StorageError,
    refusal,
    store::{Store, Version},
};

/// How many files are on their way at once.
const AT_ONCE: usize = 8;
/// Ends the name of a file that is not whole yet.
const UNFINISHED: &str = ".unfinished";

/// Copies files into a folder, and tells of bytes as they come. What each one is made of now: it may have grown since it was
/// listed.
pub(crate) fn fetch(
    store: &Store,
    files: &[&StoredFile],
    folder: &Path,
    tell: &dyn Fn(u64),
) -> Result<Vec<(String, Vec<Version>)>, StorageError> {
    let one = |file: StoredFile| async move {
        let path = path_in(folder, store, &file.path)?;
        let versions = fetch_one(store, &file, &path, tell).await?;
        Ok((file.path, versions))
    };
    let files: Vec<StoredFile> = files.iter().map(|file| (*file).clone()).collect();
    store.wait(stream::iter(files).map(one).buffer_unordered(AT_ONCE).try_collect())
}

/// Where a file goes. Names come from the store: they lead nowhere else.
pub(crate) fn path_in(folder: &Path, store: &Store, name: &str) -> Result<PathBuf, StorageError> {
    let name = match name {
        "" => store.place().name(),
        name => name,
    };
    let is_inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    let why = || format!("it has an object of the name {name:?}");
    let refused = || StorageError::Failed { action: "fetch", location: store.place().to_string(), why: why() };
    if is_inside { Ok(folder.join(name)) } else { Err(refused()) }
}

async fn fetch_one(
    store: &Store,
    file: &StoredFile,
    path: &Path,
    tell: &dyn Fn(u64),
) -> Result<Vec<Version>, StorageError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(StorageError::file("create", parent))?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    let mut output = File::create(&unfinished).map_err(StorageError::file("create", &unfinished))?;
    let mut versions = Vec::new();
    for piece in &file.pieces {
        let refused = |error| refusal::sorted("fetch", &store.place_of(&piece.name), &error);
        let (version, result) = store.get(&piece.name).await.map_err(refused)?;
        let mut bytes = result.into_stream();
        while let Some(chunk) = bytes.try_next().await.map_err(refused)? {
            output.write_all(&chunk).map_err(StorageError::file("write", &unfinished))?;
            tell(chunk.len() as u64);
        }
        versions.push(version);
    }
    // Readers take what was written a moment ago for a recording that goes on.
    let newest = versions.iter().map(|version| version.modified_ms).max().unwrap_or_default();
    let modified = UNIX_EPOCH + Duration::from_millis(newest.max(0).unsigned_abs());
    output.set_modified(modified).map_err(StorageError::file("write", &unfinished))?;
    fs::rename(&unfinished, path).map_err(StorageError::file("create", path))?;
    Ok(versions)
}
