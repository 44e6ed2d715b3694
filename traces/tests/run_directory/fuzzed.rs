//! Every file of a run directory, damaged: the run is read or refused.

use std::{
    fs,
    path::{Path, PathBuf},
};

use stepscope_traces::{Run, Window};
use tempfile::TempDir;

use crate::fuzz::fuzz;

/// A copy of a recorded run, of which one file is written again and again.
struct Recorded {
    directory: TempDir,
    file: PathBuf,
}

impl Recorded {
    fn with(file: &str) -> Recorded {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/first-steps");
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("rank-00000")).unwrap();
        for entry in ["run.json", "rank-00000"].map(|name| sample.join(name)) {
            let files = fs::read_dir(&entry).into_iter().flatten().map(|file| file.unwrap().path());
            for path in files.chain(entry.is_file().then(|| entry.clone())) {
                fs::copy(&path, directory.path().join(path.strip_prefix(&sample).unwrap())).unwrap();
            }
        }
        let file = directory.path().join(file);
        Recorded { directory, file }
    }

    fn whole(&self) -> Vec<Vec<u8>> {
        vec![fs::read(&self.file).unwrap()]
    }

    fn read(&self, bytes: &[u8]) -> bool {
        fs::write(&self.file, bytes).unwrap();
        let Ok(run) = Run::open(self.directory.path()) else { return false };
        run.ranks.iter().all(|rank| rank.read(Window::ALL).is_ok())
    }
}

#[test]
fn run_json() {
    let run = Recorded::with("run.json");
    fuzz!(run.whole(), |bytes: &[u8]| run.read(bytes));
}

#[test]
fn rank_json() {
    let run = Recorded::with("rank-00000/rank.json");
    fuzz!(run.whole(), |bytes: &[u8]| run.read(bytes));
}

#[test]
fn spans() {
    let run = Recorded::with("rank-00000/spans.arrows");
    fuzz!(run.whole(), |bytes: &[u8]| run.read(bytes));
}

#[test]
fn memory() {
    let run = Recorded::with("rank-00000/memory.arrows");
    fuzz!(run.whole(), |bytes: &[u8]| run.read(bytes));
}

#[test]
fn counters() {
    let run = Recorded::with("rank-00000/counters.arrows");
    fuzz!(run.whole(), |bytes: &[u8]| run.read(bytes));
}

#[test]
fn strings() {
    let run = Recorded::with("rank-00000/strings.arrows");
    fuzz!(run.whole(), |bytes: &[u8]| run.read(bytes));
}
