//! Reads a run on a thread of its own, and gives the dashboard a snapshot whenever there is something new.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

use stepscope_analyzer::{AnalysisError, LiveRun, LiveSnapshot, Selection, StepSummary, analyze, known_incidents};
use stepscope_traces::{Run, TraceError};

use super::incident_reader::IncidentReader;
use crate::{
    data::{RunFacts, Snapshot, Source, Stage},
    event::Event,
};

/// How often it is looked for something new.
const EVERY: Duration = Duration::from_millis(200);
/// How often it is looked which ranks there are, and whether they still record.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After an analysis, so many times as long as it took there is none; nor is it looked for ranks after that took long, as it
/// does where there are many.
const REST: u32 = 14;
/// For so many ranks it is looked for something new in a second: that costs the same whether there is anything or not.
const RANKS_A_SECOND: f64 = 300.0;
/// How often memory is played: what came in last is played again and again, since more may come before it.
const PLAY_EVERY: Duration = Duration::from_millis(350);

/// The thread that reads a run; it ends when this is dropped.
pub(crate) struct Loader {
    stop: Arc<AtomicBool>,
}

impl Loader {
    /// Begins to read.
    pub(crate) fn start(source: Source, events: Sender<Event>) -> std::io::Result<Loader> {
        let stop = Arc::new(AtomicBool::new(false));
        let reading = LoaderThread { source, events, stop: stop.clone() };
        thread::Builder::new().name("reader".into()).spawn(move || reading.run())?;
        Ok(Loader { stop })
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Everything that there is of a source now; nothing where it is not there.
pub(crate) fn load(source: &Source) -> Result<Option<Snapshot>, AnalysisError> {
    let Some(run) = source.open()? else { return Ok(None) };
    if !LiveRun::grows(&run) && LiveRun::fits_whole(&run) {
        return Ok(Some(Snapshot::whole(&run, analyze(&run, &Selection::default(), &|_| {})?)));
    }
    let mut live = LiveRun::open(&run.path)?;
    while live.read()? {}
    live.analyze()?;
    live.play_memory();
    let live_snapshot = live.snapshot();
    let steps = Arc::new(live_snapshot.steps());
    let facts = RunFacts::of(live.run(), known_incidents(live.run()));
    Ok(Some(Snapshot::live(facts, live_snapshot, steps)))
}

/// What the thread has.
struct LoaderThread {
    source: Source,
    events: Sender<Event>,
    stop: Arc<AtomicBool>,
}

/// The dashboard is gone.
struct Stopped;

impl LoaderThread {
    fn run(&self) {
        match self.read() {
            // Whoever has left does not ask for what is newer.
            Ok(run) => drop(self.look_for_newer(&run)),
            Err(Why::Stopped) => {}
            Err(Why::Failed(error)) => drop(self.show(Snapshot::at(Stage::Failed(error.to_string())))),
        }
    }

    /// Says once that a newer run has begun, where the newest is looked at.
    fn look_for_newer(&self, run: &Path) -> Result<(), Stopped> {
        let Source::Newest { under } = &self.source else { return Ok(()) };
        // Of a run that jobs continue, one segment is followed.
        while Run::newest_under(under).is_none_or(|newest| run.starts_with(newest)) {
            self.rest(LOOK_EVERY)?;
        }
        self.events.send(Event::NewerRun).map_err(|_| Stopped)
    }

    fn show(&self, snapshot: Snapshot) -> Result<(), Stopped> {
        self.events.send(Event::Data(Arc::new(snapshot))).map_err(|_| Stopped)
    }

    fn rest(&self, time: Duration) -> Result<(), Stopped> {
        let until = Instant::now() + time;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stopped);
            }
            match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => thread::sleep(left.min(EVERY)),
            }
        }
    }

    /// Waits for the run, follows it while it grows, and reads all of it when it has ended; says where it is.
    fn read(&self) -> Result<PathBuf, Why> {
        let run = loop {
            match self.source.open()? {
                Some(run) => break run,
                None => self.show(Snapshot::at(Stage::Waiting(self.source.words())))?,
            }
            self.rest(EVERY)?;
        };
        let mut followed = None;
        let run = if LiveRun::grows(&run) || !LiveRun::fits_whole(&run) {
            let (live, last) = self.follow(&run)?;
            followed = Some(last);
            Run::open(live.run().path.as_path())?
        } else {
            run
        };
        if LiveRun::fits_whole(&run) {
            self.read_whole(&run, followed)?;
        } else if let Some(last) = followed {
            self.show(Snapshot { stage: Stage::Read, ..last })?;
        }
        Ok(run.path)
    }

    /// Follows a run until it has ended; gives what it said last.
    fn follow(&self, run: &Run) -> Result<(LiveRun, Snapshot), Why> {
        let mut live = LiveRun::open(&run.path)?;
        let mut next_look = Instant::now() + LOOK_EVERY;
        let (mut next_analysis, mut played) = (Instant::now(), None);
        let (mut steps, mut incidents) = (StepList::default(), IncidentReader::default());
        let mut facts = RunFacts::of(live.run(), incidents.read(live.run()));
        loop {
            let ended = !LiveRun::grows(live.run());
            let began = Instant::now();
            // What is long is shown while it is read.
            let mut more = live.read()?;
            while more && began.elapsed() < EVERY {
                more = live.read()?;
            }
            if ended && !more {
                live.finish();
                next_analysis = Instant::now();
            }
            if live.has_news() && Instant::now() >= next_analysis {
                let began = Instant::now();
                live.analyze()?;
                next_analysis = Instant::now() + REST * began.elapsed();
            }
            if played.is_none_or(|played: Instant| played.elapsed() >= PLAY_EVERY) || ended && !more {
                live.play_memory();
                played = Some(Instant::now());
            }
            let live_snapshot = live.snapshot();
            let steps = steps.of(&live_snapshot);
            let snapshot = Snapshot::live(facts.clone(), live_snapshot, steps);
            if ended && !more {
                return Ok((live, snapshot));
            }
            self.show(snapshot)?;
            let every = EVERY.max(Duration::from_secs_f64(live.run().ranks.len() as f64 / RANKS_A_SECOND));
            self.rest(if more { Duration::ZERO } else { every.saturating_sub(began.elapsed()) })?;
            if Instant::now() >= next_look {
                let began = Instant::now();
                live.look()?;
                facts = RunFacts::of(live.run(), incidents.read(live.run()));
                next_look = Instant::now() + LOOK_EVERY.max(REST * began.elapsed());
            }
        }
    }

    /// Reads all of a run; what it said while it was followed is shown meanwhile.
    fn read_whole(&self, run: &Run, followed: Option<Snapshot>) -> Result<(), Why> {
        let all = run.ranks.len();
        let reading = |done: usize| {
            let stage = Stage::Reading { done, all };
            let mut snapshot = followed.clone().unwrap_or_else(|| Snapshot::at(stage.clone()));
            snapshot.run.get_or_insert_with(|| RunFacts::of(run, known_incidents(run)));
            drop(self.show(Snapshot { stage, ..snapshot }));
        };
        reading(0);
        let analysis = analyze(run, &Selection::default(), &reading)?;
        Ok(self.show(Snapshot::whole(run, analysis))?)
    }
}

