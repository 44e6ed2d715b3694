//! Reads a rank's files while they grow.

use std::{
    io::Read,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use crate::{
    error::TraceError,
    format::scan::{Scanner, Tally},
    growing_file::GrowingFile,
    ids::Nanos,
    loss::Loss,
    rank_data::{RankData, Survey, TableSurvey},
    rank_info::{RankInfo, State},
    regular_file::open_regular,
    ring,
    tables::{CounterSamples, MemoryEvents, Spans, Strings, Table},
    vocabulary::Counter,
    window::Window,
};

/// How much of a file is read at once.
const CHUNK: u64 = 1 << 20;
/// For how many rows room is made in advance, at most.
const MOST_ROOM: u64 = 1 << 24;

/// Reads what is appended to a rank's files, each time it is asked.
pub struct Follower {
    spans: TableTail<Spans>,
    memory: TableTail<MemoryEvents>,
    counters: TableTail<CounterSamples>,
    strings: TableTail<Strings>,
    window: Window,
    dropped_events: u64,
}

/// Of which tables there may be more than was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct More {
    /// Of spans.
    pub spans: bool,
    /// Of memory events.
    pub memory: bool,
}

impl Follower {
    pub(crate) fn new(directory: &Path, window: Window) -> Follower {
        Follower {
            spans: TableTail::new(directory, window),
            memory: TableTail::new(directory, window),
            // The recorder's own counters tell what it dropped, whatever the window.
            counters: TableTail::new(directory, Window::ALL),
            strings: TableTail::new(directory, Window::ALL),
            window,
            dropped_events: 0,
        }
    }

    /// When a rank counted something last, by its own clock.
    pub(crate) fn newest_counter(directory: &Path) -> Option<Nanos> {
        let mut counters: TableTail<CounterSamples> = TableTail::new(directory, Window::NONE);
        let mut nothing = CounterSamples::default();
        counters.poll(&mut nothing).ok()?;
        counters.finish(&mut nothing);
        counters.survey().time.map(|(_, end)| end)
    }

    /// Appends to `data` what was recorded since the last call.
    pub fn poll(&mut self, data: &mut RankData) -> Result<(), TraceError> {
        self.spans.poll(&mut data.spans)?;
        self.memory.poll(&mut data.memory)?;
        let mut counters = CounterSamples::default();
        self.counters.poll(&mut counters)?;
        // Names are written before the rows that use them: read last, none is missing.
        let mut strings = Strings::default();
        self.strings.poll(&mut strings)?;
        self.keep(&counters, &strings, data);
        Ok(())
    }

    /// Appends to `data` a part of what was recorded since the last call: of spans and of memory events, where those are
    /// wanted, what so many bytes of the file hold. Says of what there may be more. However much there is to catch up with,
    /// it takes little memory.
    pub fn poll_some(&mut self, data: &mut RankData, bytes: u64, memory_too: bool) -> Result<More, TraceError> {
        let spans = self.spans.poll_chunk(&mut data.spans, bytes)? == bytes;
        let memory = !memory_too || self.memory.poll_chunk(&mut data.memory, bytes)? == bytes;
        let (mut counters, mut strings) = (CounterSamples::default(), Strings::default());
        self.counters.poll(&mut counters)?;
        self.strings.poll(&mut strings)?;
        self.keep(&counters, &strings, data);
        Ok(More { spans, memory })
    }

