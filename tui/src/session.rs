//! One sitting at the dashboard: from opening it to leaving it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use ratatui::{
    buffer::Buffer,
    crossterm::event::{self as input, Event as Input},
    layout::Rect,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stepscope_analyzer::AnalysisError;
use stepscope_traces::{ClockSnapshot, Nanos};

use crate::{
    app::App,
    data::{DetailReader, DetailThread, Loader, Source, load},
    event::Event,
    export_frame::{Size, written},
    terminal::Screen,
    theme::{Theme, ThemeName},
    views::View,
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
    /// Which view to begin with.
    pub view: View,
    /// In which colours.
    pub theme: ThemeName,
}

/// A job that began with the dashboard and runs beside it.
pub trait Job {
    /// How it ended, if it has: with why, if it failed.
    fn ended(&mut self) -> Option<Result<(), String>>;
}

/// How the dashboard was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing else goes on.
    Alone,
    /// The job is to go on.
    JobGoesOn,
    /// The job is to be stopped.
    StopJob,
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
    /// What comes from the thread that reads, and what keeps that going.
    reading: Option<(Receiver<Event>, Loader)>,
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

impl Dashboard {
    /// Begins to read, and to follow what grows.
    pub fn follow(options: Options) -> Result<Dashboard, DashboardError> {
        let app = App::new(options.view, Theme::new(options.theme), false);
        let (send, events) = channel();
        let details = DetailSource::Thread(DetailThread::start(options.source.clone(), send.clone())?);
        let loader = Loader::start(options.source, send)?;
        Ok(Dashboard { app, reading: Some((events, loader)), details })
    }

    /// Reads all there is now.
    pub fn read(options: &Options) -> Result<Dashboard, DashboardError> {
        let snapshot = load(&options.source)?.ok_or_else(|| DashboardError::Missing(options.source.words()))?;
        let mut app = App::new(options.view, Theme::new(options.theme), false);
        app.handle(Event::Data(Arc::new(snapshot)));
        let details = DetailSource::Here(Box::new(DetailReader::new(options.source.clone())));
        Ok(Dashboard { app, reading: None, details })
    }

    /// Takes in what was read since the last call; says whether that was anything.
    pub fn take_news(&mut self) -> bool {
        let news: Vec<Event> = self.reading.iter().flat_map(|(events, _)| events.try_iter()).collect();
        let any = !news.is_empty();
        news.into_iter().for_each(|event| self.app.handle(event));
        any
    }

    /// What is to be seen now, as text, with its colours as a terminal is told them.
    pub fn frame(&mut self, size: Size) -> String {
        let area = Rect::from(size);
        let mut buffer = Buffer::empty(area);
        for _ in 0..MOST_ROUNDS {
            buffer.reset();
            self.app.draw(now(), area, &mut buffer);
            if !self.ask() {
                break;
            }
        }
        written(&buffer)
    }

    /// Asks for what the view would like to see; says whether something is there at once.
    fn ask(&mut self) -> bool {
        let Some((run, wish)) = self.app.wish() else { return false };
        match &mut self.details {
            DetailSource::Thread(thread) => {
                thread.ask(run, wish);
                false
            }
            DetailSource::Here(reader) => {
                self.app.handle(Event::Detail(reader.read(&run, &wish)));
                true
            }
        }
    }
}

/// Opens the dashboard, and comes back when it is left.
pub fn run(options: Options, mut job: Option<&mut dyn Job>) -> Result<Left, DashboardError> {
    let ended = signals()?;
    let mut dashboard = Dashboard::follow(options)?;
    dashboard.app.has_job = job.is_some();
    let mut screen = Screen::take()?;
    let mut drawn: Option<Instant> = None;
    while dashboard.app.left.is_none() && !ended.load(Ordering::Relaxed) {
        if drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW_EVERY) {
            screen.terminal.draw(|frame| dashboard.app.draw(now(), frame.area(), frame.buffer_mut()))?;
            dashboard.ask();
            drawn = Some(Instant::now());
        }
        let pressed = take_keys(&mut dashboard.app)?;
        if dashboard.take_news() || pressed {
            drawn = None;
        }
        if let Some(end) = job.as_mut().and_then(|job| job.ended()) {
            dashboard.app.handle(Event::JobEnded(end.err()));
            (job, drawn) = (None, None);
        }
    }
    // A signal that ends the dashboard is none for the job.
    Ok(dashboard.app.left.unwrap_or(if job.is_some() { Left::JobGoesOn } else { Left::Alone }))
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

/// Raised by signals that end a program, so that it ends as it should.
fn signals() -> io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    Ok(ended)
}

fn now() -> Nanos {
    ClockSnapshot::take().wall_ns
}
