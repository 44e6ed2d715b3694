//! Copies a run that grows into a store, a little at a time. What arrived is a run at every moment: an interrupted one, until
//! everything is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, value::RawValue};

use crate::{
    error::StorageError,
    location::Location,
    patience::Patience,
    pieces::{self, PIECE},
    run_files::{self, Growth},
    store::Store,
};

const DESCRIPTION: &str = "run.json";
/// What a rank says of itself, and the field of it that only the copy of a growing one has.
const RANK_DESCRIPTION: &str = "rank.json";
const UPLOADED_EVERY: &str = "uploaded_every_s";
/// The texts behind the names in the tables beside it.
const STRINGS: &str = "strings.arrows";

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// How many requests stored something.
    pub requests: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

/// A run on its way into a store.
pub struct Sending {
    run: PathBuf,
    place: Location,
    store: Option<Store>,
    /// How much of files that are appended to is there.
    lengths: BTreeMap<String, u64>,
    /// What files that are replaced said when they were sent.
    replaced: BTreeMap<String, Vec<u8>>,
    sent: Sent,
    tell: Box<dyn Fn(u64) + Send>,
    patience: Patience,
    /// How often it is sent while it grows, if somebody does that.
    every: Option<Duration>,
}

impl Sending {
    /// Of a run directory, or of one around segments; nothing is sent yet.
    pub fn new(run: &Path, place: &Location) -> Sending {
        Sending {
            run: run.to_owned(),
            place: place.clone(),
            store: None,
            lengths: BTreeMap::new(),
            replaced: BTreeMap::new(),
            sent: Sent::default(),
            tell: Box::new(|_| {}),
            patience: Patience::default(),
            every: None,
        }
    }

    /// Tells readers of the copy how often it is sent: they cannot see otherwise whether the recording goes on.
    pub fn every(self, every: Duration) -> Sending {
        Sending { every: Some(every), ..self }
    }

    /// How long the store is waited for, whatever is being sent: who holds this may say when that ends.
    pub fn patience(&self) -> Patience {
        self.patience.clone()
    }

    /// Tells somebody how many bytes were sent, whenever there are more.
    pub fn telling(self, tell: impl Fn(u64) + Send + 'static) -> Sending {
        Sending { tell: Box::new(tell), ..self }
    }

    /// What was sent so far.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// How many bytes were appended that are not sent.
    pub fn waiting(&self) -> u64 {
        let files = files_of(&self.run).unwrap_or_default();
        let new = |file: &String| {
            let length = self.run.join(file).metadata().map_or(0, |file| file.len());
            length.saturating_sub(self.lengths.get(file).copied().unwrap_or_default())
        };
        files.iter().filter(|file| run_files::growth(file) == Some(Growth::Appended)).map(new).sum()
    }

    /// Sends what is new. Of a black box, the last minutes are sent when the recording has ended: before that, what is sent
    /// would soon be old.
    pub fn send(&mut self, has_ended: bool) -> Result<(), StorageError> {
        let mut files = files_of(&self.run)?;
        if !files.iter().any(|file| run_files::rank_of(file).is_some()) {
            // It is no recording yet, and may never be one.
            return Ok(());
        }
        files.retain(|file| has_ended || !run_files::is_in_ring(file));
        let store = match self.store.take() {
            Some(store) => store,
            None => self.begin(&files)?,
        };
        let every = self.every.filter(|_| !has_ended);
        let sent = self.send_files(&store, &files, every);
        self.store = Some(store);
        sent
    }

