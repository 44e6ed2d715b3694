//! `stepscope diff`: what changed between runs, and why.

mod answer;
mod html;
mod limits;
mod markdown;
mod several;
mod tables;
mod text;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Result, bail};
use stepscope_analyzer::{Diff, Profile, Selection, StepChoice, compare, profile, several};
use stepscope_plan::Convention;
use stepscope_traces::Run;

use self::limits::Limit;
use crate::{
    analyze::{ranges, tera_flops},
    output::Output,
    progress,
    render::{Format, json},
    source, terminal, words,
};

/// Show what changed between runs, and why: time and memory, in causes that add up.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope diff runs/naive runs/bucketed\n  \
    stepscope diff traces/before traces/after --format html -o diff.html\n  \
    stepscope diff runs/main runs/branch --fail-on step_time:+3% --fail-on peak_memory:+1% --fail-on mfu:-2%\n  \
    stepscope diff runs/dp1 runs/dp2 runs/dp4")]
pub(crate) struct Arguments {
    /// The run to compare with: a run directory, a trace or profile of another tool, or a directory of these.
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// The runs to compare; several are shown in one table.
    #[arg(value_name = "OTHER", required = true)]
    others: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Output file [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Exit with status 1 if a metric changes significantly and by more than this: step_time:+3%, mfu:-2%.
    ///
    /// Any of the `metrics` of --format json can be named. The option can be repeated.
    #[arg(long, value_name = "METRIC:CHANGE", value_parser = limits::parse, allow_hyphen_values = true)]
    fail_on: Vec<Limit>,
    /// Steps to count in each run [default: complete steps without warm-up]
    ///
    /// A..B counts from A to before B, A.. from A on, ..B before B, and N only step N. `all` counts the whole recording.
    #[arg(long, value_name = "A..B|all", value_parser = ranges::choice, allow_hyphen_values = true, help_heading = "Selection")]
    steps: Option<StepChoice>,
    /// Dense peak of one device in TFLOP/s, in the precision of the runs.
    #[arg(long = "peak-tflops", value_name = "X", value_parser = tera_flops, allow_hyphen_values = true, help_heading = "MFU")]
    peak_flops: Option<f64>,
    /// Which FLOPs count in MFU.
    #[arg(long, value_name = "NAME", value_parser = words::convention(), default_value = "model", help_heading = "MFU")]
    mfu_convention: Convention,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let paths: Vec<&Path> = std::iter::once(&arguments.base).chain(&arguments.others).map(PathBuf::as_path).collect();
    let runs = paths.iter().map(|path| source::open(&[path.to_path_buf()])).collect::<Result<Vec<Run>>>()?;
    for run in &runs {
        if let Some(path) = arguments.output.as_deref().filter(|path| source::is_part_of(path, run)) {
            bail!("{} is part of a run; write the report elsewhere", path.display());
        }
    }
    let output = Output::open(arguments.output.as_deref())?;
    let selection = Selection {
        steps: arguments.steps.unwrap_or_default(),
        peak_flops: arguments.peak_flops,
        convention: arguments.mfu_convention,
        ..Selection::default()
    };
    let profiles = profiles(&runs, &names(&paths), &selection)?;
    let diffs = with_the_first(&profiles)?;
    let text = written(arguments.format, &profiles, &selection, diffs.clone(), output.columns())?;
    output.write(&text)?;
    limits::check(&diffs, &arguments.fail_on)
}

/// Runs that were made one after another, in one table.
pub(crate) fn table_of(paths: &[PathBuf]) -> Result<String> {
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let runs = paths.iter().map(|path| Run::of_source(path)).collect::<Result<Vec<Run>, _>>()?;
    let profiles = profiles(&runs, &names(&paths), &Selection::default())?;
    let diffs = with_the_first(&profiles)?;
    several::written(Format::Text, &several(&profiles, diffs), terminal::columns())
}

/// Each run but the first, compared with it.
fn with_the_first(profiles: &[Profile<'_>]) -> Result<Vec<Diff>> {
    let Some((base, others)) = profiles.split_first() else { bail!("there is nothing to compare") };
    Ok(others.iter().map(|other| compare(base, other)).collect::<Result<Vec<Diff>, _>>()?)
}

/// Reads runs, with a bar where that takes long.
fn profiles<'a>(runs: &'a [Run], names: &[String], selection: &Selection) -> Result<Vec<Profile<'a>>> {
    let read = |(run, name): (&'a Run, &String)| {
        Ok(progress::shown(run.ranks.iter(), |progress| profile(run, name, selection, progress))?)
    };
    runs.iter().zip(names).map(read).collect()
}

/// The names of runs: those of their files, with as many parent directories as tell them apart and say more than a number, or
/// else their numbers.
fn names(paths: &[&Path]) -> Vec<String> {
    let named = |parts: usize| -> Vec<String> {
        let last = |path: &&Path| {
            let all: Vec<_> = path.components().collect();
            all[all.len().saturating_sub(parts)..].iter().collect::<PathBuf>().display().to_string()
        };
        paths.iter().map(last).collect()
    };
    let differ = |names: &Vec<String>| names.iter().enumerate().all(|(place, name)| !names[..place].contains(name));
    let are_words = |names: &Vec<String>| names.iter().all(|name| name.parse::<u64>().is_err());
    let longest = paths.iter().map(|path| path.components().count()).max().unwrap_or(0);
    let numbered = || (1..=paths.len()).map(|number| format!("run {number}")).collect();
    (1..=longest).map(named).find(|names| differ(names) && are_words(names)).unwrap_or_else(numbered)
}

fn written(
    format: Format,
    profiles: &[Profile<'_>],
    selection: &Selection,
    diffs: Vec<Diff>,
    columns: usize,
) -> Result<String> {
    let ([base, other], [diff]) = (profiles, diffs.as_slice()) else {
        return several::written(format, &several(profiles, diffs), columns);
    };
    Ok(match format {
        Format::Text => text::written(diff, columns),
        Format::Json => json::written(diff)?,
        Format::Markdown => markdown::written(diff),
        Format::Html => html::written(base, other, selection, diff)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_called_what_tells_them_apart() {
        let called = |paths: &[&str]| names(&paths.iter().map(Path::new).collect::<Vec<_>>());
        assert_eq!(called(&["runs/a", "runs/b"]), ["a", "b"]);
        assert_eq!(called(&["main/run", "branch/run"]), ["main/run", "branch/run"]);
        assert_eq!(called(&["runs/a", "runs/a"]), ["run 1", "run 2"]);
        assert_eq!(called(&["a/", "./b"]), ["a", "b"]);
        assert_eq!(called(&["a/segments/1", "a/segments/2"]), ["segments/1", "segments/2"]);
        assert_eq!(called(&["1", "2"]), ["run 1", "run 2"]);
    }
}
