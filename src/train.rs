//! `stepscope train`: the reference trainer, recorded.

use std::{
    fs,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::{Duration, Instant},
};

use anstyle::Style;
use anyhow::{Result, anyhow};
use clap::ValueEnum;
use serde::Deserialize;
use stepscope_plan::{ModelShape, ParallelLayout, Precision, Recompute, Schedule, Zero};
use stepscope_traces::{Nanos, Rank, RunInfo};
use stepscope_trainer::{
    CpuTraining, CudaTraining, GradientReduction, Job, Patience, Place, RankProcess, SaveEvery, StepReport,
    TrainConfig, TrainError, comm::Groups, launch_processes, look_for_gpu,
};

use crate::{text, words};

/// What is trained, if nothing else is said.
fn usual() -> ParallelLayout {
    ParallelLayout { micro_batch: 4, micro_batches: 4, sequence_length: 128, ..ParallelLayout::default() }
}
const USUAL_MODEL: &str = "tiny";
const USUAL_CHUNKS: u64 = 2;

/// Train a Llama-style model and record where every step goes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope train\n  \
    stepscope train --dp 2 --zero 2 --steps 50\n  \
    stepscope train --backend cuda --model llama-1b --seq-len 2048 --micro-batch 2 --deterministic\n  \
    stepscope train --dp 2 --processes\n  \
    torchrun --no-python --nproc-per-node 4 stepscope train --dp 4\n  \
    srun --ntasks 8 stepscope train --dp 4 --tp 2\n  \
    stepscope train --tp 2 --pp 2 --schedule interleaved --recompute selective --data book.txt")]
pub(crate) struct Arguments {
    /// Settings as a file: any option but this one, --run, --no-record and --processes, by its name: `micro-batch = 8`.
    /// What is said on the command line wins.
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// The run directory to make; one under runs/, if it is not said.
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Train without recording.
    #[arg(long)]
    no_record: bool,
    /// Start a process for each rank, instead of a thread. Under torchrun and srun each rank is one already.
    #[arg(long)]
    processes: bool,
}

/// What can be said on the command line and in a file.
#[derive(clap::Args, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Settings {
    #[arg(long, value_name = "NAME|FILE", help = format!("A preset, a config.json or a TOML file [default: {USUAL_MODEL}]"))]
    model: Option<String>,
    /// What to train on; auto takes the best there is.
    #[arg(long, value_enum)]
    backend: Option<BackendName>,
    #[arg(long, value_name = "N", help = format!("Replicas that each see other data [default: {}]", usual().dp))]
    dp: Option<u64>,
    #[arg(long, value_name = "N", help = format!("Ranks that share each matrix [default: {}]", usual().tp))]
    tp: Option<u64>,
    #[arg(long, value_name = "N", help = format!("Pipeline stages [default: {}]", usual().pp))]
    pp: Option<u64>,
    /// What replicas share: nothing, optimizer state, gradients too, parameters too [default: 0]
    #[arg(long, value_parser = words::zero())]
    zero: Option<Zero>,
    #[arg(long, value_parser = words::schedule(), help = format!("In which order stages work [default: {}]", usual().schedule.name()))]
    schedule: Option<Schedule>,
    #[arg(long, value_name = "N", help = format!("Chunks of layers on a stage of an interleaved schedule [default: {USUAL_CHUNKS}]"))]
    chunks: Option<u64>,
    #[arg(long, value_name = "B", help = format!("Sequences of a micro-batch [default: {}]", usual().micro_batch))]
    micro_batch: Option<u64>,
    #[arg(long, value_name = "M", help = format!("Micro-batches of a step, on each replica [default: {}]", usual().micro_batches))]
    micro_batches: Option<u64>,
    #[arg(long, value_name = "S", help = format!("Tokens of a sequence [default: {}]", usual().sequence_length))]
    seq_len: Option<u64>,
    #[arg(long, value_parser = words::recompute(), help = format!("What the backward pass computes again [default: {}]", usual().recompute.name()))]
    recompute: Option<Recompute>,
    #[arg(long, value_parser = words::precision(), help = format!("What parameters and activations are in [default: {}]", usual().precision.name()))]
    precision: Option<Precision>,
    /// What gradients are in; as the parameters, if it is not said.
    #[arg(long, value_parser = words::precision())]
    grads: Option<Precision>,
    /// How replicas reduce gradients: beside the backward pass, or after it [default: bucketed]
    #[arg(long, value_enum)]
    reduction: Option<ReductionName>,
    /// On a GPU, add up in one order, so that a run is the same to the last bit each time: a little slower.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    deterministic: Option<bool>,
    /// Steps to take [default: 20]
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// What initial weights and the order of the data follow from [default: 0]
    #[arg(long, value_name = "K")]
    seed: Option<u64>,
    /// How far a step goes, once warmed up [default: 0.001]
    #[arg(long, value_name = "RATE")]
    learning_rate: Option<f64>,
    /// Files whose bytes to train on; a built-in text, if there are none.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    data: Option<Vec<PathBuf>>,
    /// Write a checkpoint into the run directory after every so many steps.
    #[arg(long, value_name = "N")]
    save_every: Option<u64>,
    /// A checkpoint to go on from, or a run whose newest one is meant.
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// How long ranks that are processes wait for each other to join, and in each collective, before they give up
    /// [default: 60]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BackendName {
    /// The best there is.
    Auto,
    /// The cores of this machine.
    Cpu,
    /// GPUs.
    Cuda,
}

