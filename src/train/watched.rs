//! Training in the background, with the dashboard in front of it.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use anstyle::Style;
use anyhow::{Result, anyhow, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use stepscope_traces::TraceError;
use stepscope_trainer::TrainError;
use stepscope_tui::{DashboardExit, Job, Options, Source, View, run as open};

use crate::{live, terminal};

/// Starts this command again without the dashboard, writing what it says beside the run, and opens the dashboard.
pub(super) fn train(run: &Path, is_named: bool, view: Option<View>) -> Result<()> {
    if run.join("run.json").exists() {
        return Err(TraceError::AlreadyRecorded { path: run.to_owned() }.into());
    }
    let mut training = Training::start(run, is_named)?;
    let options = Options { source: Source::Named(vec![run.to_owned()]), view, theme: live::suited_theme() };
    let left = open(options, live::outside(Some(&mut training))).inspect_err(|_| training.stop())?;
    match left {
        DashboardExit::Alone => training.report(),
        DashboardExit::JobGoesOn => training.take_leave(),
        DashboardExit::StopJob => {
            training.stop();
            let status = training.child.wait()?;
            training
                .say(&[("stopped", format!("the training exited with {status}")), ("recorded", shown(&training.run))])
        }
    }
}

/// The training.
struct Training {
    child: Child,
    run: PathBuf,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Training {
    fn start(run: &Path, is_named: bool) -> Result<Training> {
        let log = PathBuf::from(format!("{}.log", run.display()));
        if let Some(parent) = log.parent() {
            fs::create_dir_all(parent).map_err(|error| anyhow!("cannot create {}: {error}", parent.display()))?;
        }
        let file = File::create_new(&log).map_err(|error| anyhow!("cannot write {}: {error}", log.display()))?;
        let mut arguments = std::env::args_os();
        let mut command =
            Command::new(std::env::current_exe().map_err(|error| anyhow!("cannot find this program: {error}"))?);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        command.args(without_dashboard(arguments));
        if !is_named {
            command.args([OsString::from("--run"), run.into()]);
        }
        command.args(["--color", "never"]);
        // Keys and a terminal that is closed are the dashboard's, not the training's.
        command.process_group(0).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().map_err(|error| anyhow!("cannot start the training: {error}"))?;
        Ok(Training { child, run: run.to_owned(), log, ended: None })
    }

    /// Asks it to end. One that has ended, and is not yet waited for, takes it in silence; after that its number may be
    /// another's.
    fn stop(&self) {
        if self.ended.is_some() {
            return;
        }
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
    }

    /// What it said, when it has ended.
    fn report(&mut self) -> Result<()> {
        let status = match self.ended {
            Some(status) => status,
            None => self.child.wait()?,
        };
        let words = fs::read_to_string(&self.log).unwrap_or_default();
        if status.success() {
            // Each step was seen; what it says at its end is what it says on stdout without a dashboard.
            let end = words.rfind("\ntrained ").map_or(words.as_str(), |at| &words[at + 1..]);
            anstream::stdout().lock().write_all(end.as_bytes())?;
            return Ok(());
        }
        let why = words.rfind("error: ").map(|at| words[at..].to_owned());
        let Some(why) = why else {
            bail!("the training exited with {status}; its output is in {}", self.log.display())
        };
        drop(write!(anstream::stderr(), "{why}"));
        Err(TrainError::Said.into())
    }

    fn take_leave(&self) -> Result<()> {
        let (program, run) = (terminal::program(), shown(&self.run));
        self.say(&[
            ("training", format!("continues as process {}", self.child.id())),
            ("output", shown(&self.log)),
            ("watch", format!("{program} live {run}")),
            ("stop", format!("kill {}", self.child.id())),
        ])
    }

    fn say(&self, lines: &[(&str, String)]) -> Result<()> {
        let bold = Style::new().bold();
        let mut stdout = anstream::stdout().lock();
        for (word, says) in lines {
            writeln!(stdout, "{bold}{word:<8}{bold:#}  {says}")?;
        }
        Ok(())
    }
}

/// Arguments without those of the dashboard.
fn without_dashboard(mut arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--live") => {}
            Some("--view") => _ = arguments.next(),
            Some(view) if view.starts_with("--view=") => {}
            _ => kept.push(argument),
        }
    }
    kept
}

fn shown(path: &Path) -> String {
    terminal::command_line(&[path.display().to_string()])
}

impl Job for Training {
    fn ended(&mut self) -> Option<Result<(), String>> {
        let status = self.child.try_wait().ok()??;
        self.ended = Some(status);
        Some(if status.success() { Ok(()) } else { Err(status.to_string()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_training_has_no_dashboard() {
        let arguments = ["train", "--live", "--view", "memory", "--dp", "2", "--view=ranks", "--steps", "5"];
        let kept = without_dashboard(arguments.into_iter().map(OsString::from));
        assert_eq!(kept, ["train", "--dp", "2", "--steps", "5"]);
    }
}
