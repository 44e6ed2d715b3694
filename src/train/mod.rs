//! `stepscope train`: the reference trainer, recorded.

mod boxed;
mod progress;
mod settings;
mod sweep;
mod training;
mod watched;

use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
    time::Duration,
};

use anstyle::AnsiColor;
use anyhow::{Result, bail};
use stepscope_plan::{ParallelLayout, PlanError, Zero};
use stepscope_traces::{Rank, RingBounds, RunInfo};
use stepscope_trainer::{
    Job, RankAssignment, TrainConfig, TrainError, changed_settings, comm::Groups, launch_processes, newest_checkpoint,
};
use stepscope_tui::View;

use self::{
    progress::Progress,
    settings::{BackendName, Settings},
    training::{ChosenBackend, Training, Variables},
};

use crate::{black_box, failure::WithHint, new_run::NewRun, object_storage, words};

/// Train a Llama-style model, and record every step.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope train\n  \
    stepscope train --dp 2 --zero 2 --steps 50 --live --view memory\n  \
    stepscope train --backend cuda --model llama-1b --seq-len 2048 --micro-batch 2 --deterministic\n  \
    stepscope train --dp 2 --processes\n  \
    torchrun --no-python --nproc-per-node 4 -- stepscope train --dp 4\n  \
    srun --ntasks 8 stepscope train --dp 4 --tp 2\n  \
    stepscope train --upload s3://bucket/runs/mine\n  \
    stepscope train --sweep sweep.toml --steps 30\n  \
    stepscope train --tp 2 --pp 2 --schedule interleaved --recompute selective --data book.txt")]
pub(crate) struct Arguments {
    /// Read settings from a file; the command line overrides it.
    ///
    /// The file sets options by name, such as `micro-batch = 8`: any but --config, --sweep, --run, --no-record, --processes,
    /// --live and --view.
    #[arg(long, value_name = "FILE.toml", help_heading = "Run")]
    config: Option<PathBuf>,
    /// Train several configurations one after the other, and compare them in one table.
    ///
    /// The file has settings as in --config, and a [[run]] with the settings of each configuration.
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["config", "no_record"], help_heading = "Run")]
    sweep: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// The run directory, new or empty, or the directory of a sweep [default: a new one under runs/]
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    run: Option<PathBuf>,
    /// Continue the run of an earlier job: resume from its newest checkpoint, if there is one, and record into the next segment
    /// of the run directory, or the first.
    #[arg(long = "continue", requires = "run", conflicts_with_all = ["resume", "live", "sweep", "no_record"], help_heading = "Run")]
    continues: bool,
    /// Train without recording.
    #[arg(long, help_heading = "Run")]
    no_record: bool,
    /// Start a process per rank instead of a thread. Under torchrun and srun, ranks are already processes.
    #[arg(long, help_heading = "Run")]
    processes: bool,
    /// Train in the background, and open the dashboard.
    ///
    /// Output of the training goes to a log file next to the run. Quitting the dashboard asks whether to stop the training.
    #[arg(long, conflicts_with_all = ["no_record", "sweep"], help_heading = "Run")]
    live: bool,
    /// The view the dashboard opens first [default: overview]
    #[arg(long, value_name = "NAME", value_parser = words::one_of(View::ALL, View::name), requires = "live", help_heading = "Run")]
    view: Option<View>,
    #[command(flatten)]
    long_jobs: black_box::Arguments,
    #[command(flatten)]
    upload: object_storage::Arguments,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments {
        config: file,
        sweep,
        settings,
        run,
        continues,
        no_record,
        processes,
        live,
        view,
        long_jobs,
        upload,
    } = arguments;
    object_storage::refuse(run.as_deref(), "--run", "--upload URL uploads the run while it is recorded")?;
    let (bounds, done) = (long_jobs.bounds()?, |()| ExitCode::SUCCESS);
    if bounds.is_some() && (no_record || sweep.is_some()) {
        bail!("--black-box cannot be used with --no-record or --sweep");
    }
    upload.check()?;
    if upload.is_asked_for() && (no_record || sweep.is_some()) {
        bail!("--upload cannot be used with --no-record or --sweep");
    }
    if long_jobs.hang_after.is_some() && bounds.is_none() {
        bail!("--hang-after needs --black-box");
    }
    if let Some(file) = sweep {
        return sweep::run(&file, &settings, run, processes).map(done);
    }
    let settings = match file {
        Some(file) => settings.or(settings::read(&file)?),
        None => settings,
    };
    let mut config = settings.config()?;
    object_storage::refuse(
        config.resume.as_deref(),
        "--resume",
        "copy the checkpoint here with the tools of the store",
    )?;
    if continues {
        config.resume = run.as_deref().and_then(newest_checkpoint);
    }
    // Whoever watches this process has made the run's directory.
    let watched = boxed::watched_run();
    let (is_watched, continues) = (watched.is_some(), continues && watched.is_none());
    let run = watched.or(run);
    let (backend, ranks) = (settings.backend.unwrap_or(BackendName::Auto), config.layout.world_size());
    let assignment = RankAssignment::of_this_process()?;
    if live {
        if assignment.is_some() {
            bail!("--live cannot be used in one of several ranks; run `stepscope live` in another terminal");
        }
        check(&config)?;
        crate::live::check_terminal()?;
        let is_named = run.is_some();
        let run = new_run(run, continues, &config)?;
        return watched::train(run.path(), is_named, view).map(done);
    }
    let upload = (!is_watched).then_some(&upload);
    let recording = Recording { run, continues, no_record, bounds, upload };
    if let Some(assignment) = assignment {
        if assignment.rank == Rank(0) && assignment.secret.is_missing() {
            warn_of_strangers(&assignment);
        }
        let job = Job::join(&assignment, &config)?;
        // Ranks that somebody else has started have nobody outside to watch them.
        let keeper = (long_jobs.black_box && job.rank() == Rank(0) && !is_watched).then_some(&long_jobs);
        let trained = train(&ChosenBackend::of(backend, ranks), config, recording, Some(&job), keeper);
        return job.end(trained).map(done);
    }
    check(&config)?;
    if long_jobs.black_box && !is_watched {
        return boxed::train(new_run(recording.run, continues, &config)?.path(), &long_jobs, recording.upload);
    }
    let (choice, variables) = ChosenBackend::for_launch(backend, ranks)?;
    if ranks > 1 && (processes || matches!(choice, ChosenBackend::Cuda)) {
        // What was chosen for all is not left to each.
        let chosen = (backend == BackendName::Auto).then(|| choice.name());
        let uploads = upload.is_some_and(object_storage::Arguments::is_asked_for);
        let grace = if uploads { object_storage::PATIENCE } else { Duration::ZERO };
        start_processes(ranks, chosen, &variables, grace)?;
        return Ok(ExitCode::SUCCESS);
    }
    train(&choice, config, recording, None, None).map(done)
}

