//! `stepscope incidents`: what went wrong in a run, and why. [`Keeper`] writes it down while the job runs.

mod explain;
mod hang;
mod history;
mod keeper;

use std::{io::Write, path::PathBuf};

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use chrono::{DateTime, SecondsFormat};
use serde::Serialize;
use stepscope_analyzer::{KnownIncident, known_incidents};
use stepscope_plan::text;
use stepscope_traces::{Incident, KeptIncident, Run, State};

use crate::{Format, object_storage, render::json, source, terminal};

pub(crate) use keeper::{HangAfter, Keeper};

/// Show what went wrong in a run, and why: slow steps, hangs, crashes.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  stepscope incidents runs/2026-11-14T10-22-07-train")]
pub(crate) struct Arguments {
    /// A run directory that `stepscope record` or `stepscope train --black-box` recorded [default: the newest run under runs/]
    run: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// What went wrong in a run; its JSON is public.
#[derive(Serialize)]
struct Incidents {
    schema: u32,
    path: String,
    incidents: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    incident: Incident,
    /// Where it is kept; null, if nobody wrote it down.
    path: Option<String>,
    /// Whether what was recorded around it is kept there, as a run.
    has_recording: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let run = match &arguments.run {
        Some(path) if object_storage::is_meant(path) => source::open(std::slice::from_ref(path))?,
        Some(path) => Run::open(path)?,
        None => source::open(&[])?,
    };
    let listed = |known: KnownIncident| Listed {
        has_recording: known.has_recording,
        path: known.path.map(|path| path.display().to_string()),
        incident: known.incident,
    };
    let incidents = known_incidents(&run).into_iter().map(listed).collect();
    let incidents = Incidents { schema: 1, path: source::place(arguments.run.as_slice(), &run), incidents };
    let mut stdout = anstream::stdout().lock();
    match arguments.format {
        Format::Text => stdout.write_all(incidents.text(run.state()).as_bytes())?,
        Format::Json => write!(stdout, "{}", json::written(&incidents)?)?,
    }
    Ok(stdout.flush()?)
}

impl Incidents {
    fn text(&self, state: State) -> String {
        let bold = Style::new().bold();
        let mut out = format!("{bold}{}{bold:#}  {}\n", text::printable(&self.path), terminal::state(state));
        if self.incidents.is_empty() {
            out += "  no incidents\n";
        }
        for listed in &self.incidents {
            out += "\n";
            out += &listed.text();
        }
        out
    }
}

impl Listed {
    fn text(&self) -> String {
        let (bold, red) = (Style::new().bold(), AnsiColor::Red.on_default().bold());
        let Incident { kind, time_ns, summary, evidence, .. } = &self.incident;
        let time = DateTime::from_timestamp_nanos(time_ns.0).to_rfc3339_opts(SecondsFormat::Millis, true);
        let mut out = format!("{red}{}{red:#}  {time}\n  {bold}{}{bold:#}\n", kind.word(), text::printable(summary));
        for line in evidence {
            out += &format!("  {}\n", text::printable(line));
        }
        if let Some(path) = self.path.as_ref().filter(|_| self.has_recording) {
            let path = terminal::command_line(std::slice::from_ref(path));
            out += &format!("  {} analyze {path}\n", terminal::program());
        }
        out
    }
}

/// Says what has just happened, in two lines at most.
pub(crate) fn tell(kept: &KeptIncident) {
    let yellow = AnsiColor::Yellow.on_default().bold();
    let Incident { kind, summary, evidence, .. } = &kept.incident;
    let why = evidence.first().map_or_else(String::new, |why| format!(" ({})", text::printable(why)));
    // A closed stderr leaves nobody to tell.
    drop(writeln!(
        anstream::stderr().lock(),
        "{yellow}stepscope: {}:{yellow:#} {}{why}",
        kind.word(),
        text::printable(summary)
    ));
}
