//! What is at a place: files, which a store may have in pieces, and which of them are needed.

use std::collections::BTreeMap;

use crate::{
    error::StorageError,
    pieces, run_files,
    store::{Object, Store},
};

const DESCRIPTION: &str = "run.json";
/// What a rank did, in its directory and in its ring.
const SPANS: &str = "/spans.arrows";

/// A file that a store has.
#[derive(Clone, Debug)]
pub(crate) struct StoredFile {
    /// Where it is, from the place that was opened; empty for the place itself.
    pub(crate) path: String,
    /// The objects that it is made of, the first first.
    pub(crate) pieces: Vec<Object>,
}

impl StoredFile {
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.version.bytes).sum()
    }
}

/// All that is at a place.
pub(crate) struct Contents {
    pub(crate) files: Vec<StoredFile>,
}

impl Contents {
    pub(crate) fn of(store: &Store) -> Result<Contents, StorageError> {
        let objects = store.list()?;
        if objects.is_empty() && store.place().path.is_root() {
            return Err(StorageError::Missing { action: "read", location: store.place().to_string() });
        }
        if objects.is_empty() {
            let itself = Object { name: String::new(), version: store.itself()? };
            return Ok(Contents { files: vec![StoredFile { path: String::new(), pieces: vec![itself] }] });
        }
        Ok(Contents { files: joined(objects) })
    }

    /// The files that reading some ranks needs, if this is a run, or else all of them.
    pub(crate) fn needed(
        &self,
        store: &Store,
        is_chosen: &dyn Fn(u32, u64) -> bool,
    ) -> Result<Vec<&StoredFile>, StorageError> {
        let paths = || self.files.iter().map(|file| file.path.as_str());
        if paths().any(|path| path == DESCRIPTION) {
            let spans = self.span_bytes("");
            let is_chosen = |rank| is_chosen(rank, spans.get(&rank).copied().unwrap_or_default());
            return Ok(self.files.iter().filter(|file| run_files::is_needed(&file.path, &is_chosen)).collect());
        }
        let segment = |path| run_files::segment_of(path).filter(|(_, inside)| *inside == DESCRIPTION);
        if let Some((newest, _)) = paths().filter_map(segment).max() {
            let spans = self.span_bytes(&run_files::segment_folder(newest));
            let is_chosen = |rank| is_chosen(rank, spans.get(&rank).copied().unwrap_or_default());
            let is_needed = |file: &&StoredFile| {
                run_files::segment_of(&file.path).is_some_and(|(number, inside)| {
                    // Of those before it, it is said how they ended.
                    run_files::is_needed(inside, &|rank| number == newest && is_chosen(rank))
                })
            };
            return Ok(self.files.iter().filter(is_needed).collect());
        }
        let runs = paths().filter_map(|path| path.strip_suffix(DESCRIPTION)?.strip_suffix('/'));
        if let Some(last) = runs.max() {
            let last = store.place().join(last)?.to_string();
            return Err(StorageError::RunsInside { location: store.place().to_string(), last });
        }
        Ok(self.files.iter().collect())
    }

    /// How many bytes the spans of each rank have, in a folder.
    fn span_bytes(&self, folder: &str) -> BTreeMap<u32, u64> {
        let mut bytes = BTreeMap::new();
        for file in self.files.iter().filter(|file| file.path.ends_with(SPANS)) {
            let inside = file.path.strip_prefix(folder).filter(|path| path.starts_with("rank-"));
            if let Some(rank) = inside.and_then(run_files::rank_of) {
                *bytes.entry(rank).or_default() += file.bytes();
            }
        }
        bytes
    }
}

/// Puts pieces together. What comes behind one that is missing is not part of its file.
fn joined(objects: Vec<Object>) -> Vec<StoredFile> {
    let mut files: BTreeMap<String, BTreeMap<u64, Object>> = BTreeMap::new();
    for object in objects {
        let (file, piece) = pieces::file_of(&object.name);
        files.entry(file.to_owned()).or_default().insert(piece, object);
    }
    let file = |(path, pieces): (String, BTreeMap<u64, Object>)| {
        let in_order = (0..).zip(pieces).take_while(|(expected, (piece, _))| expected == piece);
        StoredFile { path, pieces: in_order.map(|(_, (_, object))| object).collect() }
    };
    files.into_iter().map(file).filter(|file| !file.pieces.is_empty()).collect()
}