#[derive(Clone, Copy, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReductionName {
    /// Unit by unit, beside the backward pass.
    Bucketed,
    /// All at once, after it: to compare with.
    Naive,
}

impl Settings {
    /// These, and where they say nothing, those of `other`.
    fn or(self, other: Settings) -> Settings {
        Settings {
            model: self.model.or(other.model),
            backend: self.backend.or(other.backend),
            dp: self.dp.or(other.dp),
            tp: self.tp.or(other.tp),
            pp: self.pp.or(other.pp),
            zero: self.zero.or(other.zero),
            schedule: self.schedule.or(other.schedule),
            chunks: self.chunks.or(other.chunks),
            micro_batch: self.micro_batch.or(other.micro_batch),
            micro_batches: self.micro_batches.or(other.micro_batches),
            seq_len: self.seq_len.or(other.seq_len),
            recompute: self.recompute.or(other.recompute),
            precision: self.precision.or(other.precision),
            grads: self.grads.or(other.grads),
            reduction: self.reduction.or(other.reduction),
            deterministic: self.deterministic.or(other.deterministic),
            steps: self.steps.or(other.steps),
            seed: self.seed.or(other.seed),
            learning_rate: self.learning_rate.or(other.learning_rate),
            data: self.data.or(other.data),
            save_every: self.save_every.or(other.save_every),
            resume: self.resume.or(other.resume),
            timeout: self.timeout.or(other.timeout),
        }
    }

    fn layout(&self) -> ParallelLayout {
        let usual = usual();
        let schedule = self.schedule.unwrap_or(usual.schedule);
        let usual_chunks = if schedule == Schedule::Interleaved { USUAL_CHUNKS } else { usual.chunks };
        let precision = self.precision.unwrap_or(usual.precision);
        ParallelLayout {
            dp: self.dp.unwrap_or(usual.dp),
            tp: self.tp.unwrap_or(usual.tp),
            pp: self.pp.unwrap_or(usual.pp),
            zero: self.zero.unwrap_or(usual.zero),
            schedule,
            chunks: self.chunks.unwrap_or(usual_chunks),
            micro_batch: self.micro_batch.unwrap_or(usual.micro_batch),
            micro_batches: self.micro_batches.unwrap_or(usual.micro_batches),
            sequence_length: self.seq_len.unwrap_or(usual.sequence_length),
            recompute: self.recompute.unwrap_or(usual.recompute),
            precision,
            gradients: self.grads.unwrap_or(precision),
        }
    }

