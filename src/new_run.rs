//! A new run directory: one that nobody has, and that is gone again if nothing comes of it.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow};
use stepscope_collector::injection::TRIGGER_FILE;
use stepscope_traces::{Run, RunInfo, Segment, TraceError};

use crate::failure::WithHint;

const DESCRIPTION: &str = "run.json";
/// A directory that vanishes more often than this will not stay.
const MOST_TRIES: u32 = 1000;

/// A directory for a run. When this goes and nothing was recorded there, what it made goes too: never anything else.
pub(crate) struct NewRun {
    path: PathBuf,
    /// Whether the directory was not there before, and the one that it is in.
    made_directory: bool,
    made_parent: bool,
    /// Which file the description is that we wrote.
    described: Option<FileIdentity>,
}

/// Which file something is, whatever it is called: its device and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity(u64, u64);

impl FileIdentity {
    /// Of what is at a path, if anything is; a link is itself.
    fn of(path: &Path) -> Option<FileIdentity> {
        fs::symlink_metadata(path).ok().map(|file| FileIdentity(file.dev(), file.ino()))
    }
}

impl NewRun {
    /// The directory that is named; it has to be new or empty once it is [described](NewRun::describe).
    pub(crate) fn at(path: PathBuf) -> NewRun {
        let made_directory = !path.exists();
        NewRun { path, made_directory, made_parent: false, described: None }
    }

    /// A directory of this name, or of the first like it that nobody has: runs may begin in the same moment.
    pub(crate) fn like(path: &Path) -> Result<NewRun> {
        let cannot = |error: io::Error| anyhow!("cannot create {}: {error}", path.display());
        let parent = path.parent().unwrap_or(Path::new(""));
        let made_parent = fs::create_dir(parent).is_ok();
        let mut number = 1;
        loop {
            // Another run that came to nothing may have taken it away since.
            fs::create_dir_all(parent).map_err(cannot)?;
            let path = match number {
                1 => path.to_owned(),
                number => PathBuf::from(format!("{}-{number}", path.display())),
            };
            match fs::create_dir(&path) {
                Ok(()) => return Ok(NewRun { path, made_directory: true, made_parent, described: None }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound && number < MOST_TRIES => number += 1,
                Err(error) => return Err(cannot(error)),
            }
        }
    }

    /// The next segment of a run that jobs continue, or the first.
    pub(crate) fn next_segment(run: &Path) -> Result<NewRun> {
        let mut number = newest_segment(run)?.map_or(1, |newest| newest.number + 1);
        let first = Segment::path(run, number);
        let folder = first.parent().unwrap_or(run);
        let made_parent = !folder.exists();
        fs::create_dir_all(folder).map_err(|error| anyhow!("cannot create {}: {error}", folder.display()))?;
        loop {
            let path = Segment::path(run, number);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(NewRun { path, made_directory: true, made_parent, described: None }),
                // Of one that came to nothing, or another job's.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(anyhow!("cannot create {}: {error}", path.display())),
            }
        }
    }

