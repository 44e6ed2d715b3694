//! `train --sweep`: a list of configurations, one after the other, into one folder.
//!
//! A sweep is a file of settings, as `--config` takes it, with a `[[run]]` for each configuration: what that says wins over
//! the settings above, and so does the command line, which may set nothing that a run does. Each run is this command again,
//! with a file of its own settings beside its run directory.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{BufRead, BufReader, IsTerminal, Write, stderr},
    path::{Path, PathBuf},
    process::{ChildStderr, Command, Stdio},
    thread,
};

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result, anyhow, bail};
use stepscope_collector::injection::{Job, exit_status};
use stepscope_plan::text;
use stepscope_traces::RunInfo;
use stepscope_trainer::RankAssignment;
use toml::{Table, Value};

use super::settings::{self, Settings};
use crate::{diff, new_run::NewRun, progress};

/// What the list is called in the file, and a run's own name.
const LIST: &str = "run";
const NAME: &str = "name";

/// One configuration.
#[derive(Debug, PartialEq)]
struct Configuration {
    name: String,
    settings: Table,
}

/// Trains every configuration of a file, and shows them in one table.
pub(super) fn run(file: &Path, said: &Settings, folder: Option<PathBuf>, processes: bool) -> Result<()> {
    if RankAssignment::of_this_process()?.is_some() {
        bail!("a sweep starts its own ranks: start it once, not under torchrun or srun");
    }
    let configurations = configurations(&settings::read_table(file)?, Table::try_from(said)?)
        .map_err(|error| anyhow!("cannot parse {}: {error}", file.display()))?;
    for Configuration { name, settings } in &configurations {
        check(settings).map_err(|error| anyhow!("run {name} in {}: {error}", file.display()))?;
    }
    let new_folder = match folder {
        Some(folder) => NewRun::at(folder),
        None => NewRun::like(&RunInfo::of_this_process("sweep").default_path())?,
    };
    let folder = new_folder.path();
    let made = configurations
        .iter()
        .flat_map(|configuration| [folder.join(&configuration.name), settings_file(folder, configuration)]);
    let made: Vec<String> = made.filter(|path| path.exists()).map(|path| path.display().to_string()).collect();
    if !made.is_empty() {
        bail!("already exists: {}; choose another directory with --run", made.join(", "));
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for (index, configuration) in configurations.iter().enumerate() {
        let show = |says: &str| show(index, configurations.len(), &configuration.name, says);
        match train(configuration, folder, processes, &show)? {
            None => done.push(folder.join(&configuration.name)),
            Some(why) => {
                let red = AnsiColor::Red.on_default().bold();
                say(&format!("{red}failed:{red:#} {}: {}\n", configuration.name, text::printable(&why)));
                failed.push(configuration.name.as_str());
            }
        }
    }
    if stderr().is_terminal() {
        say("\r\u{1b}[K");
    }
    let shown = if done.len() > 1 { diff::table_of(&done)? } else { String::new() };
    let bold = Style::new().bold();
    anstream::stdout().lock().write_all(shown.as_bytes())?;
    let runs = text::counted(done.len() as u64, "run");
    say(&format!("{bold}recorded{bold:#}  {runs} in {}\n", folder.display()));
    if !failed.is_empty() {
        bail!("{} of {} runs failed: {}", failed.len(), configurations.len(), failed.join(", "));
    }
    Ok(())
}

/// The configurations of a file; what is said on the command line wins.
fn configurations(file: &Table, said: Table) -> Result<Vec<Configuration>, String> {
    let mut shared = file.clone();
    let runs = match shared.remove(LIST) {
        Some(Value::Array(runs)) if !runs.is_empty() => runs,
        _ => return Err("a sweep needs a [[run]] for each configuration".into()),
    };
    let mut configurations: Vec<Configuration> = Vec::new();
    for run in runs {
        let Value::Table(mut own) = run else { return Err("each run must be a table of settings".into()) };
        let name = match own.remove(NAME) {
            Some(Value::String(name)) => name,
            Some(_) => return Err("the name of a run must be a string".into()),
            None => name_of(&own),
        };
        if name.is_empty() || name.starts_with('.') || !name.chars().all(|c| c.is_alphanumeric() || "._-".contains(c)) {
            return Err(format!("`{name}` is not a valid run name; use letters, digits, dots, dashes and underscores"));
        }
        if configurations.iter().any(|other| other.name == name) {
            return Err(format!("two runs are called {name}; give each its own `name`"));
        }
        if let Some(both) = own.keys().find(|key| said.contains_key(*key)) {
            return Err(format!("run {name} and the command line both set {both}"));
        }
        let settings = shared.clone().into_iter().chain(own).chain(said.clone()).collect();
        configurations.push(Configuration { name, settings });
    }
    Ok(configurations)
}

/// What a run says itself, as a name.
fn name_of(own: &Table) -> String {
    let part = |(key, value): (&String, &Value)| match value {
        Value::String(text) => format!("{key}-{}", text.replace(|c: char| !c.is_alphanumeric() && c != '.', "-")),
        Value::Integer(number) => format!("{key}{number}"),
        other => format!("{key}-{other}").replace(|c: char| !c.is_alphanumeric() && c != '.', "-"),
    };
    let parts: Vec<String> = own.iter().map(part).collect();
    if parts.is_empty() { "usual".into() } else { parts.join("-") }
}

/// Finds what is wrong with a configuration before anything is trained.
fn check(settings: &Table) -> Result<()> {
    let settings: Settings = settings.clone().try_into()?;
    Ok(settings.config()?.check()?)
}

/// Where a configuration is written down, for the process that trains it.
fn settings_file(folder: &Path, configuration: &Configuration) -> PathBuf {
    folder.join(format!("{}.toml", configuration.name))
}

/// Trains one configuration in a process of its own; why it failed, if it did.
fn train(
    configuration: &Configuration,
    folder: &Path,
    processes: bool,
    show: &(dyn Fn(&str) + Sync),
) -> Result<Option<String>> {
    let (file, text) = (settings_file(folder, configuration), toml::to_string(&configuration.settings)?);
    File::create_new(&file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let run = folder.join(&configuration.name);
    let mut command = Command::new(program);
    command.args([OsStr::new("train"), "--config".as_ref(), file.as_ref(), "--run".as_ref(), run.as_ref()]);
    command.args(processes.then_some("--processes"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    show("");
    // Whoever stops the sweep stops the run that goes on.
    let mut job = Job::start(command)?;
    let said = job.take_stderr();
    let (status, why) = thread::scope(|scope| {
        let reader = scope.spawn(|| last_error(said, show));
        let status = job.wait(drop);
        (status, reader.join().unwrap_or_default())
    });
    let status = status?;
    if STOPPED.contains(&exit_status(status)) {
        bail!("stopped while training {}; what was recorded is in {}", configuration.name, folder.display());
    }
    Ok((!status.success()).then(|| why.unwrap_or_else(|| format!("it exited with {status}"))))
}

/// Statuses of a run that was stopped: by SIGHUP, SIGINT and SIGTERM.
const STOPPED: [u8; 3] = [129, 130, 143];

/// Shows what a run says, and tells why it failed.
fn last_error(said: Option<ChildStderr>, show: &(dyn Fn(&str) + Sync)) -> Option<String> {
    let mut why = None;
    for line in said.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n')).map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        show(&line);
        why = line.strip_prefix("error: ").map(str::to_owned).or(why);
    }
    why
}

/// How far the sweep is: a bar where there is somebody to see it, and else a line for each run.
fn show(index: usize, all: usize, name: &str, says: &str) {
    if stderr().is_terminal() {
        // On one line of a narrow terminal: a longer one could not be taken back.
        let step = says.strip_prefix("step ").and_then(|says| says.split_whitespace().next());
        let step = step.map_or_else(String::new, |step| format!("  step {}", text::printable(step)));
        let (bar, name) = (progress::bar("training", index, all, "runs"), text::shortened(name, 16));
        say(&format!("\r\u{1b}[K{bar}  {name}{step}"));
    } else if says.is_empty() {
        say(&format!("training {name}, run {} of {all}\n", index + 1));
    }
}

fn say(text: &str) {
    let mut stderr = anstream::stderr().lock();
    // A closed stderr leaves nobody to tell.
    drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, said: &str) -> Result<Vec<Configuration>, String> {
        configurations(&file.parse::<Table>().unwrap(), said.parse::<Table>().unwrap())
    }

    #[test]
    fn runs_say_what_differs_and_the_command_line_wins() {
        let file = "model = 'tiny'\nsteps = 9\n[[run]]\n[[run]]\ndp = 2\nzero = 1\n[[run]]\nname = 'all'\nrecompute = 'full'\n";
        let found = read(file, "steps = 7").unwrap();
        let names: Vec<&str> = found.iter().map(|configuration| configuration.name.as_str()).collect();
        assert_eq!(names, ["usual", "dp2-zero1", "all"]);
        let expected: Table = "model = 'tiny'\nsteps = 7\nrecompute = 'full'".parse().unwrap();
        assert_eq!(found[2].settings, expected);
        assert_eq!(read(file, "").unwrap()[2].settings["steps"].as_integer(), Some(9));
        // A run would be called what it is not.
        assert_eq!(read(file, "dp = 4").unwrap_err(), "run dp2-zero1 and the command line both set dp");
    }

    #[test]
    fn what_is_no_sweep_is_said() {
        for (file, why) in [
            ("dp = 2", "a sweep needs a [[run]]"),
            ("run = []", "a sweep needs a [[run]]"),
            ("run = [1]", "each run must be a table"),
            ("[[run]]\n[[run]]", "two runs are called usual"),
            ("[[run]]\nname = '../up'", "`../up` is not a valid run name"),
            ("[[run]]\nname = 3", "the name of a run must be a string"),
        ] {
            let said = read(file, "").unwrap_err();
            assert!(said.contains(why), "{file}: {said}");
        }
    }

    #[test]
    fn settings_are_checked_before_anything_is_trained() {
        let wrong = |text: &str| check(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(wrong("dq = 2").contains("dq"));
        assert!(!wrong("pp = 9").is_empty());
        check(&"dp = 2".parse().unwrap()).unwrap();
    }
}
