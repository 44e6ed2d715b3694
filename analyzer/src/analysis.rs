//! Everything a run says, put together.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, available_parallelism},
};

use serde::Serialize;
use stepscope_plan::{ModelShape, ParallelLayout};
use stepscope_traces::{Device, Rank, RankDirectory, Run, RunSource, State, Step};

use crate::{
    bubbles::{PipelineFigures, pipeline},
    clock::{Alignment, ClockSummary},
    collectives::{CollectiveFigures, collectives},
    devices::{DeviceFigures, devices},
    error::AnalysisError,
    findings::{Finding, findings},
    kernels::{FamilyFigures, KernelFigures, kernels},
    memory::RankMemory,
    mfu::{Mfu, Rates},
    overlay::Overlay,
    partition::Partition,
    rank::{Detail, RankFigures, RankResult},
    roofline::Roofline,
    selection::Selection,
    step_time::StepTime,
    steps::StepFigures,
    stragglers::{Straggler, Wait},
};

/// The version of what `analyze` says.
const SCHEMA: u32 = 1;

/// Everything a run says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The version of this form.
    pub schema: u32,
    /// What was run.
    pub run: RunSummary,
    /// What of it is lost.
    pub data_loss: DataLoss,
    /// How clocks were brought together.
    pub clock: ClockSummary,
    /// Where each rank's time goes.
    pub ranks: Vec<RankFigures>,
    /// How long a step takes; none without steps.
    pub step_time: Option<StepTime>,
    /// Where each step's time goes.
    pub steps: Vec<StepFigures>,
    /// What fills each rank's memory.
    pub memory: Vec<RankMemory>,
    /// How much of the devices is used; none where the model or the peak is not known.
    pub mfu: Option<Mfu>,
    /// What devices said of themselves, where they were asked.
    pub devices: Vec<DeviceFigures>,
    /// How the stages wait for each other; none without a pipeline.
    pub pipeline: Option<PipelineFigures>,
    /// Communication by operation.
    pub collectives: Vec<CollectiveFigures>,
    /// Who waits, and for whom.
    pub stragglers: Vec<Straggler>,
    /// How long ranks waited for each other: those that others wait for most, and of those that wait the ones that wait
    /// longest.
    pub waits: Vec<Wait>,
    /// Kernels by name, the most time first.
    pub kernels: Vec<KernelFigures>,
    /// Kernels by family, the most time first.
    pub families: Vec<FamilyFigures>,
    /// What lets kernels be no faster; none where the peak is not known, or ranks share a device.
    pub roofline: Option<Roofline>,
    /// What stands out, the most important first.
    pub findings: Vec<Finding>,
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// What people call it.
    pub name: String,
    /// What recorded it.
    pub source: RunSource,
    /// What became of it.
    pub state: State,
    /// How many ranks took part.
    pub world_size: u32,
    /// The model, if it is known.
    pub model: Option<ModelShape>,
    /// How it was spread over ranks, if that is known.
    pub layout: Option<ParallelLayout>,
    /// What computed, if it is known; the first rank's.
    pub device: Option<Device>,
    /// How many ranks share a device, at most, if they do: then times are not those of as many devices.
    pub ranks_on_a_device: Option<u32>,
    /// Whether phases were told from something else than what the program said, at least in part.
    pub phases_inferred: bool,
}

/// What is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DataLoss {
    /// Events the recorder had no room for.
    pub dropped_events: u64,
    /// Bytes of the files that cannot be read.
    pub unreadable_bytes: u64,
    /// Events that were in them, as far as that is known.
    pub unreadable_events: u64,
}

impl Analysis {
    /// Where the time goes in the steps that count, on a rank or on all of them; where there are no steps, in all of it.
    pub fn counted_time(&self, rank: Option<Rank>) -> Vec<&Partition> {
        let is_asked = |other: Rank| rank.is_none_or(|rank| rank == other);
        let counts = |step: &&StepFigures| self.step_time.as_ref().is_some_and(|time| time.counts(step.step));
        let steps = self.steps.iter().filter(counts).filter(|step| is_asked(step.rank));
        let partitions: Vec<&Partition> = steps.map(|step| &step.partition).collect();
        if partitions.is_empty() {
            return self.ranks.iter().filter(|other| is_asked(other.rank)).map(|rank| &rank.partition).collect();
        }
        partitions
    }