    /// As [`NewRun::next_segment`], described, where several commands record one job: they all have the same one.
    pub(crate) fn segment_together(run: &Path, info: &RunInfo, is_of_job: impl Fn(&RunInfo) -> bool) -> Result<NewRun> {
        let mut number = newest_segment(run)?.map_or(1, |newest| newest.number);
        loop {
            let segment = NewRun::at(Segment::path(run, number));
            match segment.describe_together(info, &is_of_job) {
                Err(TraceError::AlreadyRecorded { .. }) => number += 1,
                described => return Ok(described.map(|()| segment)?),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Says in the directory what the run is, which makes it one.
    pub(crate) fn describe(&mut self, info: &RunInfo) -> Result<(), TraceError> {
        info.create(&self.path)?;
        self.described = FileIdentity::of(&self.path.join(DESCRIPTION));
        Ok(())
    }

    /// As [`NewRun::describe`], where several commands record one job: the first of them makes the run. It stays, since nobody
    /// knows whether others are still to come.
    pub(crate) fn describe_together(
        &self,
        info: &RunInfo,
        is_of_job: impl Fn(&RunInfo) -> bool,
    ) -> Result<(), TraceError> {
        let made = info.create_or_join(&self.path)?;
        if !made && !is_of_job(&Run::open(&self.path)?.info) {
            return Err(TraceError::AlreadyRecorded { path: self.path.clone() });
        }
        Ok(())
    }
}

/// The newest segment of a run, if it has some; refuses a run without, and a directory that holds anything else.
fn newest_segment(run: &Path) -> Result<Option<Segment>> {
    if run.join(DESCRIPTION).exists() {
        return Err(WithHint {
            what: format!("{} already contains a recording that is not made of segments", run.display()),
            hint: "--continue has to be there from the first job on; name another directory".into(),
        }
        .into());
    }
    let segments = Segment::path(run, 1).parent().is_some_and(Path::exists);
    if let Some(Ok(entry)) = fs::read_dir(run).ok().filter(|_| !segments).and_then(|mut entries| entries.next()) {
        let entry = entry.file_name().to_string_lossy().into_owned();
        return Err(TraceError::NotEmpty { path: run.to_owned(), entry }.into());
    }
    Ok(Segment::all_of(run).pop())
}

impl Drop for NewRun {
    fn drop(&mut self) {
        let ours = [DESCRIPTION, TRIGGER_FILE].map(std::ffi::OsStr::new);
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let is_bare = entries.into_iter().all(|entry| entry.is_ok_and(|entry| ours.contains(&&*entry.file_name())));
        if !is_bare {
            return;
        }
        let there = FileIdentity::of(&self.path.join(DESCRIPTION));
        if there != self.described {
            // Somebody else's is in its place.
            return;
        }
        // What cannot be taken back is in nobody's way.
        if self.described.is_some() {
            ours.iter().for_each(|name| drop(fs::remove_file(self.path.join(name))));
        }
        if self.made_directory {
            drop(fs::remove_dir(&self.path));
        }
        if let Some(parent) = self.path.parent().filter(|_| self.made_parent) {
            drop(fs::remove_dir(parent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> RunInfo {
        RunInfo::of_this_process("test")
    }

    #[test]
    fn names_are_taken_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs/one");
        let runs: Vec<NewRun> = (0..3).map(|_| NewRun::like(&path).unwrap()).collect();
        let names: Vec<_> = runs.iter().map(|run| run.path().file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["one", "one-2", "one-3"]);
        // Who made the folder around them goes last.
        runs.into_iter().rev().for_each(drop);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn jobs_that_continue_one_another_have_a_segment_each() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let record = |segment: &mut NewRun| {
            segment.describe(&info()).unwrap();
            fs::create_dir(segment.path().join("rank-00000")).unwrap();
        };
        for number in 1..=2 {
            let mut segment = NewRun::next_segment(&run).unwrap();
            assert_eq!(segment.path(), Segment::path(&run, number));
            record(&mut segment);
        }
        drop(NewRun::next_segment(&run).unwrap());
        assert_eq!(Segment::all_of(&run).len(), 2, "nothing was recorded");
        let of = |job: &'static str| move |info: &RunInfo| info.name == job;
        for (job, number) in [("a", 3), ("a", 3), ("b", 4), ("b", 4)] {
            let segment = NewRun::segment_together(&run, &RunInfo::of_this_process(job), of(job)).unwrap();
            assert_eq!(segment.path(), Segment::path(&run, number), "{job}");
        }
        let plain = directory.path().join("plain");
        info().create(&plain).unwrap();
        let refused = NewRun::next_segment(&plain).err().unwrap().to_string();
        assert!(refused.ends_with("that is not made of segments"), "{refused}");
        let theirs = directory.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("notes"), "theirs").unwrap();
        let refused = NewRun::next_segment(&theirs).err().unwrap().to_string();
        assert!(refused.contains("is not empty") && fs::read_dir(&theirs).unwrap().count() == 1, "{refused}");
    }

    #[test]
    fn what_was_there_stays_and_what_was_recorded_too() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("there");
        fs::create_dir(&there).unwrap();
        let mut run = NewRun::at(there.clone());
        run.describe(&info()).unwrap();
        drop(run);
        assert_eq!(fs::read_dir(&there).unwrap().count(), 0, "the folder is not ours");
        fs::write(there.join("notes"), "theirs").unwrap();
        let mut run = NewRun::at(there.clone());
        let refused = run.describe(&info()).unwrap_err();
        assert!(matches!(refused, TraceError::NotEmpty { .. }), "{refused}");
        drop(run);
        assert_eq!(fs::read(there.join("notes")).unwrap(), b"theirs");
        let recorded = directory.path().join("recorded");
        let mut run = NewRun::at(recorded.clone());
        run.describe(&info()).unwrap();
        fs::create_dir(recorded.join("rank-00000")).unwrap();
        drop(run);
        assert!(recorded.join(DESCRIPTION).exists());
        // A description that somebody put in place of ours is theirs.
        let replaced = directory.path().join("replaced");
        let mut run = NewRun::at(replaced.clone());
        run.describe(&info()).unwrap();
        fs::write(directory.path().join("theirs.json"), "theirs").unwrap();
        fs::rename(directory.path().join("theirs.json"), replaced.join(DESCRIPTION)).unwrap();
        drop(run);
        assert_eq!(fs::read(replaced.join(DESCRIPTION)).unwrap(), b"theirs");
        // Others of the job record there, too, or will.
        let shared = directory.path().join("shared");
        for _ in 0..2 {
            let run = NewRun::at(shared.clone());
            run.describe_together(&info(), |made| made.name == "test").unwrap();
        }
        assert!(shared.join(DESCRIPTION).exists());
        let refused = NewRun::at(shared).describe_together(&info(), |_| false).unwrap_err();
        assert!(matches!(refused, TraceError::AlreadyRecorded { .. }), "{refused}");
        // Its description is another run's.
        let mut run = NewRun::at(recorded.clone());
        assert!(run.describe(&info()).is_err());
        drop(run);
        assert!(recorded.join(DESCRIPTION).exists());
    }
}
