//! Appends to one rank's directory.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::{
    clock::ClockSnapshot,
    error::TraceError,
    format::encode::Encoder,
    ids::NameId,
    json_file,
    membership::Membership,
    notes::CollectorNote,
    rank_info::{self, Device, RankInfo, Written, WrittenState, rank_directory},
    ring::{self, Ring},
    run_info::{RingBounds, RunInfo},
    table_file::TableFile,
    tables::{CounterSample, CounterSamples, MemoryEvent, MemoryEvents, Span, Spans, Strings, Table},
    timed_tables::TimedTables,
    topology::GpuSlot,
    vocabulary::Counter,
};

/// A batch of names is cut when they have this many bytes: readers refuse a batch that is far longer.
const BATCH_TEXT: usize = 1 << 20;

/// Writes one rank of a run. Rows are kept in memory until [`RankWriter::flush`], or until a batch is full.
///
/// After an error the writer is of no more use; what it wrote before stays readable.
pub struct RankWriter {
    directory: PathBuf,
    info: RankInfo,
    /// Whether `rank.json` says less.
    info_changed: bool,
    encoder: Encoder,
    strings: TableFile<Strings>,
    /// How long the names are together that are pending.
    pending_text: usize,
    tables: TimedTables,
    /// Where only the last minutes are kept: the segments that the tables are in, and the file that holds the rank.
    ring: Option<(Ring, TableFile<Spans>)>,
}

impl RankWriter {
    /// Makes the rank's directory in a run; refuses one that holds a recording already.
    pub fn create(run: &Path, info: RankInfo) -> Result<RankWriter, TraceError> {
        let bounds = RunInfo::read(run)?.black_box;
        let directory = rank_directory(run, info.rank);
        let taken = || TraceError::AlreadyRecorded { path: directory.clone() };
        if !is_free(&directory).map_err(TraceError::io("create", &directory))? {
            return Err(taken());
        }
        let mut encoder = Encoder::new().map_err(TraceError::io("compress for", &directory))?;
        // Whoever makes the spans file has the rank. Its lock says that the recording goes on; `rank.json` comes last,
        // so nobody reads of a recording that has no lock yet.
        let spans = TableFile::create(directory.join(Spans::FILE), &mut encoder, 0).map_err(|error| match error {
            TraceError::Io { source, .. } if source.kind() == ErrorKind::AlreadyExists => taken(),
            error => error,
        })?;
        RankWriter::create_beside(spans, &directory, encoder, (info, bounds)).inspect_err(|_| {
            // The rank is free again.
            for file in [Spans::FILE, MemoryEvents::FILE, CounterSamples::FILE, Strings::FILE] {
                drop(fs::remove_file(directory.join(file)));
            }
            drop(fs::remove_dir_all(directory.join(ring::FOLDER)));
        })
    }

    fn create_beside(
        spans: TableFile<Spans>,
        directory: &Path,
        mut encoder: Encoder,
        (mut info, bounds): (RankInfo, Option<RingBounds>),
    ) -> Result<RankWriter, TraceError> {
        info.locked = lock(&spans.file);
        let (tables, ring) = match bounds {
            Some(bounds) => {
                let (ring, tables) = Ring::begin(directory, bounds, &mut encoder)?;
                (tables, Some((ring, spans)))
            }
            None => (TimedTables::beside(spans, directory, &mut encoder, Written::default())?, None),
        };
        let mut writer = RankWriter {
            strings: TableFile::create(directory.join(Strings::FILE), &mut encoder, 0)?,
            pending_text: 0,
            tables,
            ring,
            encoder,
            directory: directory.to_owned(),
            info,
            info_changed: false,
        };
        for counter in Counter::ALL {
            writer.push_name(NameId(u32::from(counter.id().0)), counter.word())?;
        }
        writer.write_info()?;
        Ok(writer)
    }

    /// The rank this writes.
    pub fn info(&self) -> &RankInfo {
        &self.info
    }

    /// Adds a name. It is in the file before any row that is pushed later.
    pub fn push_name(&mut self, id: NameId, text: &str) -> Result<(), TraceError> {
        self.strings.pending.push((id, text.to_owned()));
        self.pending_text += text.len();
        if self.strings.is_full() || self.pending_text >= BATCH_TEXT { self.flush_names() } else { Ok(()) }
    }

    fn flush_names(&mut self) -> Result<(), TraceError> {
        self.pending_text = 0;
        self.strings.flush(&mut self.encoder)
    }

