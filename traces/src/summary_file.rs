//! `summary.bin` in a rank's directory: what the rank reduced itself to, by whoever reads runs.
//!
//! ```text
//! STEPSUM 1 | format, sections | of each: bytes, bytes unpacked, CRC-32 | CRC-32 of all that | section, section, …
//! ```
//!
//! Numbers are little-endian; sections are packed with zstd where that makes them shorter. The first two say what the summary
//! was made from: the length of every file of tables, and what was known of the run and the rank. So nobody takes the summary
//! of something else. Nothing in it says when or by whom it was made: the same rank has the same bytes.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use serde::Serialize;
use stepscope_plan::{ModelShape, ParallelLayout};

use crate::{
    error::{SummaryError, TraceError},
    rank_info::{RankInfo, State},
    regular_file::open_regular,
    ring,
    run_info::{RunInfo, RunSource},
    whole_file,
};

pub(crate) const FILE: &str = "summary.bin";

/// How it begins; the last byte is the version of the head.
const MAGIC: &[u8; 8] = b"STEPSUM\x01";
const LEVEL: i32 = 9;
/// No more sections are read.
const MOST_SECTIONS: u32 = 64;
/// Sections of which lengths and description of what was recorded are.
const OF_ORIGIN: usize = 2;

/// What became of a rank's summary when the rank was to be read.
#[derive(Clone, Debug)]
pub enum SummaryUse {
    /// It was read instead of what was recorded.
    Read,
    /// What was recorded was read as well, since the job counts other steps than the rank, or calls axes otherwise.
    ReadAgain,
    /// What was recorded was read.
    PassedOver(SummaryError),
}

/// A summary of what is recorded in a rank's directory; its sections have not been read.
pub struct Summary {
    file: File,
    sections: Vec<Section>,
}

#[derive(Clone, Copy)]
struct Section {
    from: u64,
    packed: u64,
    unpacked: u64,
    checksum: u32,
}

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
    let pack = |section: &Vec<u8>| -> io::Result<Vec<u8>> {
        let packed = zstd::bulk::compress(section, LEVEL)?;
        // What shrinks too well would be taken for a trap.
        let is_shorter = packed.len() < section.len() && section.len() as u64 <= most_unpacked(packed.len() as u64);
        Ok(if is_shorter { packed } else { section.clone() })
    };
    let packed: Vec<Vec<u8>> =
        origin.iter().chain(sections).map(pack).collect::<Result<_, _>>().map_err(TraceError::io("pack", &path))?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(format.to_le_bytes());
    bytes.extend((packed.len() as u32).to_le_bytes());
    for (packed, section) in packed.iter().zip(origin.iter().chain(sections)) {
        bytes.extend((packed.len() as u64).to_le_bytes());
        bytes.extend((section.len() as u64).to_le_bytes());
        bytes.extend(crc32fast::hash(packed).to_le_bytes());
    }
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    packed.iter().for_each(|packed| bytes.extend(packed));
    whole_file::replace(&path, &bytes)?;
    Ok(bytes.len() as u64)
}

/// Opens the summary in a rank's directory, if there is one; one of anything else than what is there is an error. Where
/// nothing but the summary is left of a rank, there is nothing to compare its lengths with.
pub(crate) fn open(place: RankPlace<'_>, format: u32) -> Result<Option<Summary>, SummaryError> {
    let mut file = match open_regular(&place.path.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let length = file.metadata()?.len();
    let mut head = [0; 16];
    file.read_exact(&mut head)?;
    let [found, count] = [&head[8..12], &head[12..]].map(number);
    if &head[..8] != MAGIC || count < OF_ORIGIN as u32 || count > MOST_SECTIONS {
        return Err(SummaryError::Damaged);
    }
    let mut table = vec![0; 20 * count as usize + 4];
    file.read_exact(&mut table)?;
    let (table, checksum) = table.split_at(table.len() - 4);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head);
    hasher.update(table);
    if hasher.finalize() != number(checksum) {
        return Err(SummaryError::Damaged);
    }
    if found != format {
        return Err(SummaryError::OtherFormat { found, wanted: format });
    }
    let mut from = (head.len() + table.len() + 4) as u64;
    let mut sections = Vec::new();
    for line in table.chunks_exact(20) {
        let [packed, unpacked] = [&line[..8], &line[8..16]].map(long_number);
        sections.push(Section { from, packed, unpacked, checksum: number(&line[16..]) });
        from = from.checked_add(packed).ok_or(SummaryError::Damaged)?;
    }
    if from != length {
        return Err(SummaryError::Damaged);
    }
    let mut summary = Summary { file, sections };
    let made_from: BTreeMap<String, u64> =
        serde_json::from_slice(&summary.unpacked(0)?).map_err(|_| SummaryError::Damaged)?;
    let there = lengths(place.path)?;
    if !there.is_empty() && there != made_from {
        return Err(SummaryError::OtherFiles);
    }
    if place.description().ok() != Some(summary.unpacked(1)?) {
        return Err(SummaryError::OtherDescription);
    }
    Ok(Some(summary))
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn long_number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// How much a section may be unpacked to: what claims more is no summary.
fn most_unpacked(packed: u64) -> u64 {
    const SMALL: u64 = 1 << 20;
    SMALL.saturating_add(packed.saturating_mul(64))
}

impl Summary {
    /// One of the sections that were written, unpacked.
    pub fn section(&mut self, number: usize) -> Result<Vec<u8>, SummaryError> {
        self.unpacked(number.saturating_add(OF_ORIGIN))
    }

    fn unpacked(&mut self, number: usize) -> Result<Vec<u8>, SummaryError> {
        let Section { from, packed, unpacked, checksum } = *self.sections.get(number).ok_or(SummaryError::Damaged)?;
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(from))?;
        self.file.by_ref().take(packed).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != packed || crc32fast::hash(&bytes) != checksum {
            return Err(SummaryError::Damaged);
        }
        if packed == unpacked {
            return Ok(bytes);
        }
        if unpacked > most_unpacked(packed) {
            return Err(SummaryError::Damaged);
        }
        let section = zstd::bulk::decompress(&bytes, unpacked as usize).map_err(|_| SummaryError::Damaged)?;
        if section.len() as u64 == unpacked { Ok(section) } else { Err(SummaryError::Damaged) }
    }
}
