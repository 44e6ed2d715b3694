//! `summary.bin` beside `run.json`: what all ranks of a run come to together.
//!
//! It is a file of sections. The first one says what it was made from: what the run says of itself, and of each rank which
//! summary. So it is that of these summaries, and of no others.

use std::path::Path;

use serde::Serialize;

use crate::{
    error::{SummaryError, TraceError},
    ids::Rank,
    run_info::RunInfo,
    sections_file::{self, SectionsFile},
};

const FILE: &str = "summary.bin";

/// What a summary of a job was made from.
#[derive(Serialize)]
struct MadeFrom<'a> {
    run: &'a RunInfo,
    /// Of each rank, the checksum of its summary.
    ranks: &'a [(Rank, u32)],
}

/// A summary of all ranks of a run; its sections have not been read.
pub struct JobSummary(SectionsFile);

impl JobSummary {
    /// Whether one is in a run's directory.
    pub(crate) fn is_in(directory: &Path) -> bool {
        directory.join(FILE).is_file()
    }

    /// Opens the summary in a run's directory, if there is one of these ranks' summaries.
    pub(crate) fn open(
        directory: &Path,
        run: &RunInfo,
        ranks: &[(Rank, u32)],
        format: u32,
    ) -> Result<Option<JobSummary>, SummaryError> {
        let Some(mut file) = SectionsFile::open(&directory.join(FILE), format, 1)? else { return Ok(None) };
        let origin = serde_json::to_vec(&MadeFrom { run, ranks }).ok();
        if origin == Some(file.section(0)?) { Ok(Some(JobSummary(file))) } else { Err(SummaryError::OtherFiles) }
    }

    /// Writes one of these ranks' summaries; says how long it is.
    pub(crate) fn write(
        directory: &Path,
        run: &RunInfo,
        ranks: &[(Rank, u32)],
        (format, section): (u32, &[u8]),
    ) -> Result<u64, TraceError> {
        let path = directory.join(FILE);
        let origin = serde_json::to_vec(&MadeFrom { run, ranks });
        let origin = origin.map_err(|source| TraceError::Json { path: path.clone(), source })?;
        sections_file::write(&path, format, &[&origin, section])
    }

    /// How long its file is.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// What was written, unpacked.
    pub fn section(&mut self) -> Result<Vec<u8>, SummaryError> {
        self.0.section(1)
    }
}