    fn send_files(
        &mut self,
        store: &Store,
        files: &BTreeSet<String>,
        every: Option<Duration>,
    ) -> Result<(), StorageError> {
        let mut folders: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        for file in files {
            folders.entry(file.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default().push(file);
        }
        let mut said = Vec::new();
        for files in folders.into_values() {
            said.extend(self.send_tables(store, &files)?);
        }
        // A job is complete when all of its ranks are, so none says that it is before all their tables are there.
        said.into_iter().try_for_each(|(file, content)| {
            let of_rank = file.ends_with(&format!("/{RANK_DESCRIPTION}"));
            let copy = every.filter(|_| of_rank).and_then(|every| growing_copy(&content, every));
            self.send_replaced(store, file, copy.unwrap_or(content))
        })
    }

    /// Sends tables that belong together; gives what the files beside them said before that. What they say of each other
    /// holds at every moment: texts are there before the rows that name them, and a rank says that it is complete once it
    /// is. So what is sent last is read first.
    fn send_tables<'a>(
        &mut self,
        store: &Store,
        files: &[&'a String],
    ) -> Result<Vec<(&'a String, Vec<u8>)>, StorageError> {
        let of = |growth| files.iter().copied().filter(move |file| run_files::growth(file) == Some(growth));
        let mut said = Vec::new();
        for file in of(Growth::Replaced) {
            said.extend(read(&self.run.join(file))?.map(|content| (file, content)));
        }
        let (texts, rows): (Vec<&String>, Vec<&String>) =
            of(Growth::Appended).partition(|file| file.ends_with(STRINGS));
        let length = |file: &String| self.run.join(file).metadata().map_or(0, |file| file.len());
        let rows: Vec<(&String, u64)> = rows.into_iter().map(|file| (file, length(file))).collect();
        let texts: Vec<(&String, u64)> = texts.into_iter().map(|file| (file, length(file))).collect();
        for (file, length) in texts.into_iter().chain(rows) {
            self.send_appended(store, file, length)?;
        }
        Ok(said)
    }

    fn send_appended(&mut self, store: &Store, file: &str, length: u64) -> Result<(), StorageError> {
        let path = self.run.join(file);
        let there = self.lengths.get(file).copied().unwrap_or_default();
        // A file that has shrunk is another one.
        let mut at = if there > length { 0 } else { there };
        while at < length {
            let piece = at / PIECE;
            let end = length.min((piece + 1) * PIECE);
            let content = part(&path, piece * PIECE, end).map_err(StorageError::file("read", &path))?;
            let sent = piece * PIECE + content.len() as u64;
            if sent <= at {
                // It is gone, or was cut off meanwhile.
                return Ok(());
            }
            self.put(store, &pieces::name(file, piece), content)?;
            at = sent;
            self.lengths.insert(file.to_owned(), at);
        }
        Ok(())
    }

    fn send_replaced(&mut self, store: &Store, file: &str, content: Vec<u8>) -> Result<(), StorageError> {
        if self.replaced.get(file) == Some(&content) {
            return Ok(());
        }
        self.put(store, file, content.clone())?;
        self.replaced.insert(file.to_owned(), content);
        Ok(())
    }

    fn put(&mut self, store: &Store, name: &str, content: Vec<u8>) -> Result<(), StorageError> {
        let bytes = content.len() as u64;
        store.put(name, content)?;
        self.count(bytes);
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        self.sent.requests += 1;
        self.sent.bytes += bytes;
        (self.tell)(self.sent.bytes);
    }

    /// Looks what is there: nothing, a part of this run, or ranks of the same job from other machines. Anything else is left
    /// alone.
    fn begin(&mut self, files: &BTreeSet<String>) -> Result<Store, StorageError> {
        let store = Store::open(&self.place)?.with(&self.patience);
        let there = store.list()?;
        let descriptions: Vec<&String> =
            files.iter().filter(|file| *file == DESCRIPTION || file.ends_with("/run.json")).collect();
        for file in descriptions {
            let Some(own) = read(&self.run.join(file))? else { continue };
            let is_there = there.iter().any(|object| object.name == *file);
            if !is_there && store.put_new(file, own.clone())? {
                self.count(own.len() as u64);
            } else {
                let made = store.read(file)?;
                let is_same = made == own;
                let folder = file.strip_suffix(DESCRIPTION).unwrap_or_default();
                let is_taken = || {
                    let ranks = |name: &str| {
                        let inside = name.strip_prefix(folder)?.split_once('/')?.0;
                        run_files::rank_of(inside)
                    };
                    let ours: BTreeSet<u32> = files.iter().filter_map(|file| ranks(file)).collect();
                    there.iter().filter_map(|object| ranks(&object.name)).any(|rank| ours.contains(&rank))
                };
                if !is_same && (!is_of_same_job(&made, &own) || is_taken()) {
                    return Err(StorageError::OtherRun { location: self.place.to_string() });
                }
            }
            // Whoever was first describes it.
            self.replaced.insert(file.clone(), own);
        }
        for object in &there {
            // An upload that broke off goes on: pieces that are there, up to the first that is not full.
            let (file, piece) = pieces::file_of(&object.name);
            if run_files::growth(file) == Some(Growth::Appended) && files.contains(file) {
                let length = self.lengths.entry(file.to_owned()).or_default();
                if *length == piece * PIECE {
                    *length += object.version.bytes;
                }
            }
        }
        Ok(store)
    }
}

/// Whether two descriptions are of one job that was started on several machines: the same in all but the machine and the
/// moment.
fn is_of_same_job(one: &[u8], other: &[u8]) -> bool {
    let parsed = |text| serde_json::from_slice::<Value>(text).ok();
    parsed(one).zip(parsed(other)).is_some_and(|(one, other)| {
        ["name", "configuration", "world_size"].iter().all(|key| one.get(key) == other.get(key))
    })
}

/// What the copy of a growing rank says: how often it is sent, too.
fn growing_copy(content: &[u8], every: Duration) -> Option<Vec<u8>> {
    let mut fields: BTreeMap<&str, &RawValue> = serde_json::from_slice(content).ok()?;
    let every = RawValue::from_string(every.as_secs().to_string()).ok()?;
    fields.insert(UPLOADED_EVERY, &every);
    serde_json::to_vec_pretty(&fields).ok()
}

/// The files of a run that are sent, by their names in it.
fn files_of(run: &Path) -> Result<BTreeSet<String>, StorageError> {
    let (mut files, mut folders) = (BTreeSet::new(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        let path = run.join(&folder);
        let entries = match fs::read_dir(&path) {
            // The ring of a black box moves on.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.is_empty() => continue,
            entries => entries.map_err(StorageError::file("list", &path))?,
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            match entry.file_type() {
                // Links lead elsewhere.
                Ok(kind) if kind.is_dir() => folders.push(name),
                Ok(kind) if kind.is_file() && run_files::growth(&name).is_some() => _ = files.insert(name),
                _ => {}
            }
        }
    }
    Ok(files)
}

/// A file as it is now; none that is gone.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(StorageError::file("read", path)),
    }
}