    /// Adds a span.
    pub fn push_span(&mut self, span: &Span) -> Result<(), TraceError> {
        self.tables.spans.pending.push(*span);
        if self.tables.spans.is_full() { self.flush() } else { Ok(()) }
    }

    /// Adds a memory event.
    pub fn push_memory(&mut self, event: &MemoryEvent) -> Result<(), TraceError> {
        self.tables.memory.pending.push(*event);
        if let Some((ring, _)) = &mut self.ring {
            ring.hear(event);
        }
        if self.tables.memory.is_full() { self.flush() } else { Ok(()) }
    }

    /// Adds a counter's sample.
    pub fn push_counter(&mut self, sample: &CounterSample) -> Result<(), TraceError> {
        self.tables.counters.pending.push(*sample);
        if self.tables.counters.is_full() { self.flush() } else { Ok(()) }
    }

    /// Writes what is pending. Names go first, so that no reader sees a row whose name is missing.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        let claim = self.ring.as_ref().map_or(&self.tables.spans, |(_, claim)| claim);
        claim.check_still_there(&self.directory)?;
        self.flush_names()?;
        self.tables.flush(&mut self.encoder)?;
        if let Some((ring, _)) = &mut self.ring {
            ring.turn(&mut self.tables, &mut self.encoder, self.strings.bytes)?;
        }
        if self.info_changed {
            // Not worth ending a recording for: the next flush tries again.
            self.info_changed = self.write_info().is_err();
        }
        Ok(())
    }

    /// Bytes written so far, as far as they are kept.
    pub fn written_bytes(&self) -> u64 {
        self.strings.bytes + self.tables.bytes() + self.ring.as_ref().map_or(0, |(ring, _)| ring.bytes())
    }

    /// Notes where the clocks stand; it is written with the next flush.
    pub fn add_clock_snapshot(&mut self, snapshot: ClockSnapshot) {
        self.info.clock.add(snapshot);
        self.info_changed = true;
    }

    /// Notes how the rank is recorded; it is written with the next flush.
    pub fn note(&mut self, note: CollectorNote) {
        self.info.collector.add(note);
        self.info_changed = true;
    }

    /// Says what the rank computes on, where that is known only after it began; it is written with the next flush.
    pub fn set_device(&mut self, device: Device) {
        self.info.device = Some(device);
        self.info_changed = true;
    }

    /// Says where the rank's GPU is in its machine.
    pub fn set_gpu_slot(&mut self, slot: GpuSlot) {
        self.info.topology.gpu = slot;
        self.info_changed = true;
    }

    /// Says that the rank is in a group.
    pub fn join_group(&mut self, membership: Membership) {
        self.info.groups.push(membership);
        self.info_changed = true;
    }

    /// Writes what is pending and ends the recording well.
    pub fn finish(mut self) -> Result<(), TraceError> {
        self.flush()?;
        self.tables.end()?;
        self.strings.end()?;
        self.info.written = Some(self.written());
        self.info.state = WrittenState::Complete;
        self.write_info()
    }

    /// How many rows there are to be read.
    fn written(&self) -> Written {
        let (rows, gone) =
            (self.tables.rows(), self.ring.as_ref().map_or_else(Written::default, |(ring, _)| ring.rows_gone()));
        Written {
            spans: rows.spans - gone.spans,
            memory: rows.memory - gone.memory,
            counters: rows.counters - gone.counters,
            strings: self.strings.rows,
        }
    }

    /// Writes what is pending, if that is possible, and says why the recording ends early.
    pub fn interrupt(mut self, reason: &str) -> Result<(), TraceError> {
        let flushed = self.flush();
        self.info.written = Some(self.written());
        self.info.state = WrittenState::Interrupted;
        self.info.reason = Some(reason.into());
        flushed.and(self.write_info())
    }

    fn write_info(&self) -> Result<(), TraceError> {
        json_file::replace(&self.directory.join(rank_info::FILE), &self.info)
    }
}

/// Makes a directory, unless it is there; whether it is one, and not a link to one, and empty: whatever is in it is somebody
/// else's.
fn is_free(directory: &Path) -> io::Result<bool> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Ok(fs::symlink_metadata(directory)?.is_dir() && fs::read_dir(directory)?.next().is_none())
        }
        made => made.map(|()| true),
    }
}

/// Locks a file for as long as this process has it open; says whether the file system can. A reader that looks whether
/// a recording goes on holds a lock for a moment.
fn lock(file: &File) -> bool {
    for _ in 0..100 {
        match file.try_lock() {
            Ok(()) => return true,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::Error(_)) => return false,
        }
    }
    false
}
