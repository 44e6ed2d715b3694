//! One sitting at the dashboard: from opening it to leaving it.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ratatui::{
    buffer::Buffer,
    crossterm::event::{self as input, Event as Input, KeyCode, KeyEvent},
    layout::Rect,
};
use stepscope_analyzer::AnalysisError;
use stepscope_traces::{ClockSnapshot, Nanos};

use crate::{
    app::{App, DashboardExit},
    data::Source,
    event::Event,
    export_frame::{Size, written},
    readers::{DetailReader, DetailThread, Loader, StepReader, load, look_at_runs},
    request::{ExportScope, Request},
    signals::{Signals, stop_for_a_while},
    terminal::Screen,
    theme::{Theme, ThemeName},
    view::View,
};

/// For how long keys are waited for, before it is looked for anything else.
const PATIENCE: Duration = Duration::from_millis(40);
/// How often ages are written anew.
const REDRAW_EVERY: Duration = Duration::from_secs(1);

/// What to show, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to look at.
    pub source: Source,
    /// Which view to begin with; the one that suits the run, if there is none.
    pub view: Option<View>,
    /// In which colors.
    pub theme: ThemeName,
}

/// A job that began with the dashboard and runs beside it.
pub trait Job {
    /// How it ended, if it has: with why, if it failed.
    fn ended(&mut self) -> Option<Result<(), String>>;
}

/// Writes what is seen as a trace for ui.perfetto.dev: says where to, or why not. It is given what to open.
pub type Export = fn(&[PathBuf], &ExportScope) -> Result<String, String>;

/// What the dashboard has of the world around it.
pub struct Outside<'a> {
    /// A job that began with it.
    pub job: Option<&'a mut dyn Job>,
    /// How what is seen is written as a trace.
    pub export: Export,
}

/// Why there is no dashboard.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// The terminal cannot be used.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
    /// The source cannot be read.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// There is no source.
    #[error("cannot find {0}")]
    Missing(String),
}

/// A dashboard without a terminal: what it would show, and nobody who presses keys.
pub struct Dashboard {
    app: App,
    source: Source,
    /// What comes from the threads that read, and what keeps them going.
    reading: Option<ReadingThreads>,
    details: DetailSource,
}

/// Who reads what views ask for.
enum DetailSource {
    /// A thread, which sends it.
    Thread(DetailThread),
    /// Whoever asks waits for it.
    Here(Box<DetailReader>),
}

/// What is read shows what else is asked for, so many times at most.
const MOST_ROUNDS: usize = 4;

struct ReadingThreads {
    events: Receiver<Event>,
    send: Sender<Event>,
    step_reader: StepReader,
    _loader: Loader,
}

impl Dashboard {
    /// Begins to read, and to follow what grows.
    pub fn follow(options: Options) -> Result<Dashboard, DashboardError> {
        Ok(Dashboard::of(App::new(options.view, Theme::new(options.theme), false), options.source)?)
    }

    fn of(app: App, source: Source) -> io::Result<Dashboard> {
        let (send, events) = channel();
        let step_reader = StepReader::start(send.clone())?;
        let details = DetailSource::Thread(DetailThread::start(source.clone(), send.clone())?);
        let _loader = Loader::start(source.clone(), send.clone())?;
        let reading = Some(ReadingThreads { events, send, step_reader, _loader });
        Ok(Dashboard { app, source, reading, details })
    }

    /// Reads all there is now.
    pub fn read(options: &Options) -> Result<Dashboard, DashboardError> {
        let snapshot = load(&options.source)?.ok_or_else(|| DashboardError::Missing(options.source.words()))?;
        let mut app = App::new(options.view, Theme::new(options.theme), false);
        app.handle(Event::Data(Arc::new(snapshot)));
        let details = DetailSource::Here(Box::new(DetailReader::new(options.source.clone())));
        Ok(Dashboard { app, source: options.source.clone(), reading: None, details })
    }

    /// Takes in what was read since the last call; says whether that was anything.
    pub fn take_news(&mut self) -> bool {
        let news: Vec<Event> = self.reading.iter().flat_map(|reading| reading.events.try_iter()).collect();
        let any = !news.is_empty();
        news.into_iter().for_each(|event| self.app.handle(event));
        any
    }

    /// Shows another view.
    pub fn show(&mut self, view: View) {
        self.app.show(view);
    }

    /// Presses a key. What it asks of others is not done.
    pub fn press(&mut self, key: char) {
        self.app.handle(Event::Key(KeyEvent::from(KeyCode::Char(key))));
        self.app.take_requests();
    }