    /// The same of each rank.
    pub fn counted_time_by_rank(&self) -> BTreeMap<Rank, RankTime> {
        let mut times: BTreeMap<Rank, RankTime> = BTreeMap::new();
        let counts = |step: &&StepFigures| self.step_time.as_ref().is_some_and(|time| time.counts(step.step));
        for step in self.steps.iter().filter(counts) {
            times.entry(step.rank).or_default().add(&step.partition);
        }
        if times.is_empty() {
            self.ranks.iter().for_each(|rank| times.entry(rank.rank).or_default().add(&rank.partition));
        }
        times
    }
}

/// The time of a rank in some windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankTime {
    /// Of all of them together.
    pub partition: Partition,
    /// How many there are: steps, or all of the time at once.
    pub windows: u64,
}

impl RankTime {
    fn add(&mut self, window: &Partition) {
        self.partition.add_window(window);
        self.windows += 1;
    }

    /// The mean of a part of it, of one window.
    pub fn mean(&self, part: fn(&Partition) -> i64) -> i64 {
        part(&self.partition) / self.windows.max(1) as i64
    }
}

/// Analyzes a run. `progress` is told how many ranks are done, from the threads that do them.
pub fn analyze(run: &Run, selection: &Selection, progress: &(dyn Fn(usize) + Sync)) -> Result<Analysis, AnalysisError> {
    Ok(analyze_and(run, selection, Detail::Figures, progress, |_, _| ())?.0)
}

/// As [`analyze`], with what it says of single moments and spans.
pub fn analyze_with_overlay(
    run: &Run,
    selection: &Selection,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<(Analysis, Overlay), AnalysisError> {
    let look = |ranks: &[RankResult], alignment: &Alignment| Overlay::of(&run.info, ranks, alignment);
    analyze_and(run, selection, Detail::Figures, progress, look)
}

/// Analyzes a run, and has somebody look at its ranks before they are let go.
pub(crate) fn analyze_and<T>(
    run: &Run,
    selection: &Selection,
    detail: Detail,
    progress: &(dyn Fn(usize) + Sync),
    look: impl FnOnce(&[RankResult], &Alignment) -> T,
) -> Result<(Analysis, T), AnalysisError> {
    let chosen = chosen(run, &selection.ranks)?;
    let ranks = read_ranks(run, &chosen, selection, detail, progress)?;
    check_steps(&ranks, selection)?;
    assemble(run, selection, ranks, look)
}

/// Puts together what the ranks of a run come to, and has somebody look at them before they are let go.
pub(crate) fn assemble<T>(
    run: &Run,
    selection: &Selection,
    mut ranks: Vec<RankResult>,
    look: impl FnOnce(&[RankResult], &Alignment) -> T,
) -> Result<(Analysis, T), AnalysisError> {
    let device = ranks.first().and_then(|rank| rank.info.device.clone());
    let peak_flops = selection.peak_flops.or(device.as_ref().and_then(|device| device.peak_flops));
    let alignment = Alignment::of(&ranks, &run.info.groups);
    let rates = Rates::of(&run.info, peak_flops, run.ranks.len(), selection.convention);
    let tables: Vec<_> = ranks.iter_mut().map(|rank| std::mem::take(&mut rank.kernels)).collect();
    let ranks_on_a_device = ranks.iter().filter_map(|rank| rank.info.sharing()).max();
    // Where ranks share a device, a kernel has more of it than the rank's part, or less: nobody knows.
    let roofline = Roofline::of(peak_flops.filter(|_| ranks_on_a_device.is_none()), device.as_ref());
    let (kernels, families) = kernels(&tables, roofline.as_ref())?;
    let step_time = StepTime::of(&ranks, selection);
    let warm_up: &[Step] = step_time.as_ref().map_or(&[], |time| &time.warm_up_steps);
    let (collectives, (stragglers, waits)) = collectives(&ranks, &run.info.groups)?;
    let seen = look(&ranks, &alignment);
    let mut analysis = Analysis {
        schema: SCHEMA,
        run: RunSummary {
            name: run.info.name.clone(),
            source: run.info.source,
            state: state(run, &ranks),
            world_size: run.info.world_size.unwrap_or(run.ranks.len() as u32),
            model: run.info.model.clone(),
            layout: run.info.layout,
            device,
            ranks_on_a_device,
            phases_inferred: ranks.iter().any(|rank| rank.info.phases_are_inferred()),
        },
        data_loss: DataLoss::of(&ranks),
        steps: steps(&ranks, &alignment, &rates),
        mfu: rates.overall(step_time.as_ref()),
        devices: devices(&ranks, warm_up),
        pipeline: pipeline(&run.info, &ranks, &alignment, warm_up),
        step_time: step_time.clone(),
        clock: alignment.summary,
        memory: ranks.iter_mut().filter_map(|rank| rank.memory.take()).collect(),
        ranks: ranks.into_iter().map(|rank| rank.figures).collect(),
        collectives,
        stragglers,
        waits,
        kernels,
        families,
        roofline,
        findings: Vec::new(),
    };
    analysis.findings = findings(&analysis);
    Ok((analysis, seen))
}

/// What became of a run. That a trace of another tool is cut off is known when it has been read.
fn state(run: &Run, ranks: &[RankResult]) -> State {
    let cut_off = ranks.iter().any(|rank| rank.state == State::Interrupted);
    if cut_off && run.state() == State::Complete { State::Interrupted } else { run.state() }
}

/// The ranks that were asked for.
fn chosen<'a>(run: &'a Run, wanted: &[Rank]) -> Result<Vec<&'a RankDirectory>, AnalysisError> {
    if run.ranks.is_empty() {
        return Err(AnalysisError::Selection(format!("{} has no ranks: nothing was recorded", run.path.display())));
    }
    if wanted.is_empty() {
        return Ok(run.ranks.iter().collect());
    }
    let find = |rank: &Rank| {
        let there = run.ranks.len();
        run.rank(*rank).ok_or_else(|| AnalysisError::Selection(format!("there is no rank {} among {there}", rank.0)))
    };
    wanted.iter().map(find).collect()
}

