//! `summary.bin` in a rank's directory: what the rank reduced itself to, by whoever reads runs.
//!
//! It is a file of sections. The first two say what the summary was made from: the length of every file of tables, and what
//! was known of the run and the rank. So nobody takes the summary of something else. Nothing in it says when or by whom it
//! was made: the same rank has the same bytes.

use std::{collections::BTreeMap, fs, io, path::Path};

use serde::Serialize;
use stepscope_plan::{ModelShape, ParallelLayout};

use crate::{
    error::{SummaryError, TraceError},
    rank_info::{RankInfo, State},
    ring,
    run_info::{RunInfo, RunSource},
    sections_file::{self, SectionsFile},
};

pub(crate) const FILE: &str = "summary.bin";

/// Sections of which lengths and description of what was recorded are.
const OF_ORIGIN: usize = 2;

/// What became of a rank's summary when the rank was to be read.
#[derive(Clone, Debug)]
pub enum SummaryUse {
    /// It was read instead of what was recorded.
    Read,
    /// What all ranks come to together was read instead of it.
    OfJob,
    /// What was recorded was read as well, since the job counts other steps than the rank, or calls axes otherwise.
    ReadAgain,
    /// What was recorded was read.
    PassedOver(SummaryError),
}

/// A summary of what is recorded in a rank's directory; its sections have not been read.
pub struct Summary(SectionsFile);

/// What is known of a rank besides its tables, and makes a difference to what it comes to.
#[derive(Serialize)]
struct Description<'a> {
    source: RunSource,
    model: Option<&'a ModelShape>,
    layout: Option<&'a ParallelLayout>,
    rank: &'a RankInfo,
    state: State,
}

/// A rank's directory, with what is known of it.
#[derive(Clone, Copy)]
pub(crate) struct RankPlace<'a> {
    pub(crate) path: &'a Path,
    pub(crate) run: &'a RunInfo,
    pub(crate) rank: &'a RankInfo,
    pub(crate) state: State,
}

impl RankPlace<'_> {
    fn description(&self) -> serde_json::Result<Vec<u8>> {
        let RankPlace { run, rank, state, .. } = *self;
        let (model, layout) = (run.model.as_ref(), run.layout.as_ref());
        serde_json::to_vec(&Description { source: run.source, model, layout, rank, state })
    }
}

/// How long the summary in a rank's directory is, if there is one.
pub(crate) fn bytes(directory: &Path) -> Option<u64> {
    directory.join(FILE).metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len())
}

/// Whether there is one.
pub(crate) fn exists(directory: &Path) -> bool {
    bytes(directory).is_some()
}

/// The length of every file of tables in a rank's directory.
fn lengths(directory: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut lengths = BTreeMap::new();
    let segments = ring::segments(directory).into_iter().map(|number| ring::segment(directory, number));
    for folder in [directory.to_owned()].into_iter().chain(segments) {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "arrows") {
                let name = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().into_owned();
                lengths.insert(name, path.metadata()?.len());
            }
        }
    }
    Ok(lengths)
}

/// Whether anything that was recorded is in a rank's directory. What cannot be listed may be.
pub(crate) fn has_recording(directory: &Path) -> bool {
    lengths(directory).map_or(true, |lengths| !lengths.is_empty())
}

/// Writes a summary of what is in a rank's directory; says how long it is.
pub(crate) fn write(place: RankPlace<'_>, format: u32, sections: &[Vec<u8>]) -> Result<u64, TraceError> {
    let path = place.path.join(FILE);
    let json = |source| TraceError::Json { path: path.clone(), source };
    let lengths = lengths(place.path).map_err(TraceError::io("list", place.path))?;
    let origin = [serde_json::to_vec(&lengths).map_err(json)?, place.description().map_err(json)?];
    let all: Vec<&[u8]> = origin.iter().chain(sections).map(Vec::as_slice).collect();
    sections_file::write(&path, format, &all)
}

/// Opens the summary in a rank's directory, if there is one; one of anything else than what is there is an error. Where
/// nothing but the summary is left of a rank, there is nothing to compare its lengths with.
pub(crate) fn open(place: RankPlace<'_>, format: u32) -> Result<Option<Summary>, SummaryError> {
    let Some(mut file) = SectionsFile::open(&place.path.join(FILE), format, OF_ORIGIN)? else { return Ok(None) };
    let made_from: BTreeMap<String, u64> =
        serde_json::from_slice(&file.section(0)?).map_err(|_| SummaryError::Damaged)?;
    let there = lengths(place.path)?;
    if !there.is_empty() && there != made_from {
        return Err(SummaryError::OtherFiles);
    }
    if place.description().ok() != Some(file.section(1)?) {
        return Err(SummaryError::OtherDescription);
    }
    Ok(Some(Summary(file)))
}

impl Summary {
    /// One of the sections that were written, unpacked.
    pub fn section(&mut self, number: usize) -> Result<Vec<u8>, SummaryError> {
        self.0.section(number.saturating_add(OF_ORIGIN))
    }

    /// What tells it from summaries of other content.
    pub fn checksum(&self) -> u32 {
        self.0.checksum()
    }
}
