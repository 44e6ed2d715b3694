//! Reads what views ask for, on a thread of its own.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use stepscope_analyzer::{AnalysisError, RankSpans, RankWork};
use stepscope_traces::{Nanos, Rank, RankDirectory, Run, RunSource, State, TraceError, Window};

use crate::{
    data::{
        Detail, DetailRequest, Passes, PassesRequest, RankDetail, RankTime, Source, TimelineDetail, TimelineRequest,
    },
    event::Event,
};

/// Of how many spans single ones are kept in memory, for all ranks that were looked at last.
const MOST_SPANS: usize = 2_000_000;
/// Reading a run that is being recorded again and again takes at most this part of the time.
const REST: u32 = 4;

/// The thread that reads what views ask for; it ends when this is dropped.
pub(crate) struct DetailThread {
    requests: Sender<(PathBuf, DetailRequest)>,
}

impl DetailThread {
    pub(crate) fn start(source: Source, events: Sender<Event>) -> std::io::Result<DetailThread> {
        let (send, requests) = channel::<(PathBuf, DetailRequest)>();
        let work = move || {
            let mut reader = DetailReader::new(source);
            while let Ok(mut request) = requests.recv() {
                // Only the last one is still wanted.
                requests.try_iter().for_each(|later| request = later);
                let began = Instant::now();
                let detail = reader.read(&request.0, &request.1);
                if events.send(Event::Detail(detail)).is_err() {
                    return;
                }
                if reader.is_recording() {
                    thread::sleep((REST * began.elapsed()).min(Duration::from_secs(1)));
                }
            }
        };
        thread::Builder::new().name("details".into()).spawn(work)?;
        Ok(DetailThread { requests: send })
    }

    /// Asks for something of the run at a path; what was asked for before and is not read yet is not.
    pub(crate) fn ask(&self, run: PathBuf, request: DetailRequest) {
        // Where the thread has ended, so has the dashboard.
        let _ = self.requests.send((run, request));
    }
}

/// Reads what views ask for, and keeps what it may be asked for again.
pub(crate) struct DetailReader {
    source: Source,
    run: Option<Run>,
    /// What was looked at, the last at the end.
    kept: Vec<Kept>,
    extents: Vec<(Rank, (i64, i64))>,
}

/// What was read of a rank.
struct Kept {
    spans: Arc<RankSpans>,
    newest: Option<Nanos>,
}

impl DetailReader {
    pub(crate) fn new(source: Source) -> DetailReader {
        DetailReader { source, run: None, kept: Vec::new(), extents: Vec::new() }
    }

