//! Recorded runs, as far as predictions need them: what they show of assumptions, and what came of a prediction.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::Serialize;
use stepscope_analyzer::{Analysis, Selection, analyze, measured_rates};
use stepscope_plan::{Calibration, Device, MeasuredAssumption, MeasuredRates, text};

use crate::{progress, source};

/// Analyzes a recorded run.
pub(super) fn analyzed(path: &Path) -> Result<Analysis> {
    let run = source::open(&[path.to_owned()])?;
    let selection = Selection::default();
    Ok(progress::shown(run.ranks.iter(), |progress| analyze(&run, &selection, progress))?)
}

/// Whether two paths are of one run.
fn is_same(one: &Path, two: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole(one) == whole(two)
}

/// What recorded runs show of assumptions.
pub(super) struct Recorded {
    /// The device of all of them.
    pub(super) device: &'static Device,
    pub(super) calibration: Calibration,
    /// The runs that show something.
    used: Vec<PathBuf>,
    unused: Vec<UnusedRun>,
}

/// A run that shows nothing, and why.
#[derive(Serialize)]
struct UnusedRun {
    run: String,
    why: String,
}

/// The same in JSON.
#[derive(Serialize)]
pub(super) struct JsonCalibration<'a> {
    device: &'static str,
    runs: Vec<String>,
    unused: &'a [UnusedRun],
    measured: Vec<&'a MeasuredAssumption>,
}

impl Recorded {
    /// Reads runs; those that show nothing are told, and some must show something.
    pub(super) fn of(runs: &[PathBuf]) -> Result<Option<Recorded>> {
        let mut rates: Vec<(&'static Device, MeasuredRates)> = Vec::new();
        let (mut used, mut unused) = (Vec::new(), Vec::new());
        for (index, path) in runs.iter().enumerate() {
            if runs[..index].iter().any(|other| is_same(other, path)) {
                continue;
            }
            match measured_rates(&analyzed(path)?) {
                Ok(shown) => {
                    rates.push(shown);
                    used.push(path.clone());
                }
                Err(why) => unused.push(UnusedRun { run: path.display().to_string(), why }),
            }
        }
        if runs.is_empty() {
            return Ok(None);
        }
        let Some((device, _)) = rates.first() else {
            let why = unused.first().map_or_else(String::new, |unused| format!("; {}: {}", unused.run, unused.why));
            bail!("none of the runs of --from shows how fast a GPU is{why}");
        };
        if let Some((other, _)) = rates.iter().find(|(other, _)| other.name != device.name) {
            bail!("the runs of --from are of different GPUs, {} and {}; take those of one", device.name, other.name);
        }
        let shown: Vec<MeasuredRates> = rates.iter().map(|(_, rates)| *rates).collect();
        Ok(Some(Recorded { device, calibration: Calibration::of(&shown), used, unused }))
    }

    /// Whether a run is one of those that assumptions come from.
    pub(super) fn has_used(&self, run: &Path) -> bool {
        self.used.iter().any(|used| is_same(used, run))
    }

    pub(super) fn json(&self) -> JsonCalibration<'_> {
        JsonCalibration {
            device: self.device.name,
            runs: self.used.iter().map(|run| run.display().to_string()).collect(),
            unused: &self.unused,
            measured: self.calibration.measured().collect(),
        }
    }

    /// Which assumptions are measured, each with the least and the most of the runs that show it.
    pub(super) fn text(&self) -> String {
        let runs = text::counted(self.used.len() as u64, "run");
        let mut text = format!("measured from {runs} on {}; all else is assumed:\n", self.device.name);
        for &MeasuredAssumption { name, value, low, high, runs } in self.calibration.measured() {
            let [value, low, high] = [value, low, high].map(|value| written(name, value));
            let runs = text::counted(runs as u64, "run");
            let over = if name == "spread" { String::new() } else { format!(" ({low} to {high} in {runs})") };
            text += &format!("  {}: {value}{over}\n", name.replace('_', " "));
        }
        for UnusedRun { run, why } in &self.unused {
            text += &format!("  not used: {}: {}\n", text::printable(run), text::printable(why));
        }
        text
    }
}

/// An assumption in its own unit.
fn written(name: &str, value: f64) -> String {
    match name {
        "kernel_gap" | "launch" => format!("{:.1} µs", value * 1e6),
        "link_bandwidth" => text::bandwidth(value),
        _ => text::percent(value),
    }
}
