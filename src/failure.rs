//! How failures are shown: an error, and a hint that helps.

use std::{io::Write, path::Path};

use anstyle::{AnsiColor, Style};
use stepscope_analyzer::AnalysisError;
use stepscope_collector::injection::{JobError, LibraryError};
use stepscope_plan::{PlanError, text};
use stepscope_storage::StorageError;
use stepscope_traces::{ImportError, PickleError, Run, SnapshotError, TraceError};
use stepscope_trainer::TrainError;
use stepscope_tui::DashboardError;

use crate::{nearest::nearest, object_storage};

/// An error with a hint.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct WithHint {
    pub(crate) what: String,
    pub(crate) hint: String,
}

/// Writes `error: …` and, where there is one, `hint: …`.
pub(crate) fn explain(error: &anyhow::Error) {
    if matches!(error.downcast_ref(), Some(TrainError::Said)) {
        return;
    }
    let mut stderr = anstream::stderr().lock();
    let (red, cyan) = (AnsiColor::Red.on_default().bold(), AnsiColor::Cyan.on_default().bold());
    let mut line = |style: Style, word: &str, text: &str| {
        // A closed stderr leaves nobody to tell.
        drop(writeln!(stderr, "{style}{word}:{style:#} {text}"));
    };
    // Each error already says why; its chain would say it again.
    line(red, "error", &harmless(&error.to_string()));
    let trace = error.downcast_ref::<TraceError>().or_else(|| match error.downcast_ref::<AnalysisError>() {
        Some(AnalysisError::Trace(error)) => Some(error),
        _ => match error.downcast_ref::<DashboardError>() {
            Some(DashboardError::Analysis(AnalysisError::Trace(error))) => Some(error),
            _ => None,
        },
    });
    let hint = trace.and_then(trace_hint).or_else(|| error.downcast_ref::<PlanError>().and_then(plan_hint));
    let hint = hint.or_else(|| error.downcast_ref::<LibraryError>().map(LibraryError::hint));
    let hint = hint.or_else(|| error.downcast_ref::<JobError>().and_then(job_hint));
    let hint = hint.or_else(|| error.downcast_ref::<DashboardError>().and_then(dashboard_hint));
    let hint = hint.or_else(|| error.downcast_ref::<StorageError>().and_then(object_storage::hint));
    let hint = hint.or_else(|| error.downcast_ref::<WithHint>().map(|error| error.hint.clone()));
    if let Some(hint) = hint.or_else(|| error.downcast_ref::<TrainError>().and_then(train_hint)) {
        line(cyan, "hint", &harmless(&hint));
    }
}

/// Makes a message safe to print: it may quote a path or a piece of a file. Line breaks stay, and copies are called what they
/// are copies of.
fn harmless(message: &str) -> String {
    object_storage::with_urls(message).split('\n').map(text::printable).collect::<Vec<_>>().join("\n")
}

fn plan_hint(error: &PlanError) -> Option<String> {
    match error {
        PlanError::UnknownModel { name, known } => {
            let also = "--model also takes a Hugging Face config.json or a TOML file";
            Some(did_you_mean(name, known).map_or_else(|| also.to_owned(), |mean| format!("{mean} {also}")))
        }
        PlanError::UnknownDevice { name, known } => did_you_mean(name, known),
        PlanError::NoLayout { instead, .. } => instead.clone(),
        PlanError::ModelFile { .. } => Some(
            "a TOML file needs at least layers, hidden, heads, ffn and vocabulary; a config.json needs its usual keys"
                .into(),
        ),
        _ => None,
    }
}

/// The known word that a mistyped one probably stands for.
fn did_you_mean(name: &str, known: &str) -> Option<String> {
    nearest(name, known.split(", ")).map(|nearest| format!("did you mean `{nearest}`?"))
}

fn job_hint(error: &JobError) -> Option<String> {
    match error {
        JobError::NotFound { .. } => Some("put the command after --, as you would type it in a shell".into()),
        _ => None,
    }
}

fn dashboard_hint(error: &DashboardError) -> Option<String> {
    match error {
        DashboardError::Missing(_) => {
            Some("`stepscope live` without --once waits for a run; `stepscope train` starts one".into())
        }
        _ => None,
    }
}

