//! Appends to one rank's directory.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::{
    clock::ClockSnapshot,
    error::TraceError,
    format::{encode::Encoder, frame::END_OF_STREAM},
    ids::{NameId, Rank},
    json_file,
    membership::Membership,
    notes::CollectorNote,
    rank_info::{self, Device, RankInfo, Written, WrittenState},
    run_info::RunInfo,
    tables::{CounterSample, CounterSamples, MemoryEvent, MemoryEvents, Span, Spans, Strings, Table},
    vocabulary::Counter,
};

/// A batch is cut when it has this many rows, whatever the time.
const BATCH_ROWS: usize = 16 << 10;
/// A batch of names is cut when they have this many bytes: readers refuse a batch that is far longer.
const BATCH_TEXT: usize = 1 << 20;

/// The directory of a rank in a run.
pub(crate) fn rank_directory(run: &Path, rank: Rank) -> PathBuf {
    run.join(format!("rank-{:05}", rank.0))
}

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
    spans: TableFile<Spans>,
    memory: TableFile<MemoryEvents>,
    counters: TableFile<CounterSamples>,
}

impl RankWriter {
    /// Makes the rank's directory in a run; refuses one that holds a recording already.
    pub fn create(run: &Path, info: RankInfo) -> Result<RankWriter, TraceError> {
        RunInfo::read(run)?;
        let directory = rank_directory(run, info.rank);
        let taken = || TraceError::AlreadyRecorded { path: directory.clone() };
        if !is_free(&directory).map_err(TraceError::io("create", &directory))? {
            return Err(taken());
        }
        let mut encoder = Encoder::new().map_err(TraceError::io("compress for", &directory))?;
        // Whoever makes the spans file has the rank. Its lock says that the recording goes on; `rank.json` comes last,
        // so nobody reads of a recording that has no lock yet.
        let spans = TableFile::create(&directory, &mut encoder).map_err(|error| match error {
            TraceError::Io { source, .. } if source.kind() == ErrorKind::AlreadyExists => taken(),
            error => error,
        })?;
        RankWriter::create_beside(spans, &directory, encoder, info).inspect_err(|_| {
            // The rank is free again.
            for file in [Spans::FILE, MemoryEvents::FILE, CounterSamples::FILE, Strings::FILE] {
                drop(fs::remove_file(directory.join(file)));
            }
        })
    }

    fn create_beside(
        spans: TableFile<Spans>,
        directory: &Path,
        mut encoder: Encoder,
        mut info: RankInfo,
    ) -> Result<RankWriter, TraceError> {
        info.locked = lock(&spans.file);
        let mut writer = RankWriter {
            strings: TableFile::create(directory, &mut encoder)?,
            pending_text: 0,
            spans,
            memory: TableFile::create(directory, &mut encoder)?,
            counters: TableFile::create(directory, &mut encoder)?,
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
        self.spans.pending.push(*span);
        if self.spans.is_full() { self.flush() } else { Ok(()) }
    }

    /// Adds a memory event.
    pub fn push_memory(&mut self, event: &MemoryEvent) -> Result<(), TraceError> {
        self.memory.pending.push(*event);
        if self.memory.is_full() { self.flush() } else { Ok(()) }
    }

    /// Adds a counter's sample.
    pub fn push_counter(&mut self, sample: &CounterSample) -> Result<(), TraceError> {
        self.counters.pending.push(*sample);
        if self.counters.is_full() { self.flush() } else { Ok(()) }
    }

    /// Writes what is pending. Names go first, so that no reader sees a row whose name is missing.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.spans.check_still_there(&self.directory)?;
        self.flush_names()?;
        self.spans.flush(&mut self.encoder)?;
        self.memory.flush(&mut self.encoder)?;
        self.counters.flush(&mut self.encoder)?;
        if self.info_changed {
            // Not worth ending a recording for: the next flush tries again.
            self.info_changed = self.write_info().is_err();
        }
        Ok(())
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.strings.bytes + self.spans.bytes + self.memory.bytes + self.counters.bytes
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

    /// Says that the rank is in a group.
    pub fn join_group(&mut self, membership: Membership) {
        self.info.groups.push(membership);
        self.info_changed = true;
    }

    /// Writes what is pending and ends the recording well.
    pub fn finish(mut self) -> Result<(), TraceError> {
        self.flush()?;
        self.spans.end()?;
        self.memory.end()?;
        self.counters.end()?;
        self.strings.end()?;
        self.info.written = Some(self.written());
        self.info.state = WrittenState::Complete;
        self.write_info()
    }

    fn written(&self) -> Written {
        Written {
            spans: self.spans.rows,
            memory: self.memory.rows,
            counters: self.counters.rows,
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

/// One table's file.
struct TableFile<T: Table> {
    path: PathBuf,
    file: File,
    /// Rows that are not in the file yet, and room to lay them out in columns.
    pending: Vec<T::Row>,
    columns: T,
    /// Rows in the file.
    rows: u64,
    /// Bytes in the file.
    bytes: u64,
    message: Vec<u8>,
}

impl<T: Table> TableFile<T> {
    fn create(directory: &Path, encoder: &mut Encoder) -> Result<TableFile<T>, TraceError> {
        let path = directory.join(T::FILE);
        let file =
            OpenOptions::new().write(true).create_new(true).open(&path).map_err(TraceError::io("create", &path))?;
        let (pending, columns, message) = (Vec::new(), T::default(), Vec::new());
        let mut table = TableFile { path, file, pending, columns, rows: 0, bytes: 0, message };
        encoder.preamble::<T>(&mut table.message).map_err(TraceError::io("compress for", &table.path))?;
        table.append_message()?;
        Ok(table)
    }

    fn is_full(&self) -> bool {
        self.pending.len() >= BATCH_ROWS
    }

    fn flush(&mut self, encoder: &mut Encoder) -> Result<(), TraceError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.columns.clear();
        match T::order(&self.pending) {
            None => self.pending.iter().for_each(|row| self.columns.push_row(row)),
            Some(order) => order.iter().for_each(|row| self.columns.push_row(&self.pending[*row as usize])),
        }
        self.message.clear();
        encoder
            .rows(&self.columns, self.rows, &mut self.message)
            .map_err(TraceError::io("compress for", &self.path))?;
        self.append_message()?;
        self.rows += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    fn end(&mut self) -> Result<(), TraceError> {
        self.message.clear();
        self.message.extend_from_slice(&END_OF_STREAM);
        self.append_message()
    }

    /// Appends the message, or leaves the file as it was.
    fn append_message(&mut self) -> Result<(), TraceError> {
        self.file.write_all(&self.message).map_err(|error| {
            drop(self.file.set_len(self.bytes));
            TraceError::io("write to", &self.path)(error)
        })?;
        self.bytes += self.message.len() as u64;
        Ok(())
    }

    /// A removed file can still be written to, so the loss would be noticed too late.
    fn check_still_there(&self, directory: &Path) -> Result<(), TraceError> {
        let ours = self.file.metadata().map_err(TraceError::io("look at", &self.path))?;
        match fs::metadata(&self.path) {
            Ok(theirs) if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) => Ok(()),
            _ => Err(TraceError::Vanished { path: directory.to_owned() }),
        }
    }
}
