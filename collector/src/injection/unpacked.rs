//! Files that this program carries, unpacked for other programs to load.
//!
//! They lie in a folder of this user's own, named by what is in it. Processes that outlive the run go on to find them there,
//! and nobody else can put anything in their place.

use std::{
    fs,
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use crate::cache;

/// A file, by its path in the folder, and what is in it.
pub(super) type PackedFile<'a> = (&'a str, &'a [u8]);

/// Unpacks files into a folder of their own in this one, unless they are there. The last one is put there last.
pub(super) fn unpack(files: &[PackedFile<'_>], parent: &Path) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    let folder = parent.join(format!("{:016x}", hasher.finish()));
    for (name, content) in files {
        let file = folder.join(name);
        let within: Vec<&Path> = file.ancestors().skip(1).take_while(|path| *path != parent).collect();
        within.into_iter().rev().try_for_each(cache::make_private)?;
        put(&file, content)?;
    }
    Ok(folder)
}

/// Fills a file. It is whole at every moment from then on, also where several processes do this at once.
fn put(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut there = Vec::new();
    let longest = content.len() as u64 + 1;
    if cache::open_own(file).and_then(|opened| opened.take(longest).read_to_end(&mut there)).is_ok() && there == content
    {
        return Ok(());
    }
    let draft = file.with_extension(format!("{:016x}", RandomState::new().hash_one(std::process::id())));
    let written = cache::create_own(&draft)?.write_all(content);
    written.and_then(|()| fs::rename(&draft, file)).inspect_err(|_| drop(fs::remove_file(&draft)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn they_are_unpacked_once_and_mended_where_they_are_damaged() {
        let files: [PackedFile<'_>; 2] = [("module/part.py", b"part"), ("entry.py", b"entry")];
        let directory = tempfile::tempdir().unwrap();
        let folder = unpack(&files, directory.path()).unwrap();
        let entry = folder.join("entry.py");
        let made = entry.metadata().unwrap().modified().unwrap();
        assert_eq!(unpack(&files, directory.path()).unwrap(), folder);
        assert_eq!(entry.metadata().unwrap().modified().unwrap(), made, "it was there");
        // A link is replaced and not written through, also where it leads to the same for now.
        let victim = directory.path().join("victim");
        fs::write(&victim, "entry").unwrap();
        fs::remove_file(&entry).unwrap();
        symlink(&victim, &entry).unwrap();
        fs::write(folder.join("module/part.py"), "half").unwrap();
        unpack(&files, directory.path()).unwrap();
        for (name, content) in files {
            assert_eq!(fs::read(folder.join(name)).unwrap(), content);
        }
        assert!(fs::symlink_metadata(&entry).unwrap().is_file());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "entry");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no drafts are left");
        let other = unpack(&[("entry.py", b"another")], directory.path()).unwrap();
        assert_ne!(other, folder, "another version is beside it");
    }
}
