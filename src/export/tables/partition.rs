//! Where a table's file lies: in a folder for its run, and in one for its rank, named as Hive does.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow};
use sha2::{Digest, Sha256};
use stepscope_traces::{Rank, Run, Segment};

use crate::output::WholeDirectory;

/// The name of a folder is little longer, in bytes: file systems take 255.
const LONGEST: usize = 200;
/// What stands for no name.
const UNKNOWN: &str = "__HIVE_DEFAULT_PARTITION__";

/// A part of every table: of a run, or of one of its ranks.
pub(super) struct Partition<'a> {
    pub(super) directory: &'a WholeDirectory,
    folder: PathBuf,
}

impl<'a> Partition<'a> {
    /// What tables have of a run.
    pub(super) fn of_run(directory: &'a WholeDirectory, run: &Run) -> Partition<'a> {
        let path = run.path.canonicalize().unwrap_or_else(|_| run.path.clone());
        Partition { directory, folder: format!("run={}", escaped(&called(&path))).into() }
    }

    /// What they have of one of its ranks.
    pub(super) fn of_rank(&self, rank: Rank) -> Partition<'a> {
        Partition { directory: self.directory, folder: self.folder.join(format!("rank={rank}")) }
    }

    /// Where the file of a table is, in a folder that is there.
    pub(super) fn file(&self, table: &str) -> Result<PathBuf> {
        let folder = self.directory.path().join(table).join(&self.folder);
        let cannot = |error: io::Error| anyhow!("cannot write the table {table}: {error}");
        fs::create_dir_all(&folder).map_err(cannot)?;
        Ok(folder.join("part-0.parquet"))
    }
}

/// What a run is called among others: as its directory is, or its file without what is behind a point. Names that runs give
/// themselves are often the same.
fn called(path: &Path) -> String {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let segment = Segment::beside(path).into_iter().find(|segment| segment.path == path);
    let run = segment.and_then(|segment| Some((path.parent()?.parent()?, segment.number)));
    match run {
        Some((run, number)) => format!("{}-segment-{number}", name(run)),
        None if path.is_dir() => name(path),
        None => name(path).split('.').next().unwrap_or_default().to_owned(),
    }
}

/// A name as a part of a path, which readers write back: all but letters, digits and a few signs as `%20`. Letters of other
/// alphabets are themselves: Spark would read their bytes one by one. Of a long one, the beginning and what tells it from others
/// that begin alike.
fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    for character in name.chars() {
        let plain = character.is_alphanumeric() || "-_.".contains(character);
        let bytes = character.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let next = if plain { character.to_string() } else { bytes };
        if escaped.len() + next.len() > LONGEST {
            return format!("{escaped}-{}", told_apart(name));
        }
        escaped += &next;
    }
    match escaped.as_str() {
        "" => UNKNOWN.into(),
        UNKNOWN => escaped.replace('_', "%5F"),
        _ => escaped,
    }
}

/// A few letters that other names do not have.
fn told_apart(name: &str) -> String {
    Sha256::digest(name).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_parts_of_paths_and_nothing_else() {
        for (name, expected) in [
            ("llama-tiny_2.1", "llama-tiny_2.1"),
            ("a b/../c=d", "a%20b%2F..%2Fc%3Dd"),
            ("50%", "50%25"),
            ("é", "é"),
            ("\u{200b}", "%E2%80%8B"),
            ("", UNKNOWN),
            (UNKNOWN, "%5F%5FHIVE%5FDEFAULT%5FPARTITION%5F%5F"),
        ] {
            assert_eq!(escaped(name), expected);
        }
        let [one, other] = ["one", "other"].map(|end| escaped(&format!("{}{end}", "é".repeat(300))));
        assert!(one.len() < 255 && one.starts_with(&"é".repeat(100)) && one != other, "{one}");
    }
}
