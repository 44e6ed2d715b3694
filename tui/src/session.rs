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
    data::{Loader, Source, load},
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
    #[error("there is no {0}")]
    Missing(String),
}

/// Opens the dashboard, and comes back when it is left.
pub fn run(options: Options, mut job: Option<&mut dyn Job>) -> Result<Left, DashboardError> {
    let ended = signals()?;
    let mut app = App::new(options.view, Theme::new(options.theme), job.is_some());
    let (send, events) = channel();
    let loader = Loader::start(options.source, send)?;
    let mut screen = Screen::take()?;
    let mut drawn: Option<Instant> = None;
    while app.left.is_none() && !ended.load(Ordering::Relaxed) {
        if drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW_EVERY) {
            screen.terminal.draw(|frame| app.draw(now(), frame.area(), frame.buffer_mut()))?;
            drawn = Some(Instant::now());
        }
        if take_events(&mut app, &events)? {
            drawn = None;
        }
        if let Some(end) = job.as_mut().and_then(|job| job.ended()) {
            app.handle(Event::JobEnded(end.err()));
            (job, drawn) = (None, None);
        }
    }
    drop(loader);
    // A signal that ends the dashboard is none for the job.
    Ok(app.left.unwrap_or(if job.is_some() { Left::JobGoesOn } else { Left::Alone }))
}

/// Takes in all that has happened, or waits a little for something; says whether anything did.
fn take_events(app: &mut App, events: &Receiver<Event>) -> io::Result<bool> {
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
    for event in events.try_iter() {
        app.handle(event);
        anything = true;
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

/// One frame as text, with its colours as a terminal is told them.
pub fn once(options: &Options, size: Size) -> Result<String, DashboardError> {
    let snapshot = load(&options.source)?.ok_or_else(|| DashboardError::Missing(options.source.words()))?;
    let mut app = App::new(options.view, Theme::new(options.theme), false);
    app.handle(Event::Data(Arc::new(snapshot)));
    let area = Rect::from(size);
    let mut buffer = Buffer::empty(area);
    app.draw(now(), area, &mut buffer);
    Ok(written(&buffer))
}
