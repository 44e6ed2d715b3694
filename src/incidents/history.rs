//! What is kept of every step for long: a line of JSON for each, of a job of which only the last minutes are kept in full. When
//! there are too many lines, every second one of the older half goes.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
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
    files: BTreeMap<Rank, StepLines>,
    /// How long the lines of a rank may be together.
    most_bytes: u64,
}

impl History {
    /// Begins with a run that is being recorded.
    pub(super) fn of(run: &Path, most_bytes: u64) -> Result<History> {
        let mut live = LiveRun::open(run)?;
        live.keep_records();
        Ok(History { folder: run.join(FOLDER), live, files: BTreeMap::new(), most_bytes })
    }

    /// Reads what is new, and writes down the steps that are over.
    pub(super) fn go_on(&mut self) -> Result<()> {
        self.live.look()?;
        while self.live.read()? {}
        self.write()
    }

    /// Writes down what is left: the job has ended.
    pub(super) fn end(mut self) -> Result<()> {
        self.go_on()?;
        self.live.finish();
        self.live.settle_rest();
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let mut lines = BTreeMap::<Rank, Vec<u8>>::new();
        for record in self.live.take_records() {
            let line = lines.entry(record.figures.rank).or_default();
            serde_json::to_writer(&mut *line, &record)?;
            line.push(b'\n');
        }
        for (rank, lines) in lines {
            let most_bytes = self.most_bytes;
            self.file(rank)?.append(&lines, most_bytes)?;
        }
        Ok(())
    }

    fn file(&mut self, rank: Rank) -> io::Result<&mut StepLines> {
        // Not the run itself: it may have been moved away.
        if let Err(error) = fs::create_dir(&self.folder)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let path = self.folder.join(format!("rank-{:05}.jsonl", rank.0));
        Ok(match self.files.entry(rank) {
            Entry::Occupied(file) => file.into_mut(),
            Entry::Vacant(place) => place.insert(StepLines::open(path)?),
        })
    }
}

/// The lines of a rank.
struct StepLines {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl StepLines {
    fn open(path: PathBuf) -> io::Result<StepLines> {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        Ok(StepLines { bytes: file.metadata()?.len(), path, file })
    }

    /// Adds whole lines at a time: whoever reads them meanwhile sees no half of one.
    fn append(&mut self, lines: &[u8], most_bytes: u64) -> io::Result<()> {
        if self.bytes + lines.len() as u64 > most_bytes {
            self.thin()?;
        }
        self.file.write_all(lines)?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// Leaves out every second line of the older half.
    fn thin(&mut self) -> io::Result<()> {
        let draft = self.path.with_extension("jsonl.new");
        let mut thinned = BufWriter::new(File::create(&draft)?);
        let (mut lines, mut line, mut read, mut number) =
            (BufReader::new(File::open(&self.path)?), Vec::new(), 0, 0_u64);
        while lines.read_until(b'\n', &mut line)? > 0 {
            read += line.len() as u64;
            number += 1;
            if read > self.bytes / 2 || number % 2 == 0 {
                thinned.write_all(&line)?;
            }
            line.clear();
        }
        thinned.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(&draft, &self.path)?;
        *self = StepLines::open(std::mem::take(&mut self.path))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_lines_get_fewer_and_new_ones_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines.jsonl");
        let mut lines = StepLines::open(path.clone()).unwrap();
        for number in 0..10_000 {
            lines.append(format!("{number:09}\n").as_bytes(), 5000).unwrap();
            assert!(lines.bytes <= 5000 && path.metadata().unwrap().len() == lines.bytes);
        }
        let text = fs::read_to_string(&path).unwrap();
        let numbers: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert!(numbers.is_sorted() && numbers.len() > 300, "{}", numbers.len());
        assert!(numbers.ends_with(&(9900..10_000).collect::<Vec<_>>()), "the newest are all there");
        assert!(numbers[0] < 5000, "and some of the oldest: {}", numbers[0]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