    /// As [`Follower::poll`] and [`Follower::finish`] together, but spans and memory events are shown piece by piece
    /// and not kept, so that a piece is in memory and not the rank. Names and counters are in `data` before.
    pub(crate) fn visit(
        &mut self,
        data: &mut RankData,
        mut spans: impl FnMut(&RankData, &mut Spans),
        mut memory: impl FnMut(&MemoryEvents),
    ) -> Result<(), TraceError> {
        let (mut counters, mut strings) = (CounterSamples::default(), Strings::default());
        self.counters.poll(&mut counters)?;
        self.counters.finish(&mut counters);
        self.strings.poll(&mut strings)?;
        self.strings.finish(&mut strings);
        self.keep(&counters, &strings, data);
        let mut piece = Spans::default();
        let mut show = |piece: &mut Spans| {
            spans(data, piece);
            piece.clear();
        };
        self.spans.poll_pieces(&mut piece, |_, _, _, _| {}, &mut show)?;
        self.spans.finish(&mut piece);
        show(&mut piece);
        let mut piece = MemoryEvents::default();
        let mut show = |piece: &mut MemoryEvents| {
            memory(piece);
            piece.clear();
        };
        self.memory.poll_pieces(&mut piece, |_, _, _, _| {}, &mut show)?;
        self.memory.finish(&mut piece);
        show(&mut piece);
        Ok(())
    }

    /// Appends what can still be read when no more will be written: batches behind a damaged head, for example.
    pub fn finish(&mut self, data: &mut RankData) {
        self.spans.finish(&mut data.spans);
        self.memory.finish(&mut data.memory);
        let (mut counters, mut strings) = (CounterSamples::default(), Strings::default());
        self.counters.finish(&mut counters);
        self.strings.finish(&mut strings);
        self.keep(&counters, &strings, data);
    }

    fn keep(&mut self, counters: &CounterSamples, strings: &Strings, data: &mut RankData) {
        let dropped = counters.rows().filter(|sample| sample.counter == Counter::DroppedEvents.id());
        self.dropped_events = dropped.map(|sample| sample.value as u64).fold(self.dropped_events, u64::max);
        data.counters.append_within(counters, self.window);
        data.names.extend(strings.rows());
    }

    /// What is lost so far of a rank in this state. What is pending counts once nobody records any more.
    pub fn loss(&self, info: &RankInfo, state: State) -> Loss {
        let written = info.written.unwrap_or_default();
        let mut loss = Loss { dropped_events: self.dropped_events, ..Loss::default() };
        loss += self.spans.loss(state, written.spans);
        loss += self.memory.loss(state, written.memory);
        loss += self.counters.loss(state, written.counters);
        loss += self.strings.loss(state, written.strings);
        loss
    }

    pub(crate) fn survey(&self, info: &RankInfo, state: State) -> Survey {
        Survey {
            spans: self.spans.survey(),
            memory: self.memory.survey(),
            counters: self.counters.survey(),
            strings: self.strings.survey(),
            loss: self.loss(info, state),
        }
    }
}

/// Reads one table to its end, again and again: its file, and where only the last minutes are kept, one segment's after the
/// other.
struct TableTail<T> {
    rank: PathBuf,
    /// The segment that it is in, if it is in one.
    segment: Option<u64>,
    /// `None` until the recorder has made it.
    file: Option<GrowingFile>,
    bytes: u64,
    scanner: Scanner,
    window: Window,
    table: PhantomData<T>,
}

impl<T: Table> TableTail<T> {
    fn new(rank: &Path, window: Window) -> TableTail<T> {
        let (rank, scanner) = (rank.to_owned(), Scanner::new());
        TableTail { rank, segment: None, file: None, bytes: 0, scanner, window, table: PhantomData }
    }

    fn path(&self) -> PathBuf {
        let directory = self.segment.map_or_else(|| self.rank.clone(), |number| ring::segment(&self.rank, number));
        directory.join(T::FILE)
    }

    /// Appends what is new to `table`.
    fn poll(&mut self, table: &mut T) -> Result<(), TraceError> {
        self.poll_pieces(table, make_room, |_| {})
    }

    /// Appends what is new, and shows it after every chunk of the file; `first` sees what the first chunk held.
    fn poll_pieces(
        &mut self,
        table: &mut T,
        first: fn(&mut T, &GrowingFile, u64, usize),
        mut piece: impl FnMut(&mut T),
    ) -> Result<(), TraceError> {
        loop {
            let (before, rows_before) = (self.bytes, table.len());
            if self.poll_chunk(table, CHUNK)? == 0 {
                return Ok(());
            }
            if let Some(file) = self.file.as_ref().filter(|_| before == 0) {
                first(table, file, self.bytes, table.len() - rows_before);
            }
            piece(table);
        }
    }