    /// What to do; checkpoints go into a run that is known later.
    fn config(&self) -> Result<TrainConfig> {
        let model = ModelShape::load(self.model.as_deref().unwrap_or(USUAL_MODEL))?;
        let usual = TrainConfig::new(model, self.layout());
        let reduction = match self.reduction {
            None => usual.reduction,
            Some(ReductionName::Bucketed) => GradientReduction::Bucketed,
            Some(ReductionName::Naive) => GradientReduction::Naive,
        };
        Ok(TrainConfig {
            steps: self.steps.unwrap_or(usual.steps),
            seed: self.seed.unwrap_or(usual.seed),
            deterministic: self.deterministic.unwrap_or(usual.deterministic),
            learning_rate: self.learning_rate.unwrap_or(usual.learning_rate),
            data: self.data.clone().unwrap_or_default(),
            save: self.save_every.map(|steps| SaveEvery { steps, directory: "checkpoints".into() }),
            resume: self.resume.clone(),
            patience: self.timeout.map_or(usual.patience, |seconds| Patience::of(Duration::from_secs(seconds))),
            reduction,
            ..usual
        })
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let Arguments { config: file, settings, run, no_record, processes } = arguments;
    let settings = match file {
        Some(file) => settings.or(read_settings(&file)?),
        None => settings,
    };
    let config = settings.config()?;
    match Place::of_this_process()? {
        Some(place) => {
            let job = Job::join(&place, &config)?;
            let trained = train(&settings, config, run, no_record, Some(&job));
            job.end(trained)
        }
        None if processes && config.layout.world_size() > 1 => Ok(start_processes(&config)?),
        None => train(&settings, config, run, no_record, None),
    }
}

/// Starts this command once for each rank.
fn start_processes(config: &TrainConfig) -> Result<(), TrainError> {
    config.check()?;
    let program =
        std::env::current_exe().map_err(|error| TrainError::Settings(format!("cannot find this program: {error}")))?;
    launch_processes(config.layout.world_size() as u32, || {
        let mut arguments = std::env::args_os();
        let mut command = Command::new(&program);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        command.args(arguments);
        command
    })
}

/// Trains, in one process or as one of a job's.
fn train(
    settings: &Settings,
    mut config: TrainConfig,
    run: Option<PathBuf>,
    no_record: bool,
    job: Option<&Job>,
) -> Result<()> {
    let mut info = RunInfo::of_this_process(run_name(&config));
    let path = run.unwrap_or_else(|| free_path(&info.default_path()));
    let path = match job {
        Some(job) => job.agree("the run's path", path)?,
        None => path,
    };
    let speaks = job.is_none_or(|job| job.rank() == Rank(0));
    if let Some(save) = &mut config.save {
        save.directory = path.join(&save.directory);
    }
    let (training, why) = Training::prepare(settings.backend.unwrap_or(BackendName::Auto), &config, job)?;
    if !no_record && speaks {
        describe(&mut info, &config, training.name());
        info.create(&path)?;
    }
    if let Some(job) = job {
        job.meet("the run")?;
    }
    if speaks {
        let why = why.map_or_else(String::new, |why| format!(", since {why}"));
        // A closed stderr leaves nobody to tell.
        drop(writeln!(anstream::stderr(), "training {} on {}{why}", config.model.name, training.device()));
    }
    let progress = Progress::new(&config);
    let trained = training.run((!no_record).then_some(path.as_path()), &|step| progress.show(&step));
    // A recording that ended early does not undo the training.
    if speaks && matches!(trained, Ok(()) | Err(TrainError::Record(_))) {
        let summary = progress.summary(&config, (!no_record).then_some(&path));
        anstream::stdout().lock().write_all(summary.as_bytes())?;
    }
    Ok(trained?)
}

/// A training run that can begin.
enum Training {
    Cpu(CpuTraining),
    Cuda(CudaTraining),
    Process(RankProcess),
}

impl Training {
    /// Also says why it is the CPU, where nobody asked for that.
    fn prepare(
        backend: BackendName,
        config: &TrainConfig,
        job: Option<&Job>,
    ) -> Result<(Training, Option<String>), TrainError> {
        let ranks = config.layout.world_size();
        let why_not = match backend {
            BackendName::Cuda => None,
            BackendName::Cpu => Some(None),
            BackendName::Auto => match look_for_gpu() {
                Ok(()) if ranks == 1 => None,
                Ok(()) => Some(Some(format!("on a GPU there is one rank, not {ranks}"))),
                // Nothing to remark on.
                Err(TrainError::NoGpu { .. }) => Some(None),
                Err(error) => Some(Some(error.to_string())),
            },
        };
        Ok(match (why_not, job) {
            (None, _) => (Training::Cuda(CudaTraining::prepare(config)?), None),
            (Some(why), Some(job)) => (Training::Process(RankProcess::prepare(config, job)?), why),
            (Some(why), None) => (Training::Cpu(CpuTraining::prepare(config)?), why),
        })
    }