/// What is in a file between two places, as far as it is there.
fn part(path: &Path, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    file.seek(SeekFrom::Start(from))?;
    let mut content = Vec::new();
    file.take(to - from).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::symlink};

    use tempfile::TempDir;

    use super::*;
    use crate::cache::{Brought, bring};

    const SPANS: &str = "rank-00000/spans.arrows";

    struct Scene {
        directory: TempDir,
    }

    impl Scene {
        fn new() -> Scene {
            let scene = Scene { directory: tempfile::tempdir().unwrap() };
            scene.write("run.json", br#"{"name": "a", "host": "one"}"#);
            scene
        }

        fn run(&self) -> PathBuf {
            self.directory.path().join("run")
        }

        fn stored(&self) -> PathBuf {
            self.directory.path().join("store/mine")
        }

        fn place(&self) -> Location {
            format!("file://{}", self.stored().display()).parse().unwrap()
        }

        fn write(&self, name: &str, content: &[u8]) {
            let path = self.run().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        fn append(&self, name: &str, bytes: usize) {
            let content: Vec<u8> = (0..bytes).map(|at| ((at * 31) >> 3) as u8).collect();
            let file = fs::OpenOptions::new().append(true).create(true).open(self.run().join(name));
            file.unwrap().write_all(&content).unwrap();
        }

        fn bring(&self) -> Brought {
            bring(&self.place(), &self.directory.path().join("cache"), &|_, _| true, &|_, _| {}).unwrap()
        }

        fn is_brought(&self, name: &str) -> bool {
            fs::read(self.bring().path.join(name)).unwrap() == fs::read(self.run().join(name)).unwrap()
        }
    }

    #[test]
    fn nothing_is_sent_before_there_is_a_rank() {
        let scene = Scene::new();
        Sending::new(&scene.run(), &scene.place()).send(true).unwrap();
        assert!(!scene.stored().exists());
    }

    #[test]
    fn a_file_that_grows_is_there_in_pieces() {
        let scene = Scene::new();
        scene.write("rank-00000/rank.json", b"{}");
        let mut sending = Sending::new(&scene.run(), &scene.place());
        let piece = PIECE as usize;
        for bytes in [1000, piece - 1000, 1, 2 * piece, 5000] {
            scene.append(SPANS, bytes);
            assert_eq!(sending.waiting(), bytes as u64);
            sending.send(false).unwrap();
            assert!(sending.waiting() == 0 && scene.is_brought(SPANS), "{bytes}");
        }
        let pieces = fs::read_dir(scene.stored().join("rank-00000")).unwrap().count() - 1;
        assert_eq!(pieces, 4);
        let before = sending.sent();
        sending.send(true).unwrap();
        assert_eq!(sending.sent(), before, "nothing is new");
        assert_eq!(scene.bring().objects, 0);
    }

    #[test]
    fn the_copy_of_a_growing_rank_says_how_often_it_is_sent() {
        let scene = Scene::new();
        scene.write("rank-00000/rank.json", br#"{"state": "recording", "bytes": 18446744073709551615}"#);
        let mut sending = Sending::new(&scene.run(), &scene.place()).every(Duration::from_secs(30));
        sending.send(false).unwrap();
        let copy = fs::read(scene.bring().path.join("rank-00000/rank.json")).unwrap();
        let said = serde_json::json!({"state": "recording", "bytes": u64::MAX, "uploaded_every_s": 30});
        assert_eq!(serde_json::from_slice::<Value>(&copy).unwrap(), said);
        sending.send(true).unwrap();
        assert!(scene.is_brought("rank-00000/rank.json"));
    }

    #[test]
    fn an_upload_goes_on_where_another_one_broke_off() {
        let scene = Scene::new();
        scene.write("rank-00000/rank.json", b"{}");
        scene.append(SPANS, PIECE as usize + 10);
        Sending::new(&scene.run(), &scene.place()).send(false).unwrap();
        scene.append(SPANS, 10);
        let mut rest = Sending::new(&scene.run(), &scene.place());
        rest.send(true).unwrap();
        assert!(scene.is_brought(SPANS));
        assert_eq!(rest.sent(), Sent { requests: 2, bytes: 20 + 2 }, "the last piece and rank.json");
    }

    #[test]
    fn ranks_of_other_machines_join_and_other_runs_do_not() {
        let scene = Scene::new();
        scene.write("rank-00000/rank.json", b"{}");
        Sending::new(&scene.run(), &scene.place()).send(true).unwrap();
        fs::rename(scene.run().join("rank-00000"), scene.run().join("rank-00001")).unwrap();
        scene.write("run.json", br#"{"name": "a", "host": "two"}"#);
        let mut sending = Sending::new(&scene.run(), &scene.place());
        sending.send(true).unwrap();
        let brought = scene.bring().path;
        assert!(brought.join("rank-00000/rank.json").exists() && brought.join("rank-00001/rank.json").exists());
        assert_eq!(fs::read(brought.join("run.json")).unwrap(), br#"{"name": "a", "host": "one"}"#);
        for description in [&br#"{"name": "b"}"#[..], br#"{"name": "a", "host": "three"}"#] {
            scene.write("run.json", description);
            let refused = Sending::new(&scene.run(), &scene.place()).send(true).unwrap_err();
            assert!(matches!(refused, StorageError::OtherRun { .. }), "{refused}");
        }
    }

    #[test]
    fn what_no_reader_needs_stays() {
        let scene = Scene::new();
        scene.write("rank-00000/rank.json", b"{}");
        scene.write("rank-00000/ring/00000001/spans.arrows", b"ring");
        scene.write("checkpoints/step-2/description.json", b"{}");
        scene.write("sampler.lock", b"");
        symlink("/etc/hostname", scene.run().join("link.json")).unwrap();
        let mut sending = Sending::new(&scene.run(), &scene.place());
        sending.send(false).unwrap();
        assert_eq!(files_of(&scene.stored()).unwrap().len(), 2);
        sending.send(true).unwrap();
        assert_eq!(files_of(&scene.stored()).unwrap().len(), 3, "the ring, at the end");
        assert_eq!(fs::read_dir(scene.stored()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_gone_from_a_store_is_gone_here() {
        let scene = Scene::new();
        scene.write("rank-00000/rank.json", b"{}");
        scene.write("rank-00001/rank.json", b"{}");
        Sending::new(&scene.run(), &scene.place()).send(true).unwrap();
        assert!(scene.bring().path.join("rank-00001/rank.json").exists());
        fs::remove_file(scene.stored().join("rank-00001/rank.json")).unwrap();
        assert!(!scene.bring().path.join("rank-00001/rank.json").exists());
    }
}
