//! Predicted against measured, for recorded runs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use stepscope_analyzer::{Analysis, PlanScore, ScoredFigure, plan_score};
use stepscope_plan::text;
use stepscope_traces::MemoryCategory;

use super::{
    assumptions::AssumptionArguments,
    recorded::{JsonCalibration, Recorded, analyzed},
};
use crate::terminal;

/// What was predicted for some runs, and what came of it.
pub(super) struct Scores<'a> {
    recorded: Option<&'a Recorded>,
    runs: Vec<ScoredRun>,
}

/// One run.
#[derive(Serialize)]
struct ScoredRun {
    run: String,
    device: Option<String>,
    /// Whether assumptions were measured on this device.
    calibrated: bool,
    /// Whether they come from this run, too: then it says little of them.
    used_for_calibration: bool,
    /// None of a run that is not our trainer's.
    score: Option<PlanScore>,
    /// Why there is none.
    why_not: Option<String>,
}

/// How far off predictions are.
#[derive(Serialize)]
struct ErrorSummary<'a> {
    runs: usize,
    /// The median of absolute errors.
    median_error: f64,
    worst_error: f64,
    worst_run: &'a str,
}

/// The same in JSON.
#[derive(Serialize)]
pub(super) struct JsonScores<'a> {
    schema: u32,
    calibration: Option<JsonCalibration<'a>>,
    runs: &'a [ScoredRun],
    summary: JsonSummary<'a>,
}

#[derive(Serialize)]
struct JsonSummary<'a> {
    step_time: Option<ErrorSummary<'a>>,
    memory: Option<ErrorSummary<'a>>,
}

impl<'a> Scores<'a> {
    /// Scores runs, with what others showed of their device and what is set.
    pub(super) fn of(
        runs: &[PathBuf],
        recorded: Option<&'a Recorded>,
        assumptions: &AssumptionArguments,
    ) -> Result<Scores<'a>> {
        let score = |path: &PathBuf| match analyzed(path) {
            Ok(analysis) => Ok(ScoredRun::of(path, &analysis, recorded, assumptions)),
            // Among others it is told with theirs.
            Err(error) if runs.len() > 1 => Ok(ScoredRun::unreadable(path, &error)),
            Err(error) => Err(error),
        };
        Ok(Scores { recorded, runs: runs.iter().map(score).collect::<Result<_>>()? })
    }

    pub(super) fn json(&self) -> JsonScores<'_> {
        JsonScores {
            schema: 1,
            calibration: self.recorded.map(Recorded::json),
            runs: &self.runs,
            summary: self.summary(),
        }
    }

    /// Of times, over the runs that assumptions do not come from; memory is predicted without them.
    fn summary(&self) -> JsonSummary<'_> {
        let of = |figure: fn(&PlanScore) -> Option<ScoredFigure>| {
            move |run: &'_ ScoredRun| figure(run.score.as_ref()?)?.error.map(f64::abs)
        };
        let others = self.runs.iter().filter(|run| !run.used_for_calibration);
        JsonSummary {
            step_time: ErrorSummary::of(others, of(|score| score.step_time_ns)),
            memory: ErrorSummary::of(self.runs.iter(), of(|score| score.memory_bytes)),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = "predicted against measured; an error is positive where too much is predicted\n".to_owned();
        text += &self.times();
        text += &self.memory();
        text += &self.notes();
        text += "\n";
        let JsonSummary { step_time, memory } = self.summary();
        for (what, summary) in [("step time", step_time), ("memory", memory)] {
            text += &match summary {
                None => format!("{what}: no run could be scored\n"),
                Some(ErrorSummary { runs, median_error, worst_error, worst_run }) => format!(
                    "{what}: median error {}, worst {} ({}), over {}\n",
                    text::percent(median_error),
                    text::percent(worst_error),
                    text::printable(worst_run),
                    text::counted(runs as u64, "run"),
                ),
            };
        }
        if let Some(recorded) = self.recorded {
            text += &format!("\n{}", recorded.text());
        }
        text
    }

    /// The runs whose times are scored, if there are any.
    fn times(&self) -> String {
        let headers = [
            "run",
            ">step predicted",
            ">range",
            ">measured",
            ">error",
            ">tokens/s predicted",
            ">measured",
            ">MFU predicted",
            ">measured",
        ];
        let row = |run: &ScoredRun| {
            let score = run.score.as_ref()?;
            let both = |figure: Option<ScoredFigure>, written: fn(f64) -> String| {
                let of = |value: Option<f64>| value.map_or_else(unknown, written);
                [of(figure.map(|figure| figure.predicted)), of(figure.map(|figure| figure.measured))]
            };
            let (low, high) = score.step_time_low_ns.zip(score.step_time_high_ns)?;
            let [step, measured_step] = both(score.step_time_ns, |time| text::duration(time as i64));
            let middle = score.step_time_ns.map_or(high, |step| step.predicted);
            let range = text::durations_around(low as i64, middle as i64, high as i64);
            let [tokens, measured_tokens] = both(score.tokens_per_second, |tokens| text::count(tokens.round() as u64));
            let [mfu, measured_mfu] = both(score.mfu, text::percent);
            let error = error(score.step_time_ns);
            Some(vec![run.name(), step, range, measured_step, error, tokens, measured_tokens, mfu, measured_mfu])
        };
        let rows: Vec<Vec<String>> = self.runs.iter().filter_map(row).collect();
        if rows.is_empty() { String::new() } else { terminal::table(&headers, rows) }
    }

    /// The runs whose memory is scored, if there are any.
    fn memory(&self) -> String {
        let categories: Vec<MemoryCategory> = MemoryCategory::ALL
            .iter()
            .copied()
            .filter(|category| self.runs.iter().any(|run| run.category(*category).is_some()))
            .collect();
        let names: Vec<String> = categories.iter().map(|category| format!(">{}", category.spelled())).collect();
        let mut headers = vec!["run", ">predicted", ">measured", ">error"];
        headers.extend(names.iter().map(String::as_str));
        let row = |run: &ScoredRun| {
            let whole = run.score.as_ref()?.memory_bytes?;
            let [predicted, measured] = [whole.predicted, whole.measured].map(|bytes| text::bytes(bytes as u64));
            let mut row = vec![run.name(), predicted, measured, error(Some(whole))];
            row.extend(categories.iter().map(|category| {
                let more = run.category(*category).map(|figure| (figure.predicted - figure.measured) as i64);
                more.map_or_else(unknown, text::larger)
            }));
            Some(row)
        };
        let rows: Vec<Vec<String>> = self.runs.iter().filter_map(row).collect();
        if rows.is_empty() {
            return String::new();
        }
        let title = "memory of the fullest rank, and how much more is predicted of each category";
        format!("\n{title}\n{}", terminal::table(&headers, rows))
    }

    /// Which runs are not scored, or are no test of what was calibrated, and why.
    fn notes(&self) -> String {
        let mut told: Vec<(String, Vec<String>)> = Vec::new();
        let mut tell = |why: String, run: String| match told.iter_mut().find(|(told, _)| *told == why) {
            Some((_, runs)) => runs.push(run),
            None => told.push((why, vec![run])),
        };
        for run in &self.runs {
            let of_times = run.score.as_ref().and_then(|score| score.times_why_not.as_ref());
            if let Some(why) = of_times {
                tell(format!("times are not scored: {why}"), run.name());
            }
            if let Some(why) = &run.why_not {
                tell(format!("not scored: {why}"), run.name());
            }
            if run.used_for_calibration {
                tell("used for --from: its time is no test, and not in the summary".into(), run.name());
            }
        }
        let lines = told.iter().map(|(why, runs)| format!("{}: {}\n", runs.join(", "), text::printable(why)));
        let lines: String = lines.collect();
        if lines.is_empty() { lines } else { format!("\n{lines}") }
    }
}

