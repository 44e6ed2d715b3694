//! One trace: opened by what stands before its events, and read whole.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use serde_json::value::RawValue;

use super::{
    super::{
        ImportedRank,
        profile::{Profile, assemble, assemble_in_pieces, main_device},
        recognize, unpacked,
    },
    bytes::{Blocks, PlainFile},
    collect::Collected,
    document::{Instead, Supply, Visit, Walked, walk},
    event::Event,
    header::Header,
    shared::{self, PieceTexts},
    tail,
    value::{TraceValue, number},
};
use stepscope_plan::text;

use crate::{
    error::TraceError,
    ids::{Group, Nanos, Rank},
    notes::FailedSources,
    rank_data::RankData,
    rank_info::{RankInfo, State},
    regular_file::open_regular,
    tables::Spans,
    window::Window,
};

/// How much is unpacked to see what a file is.
const LONGEST_HEAD: u64 = 8 << 20;
/// How many events are looked at to see whose they are, and when it began.
const MOST_HEAD_EVENTS: u32 = 1 << 16;
/// Among how many of them one is looked for that says the process. Those of the host come first.
const MOST_EVENTS_TO_PROCESS: u32 = 256;

/// No trace was recorded before this, in 2001: what says so counts from something else than 1970.
pub(super) const EARLIEST: Nanos = Nanos(1_000_000_000_000_000_000);

/// What a file is.
pub(super) enum Opened {
    /// A trace.
    Trace(Box<KinetoTrace>, Box<Header>),
    /// Something else; what.
    SomethingElse(&'static str),
}

/// A trace of PyTorch's profiler.
#[derive(Clone, Debug)]
pub(crate) struct KinetoTrace {
    path: PathBuf,
    /// Its file, if it stays open.
    file: Option<Arc<File>>,
    /// The groups of the job by the names they have on this rank.
    pub(super) groups: HashMap<String, Group>,
    /// The rank, if the trace says it.
    pub(super) rank: Option<Rank>,
    /// How many ranks there are, if it says that.
    pub(super) world_size: Option<u32>,
    /// When its first event was, in the time of day.
    pub(super) first: Nanos,
    /// The number of the process that was profiled.
    pub(super) process: Option<u64>,
}

impl KinetoTrace {
    /// Looks at the beginning of a file, which stays open to be read if it is to be kept.
    pub(super) fn open(path: &Path, file: File, keep: bool) -> Result<Opened, TraceError> {
        let file = Arc::new(file);
        let (bytes, _) = unpacked::open(file.clone()).map_err(TraceError::io("read", path))?;
        let mut head = Head::default();
        let walked = walk(Chunks(bytes.take(LONGEST_HEAD)), &mut head);
        let Head { mut header, first, process, is_kineto, .. } = head;
        if walked.instead.is_none() && !walked.is_list {
            let are_dated = first.is_none_or(|first| first > EARLIEST);
            tail::take_fields(&file, &mut header, are_dated).map_err(TraceError::io("read", path))?;
        }
        if let Some(what) = what_else(&file, &walked, &header, is_kineto) {
            return Ok(Opened::SomethingElse(what));
        }
        let first = Nanos(header.base_ns) + first.unwrap_or_default();
        let trace = KinetoTrace {
            path: path.to_owned(),
            file: keep.then_some(file),
            groups: HashMap::new(),
            rank: None,
            world_size: None,
            first,
            process,
        };
        Ok(Opened::Trace(Box::new(trace), Box::new(header)))
    }

    /// Reads what lies in a window of the rank that `info` tells of, and tells what of the whole trace is lost. Meanwhile
    /// `shown` is how many bytes of the file were read.
    pub(crate) fn read(
        &self,
        info: RankInfo,
        window: Window,
        shown: &Arc<AtomicU64>,
    ) -> Result<ImportedRank, TraceError> {
        self.assembled(info, shown, |profile| assemble(profile, window))
    }

    /// The same, but spans are shown piece by piece, with names and counters, and not kept.
    pub(crate) fn read_in_pieces(
        &self,
        info: RankInfo,
        window: Window,
        shown: &Arc<AtomicU64>,
        spans: impl FnMut(&RankData, &Spans),
    ) -> Result<ImportedRank, TraceError> {
        self.assembled(info, shown, |profile| assemble_in_pieces(profile, window, spans))
    }

