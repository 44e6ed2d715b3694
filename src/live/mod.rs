//! `stepscope live`: the dashboard.

mod dashboard_trace;

use std::{
    io::{IsTerminal, Write, stdout},
    path::PathBuf,
};

use anstream::{AutoStream, ColorChoice};
use anyhow::{Result, bail};

use stepscope_tui::{Dashboard, Job, Options, Outside, Size, Source, ThemeName, View, run as open};

use crate::{source, words};

/// Watch a run in a terminal dashboard, during training or afterwards.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope live\n  \
    stepscope live runs/2026-11-14T10-22-07-llama-tiny --view memory\n  \
    stepscope live traces/rank*.json.gz\n  \
    stepscope live --once --size 100x30 > frame.txt\n\n\
    Press ? for the keys. The dashboard waits for a run that has not started, and follows one that is being recorded.")]
pub(crate) struct Arguments {
    /// A run directory, PyTorch profiler traces (*.json, *.json.gz), memory snapshots (*.pickle), Nsight Systems exports
    /// (*.sqlite), JAX profiles (*.xplane.pb), rocprofv3 JSON or databases, Flight Recorder dumps, or a
    /// directory of these; a directory of runs opens the newest of them
    /// [default: the newest run under runs/]
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// The view to open first [default: overview; of a memory snapshot, memory]
    #[arg(long, value_name = "NAME", value_parser = words::one_of(View::ALL, View::name))]
    view: Option<View>,
    /// Print one frame as text instead of opening the dashboard.
    #[arg(long)]
    once: bool,
    /// The size of that frame, in columns and lines.
    #[arg(long, value_name = "WxH", requires = "once", default_value = "120x40")]
    size: Size,
    /// The color theme; plain has no colors [default: chosen by --color, NO_COLOR and COLORFGBG]
    #[arg(long, value_name = "NAME", value_parser = words::one_of(&ThemeName::ALL, ThemeName::name))]
    theme: Option<ThemeName>,
}

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let Arguments { sources, view, once, size, theme } = arguments;
    let sources = source::local(&sources, None)?;
    let source = if sources.is_empty() { Source::Newest { under: "runs".into() } } else { Source::named(sources) };
    // Without colors, letters are drawn instead.
    let is_colorless = once && AutoStream::choice(&stdout()) == ColorChoice::Never;
    let suited = || if is_colorless { ThemeName::Plain } else { suited_theme() };
    let options = Options { source, view, theme: theme.unwrap_or_else(suited) };
    if once {
        let frame = Dashboard::read(&options)?.frame(size);
        anstream::stdout().lock().write_all(frame.as_bytes())?;
        return Ok(());
    }
    check_terminal()?;
    open(options, outside(None))?;
    Ok(())
}

/// What the dashboard has of the world around it.
pub(crate) fn outside(job: Option<&mut dyn Job>) -> Outside<'_> {
    Outside { job, export: dashboard_trace::write }
}

/// The theme that suits the terminal.
pub(crate) fn suited_theme() -> ThemeName {
    let variable = |name| std::env::var(name).ok();
    let no_color = match ColorChoice::global() {
        ColorChoice::Auto => variable("NO_COLOR"),
        ColorChoice::Never => Some("1".into()),
        ColorChoice::Always | ColorChoice::AlwaysAnsi => None,
    };
    ThemeName::suited_to(no_color.as_deref(), variable("COLORFGBG").as_deref())
}

/// Refuses to draw where nobody sees it.
pub(crate) fn check_terminal() -> Result<()> {
    if !stdout().is_terminal() {
        bail!("the dashboard needs a terminal; --once prints one frame as text");
    }
    Ok(())
}