    /// What is to be seen now, as text, with its colors as a terminal is told them.
    pub fn frame(&mut self, size: Size) -> String {
        let area = Rect::from(size);
        let mut buffer = Buffer::empty(area);
        for _ in 0..MOST_ROUNDS {
            buffer.reset();
            self.app.draw(now(), area, &mut buffer);
            if !self.read_details() {
                break;
            }
        }
        written(&buffer)
    }

    /// Has read what the view would like to see; says whether something is there at once.
    fn read_details(&mut self) -> bool {
        let Some((run, request)) = self.app.detail_request() else { return false };
        match &mut self.details {
            DetailSource::Thread(thread) => {
                thread.ask(run, request);
                false
            }
            DetailSource::Here(reader) => {
                self.app.handle(Event::Detail(reader.read(&run, &request)));
                true
            }
        }
    }
}

impl Dashboard {
    /// Who reads, and what to open to open the same run again; nothing before there is one.
    fn opened(&self) -> Option<(&ReadingThreads, Vec<PathBuf>)> {
        Some((self.reading.as_ref()?, self.source.files(self.app.run_path()?)))
    }

    /// Has others do what the dashboard asks for; gives those who write something, who are to be waited for.
    fn pass_on_requests(&mut self, export: Export) -> io::Result<Vec<JoinHandle<()>>> {
        let mut writers = Vec::new();
        for request in self.app.take_requests() {
            match request {
                Request::Runs => {
                    let runs = self.source.runs();
                    if let Some(reading) = &self.reading {
                        look_at_runs(runs.iter().map(|run| run.path.clone()).collect(), reading.send.clone())?;
                    }
                    self.app.handle(Event::Runs(runs));
                }
                // Who read the other one ends, and nobody hears it any more.
                Request::Open(run) => *self = Dashboard::of(self.app.anew(), Source::Named(vec![run]))?,
                Request::Step(step) => {
                    let Some((reading, files)) = self.opened() else { continue };
                    reading.step_reader.ask(files, step);
                }
                Request::Export(seen) => {
                    let Some((reading, files)) = self.opened() else { continue };
                    let send = reading.send.clone();
                    let write = move || {
                        // Whoever has left does not ask what became of it.
                        let _ = send.send(Event::Exported(export(&files, &seen)));
                    };
                    writers.push(thread::Builder::new().name("export".into()).spawn(write)?);
                }
            }
        }
        Ok(writers)
    }
}

/// Opens the dashboard, and comes back when it is left.
pub fn run(options: Options, outside: Outside<'_>) -> Result<DashboardExit, DashboardError> {
    let Outside { mut job, export } = outside;
    let signals = Signals::register()?;
    let mut dashboard = Dashboard::follow(options)?;
    dashboard.app.has_job = job.is_some();
    let mut screen = Screen::take()?;
    let mut drawn: Option<Instant> = None;
    let mut writers = Vec::new();
    while dashboard.app.exit.is_none() && !signals.came() {
        if drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW_EVERY) {
            screen.terminal.draw(|frame| dashboard.app.draw(now(), frame.area(), frame.buffer_mut()))?;
            dashboard.read_details();
            drawn = Some(Instant::now());
        }
        if signals.takes_stop() || std::mem::take(&mut dashboard.app.is_suspended) {
            screen.without(stop_for_a_while)?;
            drawn = None;
            continue;
        }
        let pressed = take_keys(&mut dashboard.app)?;
        if dashboard.take_news() || pressed {
            drawn = None;
        }
        writers.extend(dashboard.pass_on_requests(export)?);
        if let Some(end) = job.as_mut().and_then(|job| job.ended()) {
            dashboard.app.handle(Event::JobEnded(end.err()));
            (job, drawn) = (None, None);
        }
    }
    drop(screen);
    signals.may_end_us();
    // What is half written is of no use to anybody. One that panicked has said so.
    writers.into_iter().for_each(|writer| drop(writer.join()));
    // A signal that ends the dashboard is none for the job.
    Ok(dashboard.app.exit.unwrap_or(if job.is_some() { DashboardExit::JobGoesOn } else { DashboardExit::Alone }))
}

/// Takes in what was pressed, or waits a little for something; says whether anything was.
fn take_keys(app: &mut App) -> io::Result<bool> {
    let mut anything = false;
    let mut patience = PATIENCE;
    while input::poll(patience)? {
        let event = match input::read()? {
            Input::Key(key) => Some(Event::Key(key)),
            Input::Mouse(mouse) => Some(Event::Mouse(mouse)),
            Input::Resize(..) => Some(Event::Resized),
            _ => None,
        };
        anything |= event.is_some();
        event.into_iter().for_each(|event| app.handle(event));
        patience = Duration::ZERO;
    }
    Ok(anything)
}

fn now() -> Nanos {
    ClockSnapshot::take().wall_ns
}
