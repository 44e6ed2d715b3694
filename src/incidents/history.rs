//! What is kept of every step for long: a line of JSON for each, of a job of which only the last minutes are kept in full.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Result;
use stepscope_analyzer::LiveRun;
use stepscope_traces::Rank;

/// The folder of these lines in a run.
const FOLDER: &str = "history";

/// Writes down what steps come to.
pub(super) struct History {
    folder: PathBuf,
    live: LiveRun,
    files: BTreeMap<Rank, File>,
}

impl History {
    /// Begins with a run that is being recorded.
    pub(super) fn of(run: &Path) -> Result<History> {
        let mut live = LiveRun::open(run)?;
        live.keep_records();
        Ok(History { folder: run.join(FOLDER), live, files: BTreeMap::new() })
    }

    /// Reads what is new, and writes down the steps that are over.
    pub(super) fn go_on(&mut self) -> Result<()> {
        self.live.look()?;
        while self.live.read()? {}
        let mut lines = BTreeMap::<Rank, Vec<u8>>::new();
        for record in self.live.take_records() {
            let line = lines.entry(record.figures.rank).or_default();
            serde_json::to_writer(&mut *line, &record)?;
            line.push(b'\n');
        }
        for (rank, lines) in lines {
            // Whole lines at a time: whoever reads them meanwhile sees no half of one.
            self.file(rank)?.write_all(&lines)?;
        }
        Ok(())
    }

    fn file(&mut self, rank: Rank) -> io::Result<&mut File> {
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(format!("rank-{:05}.jsonl", rank.0));
        Ok(match self.files.entry(rank) {
            std::collections::btree_map::Entry::Occupied(file) => file.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(OpenOptions::new().create(true).append(true).open(path)?)
            }
        })
    }
}
