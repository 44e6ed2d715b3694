//! What is kept of every step for long: a line of JSON for each, of a job of which only the last minutes are kept in full. When
//! there are too many lines, those of every second step go, of the whole job; then of three in four, and so on.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::Deserialize;
use stepscope_analyzer::LiveRun;
use stepscope_traces::{Rank, Step};

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
        let mut lines = BTreeMap::<Rank, Vec<(Step, Vec<u8>)>>::new();
        for record in self.live.take_records() {
            let mut line = serde_json::to_vec(&record)?;
            line.push(b'\n');
            lines.entry(record.figures.rank).or_default().push((record.figures.step, line));
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
    /// Lines are of every so many steps.
    every: u32,
}

/// What of a line tells which step it is of.
#[derive(Deserialize)]
struct LineOf {
    step: Step,
}

impl StepLines {
    fn open(path: PathBuf) -> io::Result<StepLines> {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        Ok(StepLines { bytes: file.metadata()?.len(), path, file, every: 1 })
    }

    /// Adds the lines of some steps.
    fn append(&mut self, lines: &[(Step, Vec<u8>)], most_bytes: u64) -> io::Result<()> {
        let wanted = |every: u32| {
            lines.iter().filter(move |(step, _)| is_one(*step, every)).flat_map(|(_, line)| line).copied().collect()
        };
        let mut new: Vec<u8> = wanted(self.every);
        if self.bytes + new.len() as u64 > most_bytes {
            self.thin()?;
            new = wanted(self.every);
        }
        // Whole lines at a time: whoever reads them meanwhile sees no half of one.
        self.file.write_all(&new)?;
        self.bytes += new.len() as u64;
        Ok(())
    }

    /// Leaves out the lines of every second step that there is.
    fn thin(&mut self) -> io::Result<()> {
        let every = self.every.saturating_mul(2);
        let draft = self.path.with_extension("jsonl.new");
        let mut thinned = BufWriter::new(File::create(&draft)?);
        for line in BufReader::new(File::open(&self.path)?).lines() {
            let line = line?;
            if serde_json::from_str(&line).is_ok_and(|of: LineOf| is_one(of.step, every)) {
                writeln!(thinned, "{line}")?;
            }
        }
        thinned.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(&draft, &self.path)?;
        *self = StepLines { every, ..StepLines::open(std::mem::take(&mut self.path))? };
        Ok(())
    }
}

/// Whether a step is one of every so many.
fn is_one(step: Step, every: u32) -> bool {
    step.0.unsigned_abs().is_multiple_of(every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_get_fewer_and_are_of_all_of_the_job() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines.jsonl");
        let mut lines = StepLines::open(path.clone()).unwrap();
        for step in 0..10_000 {
            lines.append(&[(Step(step), format!("{{\"step\": {step}}}\n").into_bytes())], 5000).unwrap();
            assert!(lines.bytes <= 5000 && path.metadata().unwrap().len() == lines.bytes);
        }
        let text = fs::read_to_string(&path).unwrap();
        let steps: Vec<i32> = text.lines().map(|line| serde_json::from_str::<LineOf>(line).unwrap().step.0).collect();
        let expected: Vec<i32> = (0..10_000).step_by(lines.every as usize).collect();
        assert_eq!(steps, expected);
        assert!(steps.len() > 150, "{}", steps.len());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
