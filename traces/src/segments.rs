//! Segments of a run: jobs that continue one another, each recorded as a run of its own.
//!
//! ```text
//! runs/mine/segments/1    run.json, rank-00000, …
//! runs/mine/segments/2    the same, of the job that went on
//! ```
//!
//! Whoever opens `runs/mine` has the newest. Times between segments are in none.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::run_info;

const FOLDER: &str = "segments";

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, from 1.
    pub number: u32,
    /// Where it is.
    pub path: PathBuf,
}

impl Segment {
    /// Those of a run, the first first; none of one that nobody continues, or that has not begun.
    pub fn all_of(run: &Path) -> Vec<Segment> {
        let entries = fs::read_dir(run.join(FOLDER)).into_iter().flatten().flatten();
        let segment = |path: PathBuf| Some(Segment { number: path.file_name()?.to_str()?.parse().ok()?, path });
        let mut segments: Vec<Segment> = entries
            .filter_map(|entry| segment(entry.path()))
            .filter(|segment| segment.path == Segment::path(run, segment.number) && is_run(&segment.path))
            .collect();
        segments.sort_by_key(|segment| segment.number);
        segments
    }

    /// Where one of a number is, or will be.
    pub fn path(run: &Path, number: u32) -> PathBuf {
        run.join(FOLDER).join(number.to_string())
    }

    /// All those of a run of which one of them was opened.
    pub fn beside(segment: &Path) -> Vec<Segment> {
        let folder = segment.parent().filter(|folder| folder.file_name().is_some_and(|name| name == FOLDER));
        folder.and_then(Path::parent).map_or_else(Vec::new, Segment::all_of)
    }
}

/// Where the run is that is meant: the newest segment, of one that has some.
pub(crate) fn newest(run: &Path) -> PathBuf {
    let segment = if is_run(run) { None } else { Segment::all_of(run).pop() };
    segment.map_or_else(|| run.to_owned(), |segment| segment.path)
}

/// Whether there is a run at a path, or segments of one.
pub(crate) fn is_run_or_segments(path: &Path) -> bool {
    is_run(path) || !Segment::all_of(path).is_empty()
}

fn is_run(path: &Path) -> bool {
    path.join(run_info::FILE).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_info::RunInfo;

    #[test]
    fn the_newest_segment_is_the_run() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        assert_eq!((newest(run), is_run_or_segments(run)), (run.to_owned(), false));
        for number in [1, 2, 10] {
            RunInfo::of_this_process(format!("segment {number}")).create(&Segment::path(run, number)).unwrap();
        }
        // One that has not begun, and what is none.
        for name in ["11", "007", "notes"] {
            fs::create_dir(run.join(FOLDER).join(name)).unwrap();
        }
        let numbers: Vec<u32> = Segment::all_of(run).iter().map(|segment| segment.number).collect();
        assert_eq!((numbers, newest(run)), (vec![1, 2, 10], Segment::path(run, 10)));
        assert!(is_run_or_segments(run) && Segment::beside(run).is_empty());
        assert_eq!(Segment::beside(&Segment::path(run, 2)), Segment::all_of(run));
    }
}