/// The list of steps, made again only when there are others.
#[derive(Default)]
struct StepList {
    made_of: Option<(LiveSnapshot, Arc<Vec<StepSummary>>)>,
}

impl StepList {
    fn of(&mut self, live_snapshot: &LiveSnapshot) -> Arc<Vec<StepSummary>> {
        let same = |other: &LiveSnapshot| {
            let analysis = live_snapshot.analysis.as_ref().map(Arc::as_ptr) == other.analysis.as_ref().map(Arc::as_ptr);
            analysis && Arc::ptr_eq(&live_snapshot.settled, &other.settled)
        };
        match &self.made_of {
            Some((other, steps)) if same(other) => steps.clone(),
            _ => {
                let steps = Arc::new(live_snapshot.steps());
                self.made_of = Some((live_snapshot.clone(), steps.clone()));
                steps
            }
        }
    }
}

/// Why reading ended early.
enum Why {
    Stopped,
    Failed(AnalysisError),
}

impl From<Stopped> for Why {
    fn from(_: Stopped) -> Why {
        Why::Stopped
    }
}

impl From<AnalysisError> for Why {
    fn from(error: AnalysisError) -> Why {
        Why::Failed(error)
    }
}

impl From<TraceError> for Why {
    fn from(error: TraceError) -> Why {
        Why::Failed(error.into())
    }
}