    /// From the first to the last moment of all that it has, in its own time. For this, all of it is gone through.
    pub(super) fn extent(&self) -> Result<Option<(Nanos, Nanos)>, TraceError> {
        let (bytes, _) = unpacked::open(self.file()?).map_err(TraceError::io("read", &self.path))?;
        let mut extent = Extent::default();
        walk(Chunks(bytes), &mut extent);
        Ok(extent.0)
    }

    fn file(&self) -> Result<Arc<File>, TraceError> {
        match &self.file {
            Some(file) => Ok(file.clone()),
            None => Ok(open_regular(&self.path).map_err(TraceError::io("open", &self.path))?.into()),
        }
    }

    fn assembled(
        &self,
        mut info: RankInfo,
        shown: &Arc<AtomicU64>,
        assemble: impl FnOnce(Profile) -> RankData,
    ) -> Result<ImportedRank, TraceError> {
        let file = self.file()?;
        let length = file.metadata().map_err(TraceError::io("look at", &self.path))?.len();
        let (mut collected, walked, left) =
            self.collect(file, length, shown).map_err(TraceError::io("read", &self.path))?;
        collected.profile.rows.move_times(collected.header.base_ns);
        let rows = &collected.profile.rows;
        let mut loss = walked.loss;
        loss.dropped_events += rows.dropped;
        loss.unreadable_events += rows.timeless + collected.open.left();
        if !walked.is_whole {
            // How much is missing, a file that was cut off does not tell; that something is, it does.
            loss.unreadable_bytes = (loss.unreadable_bytes + left).max(1);
        }
        let events = text::counted(collected.besides.events, "event");
        let cut =
            walked.cut.map(|error| format!("it cannot be fully decompressed: it breaks off after {events} ({error})"));
        info.reason = cut.or((!walked.is_whole).then(|| format!("it breaks off after {events}")));
        // The device that did most is the one that the rank uses.
        let main = main_device(&rows.activities);
        info.topology.gpu.index = main.filter(|id| collected.header.numbers_gpus(*id));
        info.device = collected.header.device(main).or(info.device);
        info.collector.failed_sources = not_read(&collected, info.reason.is_none());
        let told = collected.besides.groups.into_iter();
        info.groups.extend(told.filter_map(|(group, named)| named.membership(info.rank, group)));
        let state = if info.reason.is_some() { State::Interrupted } else { State::Complete };
        Ok(ImportedRank { info, state, data: assemble(collected.profile), loss })
    }

    /// Reads all events; and how much of the file was not even looked at.
    fn collect(&self, file: Arc<File>, length: u64, shown: &Arc<AtomicU64>) -> io::Result<(Collected, Walked, u64)> {
        let (collected, walked, taken) = match recognize::is_packed(&file) {
            true => self.collect_packed(&file, shown)?,
            false => self.collect_plain(&file, shown),
        };
        Ok((collected, walked, length.saturating_sub(taken.load(Ordering::Relaxed))))
    }

    fn collect_plain(&self, file: &Arc<File>, shown: &Arc<AtomicU64>) -> (Collected, Walked, Arc<AtomicU64>) {
        let (supply, taken) = PlainFile::new(file.clone(), shown);
        let texts = PieceTexts { file: file.clone(), emptied: None };
        let shared = thread::scope(|scope| shared::collect(scope, supply, texts, self.nothing()));
        if let Some((collected, walked)) = shared {
            return (collected, walked, taken);
        }
        let (supply, taken) = PlainFile::new(file.clone(), shown);
        let (collected, walked) = alone(supply, self.nothing());
        (collected, walked, taken)
    }

    /// The same while another thread unpacks.
    fn collect_packed(
        &self,
        file: &Arc<File>,
        shown: &Arc<AtomicU64>,
    ) -> io::Result<(Collected, Walked, Arc<AtomicU64>)> {
        let (bytes, taken) = unpacked::open_shown(file.clone(), shown)?;
        let shared = thread::scope(|scope| {
            let blocks = Blocks::of(scope, bytes)?;
            let texts = PieceTexts { file: file.clone(), emptied: Some(blocks.emptied()) };
            Ok::<_, io::Error>(shared::collect(scope, blocks, texts, self.nothing()))
        })?;
        if let Some((collected, walked)) = shared {
            return Ok((collected, walked, taken));
        }
        let (bytes, taken) = unpacked::open_shown(file.clone(), shown)?;
        let (collected, walked) =
            thread::scope(|scope| Ok::<_, io::Error>(alone(Blocks::of(scope, bytes)?, self.nothing())))?;
        Ok((collected, walked, taken))
    }