/// Reads ranks on all cores; each is reduced before the next one is read, so that memory does not grow with the run.
fn read_ranks(
    run: &Run,
    chosen: &[&RankDirectory],
    selection: &Selection,
    detail: Detail,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<RankResult>, AnalysisError> {
    let threads = available_parallelism().map_or(1, usize::from).min(chosen.len());
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(Vec::new());
    let work = || {
        while let Some(rank) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = RankResult::of(&run.info, rank, selection, detail);
            results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(result);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let panicked = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // Every one is waited for.
        threads.into_iter().filter_map(|thread| thread.join().err()).count() > 0
    });
    if panicked {
        return Err(AnalysisError::Panicked);
    }
    let results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut ranks = results.into_iter().collect::<Result<Vec<RankResult>, AnalysisError>>()?;
    ranks.sort_by_key(|rank| rank.info.rank);
    Ok(ranks)
}

fn check_steps(ranks: &[RankResult], selection: &Selection) -> Result<(), AnalysisError> {
    if selection.steps != Default::default() && ranks.iter().all(|rank| rank.steps.is_empty()) {
        let others = || ranks.iter().flat_map(|rank| rank.other_steps.iter().map(|(window, ..)| window.step));
        let recorded = others().min().zip(others().max());
        return Err(AnalysisError::NoSuchSteps { recorded });
    }
    Ok(())
}

fn steps(ranks: &[RankResult], alignment: &Alignment, rates: &Rates) -> Vec<StepFigures> {
    let of_rank = |(index, rank): (usize, &RankResult)| {
        let number = rank.info.rank;
        let figures = |step| StepFigures::of(number, step, |time| alignment.align(index, time), rates);
        rank.steps.iter().map(figures).collect::<Vec<_>>()
    };
    let mut steps: Vec<StepFigures> = ranks.iter().enumerate().flat_map(of_rank).collect();
    steps.sort_by_key(|step| (step.step, step.rank));
    steps
}

impl DataLoss {
    fn of(ranks: &[RankResult]) -> DataLoss {
        let mut all = DataLoss::default();
        for loss in ranks.iter().map(|rank| &rank.loss) {
            all.dropped_events += loss.dropped_events;
            all.unreadable_bytes += loss.unreadable_bytes;
            all.unreadable_events += loss.unreadable_events;
        }
        all
    }
}
