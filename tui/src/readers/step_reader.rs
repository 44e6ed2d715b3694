//! Reads single steps again, on a thread of its own: spans of old steps are on disk, and no longer in memory.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use stepscope_analyzer::{Analysis, AnalysisError, Selection, StepChoice, StepRange, analyze};
use stepscope_traces::{Run, Step};

use crate::{event::Event, request::StepRequest};

/// The thread that reads steps; it ends when this is dropped.
pub(crate) struct StepReader {
    asked: Sender<(Vec<PathBuf>, StepRequest)>,
}

impl StepReader {
    /// Begins to wait for somebody who asks.
    pub(crate) fn start(events: Sender<Event>) -> io::Result<StepReader> {
        let (asked, asks) = channel();
        thread::Builder::new().name("step reader".into()).spawn(move || answer(&asks, &events))?;
        Ok(StepReader { asked })
    }

    /// Asks for a step of a run.
    pub(crate) fn ask(&self, sources: Vec<PathBuf>, request: StepRequest) {
        // A thread that is gone answers nobody, and what is seen stays as it is.
        let _ = self.asked.send((sources, request));
    }
}

fn answer(asks: &Receiver<(Vec<PathBuf>, StepRequest)>, events: &Sender<Event>) {
    while let Ok(first) = asks.recv() {
        // Whoever goes through many steps waits for the last of them only.
        let (sources, request) = asks.try_iter().last().unwrap_or(first);
        let step = request.step;
        let analysis = read_step(&sources, request).map(Arc::new).map_err(|error| error.to_string());
        if events.send(Event::Step(step, analysis)).is_err() {
            return;
        }
    }
}

/// What the analyzer says of one step.
pub(crate) fn read_step(
    sources: &[PathBuf],
    StepRequest { step, windows }: StepRequest,
) -> Result<Analysis, AnalysisError> {
    let run = Run::of_sources(sources)?;
    let steps = StepRange { from: Some(step), to: Some(Step(step.0.saturating_add(1))) };
    analyze(&run, &Selection { steps: StepChoice::Range(steps), windows, ..Selection::default() }, &|_| {})
}
