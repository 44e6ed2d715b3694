//! A file of sections, as summaries are kept in.
//!
//! ```text
//! STEPSUM 1 | format, sections | of each: bytes, bytes unpacked, CRC-32 | CRC-32 of all that | section, section, …
//! ```
//!
//! Numbers are little-endian; sections are packed with zstd where that makes them shorter.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use crate::{
    error::{SummaryError, TraceError},
    regular_file::open_regular,
    whole_file,
};

/// How it begins; the last byte is the version of the head.
const MAGIC: &[u8; 8] = b"STEPSUM\x01";
const LEVEL: i32 = 9;
/// No more sections are read.
const MOST_SECTIONS: u32 = 64;

/// A file of sections, of which none has been read.
pub(crate) struct SectionsFile {
    file: File,
    sections: Vec<Section>,
    checksum: u32,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Section {
    from: u64,
    packed: u64,
    unpacked: u64,
    checksum: u32,
}

/// Writes sections to a file; says how long it is.
pub(crate) fn write(path: &Path, format: u32, sections: &[&[u8]]) -> Result<u64, TraceError> {
    let pack = |section: &&[u8]| -> io::Result<Vec<u8>> {
        let packed = zstd::bulk::compress(section, LEVEL)?;
        // What shrinks too well would be taken for a trap.
        let is_shorter = packed.len() < section.len() && section.len() as u64 <= most_unpacked(packed.len() as u64);
        Ok(if is_shorter { packed } else { section.to_vec() })
    };
    let packed: Vec<Vec<u8>> =
        sections.iter().map(pack).collect::<Result<_, _>>().map_err(TraceError::io("pack", path))?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(format.to_le_bytes());
    bytes.extend((packed.len() as u32).to_le_bytes());
    for (packed, section) in packed.iter().zip(sections) {
        bytes.extend((packed.len() as u64).to_le_bytes());
        bytes.extend((section.len() as u64).to_le_bytes());
        bytes.extend(crc32fast::hash(packed).to_le_bytes());
    }
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    packed.iter().for_each(|packed| bytes.extend(packed));
    whole_file::replace(path, &bytes)?;
    Ok(bytes.len() as u64)
}

impl SectionsFile {
    /// Opens the file at a path, if there is one, with so many sections at least.
    pub(crate) fn open(path: &Path, format: u32, least: usize) -> Result<Option<SectionsFile>, SummaryError> {
        let mut file = match open_regular(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let length = file.metadata()?.len();
        let mut head = [0; 16];
        file.read_exact(&mut head)?;
        let [found, count] = [&head[8..12], &head[12..]].map(number);
        if &head[..8] != MAGIC || (count as usize) < least || count > MOST_SECTIONS {
            return Err(SummaryError::Damaged);
        }
        let mut table = vec![0; 20 * count as usize + 4];
        file.read_exact(&mut table)?;
        let (table, checksum) = table.split_at(table.len() - 4);
        let checksum = number(checksum);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&head);
        hasher.update(table);
        if hasher.finalize() != checksum {
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
        Ok(Some(SectionsFile { file, sections, checksum, bytes: length }))
    }

    /// The checksum of its head, in which those of all sections are: files of other content have another one.
    pub(crate) fn checksum(&self) -> u32 {
        self.checksum
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// One of the sections, unpacked.
    pub(crate) fn section(&mut self, number: usize) -> Result<Vec<u8>, SummaryError> {
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
