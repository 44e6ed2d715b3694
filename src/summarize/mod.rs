//! `stepscope summarize`: what each rank comes to, made once, and read instead of what was recorded.

mod share;

use std::{io::Write, path::PathBuf};

use anyhow::{Result, bail};
use serde::Serialize;
use stepscope_analyzer::{AnalysisError, Summarized, chosen_ranks, summarize, summarize_job};
use stepscope_plan::text;
use stepscope_traces::{Rank, RankDirectory, Run, RunSource, TraceError};

use crate::{
    Format,
    analyze::ranges::{self, RankList},
    failure::WithHint,
    folded::Folded,
    object_storage, progress,
    render::json,
    source, summary_use, terminal,
};
use share::Share;

/// Reduce each rank of a run to a small file, which other commands read instead of the recording.
///
/// A rank's summary lies in its directory (summary.bin). It has all figures of complete steps, so `analyze`, `diff` and `live`
/// say the same with it, and faster; for other steps and for timelines they read the recording. Ranks can be summarized one
/// by one, on any machines and in any order: the files are the same, to the byte. Ranks that have theirs are passed by.
///
/// As a task of srun, it takes its share of the ranks. Without a share, what all ranks come to together is kept, too
/// (summary.bin beside run.json), and `analyze` reads nothing else for its report, however many ranks there are.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope summarize runs/mine\n  \
    stepscope summarize runs/mine --ranks 0-127\n  \
    stepscope summarize runs/mine --share 3/64\n  \
    srun --ntasks 64 stepscope summarize runs/mine")]
pub(crate) struct Arguments {
    /// The run directory [default: the newest run under runs/]
    #[arg(value_name = "RUN")]
    run: Option<PathBuf>,
    /// Ranks to summarize, such as 0,2-5 [default: all]
    #[arg(long, value_name = "LIST", value_parser = ranges::ranks)]
    ranks: Option<RankList>,
    /// Summarize the part I of N of these ranks, counted from 0 [default under srun: that of the task]
    ///
    /// For job arrays: --share $SLURM_ARRAY_TASK_ID/64.
    #[arg(long, value_name = "I/N", value_parser = share::share, allow_hyphen_values = true)]
    share: Option<Share>,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// What was done; its JSON is public.
#[derive(Serialize)]
struct Done {
    schema: u32,
    path: String,
    ranks: Vec<DoneRank>,
    /// How long the summary of all ranks together is; none, where none was made.
    job_bytes: Option<u64>,
}

#[derive(Serialize)]
struct DoneRank {
    rank: Rank,
    /// How long its file is; none, where there is none.
    bytes: Option<u64>,
    steps: Option<usize>,
    /// Why there is none.
    error: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let sources = arguments.run.as_slice();
    if let Some(url) = sources.iter().find(|source| object_storage::is_meant(source)) {
        let place = object_storage::location(url)?;
        let copy = terminal::command_line(&["import".into(), place.to_string(), "--run".into(), "DIR".into()]);
        return Err(WithHint {
            what: format!("{place} is in object storage, where summaries are not written"),
            hint: format!("copy it with `{} {copy}`, summarize DIR, and upload that", terminal::program()),
        }
        .into());
    }
    let run = source::open_ranks(sources, arguments.ranks.as_ref())?;
    if run.info.source != RunSource::Stepscope && !run.path.join("run.json").exists() {
        return Err(WithHint {
            what: format!("{} is no run directory, and has no place for summaries", run.path.display()),
            hint: format!("make one of it with `{} import`", terminal::program()),
        }
        .into());
    }
    let wanted = arguments.ranks.as_ref().map_or_else(Vec::new, |list| list.among(&run));
    let of_task = || if arguments.ranks.is_some() { None } else { Share::of_this_process() };
    let share = arguments.share.or_else(of_task);
    let chosen: Vec<&RankDirectory> = chosen_ranks(&run, &wanted)?
        .into_iter()
        .enumerate()
        .filter(|(place, _)| share.is_none_or(|share| share.has(*place)))
        .map(|(_, rank)| rank)
        .collect();
    let made = progress::shown(chosen.iter().copied(), |progress| summarize(&run.info, &chosen, progress))?;
    let are_all = made.len() == run.ranks.len() && made.iter().all(|made| made.outcome.is_ok());
    let together = |progress: &(dyn Fn(usize) + Sync)| summarize_job(&run, progress);
    let job = if are_all { progress::with_bar(run.ranks.iter(), together) } else { Ok(None) };
    tell(&run, &made, job.as_ref().ok().copied().flatten(), arguments.format)?;
    job?;
    let failed = made.iter().filter(|made| made.outcome.is_err() && !is_without(made)).count();
    let first = made.iter().filter(|made| !is_without(made)).find_map(|made| made.outcome.as_ref().err());
    match first {
        None => Ok(()),
        Some(why) => {
            bail!("{failed} of {} could not be summarized: {why}", text::counted(made.len() as u64, "rank"))
        }
    }
}

/// Whether there is nothing that a summary of a rank could be made of, or not all of it yet.
fn is_without(made: &Summarized) -> bool {
    use AnalysisError::{StillRecorded, Trace};
    matches!(made.outcome, Err(StillRecorded { .. } | Trace(TraceError::NoRecording { .. })))
}

/// Says what was made, and of which ranks nothing.
fn tell(run: &Run, made: &[Summarized], job_bytes: Option<u64>, format: Format) -> Result<()> {
    let why = |made: &Summarized| made.outcome.as_ref().err().map(|error| (made.rank, error.to_string()));
    for line in Folded::of(made.iter().filter_map(why)).lines() {
        summary_use::warn(&format!("no summary of {line}"));
    }
    if format == Format::Json {
        let rank = |made: &Summarized| {
            let done = made.outcome.as_ref().ok();
            DoneRank {
                rank: made.rank,
                bytes: done.map(|(bytes, _)| *bytes),
                steps: done.map(|(_, steps)| *steps),
                error: why(made).map(|(_, why)| why),
            }
        };
        let path = run.path.to_string_lossy().into_owned();
        let done = Done { schema: 1, path, ranks: made.iter().map(rank).collect(), job_bytes };
        let mut stdout = anstream::stdout().lock();
        write!(stdout, "{}", json::written(&done)?)?;
        return Ok(stdout.flush()?);
    }
    let (mut bytes, mut steps, mut ranks) = (0, 0, 0);
    for (of_rank, steps_of_rank) in made.iter().filter_map(|made| made.outcome.as_ref().ok()) {
        (bytes, steps, ranks) = (bytes + of_rank, steps + steps_of_rank, ranks + 1);
    }
    if ranks == 0 && !made.is_empty() {
        return Ok(());
    }
    let of_each = if steps == 0 { String::new() } else { format!(", {} a step", text::bytes(bytes / steps as u64)) };
    let path = terminal::command_line(&[run.path.display().to_string()]);
    let mut stderr = anstream::stderr().lock();
    let together = job_bytes.map(|bytes| format!("; all together: {}", text::bytes(bytes))).unwrap_or_default();
    let said = format!("summarized  {}: {}{of_each}{together}\n", text::counted(ranks, "rank"), text::bytes(bytes));
    let is_part = made.len() < run.ranks.len();
    let next =
        if is_part { format!("summarize {path}, once all ranks have theirs") } else { format!("analyze {path}") };
    // A closed stderr leaves nobody to tell.
    drop(writeln!(stderr, "{said}next        {} {next}", terminal::program()));
    Ok(())
}