    fn is_recording(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.info.source == RunSource::Stepscope && run.state() == State::Recording)
    }

    /// Reads what is asked for of the run at a path.
    pub(crate) fn read(&mut self, path: &Path, request: &DetailRequest) -> Detail {
        let read = self.open(path, request).and_then(|()| match request {
            DetailRequest::Timeline(request) => {
                self.timeline(request).map(|timeline| Detail::Timeline(Arc::new(timeline)))
            }
            DetailRequest::Passes(request) => self.passes(request).map(|passes| Detail::Passes(Arc::new(passes))),
        });
        read.unwrap_or_else(|error| Detail::Failed(error.to_string()))
    }

    /// Opens the run, if it is another one or has more ranks now.
    fn open(&mut self, path: &Path, request: &DetailRequest) -> Result<(), AnalysisError> {
        let ranks: Vec<Rank> = match request {
            DetailRequest::Timeline(request) => request.ranks.iter().map(|time| time.rank).collect(),
            DetailRequest::Passes(request) => request.figures.iter().map(|figures| figures.rank).collect(),
        };
        let has_all = |run: &Run| run.path == path && ranks.iter().all(|rank| run.rank(*rank).is_some());
        if self.run.as_ref().is_some_and(has_all) {
            return Ok(());
        }
        let run = match &self.source {
            Source::Named(_) => self.source.open()?,
            Source::Newest { .. } => Some(Run::open(path)?),
        };
        let run = run.filter(|run| run.path == path).ok_or_else(|| TraceError::Missing { path: path.to_owned() })?;
        self.run = Some(run);
        Ok(())
    }

    fn timeline(&mut self, request: &TimelineRequest) -> Result<TimelineDetail, AnalysisError> {
        let mut extent: Option<(i64, i64)> = None;
        for time in &request.ranks {
            let Some((from, to)) = self.extent(time.rank)? else { continue };
            let (from, to) = (time.aligned(from), time.aligned(to));
            extent = Some(extent.map_or((from, to), |(first, last)| (first.min(from), last.max(to))));
        }
        let (from, to) = extent.unwrap_or((0, 1));
        let window = request.window.unwrap_or(Window { from: Nanos(from), to: Nanos(to.max(from.saturating_add(1))) });
        let mut ranks = Vec::new();
        for time in &request.ranks {
            ranks.extend(self.rank(*time, time.own(window), request)?);
        }
        Ok(TimelineDetail { window, extent, ranks })
    }

    /// What a rank did in a stretch of its time: from memory, where it is there.
    fn rank(
        &mut self,
        time: RankTime,
        part: Window,
        request: &TimelineRequest,
    ) -> Result<Option<RankDetail>, AnalysisError> {
        if let Some(spans) = self.kept(time.rank, part, request.newest) {
            return Ok(Some(RankDetail {
                time,
                columns: spans.timeline_columns(part, request.columns),
                spans: Some(spans),
            }));
        }
        let Some(directory) = self.directory(time.rank) else { return Ok(None) };
        let window = self.around(directory, part);
        let view = RankSpans::read(directory, window, part, request.columns, MOST_SPANS)?;
        self.keep(view.spans.as_ref(), request.newest);
        Ok(Some(RankDetail { time, columns: view.columns, spans: view.spans }))
    }

    fn passes(&mut self, request: &PassesRequest) -> Result<Passes, AnalysisError> {
        let begin = request.figures.iter().map(|figures| figures.aligned_start_ns).min().unwrap_or(0);
        let mut ranks = Vec::new();
        for figures in &request.figures {
            let from = figures.start_ns;
            let part = Window { from: Nanos(from), to: Nanos(from.saturating_add(figures.duration_ns)) };
            let spans = match self.kept(figures.rank, part, None) {
                Some(spans) => Some(spans),
                None => {
                    let Some(directory) = self.directory(figures.rank) else { continue };
                    let spans = RankSpans::read(directory, self.around(directory, part), part, 1, MOST_SPANS)?.spans;
                    self.keep(spans.as_ref(), None);
                    spans
                }
            };
            let work = spans.map(|spans| RankWork::of(&spans, figures, begin));
            ranks.extend(work.map(|work| work.with_weights(request.schedule)));
        }
        Ok(Passes { step: request.step, ranks })
    }

    fn directory(&self, rank: Rank) -> Option<&RankDirectory> {
        self.run.as_ref()?.rank(rank)
    }

    /// What is read where a part is asked for: what is beside it is looked at next. A trace of another tool is read from
    /// its beginning to its end whatever is asked for.
    fn around(&self, directory: &RankDirectory, part: Window) -> Window {
        let is_ours = self.run.as_ref().is_some_and(|run| run.info.source == RunSource::Stepscope);
        if !is_ours || !directory.path.is_dir() {
            return Window::ALL;
        }
        let margin = part.to.0.saturating_sub(part.from.0) / 2;
        Window { from: Nanos(part.from.0.saturating_sub(margin)), to: Nanos(part.to.0.saturating_add(margin)) }
    }

    /// What is in memory of a part of a rank.
    fn kept(&mut self, rank: Rank, part: Window, newest: Option<Nanos>) -> Option<Arc<RankSpans>> {
        let holds = |kept: &Kept| {
            let window = kept.spans.window;
            let is_fresh = newest.is_none() || newest == kept.newest;
            kept.spans.rank == rank && window.from <= part.from && part.to <= window.to && is_fresh
        };
        let place = self.kept.iter().position(holds)?;
        let kept = self.kept.remove(place);
        let spans = kept.spans.clone();
        self.kept.push(kept);
        Some(spans)
    }

    /// Keeps what was read of a rank, in place of what was read of it before; lets go of what was looked at longest ago.
    fn keep(&mut self, spans: Option<&Arc<RankSpans>>, newest: Option<Nanos>) {
        let Some(spans) = spans else { return };
        self.kept.retain(|kept| kept.spans.rank != spans.rank);
        self.kept.push(Kept { spans: spans.clone(), newest });
        while self.kept.len() > 1 && self.kept.iter().map(|kept| kept.spans.len()).sum::<usize>() > MOST_SPANS {
            self.kept.remove(0);
        }
    }

    /// From the first to the last that a rank recorded, when that was first asked.
    fn extent(&mut self, rank: Rank) -> Result<Option<(i64, i64)>, AnalysisError> {
        if let Some((_, extent)) = self.extents.iter().find(|(other, _)| *other == rank) {
            return Ok(Some(*extent));
        }
        let whole = self.kept.iter().find(|kept| kept.spans.rank == rank && kept.spans.window == Window::ALL);
        let extent = match (whole, self.directory(rank)) {
            (Some(kept), _) => kept.spans.extent(),
            (None, Some(directory)) if self.around(directory, Window::NONE) == Window::ALL => {
                // It is read whole anyway, once.
                let view = RankSpans::read(directory, Window::ALL, Window::NONE, 1, MOST_SPANS)?;
                self.keep(view.spans.as_ref(), None);
                view.extent
            }
            (None, Some(directory)) => directory.survey()?.spans.time.map(|(from, to)| (from.0, to.0)),
            (None, None) => None,
        };
        self.extents.extend(extent.map(|extent| (rank, extent)));
        Ok(extent)
    }
}