/// Says what does not go together, and what would.
fn check(config: &TrainConfig) -> Result<()> {
    match config.check() {
        Err(error @ TrainError::Plan(PlanError::Layout(_))) => Err(match config.layout.instead(&config.model) {
            Some(hint) => WithHint { what: error.to_string(), hint }.into(),
            None => error.into(),
        }),
        checked => Ok(checked?),
    }
}

/// The directory that was named, or the next segment of that, or one by time and name.
fn new_run(run: Option<PathBuf>, continues: bool, config: &TrainConfig) -> Result<NewRun> {
    match run {
        Some(path) if continues => NewRun::next_segment(&path),
        Some(path) => Ok(NewRun::at(path)),
        None => NewRun::like(&RunInfo::of_this_process(run_name(config)).default_path()),
    }
}

/// What is recorded, and where.
struct Recording<'a> {
    run: Option<PathBuf>,
    /// Whether that is the next segment of the run.
    continues: bool,
    no_record: bool,
    /// What a rank keeps at most, if not everything.
    bounds: Option<RingBounds>,
    /// Where else it goes, unless whoever watches this process sees to that.
    upload: Option<&'a object_storage::Arguments>,
}

/// Starts this command once for each rank.
fn start_processes(
    ranks: u64,
    backend: Option<&str>,
    variables: &Variables,
    grace: Duration,
) -> Result<(), TrainError> {
    let program =
        std::env::current_exe().map_err(|error| TrainError::Settings(format!("cannot find this program: {error}")))?;
    launch_processes(ranks, grace, || {
        let mut arguments = std::env::args_os();
        let mut command = Command::new(&program);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        command.args(arguments);
        if let Some(backend) = backend {
            command.args(["--backend", backend]);
        }
        let unset = variables.iter().filter(|(name, _)| std::env::var_os(name).is_none());
        command.envs(unset.map(|(name, value)| (name, value.to_string())));
        command
    })
}