    /// Appends the contents of the next bytes, up to this many; returns how many there were.
    fn poll_chunk(&mut self, table: &mut T, bytes: u64) -> Result<u64, TraceError> {
        let mut read = self.read(table, bytes)?;
        while read < bytes {
            // Another segment is begun when the one before it is whole: what is read of this one now is the rest.
            let Some(next) = self.next_segment() else { break };
            read += self.read(table, bytes - read)?;
            if read < bytes {
                self.enter(next, table);
                read += self.read(table, bytes - read)?;
            }
        }
        Ok(read)
    }

    /// Appends the contents of the next bytes of the file, up to this many; returns how many there were.
    fn read(&mut self, table: &mut T, bytes: u64) -> Result<u64, TraceError> {
        if self.file.is_none() {
            let path = self.path();
            self.file = GrowingFile::open(path.clone()).map_err(TraceError::io("open", &path))?;
        }
        let Some(file) = &mut self.file else { return Ok(0) };
        let read = file.read_more(self.scanner.pending_mut(), bytes);
        let read = read.map_err(|error| TraceError::io("read", &self.path())(error))?;
        if read > 0 {
            self.scanner.drain(self.window, table);
            self.bytes += read;
        }
        Ok(read)
    }

    /// The segment after the one that it is in. A table that has rows outside of segments has none.
    fn next_segment(&self) -> Option<u64> {
        let is_outside = self.segment.is_none() && self.scanner.tally().rows > 0;
        let segments = if T::IS_TIMED && !is_outside { ring::segments(&self.rank) } else { Vec::new() };
        segments.into_iter().find(|number| self.segment.is_none_or(|segment| *number > segment))
    }

    /// Goes on with another segment. Whoever begins with one that is not the first is told what still holds of those before.
    fn enter(&mut self, number: u64, table: &mut T) {
        self.scanner.drain_to_end(self.window, table);
        let is_next = self.segment.map_or(0, |segment| segment + 1) == number && self.file.is_some();
        self.scanner.change_file(is_next || number == 0);
        let is_first = self.segment.replace(number).is_none();
        self.file = None;
        if T::IS_RETOLD && is_first {
            let path = ring::segment(&self.rank, number).join(ring::HELD);
            let mut scanner = Scanner::new();
            // Without it, what was allocated before is not known.
            if let Ok(mut file) = open_regular(&path)
                && file.read_to_end(scanner.pending_mut()).is_ok()
            {
                scanner.drain_to_end(self.window, table);
            }
        }
    }

    fn finish(&mut self, table: &mut T) {
        self.scanner.drain_to_end(self.window, table);
    }

    fn survey(&self) -> TableSurvey {
        let Tally { rows, batches, time, .. } = self.scanner.tally();
        TableSurvey { rows, batches, bytes: self.bytes, time }
    }

    /// What is lost. A recorder that ended well has said how many rows there should be.
    fn loss(&self, state: State, written: u64) -> Loss {
        let tally = if state == State::Recording { self.scanner.tally() } else { self.scanner.tally_at_end() };
        let known = tally.rows + tally.loss.unreadable_events;
        let missing = written.saturating_sub(known);
        Loss { unreadable_events: tally.loss.unreadable_events.saturating_add(missing), ..tally.loss }
    }
}

/// Makes room for what the rest of a file probably holds, from what its first chunk held, so that a column is not
/// copied again and again while it grows.
fn make_room<T: Table>(table: &mut T, file: &GrowingFile, read: u64, rows: usize) {
    let rest = (file.len().saturating_sub(read).saturating_mul(rows as u64) / read).min(MOST_ROOM);
    table.columns_mut().into_iter().for_each(|column| column.reserve(rest as usize));
}