    /// What it trains on.
    fn device(&self) -> String {
        match self {
            Training::Cpu(_) | Training::Process(_) => "the CPU".into(),
            Training::Cuda(training) => training.device_name(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Training::Cpu(_) | Training::Process(_) => "cpu",
            Training::Cuda(_) => "cuda",
        }
    }

    fn run(self, run: Option<&Path>, report: &(dyn Fn(StepReport) + Sync)) -> Result<(), TrainError> {
        match self {
            Training::Cpu(training) => training.run(run, report),
            Training::Cuda(training) => training.run(run, report),
            Training::Process(training) => training.run(run, report),
        }
    }
}

fn read_settings(file: &Path) -> Result<Settings> {
    let text = read_small(file).map_err(|error| anyhow!("cannot read {}: {error}", file.display()))?;
    toml::from_str(&text).map_err(|error| anyhow!("cannot understand {}: {}", file.display(), error))
}

/// A text of a plain file, which settings take little of.
fn read_small(file: &Path) -> io::Result<String> {
    const MOST: u64 = 1 << 20;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > MOST {
        return Err(io::Error::other("it is no plain file of a megabyte at most"));
    }
    fs::read_to_string(file)
}

/// A path that is not taken: two runs may begin in one second.
fn free_path(path: &Path) -> PathBuf {
    let numbered = (2..).map(|number| PathBuf::from(format!("{}-{number}", path.display())));
    std::iter::once(path.to_owned()).chain(numbered).find(|path| !path.exists()).unwrap_or_else(|| path.to_owned())
}

/// The model, and along which axes it is spread.
fn run_name(config: &TrainConfig) -> String {
    let ParallelLayout { dp, tp, pp, zero, .. } = config.layout;
    let mut name = config.model.name.clone();
    for (axis, ranks) in [("dp", dp), ("tp", tp), ("pp", pp)] {
        if ranks > 1 {
            name += &format!("-{axis}{ranks}");
        }
    }
    if zero > Zero::Off {
        name += &format!("-zero{}", u8::from(zero));
    }
    name
}

/// What a reader of the run has to know.
fn describe(info: &mut RunInfo, config: &TrainConfig, backend: &str) {
    info.world_size = Some(config.layout.world_size() as u32);
    info.model = Some(config.model.clone());
    info.layout = Some(config.layout);
    info.groups = Groups::describe(&config.layout);
    let data = config.data.iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
    info.configuration.extend([
        ("backend".into(), backend.into()),
        ("deterministic".into(), config.deterministic.into()),
        ("steps".into(), config.steps.into()),
        ("seed".into(), config.seed.into()),
        ("learning_rate".into(), config.learning_rate.into()),
        ("reduction".into(), serde_json::json!(config.reduction)),
        ("data".into(), if data.is_empty() { "built-in".into() } else { data.into() }),
    ]);
}

/// What is said while training goes on.
struct Progress {
    steps: u64,
    began: Instant,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    losses: Option<(f64, f64)>,
    tokens: u64,
    time: Duration,
    steps: u64,
}

impl Progress {
    fn new(config: &TrainConfig) -> Progress {
        Progress { steps: config.steps, began: Instant::now(), seen: Mutex::default() }
    }

    fn show(&self, step: &StepReport) {
        let StepReport { step: number, loss, gradient_norm, tokens, duration } = *step;
        let rate = (tokens as f64 / duration.as_secs_f64()) as u64;
        let width = self.steps.to_string().len();
        let line = format!(
            "step {:>width$}/{}  loss {loss:.4}  gradient {gradient_norm:.3}  {:>9} tokens/s  {:>8}",
            number + 1,
            self.steps,
            text::count(rate),
            text::duration(Nanos(duration.as_nanos() as i64)),
        );
        // A closed stderr leaves nobody to tell.
        drop(writeln!(anstream::stderr(), "{line}"));
        let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let first = seen.losses.map_or(loss, |(first, _)| first);
        seen.losses = Some((first, loss));
        seen.tokens += tokens;
        seen.time += duration;
        seen.steps += 1;
    }

    fn summary(&self, config: &TrainConfig, run: Option<&Path>) -> String {
        let seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let bold = Style::new().bold();
        let Some((first, last)) = seen.losses else { return String::new() };
        let took = text::duration(Nanos(self.began.elapsed().as_nanos() as i64));
        let label = |word: &str| format!("{bold}{word:<8}{bold:#}  ");
        let mut text = format!(
            "{}{} for {} in {took}: loss {first:.3} → {last:.3}, {} tokens/s\n",
            label("trained"),
            config.model.name,
            text::counted(seen.steps, "step"),
            text::count((seen.tokens as f64 / seen.time.as_secs_f64()) as u64),
        );
        // The last multiple, if any step of this run was one.
        if let Some(save) = &config.save
            && config.steps % save.steps < seen.steps
        {
            let last = config.steps - config.steps % save.steps;
            text += &format!("{}{}\n", label("saved"), save.directory.join(format!("step-{last:06}")).display());
        }
        match run {
            Some(run) => {
                let (recorded, next, program) = (label("recorded"), label("next"), text::program());
                let run = text::command_line(&[run.display().to_string()]);
                text + &format!("{recorded}{run}\n{next}{program} analyze {run}\n")
            }
            None => text + "not recorded, as asked\n",
        }
    }
}
