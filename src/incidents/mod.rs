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
use stepscope_plan::text;
use stepscope_traces::{Incident, IncidentKind, KeptIncident, Run, State};

use crate::{Format, terminal};

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
        Some(path) => Run::open(path)?,
        None => crate::source::open(&[])?,
    };
    let listed = KeptIncident::all_of(&run.path).into_iter().map(|kept| Listed {
        has_recording: kept.has_recording(),
        path: Some(kept.path.display().to_string()),
        incident: kept.incident,
    });
    let mut incidents: Vec<Listed> = listed.collect();
    incidents.extend(unexplained(&run, &incidents));
    let incidents = Incidents { schema: 1, path: run.path.display().to_string(), incidents };
    let mut stdout = anstream::stdout().lock();
    match arguments.format {
        Format::Text => stdout.write_all(incidents.text(run.state()).as_bytes())?,
        Format::Json => writeln!(stdout, "{}", serde_json::to_string_pretty(&incidents)?)?,
    }
    Ok(stdout.flush()?)
}

/// The end of a run that broke off, if nobody was left to write that down.
fn unexplained(run: &Run, known: &[Listed]) -> Option<Listed> {
    if run.state() != State::Interrupted || known.iter().any(|listed| listed.incident.ended_job) {
        return None;
    }
    let broken: Vec<_> = run.ranks.iter().filter(|rank| rank.state == State::Interrupted).collect();
    let (why, ranks) =
        (broken.iter().find_map(|rank| rank.info.reason.clone()), broken.iter().map(|rank| rank.info.rank));
    let ranks: Vec<_> = ranks.collect();
    let named = text::named_ranks(&ranks.iter().map(|rank| rank.0).collect::<Vec<_>>());
    let last = |snapshots: &[stepscope_traces::ClockSnapshot]| snapshots.last().map(|snapshot| snapshot.wall_ns);
    let time_ns = broken.iter().filter_map(|rank| last(&rank.info.clock.snapshots)).max()?;
    let incident = Incident {
        kind: if why.is_some() { IncidentKind::Failed } else { IncidentKind::Killed },
        time_ns,
        step: None,
        ranks,
        summary: format!("the recording of {named} broke off"),
        evidence: vec![why.unwrap_or_else(|| {
            "nothing says why: the whole job was killed at once, by the out-of-memory killer or the scheduler perhaps".into()
        })],
        steps: None,
        ended_job: true,
        explained: true,
        stacks: Vec::new(),
    };
    Some(Listed { incident, path: None, has_recording: false })
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