/// Trains, in one process or as one of a job's.
fn train(
    choice: &ChosenBackend,
    mut config: TrainConfig,
    Recording { run, continues, no_record, bounds, upload }: Recording<'_>,
    job: Option<&Job>,
    keeper: Option<&black_box::Arguments>,
) -> Result<()> {
    let mut info = RunInfo::of_this_process(run_name(&config));
    let speaks = job.is_none_or(|job| job.rank() == Rank(0));
    // Rank 0 makes it for all.
    let is_needed = run.is_some() || !no_record || config.save.is_some();
    let mut new_run = (speaks && is_needed).then(|| new_run(run, continues, &config)).transpose()?;
    let path = new_run.as_ref().map_or_else(PathBuf::new, |run| run.path().to_owned());
    let path = match job {
        Some(job) => job.agree("the run's path", path)?,
        None => path,
    };
    if let Some(save) = &mut config.save {
        save.directory = path.join(&save.directory);
    }
    let training = Training::prepare(choice, &config, job)?;
    if let Some(run) = new_run.as_mut().filter(|_| !no_record) {
        describe(&mut info, &config, choice.name());
        info.black_box = bounds;
        run.describe(&info)?;
    }
    if let Some(job) = job {
        job.meet("the run")?;
    }
    if speaks {
        introduce(&config, choice, &training);
    }
    let keeper = keeper.map(|keeper| keeper.watch(&path, true)).transpose()?;
    let upload = upload.filter(|_| speaks);
    let uploader = upload.map(|upload| upload.start_heeding_signals(&path)).transpose()?.flatten();
    let progress = Progress::new(&config);
    let trained = training.run((!no_record).then_some(path.as_path()), &|step| progress.show(&step));
    keeper.into_iter().for_each(|keeper| drop(keeper.end(None)));
    // A recording that ended early does not undo the training.
    if speaks && matches!(trained, Ok(()) | Err(TrainError::Record(_))) {
        let summary = progress.summary(&config, (!no_record).then_some(&path));
        anstream::stdout().lock().write_all(summary.as_bytes())?;
    }
    uploader.into_iter().for_each(object_storage::Uploader::end);
    Ok(trained?)
}

/// Says that ranks cannot tell each other from anybody else, and what helps.
fn warn_of_strangers(RankAssignment { address, port, .. }: &RankAssignment) {
    let [yellow, cyan] = [AnsiColor::Yellow, AnsiColor::Cyan].map(|color| color.on_default().bold());
    let mut stderr = anstream::stderr().lock();
    // A closed stderr leaves nobody to tell.
    drop(writeln!(
        stderr,
        "{yellow}warning:{yellow:#} whoever can connect to {address}, port {port}, can join this job\n\
         {cyan}hint:{cyan:#} start all ranks with the same random STEPSCOPE_SECRET, such as `openssl rand -hex 16` prints"
    ));
}

/// Says what is trained on what, and what is to be known of that.
fn introduce(config: &TrainConfig, choice: &ChosenBackend, training: &Training) {
    let why = match choice {
        ChosenBackend::Cpu(Some(why)) => format!(": {why}"),
        ChosenBackend::Cpu(None) | ChosenBackend::Cuda => String::new(),
    };
    let mut stderr = anstream::stderr().lock();
    // A closed stderr leaves nobody to tell.
    drop(writeln!(stderr, "training {} on {}{why}", config.model.name, training.device()));
    let changed = changed_settings(config);
    let changed =
        (!changed.is_empty()).then(|| format!("the checkpoint was made with other settings: {}", changed.join(", ")));
    for warning in changed.into_iter().chain(training.warning()) {
        let yellow = AnsiColor::Yellow.on_default().bold();
        drop(writeln!(stderr, "{yellow}warning:{yellow:#} {warning}"));
    }
}

/// The model, and along which axes it is spread.
fn run_name(config: &TrainConfig) -> String {
    let ParallelLayout { dp, tp, sequence_parallel, cp, ep, pp, zero, dp_replicate, .. } = config.layout;
    let mut name = config.model.name.clone();
    for (axis, ranks) in [("dp", dp), ("ep", ep), ("tp", tp), ("cp", cp), ("pp", pp)] {
        if ranks > 1 {
            name += &format!("-{axis}{ranks}");
        }
    }
    if sequence_parallel {
        name += "-sp";
    }
    if zero > Zero::Off {
        name += &format!("-zero{}", u8::from(zero));
    }
    if dp_replicate > 1 {
        name += &format!("-hsdp{dp_replicate}");
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
        ("learning_rate".into(), config.optimizer.learning_rate.into()),
        ("lr_schedule".into(), serde_json::json!(config.optimizer.schedule)),
        ("warm_up".into(), config.optimizer.warm_up.into()),
        ("clip".into(), config.optimizer.clip.unwrap_or(0.0).into()),
        ("weight_decay".into(), config.optimizer.weight_decay.into()),
        ("betas".into(), serde_json::json!(config.optimizer.betas)),
        ("eps".into(), config.optimizer.epsilon.into()),
        ("z_loss".into(), config.z_loss.into()),
        ("reduction".into(), serde_json::json!(config.reduction)),
        ("data".into(), if data.is_empty() { "built-in".into() } else { data.into() }),
    ]);
    if config.model.experts.is_some() {
        info.configuration.insert("balance_loss".into(), config.balance_loss.into());
    }
}