impl<'a> ErrorSummary<'a> {
    fn of(
        runs: impl Iterator<Item = &'a ScoredRun>,
        error: impl Fn(&ScoredRun) -> Option<f64>,
    ) -> Option<ErrorSummary<'a>> {
        let mut errors: Vec<(f64, &str)> = runs.filter_map(|run| Some((error(run)?, run.run.as_str()))).collect();
        errors.sort_by(|one, two| one.0.total_cmp(&two.0));
        let &(worst_error, worst_run) = errors.last()?;
        let median_error = (errors[(errors.len() - 1) / 2].0 + errors[errors.len() / 2].0) / 2.0;
        Some(ErrorSummary { runs: errors.len(), median_error, worst_error, worst_run })
    }
}

impl ScoredRun {
    fn of(
        path: &Path,
        analysis: &Analysis,
        recorded: Option<&Recorded>,
        assumptions: &AssumptionArguments,
    ) -> ScoredRun {
        let score = plan_score(analysis, |device| assumptions.apply(device, recorded));
        let timed = score.as_ref().is_some_and(|score| score.step_time_ns.is_some());
        let device = analysis.run.device.as_ref().map(|device| device.name.clone());
        let is_of = |recorded: &&Recorded| {
            device
                .as_ref()
                .is_some_and(|name| stepscope_plan::Device::named(name).is_ok_and(|known| known == recorded.device))
        };
        ScoredRun {
            run: path.display().to_string(),
            calibrated: timed && recorded.filter(is_of).is_some(),
            used_for_calibration: recorded.is_some_and(|recorded| recorded.has_used(path)),
            why_not: score
                .is_none()
                .then(|| "it does not say its model and layout, as runs of `stepscope train` do".into()),
            device,
            score,
        }
    }

    fn unreadable(path: &Path, error: &anyhow::Error) -> ScoredRun {
        ScoredRun {
            run: path.display().to_string(),
            device: None,
            calibrated: false,
            used_for_calibration: false,
            score: None,
            why_not: Some(format!("{error:#}")),
        }
    }

    /// The last part of its path.
    fn name(&self) -> String {
        let path = Path::new(&self.run);
        let name = path.file_name().map_or_else(|| self.run.clone(), |name| name.to_string_lossy().into_owned());
        text::printable(&name)
    }

    fn category(&self, category: MemoryCategory) -> Option<ScoredFigure> {
        self.score.as_ref()?.memory.get(&category).copied()
    }
}

fn error(figure: Option<ScoredFigure>) -> String {
    figure.and_then(|figure| figure.error).map_or_else(unknown, text::percent_more)
}

fn unknown() -> String {
    "-".into()
}
