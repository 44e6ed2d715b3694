//! `stepscope record`: records any CUDA program, unchanged.

mod library;
mod problems;
mod task;

use std::{
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use anyhow::{Result, anyhow, bail};
use stepscope_analyzer::{StepRange, paused, recording};
use stepscope_collector::injection::{self, Budget, Injection, Job, NCCL_VARIABLE, PythonModule, Windows, exit_status};
use stepscope_plan::text;
use stepscope_traces::{KeptIncident, Loss, Run, RunInfo, State, Step, TraceError, Window};

use self::task::Task;
use crate::{
    analyze::ranges, black_box, failure, new_run::NewRun, object_storage, own_profiler, recording_cost, seconds,
    terminal, torch_memory,
};

/// Under which key a run says what it is, and what it says there.
const SOURCE: (&str, &str) = ("source", "recorded program");
/// A run's name is a part of its directory's, which a file system bounds.
const LONGEST_NAME: usize = 48;
/// What asks our module in a program's Python for lines of the program.
const LINES_VARIABLE: &str = "STEPSCOPE_LINES";
/// Shorter windows would open and close between two looks.
const SHORTEST_WINDOW: Duration = Duration::from_millis(200);

/// Record any CUDA program, unchanged.
///
/// Each process of the command that uses CUDA becomes a rank, numbered by RANK or in order. Recorded are its kernels,
/// copies, fills, memory, NVTX ranges and NCCL operations, and samples of its GPU. The exit status is that of the command.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope record -- python train.py --lr 3e-4\n  \
    srun stepscope record --run runs/mine -- python train.py\n  \
    stepscope record --after 60 --duration 10 -- torchrun --nproc-per-node 8 train.py\n  \
    stepscope record --budget none -- python train.py\n  \
    stepscope record --duration 5 --every 600 -- python train.py\n  \
    stepscope record --steps 10..20 -- python train.py\n  \
    stepscope record --upload s3://bucket/runs/mine -- python train.py\n  \
    stepscope record --dormant --run runs/mine -- python train.py &\n  \
    stepscope trigger runs/mine --duration 5")]
pub(crate) struct Arguments {
    /// The run directory, new or empty [default: a new one under runs/]
    ///
    /// Tasks of one `srun` record into the same one.
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Continue the run of an earlier job: record into the next segment of the run directory, or the first.
    #[arg(long = "continue", requires = "run")]
    continues: bool,
    /// Start recording this many seconds after CUDA starts.
    #[arg(long, value_name = "S", value_parser = seconds::parse, help_heading = "When to record")]
    after: Option<Duration>,
    /// Seconds to record [default: until the program ends]
    #[arg(long, value_name = "S", value_parser = seconds::parse, help_heading = "When to record")]
    duration: Option<Duration>,
    /// Start a new recording every S seconds.
    #[arg(long, value_name = "S", value_parser = seconds::parse, requires = "duration", help_heading = "When to record")]
    every: Option<Duration>,
    /// Record only these steps: A..B, A.., ..B or N.
    ///
    /// Steps are numbered by `stepscope.step` in the program, by NVTX ranges such as `step 5`, or by PyTorch optimizers.
    #[arg(long, value_name = "A..B", value_parser = ranges::steps, conflicts_with_all = ["after", "duration", "every"], help_heading = "When to record")]
    steps: Option<StepRange>,
    /// Record nothing until `stepscope trigger` is run.
    #[arg(long, conflicts_with_all = ["after", "duration", "every", "steps"], help_heading = "When to record")]
    dormant: bool,
    /// What recording may cost on average, as a percentage of the step time, or none [default: 1%, or none with --duration,
    /// --steps or --dormant]
    ///
    /// The recorder alternates recorded and unrecorded steps, measures what recording costs and keeps the average within
    /// the budget. In unrecorded steps it is detached from CUDA, and PyTorch keeps no memory history. Needs steps: a program
    /// without any is recorded throughout.
    #[arg(long, value_name = "SHARE", value_parser = budget, help_heading = "When to record")]
    budget: Option<BudgetChoice>,
    /// Turn off the PyTorch integration: memory categories, steps, and forward and backward passes.
    #[arg(long)]
    no_torch: bool,
    /// Also record which line of the program launches what (PyTorch, Python 3.12 and later), in the steps whose operators are
    /// recorded: the third, and one every 512 steps after it.
    #[arg(long, conflicts_with = "no_torch")]
    lines: bool,
    /// Whether CUDA graphs are recorded by the kernels in them, or each as a whole, which costs next to nothing.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "node")]
    cuda_graph_trace: GraphTrace,
    #[command(flatten)]
    long_jobs: black_box::Arguments,
    #[command(flatten)]
    upload: object_storage::Arguments,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How far into CUDA graphs one looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum GraphTrace {
    /// Each kernel, copy and fill in it.
    Node,
    /// As one piece of work.
    Graph,
}

/// Whether there is one window, which stays open.
fn is_open_to_the_end(windows: &Windows) -> bool {
    matches!(windows, Windows::Timed { duration: None, every: None, .. })
}

/// What recording may cost: so much, or whatever it does.
type BudgetChoice = Option<Budget>;

fn budget(text: &str) -> Result<BudgetChoice, String> {
    if text == "none" { Ok(None) } else { text.parse().map(Some) }
}

impl Arguments {
    /// What was chosen; for those who say when to record, whatever it costs.
    fn budget(&self, windows: &Windows) -> Option<Budget> {
        self.budget.unwrap_or(is_open_to_the_end(windows).then_some(Budget::USUAL))
    }

    fn windows(&self) -> Result<Windows> {
        if self.dormant {
            return Ok(Windows::Dormant);
        }
        if let Some(StepRange { from, to }) = &self.steps {
            return Ok(Windows::Steps { first: from.unwrap_or(Step(0)), end: *to });
        }
        let &Arguments { duration, every, .. } = self;
        check_duration(duration)?;
        if every.zip(duration).is_some_and(|(every, duration)| every <= duration) {
            bail!("--every must be longer than --duration");
        }
        Ok(Windows::Timed { after: self.after.unwrap_or_default(), duration, every })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let windows = arguments.windows()?;
    if arguments.long_jobs.hang_after.is_some() && !is_open_to_the_end(&windows) {
        bail!("--hang-after cannot be used with --duration, --steps or --dormant, which do not record all steps");
    }
    arguments.upload.check()?;
    let instead = "--upload URL uploads the run while it is recorded";
    object_storage::refuse(arguments.run.as_deref(), "--run", instead)?;
    let library = injection::library(library::bytes())?;
    if let Some(tool) = injection::other_tool() {
        bail!(
            "another tool is already injected into CUDA programs: {} (see CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH)",
            tool.display()
        );
    }
    let (mut info, mut command) = describe(arguments);
    info.black_box = arguments.long_jobs.bounds()?;
    let task = Task::of_this_process();
    let run = new_run(arguments, &mut info, task.as_ref())?;
    let speaks = task.as_ref().is_none_or(Task::is_first);
    if !arguments.no_torch {
        match PythonModule::unpack() {
            Ok(module) => module.apply(&mut command),
            Err(error) => tell(&format!("{}without PyTorch memory and steps: {error}", label("records"))),
        }
    }
    if arguments.lines {
        command.env(LINES_VARIABLE, "1");
    }
    let path = run.path();
    let budget = arguments.budget(&windows);
    let whole_graphs = arguments.cuda_graph_trace == GraphTrace::Graph;
    Injection { run: path.canonicalize()?, windows: windows.clone(), budget, whole_graphs }
        .apply(&mut command, &library)?;
    if windows == Windows::Dormant && speaks {
        tell(&format!("{}{}\n{}", label("dormant"), shown(path), hint_to_trigger(path)));
    }
    let keeper = speaks.then(|| arguments.long_jobs.watch(path, is_open_to_the_end(&windows))).transpose()?;
    let uploader = if speaks { arguments.upload.start(path)? } else { None };
    let status = Job::start(command)?.wait(|signal| keeper.iter().for_each(|keeper| keeper.signal(signal)))?;
    let incidents = keeper.map_or_else(Vec::new, |keeper| keeper.end(Some(status)));
    if !status.success() {
        tell(&format!("{}{status}", label("command")));
    }
    // Whatever became of the recording, the status is the command's.
    if speaks && let Err(error) = report(path, &windows, &incidents) {
        failure::explain(&anyhow!("cannot read the recording: {error}"));
    }
    uploader.into_iter().for_each(object_storage::Uploader::end);
    Ok(ExitCode::from(exit_status(status)))
}

/// The directory to record into, described; tasks of one job have the same one.
fn new_run(arguments: &Arguments, info: &mut RunInfo, task: Option<&Task>) -> Result<NewRun> {
    task.into_iter().for_each(|task| task.sign(info));
    let mut run = match (&arguments.run, task) {
        (Some(path), Some(task)) if arguments.continues => {
            return NewRun::segment_together(path, info, |made| task.is_of_job(made));
        }
        (Some(path), None) if arguments.continues => NewRun::next_segment(path)?,
        (Some(path), _) => NewRun::at(path.clone()),
        (None, Some(task)) => NewRun::at(task.default_path(info)),
        (None, None) => NewRun::like(&info.default_path())?,
    };
    match task {
        Some(task) => run.describe_together(info, |made| task.is_of_job(made))?,
        None => run.describe(info)?,
    }
    Ok(run)
}

/// Says what is in the recording.
fn report(path: &Path, windows: &Windows, incidents: &[KeptIncident]) -> Result<(), TraceError> {
    tell(&summary(path, windows)?);
    if !incidents.is_empty() {
        let how_many = text::counted(incidents.len() as u64, "incident");
        tell(&format!("{}{how_many}: {} incidents {}", label("watched"), terminal::program(), shown(path)));
    }
    Ok(())
}

/// Refuses windows in which there is no time to attach.
pub(crate) fn check_duration(duration: Option<Duration>) -> Result<()> {
    if duration.is_some_and(|duration| duration < SHORTEST_WINDOW) {
        bail!("--duration must be at least {} s", SHORTEST_WINDOW.as_secs_f64());
    }
    Ok(())
}

/// Whether a run is of a program that was recorded from here.
pub(crate) fn is_recorded_program(info: &RunInfo) -> bool {
    info.configuration.get(SOURCE.0).is_some_and(|source| source == SOURCE.1)
}

/// What is run, in the words of a run, and for the system.
fn describe(arguments: &Arguments) -> (RunInfo, Command) {
    let words: Vec<String> = arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut info = RunInfo::of_this_process(name(&words));
    info.configuration.insert(SOURCE.0.into(), SOURCE.1.into());
    info.configuration.insert("program".into(), words.into());
    let mut command = Command::new(arguments.command.first().cloned().unwrap_or_default());
    command.args(arguments.command.iter().skip(1));
    (info, command)
}

/// What people would call a command: its script, where there is one, or its program.
fn name(words: &[String]) -> String {
    // A shell's script is one word of ours.
    let script = words.iter().flat_map(|word| word.split_whitespace()).find(|word| word.ends_with(".py"));
    let named = script.or(words.first().map(String::as_str)).unwrap_or_default();
    let stem = Path::new(named).file_stem().map_or_else(|| "program".into(), |stem| stem.to_string_lossy());
    stem.chars().take(LONGEST_NAME).collect()
}

/// What is said at the end.
fn summary(path: &Path, windows: &Windows) -> Result<String, TraceError> {
    let run = Run::open(path)?;
    if run.ranks.is_empty() {
        return Ok(format!("{}nothing: {}", label("recorded"), why_nothing(windows)));
    }
    let mut lines = Vec::new();
    let (kernels, loss) = count(&run)?;
    let ranks = text::ranks(run.ranks.len() as u64, None);
    let state = match run.state() {
        State::Complete => "",
        State::Recording => ", others still recording",
        State::Interrupted => ", interrupted",
    };
    lines.push(format!("{}{}: {ranks}, {}{state}", label("recorded"), shown(path), text::counted(kernels, "kernel")));
    let problems = problems::lines(&run.ranks);
    if kernels == 0 && problems.is_empty() && *windows != Windows::ALWAYS {
        lines.push(format!("{}no kernel ran in that time; the program may still have been loading", label("hint")));
    }
    lines.extend(problems.iter().map(|line| format!("{}{line}", label("problem"))));
    let cost = recording(run.ranks.iter().map(|rank| &rank.info));
    lines.extend(cost.as_ref().and_then(recording_cost::words).map(|cost| format!("{}{cost}", label("steps"))));
    let paused = paused(run.ranks.iter().map(|rank| &rank.info));
    lines.extend(paused.iter().map(|paused| format!("{}{}", label("paused"), own_profiler::words(paused))));
    lines.extend(injection::other_nccl_profiler().map(|other| other_profiler(&other)));
    let memory = torch_memory::lines(run.ranks.iter().map(|rank| &rank.info));
    lines.extend(memory.iter().map(|line| format!("{}{line}", label("memory"))));
    if !loss.is_none() {
        let red = AnsiColor::Red.on_default().bold();
        lines.push(format!("{red}{:<8}{red:#}  {}", "lost", loss.words()));
    }
    lines.push(format!("{}{} analyze {}", label("next"), terminal::program(), shown(path)));
    Ok(lines.join("\n"))
}

fn why_nothing(windows: &Windows) -> &'static str {
    match windows {
        windows if *windows == Windows::ALWAYS => "no process of the command used CUDA",
        Windows::Timed { .. } => "no process of the command used CUDA in that time",
        Windows::Steps { .. } => {
            "no process of the command used CUDA and reached these steps (steps are numbered by `stepscope.step`, NVTX \
             ranges such as `step 5`, or PyTorch optimizers)"
        }
        Windows::Dormant => "no process of the command used CUDA, or the job was not triggered",
    }
}

/// The kernels of all ranks, communication among them, and what is lost.
fn count(run: &Run) -> Result<(u64, Loss), TraceError> {
    let (mut kernels, mut lost) = (0, Loss::default());
    for rank in &run.ranks {
        let spans = |_: &_, spans: &stepscope_traces::Spans| {
            let ran = spans.rows().filter(|span| !span.kind.is_annotation() && !span.kind.is_copy());
            kernels += ran.count() as u64;
        };
        let (_, report) = rank.read_in_pieces(Window::ALL, spans, |_| {})?;
        lost += report.loss;
    }
    Ok((kernels, lost))
}

/// What is missing where NCCL tells another profiler of its operations.
fn other_profiler(other: &Path) -> String {
    let named = text::printable(&other.display().to_string());
    format!("{}operations are known only by kernel names, because {NCCL_VARIABLE} is set to {named}", label("nccl"))
}

fn hint_to_trigger(path: &Path) -> String {
    format!("{}{} trigger {}", label("next"), terminal::program(), shown(path))
}

fn shown(path: &Path) -> String {
    terminal::command_line(&[path.display().to_string()])
}

fn label(word: &str) -> String {
    let bold = Style::new().bold();
    format!("{bold}{word:<8}{bold:#}  ")
}

/// Says something beside what the command says: its stdout is its own.
fn tell(said: &str) {
    // A closed stderr leaves nobody to tell.
    drop(writeln!(anstream::stderr().lock(), "{said}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_called_as_its_script() {
        let called = |line: &str| name(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(called("python -u src/train.py --lr 3"), "train");
        assert_eq!(called("torchrun --nproc-per-node 8 train_gpt2.py"), "train_gpt2");
        assert_eq!(called("/opt/bin/simulate --gpu"), "simulate");
        assert_eq!(called(""), "program");
        let shell = |script: &str| name(&["bash".into(), "-c".into(), script.into()]);
        assert_eq!(shell("export NCCL_DEBUG=INFO && cd /data && exec python train_gpt2.py --lr 3"), "train_gpt2");
        assert_eq!(name(&[format!("{}.py", "x".repeat(300))]).len(), LONGEST_NAME);
    }
}