fn train_hint(error: &TrainError) -> Option<String> {
    match error {
        TrainError::Plan(error) => plan_hint(error),
        TrainError::Trace(error) => trace_hint(error),
        TrainError::Missing(missing) => Some(missing.hint().into()),
        TrainError::OtherSecret { .. } => Some(
            "start all ranks with the same random STEPSCOPE_SECRET, such as `openssl rand -hex 16` prints; under Slurm, a cache \
             folder (~/.cache) that all nodes share is enough"
                .into(),
        ),
        TrainError::NoGpu { .. } => Some("--backend cpu trains on any machine; `stepscope doctor` shows what was found".into()),
        TrainError::OutOfMemory { .. } => Some(
            "use a smaller --micro-batch with more --micro-batches, or --recompute full; `stepscope plan` predicts memory"
                .into(),
        ),
        _ => None,
    }
}

fn trace_hint(error: &TraceError) -> Option<String> {
    match error {
        TraceError::Missing { .. } => Some(match Run::newest_under(Path::new("runs")) {
            Some(newest) => format!("the newest run here is {}", newest.display()),
            None => "name a run directory (it contains a run.json) or a trace".into(),
        }),
        TraceError::NotARun { path, .. } => Some(match (Run::newest_under(path), path.parent()) {
            (Some(newest), _) => format!("the newest run in it is {}", newest.display()),
            (None, Some(parent)) if parent.join("run.json").exists() => {
                format!("it is part of the run {}", parent.display())
            }
            _ => folders_hint(path).unwrap_or("a run directory contains a run.json".into()),
        }),
        TraceError::Import(error) => import_hint(error),
        TraceError::NewerSchema { written_by, .. } if written_by.is_empty() => Some("use a newer stepscope".into()),
        TraceError::NewerSchema { written_by, .. } => Some(format!("use stepscope {written_by} or newer")),
        TraceError::OpenToAll { .. } => Some("name a new directory, or one of your own".into()),
        TraceError::NotEmpty { .. } => Some("name a directory that is new or empty".into()),
        TraceError::AlreadyRecorded { .. } => Some(
            "record into another directory, or remove this one; jobs with --continue record into segments of one"
                .into(),
        ),
        TraceError::OnlySummary { .. } => Some(
            "copy the .arrows files of the rank, too: a summary has no other --steps and no timeline, and is not enough \
             where ranks count different steps or do not say what their groups are for"
                .into(),
        ),
        TraceError::UselessSummary { .. } => {
            Some("copy the .arrows files of the rank, too, or make the summary again with this stepscope".into())
        }
        TraceError::Json { path, .. } => {
            Some(format!("{} is damaged; the .arrows files of its ranks open in any Arrow reader", path.display()))
        }
        _ => None,
    }
}

/// Which folders to name instead of the directory around them.
fn folders_hint(directory: &Path) -> Option<String> {
    const MOST: usize = 3;
    let folders = Run::folders_with_traces(directory, MOST + 1);
    let names: Vec<String> = folders.iter().take(MOST).map(|folder| folder.display().to_string()).collect();
    match names.as_slice() {
        [] => None,
        [only] => Some(format!("its folder {only} holds traces")),
        _ => {
            let others = if folders.len() > MOST { " and others" } else { "" };
            Some(format!("name one of its folders that hold traces: {}{others}", names.join(", ")))
        }
    }
}

fn import_hint(error: &ImportError) -> Option<String> {
    match error {
        ImportError::NotATrace { .. } => Some(
            "torch.profiler, torch.cuda.memory._dump_snapshot, nsys export --type sqlite, jax.profiler.trace, rocprofv3 \
             and PyTorch's Flight Recorder write files that are read"
                .into(),
        ),
        ImportError::NsysReport { path } => {
            let path = path.display().to_string();
            let database = Path::new(&path).with_extension("sqlite");
            Some(format!("nsys export --type sqlite -o {} {path}", database.display()))
        }
        ImportError::SameRank { .. } => Some("name one file per rank".into()),
        ImportError::SameProcess { .. } | ImportError::SameRecording { .. } => Some("name one of them".into()),
        ImportError::OtherJob { .. } => Some("name one of them, or the files of one job".into()),
        ImportError::WhoseMemory { .. } => Some("put the rank into its file name, as in rank0.pickle".into()),
        ImportError::Snapshot(SnapshotError::Pickle { source: PickleError::WantsToRun { .. }, .. }) => {
            Some("a snapshot is plain data; this may be something else, such as a checkpoint".into())
        }
        ImportError::Snapshot(SnapshotError::SomethingElse { .. }) => {
            Some("a snapshot is what torch.cuda.memory._dump_snapshot writes".into())
        }
        ImportError::Snapshot(SnapshotError::CutShort { .. }) => {
            Some("the file may have been copied only in part".into())
        }
        ImportError::Join(_) => Some("name either the trace or the snapshot".into()),
        ImportError::Snapshot(_) => None,
    }
}
