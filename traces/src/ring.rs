//! The last minutes of a rank, in segments of which the oldest go.
//!
//! `ring/00000012/` in a rank's directory holds the tables of a stretch of time. Rows are numbered on from one segment to the
//! next. Each says which memory was in use when it began (`held.arrows`), since where that was allocated may be gone.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    clock::now,
    error::TraceError,
    format::encode::Encoder,
    ids::Nanos,
    rank_info::Written,
    run_info::RingBounds,
    standing_memory::StandingMemory,
    table_file::TableFile,
    tables::{MemoryEvent, MemoryEvents, Table},
    timed_tables::TimedTables,
};

/// The folder of a rank's segments.
pub(crate) const FOLDER: &str = "ring";
/// What says of a segment which memory was in use when it began.
pub(crate) const HELD: &str = "held.arrows";
/// Into how many segments what is kept is cut, about: so much more or less of it is there than was asked for.
const SEGMENTS: u64 = 24;

/// The folder of one of a rank's segments.
pub(crate) fn segment(rank: &Path, number: u64) -> PathBuf {
    rank.join(FOLDER).join(format!("{number:08}"))
}

/// The numbers of a rank's segments that are there, in order.
pub(crate) fn segments(rank: &Path) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(rank.join(FOLDER)) else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<u64> = numbers.filter(|number| segment(rank, *number).is_dir()).collect();
    numbers.sort_unstable();
    numbers
}

/// How many bytes the files of a table have, in all of a rank's segments and outside of them.
pub(crate) fn bytes_of<T: Table>(rank: &Path) -> u64 {
    let folders = segments(rank).into_iter().map(|number| segment(rank, number));
    let files = folders.chain([rank.to_owned()]).map(|folder| folder.join(T::FILE));
    files.map(|file| fs::metadata(file).map_or(0, |file| file.len())).sum()
}

/// The segments of a rank that is recorded.
pub(crate) struct Ring {
    rank: PathBuf,
    bounds: RingBounds,
    /// Those that are over, the oldest first.
    over: VecDeque<PastSegment>,
    /// The one that is written to.
    number: u64,
    began: Nanos,
    /// How many bytes it began with, and how many rows there were before it.
    held_bytes: u64,
    rows_before: Written,
    /// The memory that is in use.
    standing: StandingMemory,
}

/// A segment that is over.
struct PastSegment {
    number: u64,
    ended: Nanos,
    bytes: u64,
    /// How many rows there were before it.
    rows_before: Written,
}

impl Ring {
    /// Begins with the first segment.
    pub(crate) fn begin(
        rank: &Path,
        bounds: RingBounds,
        encoder: &mut Encoder,
    ) -> Result<(Ring, TimedTables), TraceError> {
        let folder = rank.join(FOLDER);
        fs::create_dir(&folder).map_err(TraceError::io("create", &folder))?;
        let mut ring = Ring {
            rank: rank.to_owned(),
            bounds,
            over: VecDeque::new(),
            number: 0,
            began: now(),
            held_bytes: 0,
            rows_before: Written::default(),
            standing: StandingMemory::default(),
        };
        let tables = ring.create(encoder)?;
        Ok((ring, tables))
    }

    fn create(&mut self, encoder: &mut Encoder) -> Result<TimedTables, TraceError> {
        let directory = segment(&self.rank, self.number);
        fs::create_dir(&directory).map_err(TraceError::io("create", &directory))?;
        let mut held = TableFile::<MemoryEvents>::create(directory.join(HELD), encoder, 0)?;
        for event in self.standing.told_at(self.began) {
            held.pending.push(event);
            if held.is_full() {
                held.flush(encoder)?;
            }
        }
        held.flush(encoder)?;
        held.end()?;
        self.held_bytes = held.bytes;
        TimedTables::create(&directory, encoder, self.rows_before)
    }

    /// Hears of what happens to memory.
    pub(crate) fn hear(&mut self, event: &MemoryEvent) {
        self.standing.hear(event);
    }

    /// Begins the next segment, if it is time to, and lets go of those that are too old, or too much with what else there is.
    pub(crate) fn turn(
        &mut self,
        tables: &mut TimedTables,
        encoder: &mut Encoder,
        besides: u64,
    ) -> Result<(), TraceError> {
        let (now, rows) = (now(), tables.rows());
        let bytes = self.held_bytes + tables.bytes();
        let is_old = (now - self.began).0 >= self.bounds.keep().0 / SEGMENTS as i64;
        if rows != self.rows_before && (is_old || tables.bytes() >= self.most_bytes_of_one()) {
            tables.end()?;
            self.over.push_back(PastSegment { number: self.number, ended: now, bytes, rows_before: self.rows_before });
            (self.number, self.began, self.rows_before) = (self.number + 1, now, rows);
            *tables = self.create(encoder)?;
        }
        self.let_go(now, besides);
        Ok(())
    }

    fn most_bytes_of_one(&self) -> u64 {
        self.bounds.ring_bytes() / SEGMENTS
    }

    fn let_go(&mut self, now: Nanos, besides: u64) {
        let room = self.bounds.ring_bytes().saturating_sub(self.most_bytes_of_one() + self.held_bytes + besides);
        while let Some(oldest) = self.over.front() {
            let is_too_old = (now - oldest.ended).0 > self.bounds.keep().0;
            let is_too_much = self.over.iter().map(|segment| segment.bytes).sum::<u64>() > room;
            if !(is_too_old || is_too_much) {
                return;
            }
            match fs::remove_dir_all(segment(&self.rank, oldest.number)) {
                // Then it is tried again.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return,
                _ => _ = self.over.pop_front(),
            }
        }
    }

    /// How many rows are no longer there.
    pub(crate) fn rows_gone(&self) -> Written {
        self.over.front().map_or(self.rows_before, |oldest| oldest.rows_before)
    }

    /// How many bytes are there besides what is being written.
    pub(crate) fn bytes(&self) -> u64 {
        self.held_bytes + self.over.iter().map(|segment| segment.bytes).sum::<u64>()
    }
}
