//! Follows a run, and publishes what it says whenever that is something new.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use stepscope_analyzer::{LiveRun, Selection, analyze};
use stepscope_traces::{Run, TraceError};

use super::{
    family::{Family, Sample},
    job_metrics, rank_metrics,
    reading::Reading,
};

/// How often it is looked for something new.
const EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody asked to stop.
const OFTEN: Duration = Duration::from_millis(100);
/// After an analysis, so many times as long as it took there is none.
const REST: u32 = 14;

/// The newest metrics.
#[derive(Default)]
pub(super) struct Published(Mutex<Arc<Vec<Family>>>);

impl Published {
    pub(super) fn latest(&self) -> Arc<Vec<Family>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn publish(&self, families: Vec<Family>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(families);
    }
}

/// What is known at a moment; of each rank only where there are at most so many.
pub(super) fn families(reading: &Reading, most_ranks: usize) -> Vec<Family> {
    let mut families = job_metrics::families(reading);
    let ranks = reading.analysis.as_ref().map_or(0, |analysis| analysis.ranks.len());
    if ranks <= most_ranks {
        families.extend(rank_metrics::families(reading));
    }
    families.retain(|family: &Family| !family.samples.is_empty());
    families.iter_mut().for_each(|family| family.samples.sort_by(by_labels));
    families
}

/// By the order of words, and of ranks by their number.
fn by_labels(one: &Sample, other: &Sample) -> std::cmp::Ordering {
    let key = |sample: &Sample| {
        let of_label = |(_, value): &(&str, String)| (value.parse().unwrap_or(u32::MAX), value.clone());
        sample.labels.iter().map(of_label).collect::<Vec<_>>()
    };
    key(one).cmp(&key(other))
}

/// What a run says now.
pub(super) fn read(run: &Run) -> Result<Reading> {
    if !LiveRun::grows(run) && LiveRun::fits_whole(run) {
        return Ok(Reading::whole(run, Arc::new(analyze(run, &Selection::default(), &|_| {})?)));
    }
    let mut live = LiveRun::open(&run.path)?;
    while live.read()? {}
    live.analyze()?;
    live.play_memory();
    Ok(Reading::live(live.run(), live.snapshot()))
}

/// Follows a run until somebody asks to stop. A run that has ended may go on.
pub(super) fn follow(path: &Path, publish: &mut dyn FnMut(&Reading), stopped: &AtomicBool) -> Result<()> {
    while !stopped.load(Ordering::Relaxed) {
        let run = match Run::of_source(path) {
            Ok(run) => run,
            // Whoever makes it may come later.
            Err(TraceError::Missing { .. }) => {
                rest(EVERY, stopped);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if LiveRun::grows(&run) || !LiveRun::fits_whole(&run) {
            follow_growth(&run, publish, stopped)?;
        } else {
            let mut reading = read(&run)?;
            publish(&reading);
            // Incidents may be explained after the end of a run.
            while let Some(run) = wait_for_more(path, stopped) {
                // Another run may have taken its place.
                if LiveRun::grows(&run) || run.info != reading.info {
                    break;
                }
                reading.look_again(&run);
                publish(&reading);
            }
        }
    }
    Ok(())
}

/// Looks at a run that has ended, after a while; none, where no more can come of it.
fn wait_for_more(path: &Path, stopped: &AtomicBool) -> Option<Run> {
    rest(EVERY, stopped);
    while !stopped.load(Ordering::Relaxed) {
        // What another tool recorded does not change.
        if let Ok(run) = Run::open(path) {
            return Some(run);
        }
        rest(EVERY, stopped);
    }
    None
}

/// Follows a run until it has ended.
fn follow_growth(run: &Run, publish: &mut dyn FnMut(&Reading), stopped: &AtomicBool) -> Result<()> {
    let mut live = LiveRun::open(&run.path)?;
    let mut next_analysis = Instant::now();
    while !stopped.load(Ordering::Relaxed) {
        let has_ended = !LiveRun::grows(live.run());
        while live.read()? && !stopped.load(Ordering::Relaxed) {}
        if has_ended {
            live.finish();
            next_analysis = Instant::now();
        }
        if live.has_news() && Instant::now() >= next_analysis {
            let began = Instant::now();
            live.analyze()?;
            next_analysis = Instant::now() + REST * began.elapsed();
        }
        live.play_memory();
        publish(&Reading::live(live.run(), live.snapshot()));
        rest(EVERY, stopped);
        if has_ended && LiveRun::fits_whole(live.run()) {
            return Ok(());
        }
        live.look()?;
    }
    Ok(())
}

fn rest(time: Duration, stopped: &AtomicBool) {
    let began = Instant::now();
    while began.elapsed() < time && !stopped.load(Ordering::Relaxed) {
        thread::sleep(OFTEN.min(time));
    }
}