    fn nothing(&self) -> Collected {
        Collected::new(self.rank, self.world_size, self.groups.clone())
    }
}

/// Reads all events on this thread.
fn alone(supply: impl Supply, mut collected: Collected) -> (Collected, Walked) {
    let walked = walk(supply, &mut collected);
    (collected, walked)
}

/// What of a trace is missing, or there and not read. What one lacks that is not whole may stand behind its end.
fn not_read(collected: &Collected, is_whole: bool) -> Option<FailedSources> {
    let mut failed = FailedSources::default();
    for (kind, count) in &collected.besides.not_read {
        failed
            .0
            .insert(kind.clone(), format!("not read; the trace has {} of this kind", text::counted(*count, "event")));
    }
    if is_whole && collected.profile.rows.activities.is_empty() {
        let why = match collected.profile.rows.operators.len() {
            0 => "the trace has none".to_owned(),
            _ if !collected.besides.not_read.is_empty() => "the trace has none of a kind that is read".to_owned(),
            operators => format!(
                "the trace has none, but {} of the host; if the program uses a GPU, record it with ProfilerActivity.CUDA",
                text::counted(operators as u64, "operator")
            ),
        };
        failed.0.insert("GPU activity".into(), why);
    }
    (!failed.0.is_empty()).then_some(failed)
}

/// What something is that is no trace. Others add fields to those of Kineto, or leave them out; its events say that it is one.
fn what_else(file: &File, walked: &Walked, header: &Header, has_its_events: bool) -> Option<&'static str> {
    let what = match walked.instead {
        None if header.is_kineto || has_its_events => return None,
        None if walked.is_list => "a JSON array, and no list of events of PyTorch's profiler",
        None if !header.has_other_fields => return None,
        None => "a Chrome trace of another tool",
        Some(Instead::Nothing) if walked.cut.is_some() => "a gzip file that cannot be decompressed",
        Some(Instead::Nothing) => "empty",
        Some(Instead::Object) => recognize::kind_of_object(&recognize::head_of(file)),
        Some(Instead::Bytes) => recognize::kind_of(&recognize::head_of(file)),
    };
    Some(what)
}

/// Looks at what stands before the events, whose they are, and when the first of them was that we look at.
#[derive(Default)]
struct Head {
    header: Header,
    first: Option<Nanos>,
    process: Option<u64>,
    is_kineto: bool,
    events: u32,
}

impl Visit for Head {
    fn field(&mut self, key: &str, value: &RawValue) {
        self.header.take(key, value);
    }

    fn begin(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        self.first = self.first.or(event.time);
        self.is_kineto |= event.is_of_kineto();
        let process = || number(event.process.map(TraceValue::of).filter(|_| event.is_of_host()));
        self.process = self.process.or_else(process);
        self.events += 1;
        let is_known = self.first.is_some()
            && (self.header.is_kineto || self.is_kineto)
            && (self.process.is_some() || self.events >= MOST_EVENTS_TO_PROCESS);
        if is_known || self.events >= MOST_HEAD_EVENTS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// From when to when there were events.
#[derive(Default)]
struct Extent(Option<(Nanos, Nanos)>);

impl Visit for Extent {
    fn field(&mut self, _key: &str, _value: &RawValue) {}

    fn begin(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        let duration = event.duration.unwrap_or_default();
        if let Some(start) = event.time.filter(|start| event.is_of_kineto() && start.has_end(duration)) {
            let (first, last) = self.0.unwrap_or((start, start));
            self.0 = Some((first.min(start), last.max(start + duration)));
        }
        ControlFlow::Continue(())
    }
}

/// Reads on the thread that asks.
struct Chunks<R>(R);

impl<R: Read> Supply for Chunks<R> {
    fn append_next(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        let read = (&mut self.0).take(64 << 10).read_to_end(to)?;
        Ok(read > 0)
    }
}
