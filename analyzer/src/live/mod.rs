//! A run that is analyzed while it grows, in bounded memory.
//!
//! Of every step it keeps what the ranks come to together; of the last steps it keeps the spans, and analyzes those that
//! all ranks have made as if they were the steps that were asked for. Memory is played from its beginning on, as it comes
//! in. So every figure is the one that the analysis of the whole run would give, for those steps. Steps that nothing says of
//! but what repeats are told from the whole, and so when it has ended.

mod rank;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use stepscope_traces::{Loss, Nanos, Rank, Run, RunInfo, RunSource, State, Step};

use crate::{
    analyze::assemble,
    error::AnalysisError,
    figures::{Analysis, RankMemory, StepRecord, StepSummary},
    job::{
        groups::described,
        layout::layout,
        mfu::{Rates, TrainedModel},
        progress::JobTime,
        step_time::counted_of_job,
        steps::step_figures,
        tokens::{replicas, tell_tokens},
    },
    rank::{reading::Counting, result::RankStep, step_extras::StepExtras},
    selection::{Selection, StepChoice, StepRange},
};

use self::rank::{LiveRank, SettledStep};

/// How much of a run is kept.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// How many spans of all ranks, about, as long as they are of more steps than the fewest.
    wanted_rows: usize,
    /// However long a step is, there are never more than these.
    most_rows: usize,
    /// What was recorded so long before the newest span is there: recorders flush more often, and what runs on a device
    /// is known a little later.
    late_ns: i64,
}

const BOUNDS: Bounds = Bounds { wanted_rows: 150_000, most_rows: 12_000_000, late_ns: 2 * Nanos::SECOND.0 };
/// How much of the files is read at once: of all ranks, and of each at least.
const BYTES_AT_ONCE: u64 = 4 << 20;
const FEWEST_BYTES: u64 = 32 << 10;
/// How many steps are analyzed, at least and at most.
const FEWEST_STEPS: usize = 3;
const MOST_STEPS: usize = 32;
/// Ranks further behind than this many steps are not waited for.
const MOST_BEHIND: i32 = 8;
/// Steps that are remembered.
const MOST_REMEMBERED: usize = 1 << 18;

/// A rank with more bytes of spans is never read whole: it would not fit into memory.
const MOST_BYTES: u64 = 1 << 30;

/// A run that is analyzed while it grows.
pub struct LiveRun {
    path: PathBuf,
    bounds: Bounds,
    run: Run,
    ranks: BTreeMap<Rank, LiveRank>,
    /// Steps whose spans are no longer kept.
    settled: Arc<BTreeMap<Step, StepSummary>>,
    /// The newest analysis, and the last of its steps.
    analysis: Option<(Arc<Analysis>, Option<Step>)>,
    /// Steps before those of the analysis whose spans were still kept then.
    before_analysis: Arc<BTreeMap<Step, StepSummary>>,
    /// Whether something came in since.
    is_stale: bool,
    /// Steps that were let go of, if they are asked for.
    records: Option<Vec<StepRecord>>,
}

/// What a run that grows says at a moment.
#[derive(Clone)]
pub struct LiveSnapshot {
    /// Of the last steps that all ranks have made; before there are any, and where there are no steps, of what there is.
    pub analysis: Option<Arc<Analysis>>,
    /// The steps before those, as far as their spans are no longer kept.
    pub settled: Arc<BTreeMap<Step, StepSummary>>,
    /// And as far as they were when it was analyzed.
    pub before_analysis: Arc<BTreeMap<Step, StepSummary>>,
    /// The step that is being made.
    pub running: Option<RunningStep>,
    /// How long it has run, and how long it has to go.
    pub time: JobTime,
    /// What fills the memory of each rank, over all of the run.
    pub memory: Vec<Arc<RankMemory>>,
    /// When the newest activity ended, in nanoseconds since 1970, UTC.
    pub newest_wall: Option<Nanos>,
    /// What is lost.
    pub loss: Loss,
}

/// A step that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningStep {
    /// Which step.
    pub step: Step,
    /// How long the rank that is in it longest has been in it.
    pub elapsed_ns: i64,
}

impl LiveRun {
    /// Whether more of a run may come: it is being recorded, or has no ranks yet.
    pub fn grows(run: &Run) -> bool {
        run.info.source == RunSource::Stepscope && (run.state() == State::Recording || run.ranks.is_empty())
    }

    /// Whether all of a run can be analyzed at once, when it has ended.
    pub fn fits_whole(run: &Run) -> bool {
        run.ranks.iter().all(|rank| rank.span_bytes() <= MOST_BYTES)
    }

    /// Opens a run directory.
    pub fn open(path: &Path) -> Result<LiveRun, AnalysisError> {
        LiveRun::within(BOUNDS, path)
    }

    fn within(bounds: Bounds, path: &Path) -> Result<LiveRun, AnalysisError> {
        let mut live = LiveRun {
            path: path.to_owned(),
            bounds,
            run: Run::open(path)?,
            ranks: BTreeMap::new(),
            settled: Arc::default(),
            analysis: None,
            before_analysis: Arc::default(),
            is_stale: false,
            records: None,
        };
        live.meet_ranks()?;
        Ok(live)
    }

    /// Has what there is to be kept of each step told from now on.
    pub fn keep_records(&mut self) {
        self.records.get_or_insert_default();
        self.ranks.values_mut().for_each(|rank| rank.tells_extras = true);
    }

    /// What there is to be kept of the steps whose spans were let go of since this was asked last.
    pub fn take_records(&mut self) -> Vec<StepRecord> {
        self.records.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The run, as it was when it was looked at last.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Looks which ranks there are, and what became of them.
    pub fn look(&mut self) -> Result<(), AnalysisError> {
        self.run = Run::open(&self.path)?;
        self.meet_ranks()
    }

    fn meet_ranks(&mut self) -> Result<(), AnalysisError> {
        // Once the first rank computes, processes that do nothing are none, and others may have their numbers.
        let run = &self.run;
        self.ranks.retain(|number, rank| run.rank(*number).is_some_and(|directory| directory.path == rank.path));
        for directory in &self.run.ranks {
            match self.ranks.get_mut(&directory.info.rank) {
                Some(rank) => (rank.info, rank.state) = (directory.info.clone(), directory.state),
                None => {
                    let mut rank = LiveRank::follow(directory, self.bounds.late_ns)?;
                    rank.tells_extras = self.records.is_some();
                    self.ranks.insert(directory.info.rank, rank);
                }
            }
        }
        Ok(())
    }

    /// Reads a part of what is new of every rank; says whether there is more.
    pub fn read(&mut self) -> Result<bool, AnalysisError> {
        let mut more_to_come = false;
        let bytes = (BYTES_AT_ONCE / self.ranks.len().max(1) as u64).clamp(FEWEST_BYTES, BYTES_AT_ONCE);
        for rank in self.ranks.values_mut() {
            let (anything, more) = rank.read(&self.run.info, bytes)?;
            self.is_stale |= anything;
            more_to_come |= more;
        }
        self.settle();
        Ok(more_to_come)
    }

    /// Reads what can still be read when no more will be written.
    pub fn finish(&mut self) {
        self.ranks.values_mut().for_each(|rank| rank.finish(&self.run.info));
        self.is_stale = true;
    }

    /// The last step that every rank has made; one that is far behind, or has ended, is not waited for.
    fn last_whole(&self) -> Option<Step> {
        let last = || self.ranks.values().filter_map(LiveRank::last_whole);
        let newest = last().max()?;
        last().filter(|step| newest.0.saturating_sub(step.0) < MOST_BEHIND).min()
    }

    /// Lets go of spans that are no longer needed.
    fn settle(&mut self) {
        let Bounds { wanted_rows, most_rows, .. } = self.bounds;
        let rows: usize = self.ranks.values().map(|rank| rank.rows).sum();
        let last = self.last_whole();
        let whole: Vec<Step> = self.widest().filter(|step| Some(*step) <= last).collect();
        if !whole.is_empty() && (rows > 2 * wanted_rows || whole.len() > 2 * MOST_STEPS) {
            let kept = (wanted_rows * whole.len() / rows.max(1)).clamp(FEWEST_STEPS, MOST_STEPS);
            let first = whole[whole.len().saturating_sub(kept)];
            let rates = self.rates();
            let settled = Arc::make_mut(&mut self.settled);
            for rank in self.ranks.values_mut() {
                for step in rank.settle(&self.run.info, first) {
                    let record = record(rank, step, &rates);
                    StepSummary::add_to(settled, &record.figures);
                    self.records.iter_mut().for_each(|records| records.push(record.clone()));
                }
            }
            while settled.len() > MOST_REMEMBERED {
                settled.pop_first();
            }
        }
        // Without steps only the newest is of interest; and no step may take all memory there is.
        let most = if whole.is_empty() && last.is_none() && self.has_no_steps() { 2 * wanted_rows } else { most_rows };
        while self.ranks.values().map(|rank| rank.rows).sum::<usize>() > most {
            match self.ranks.values_mut().max_by_key(|rank| rank.rows) {
                Some(rank) => rank.drop_oldest(),
                None => break,
            }
        }
    }

    /// Tells of the steps that are left, too: no more will be written.
    pub fn settle_rest(&mut self) {
        let rates = self.rates();
        let Some(records) = &mut self.records else { return };
        for rank in self.ranks.values_mut() {
            let rest = rank.rest(&self.run.info);
            records.extend(rest.into_iter().map(|step| record(rank, step, &rates)));
        }
    }

    fn has_no_steps(&self) -> bool {
        self.ranks.values().all(|rank| rank.running().is_none() && rank.last_whole().is_none())
    }

    /// The whole steps of the rank that has most of them.
    fn widest(&self) -> impl Iterator<Item = Step> {
        let widest = self.ranks.values().max_by_key(|rank| rank.whole_steps().count());
        widest.into_iter().flat_map(LiveRank::whole_steps)
    }

    fn rates(&self) -> Rates {
        let device = self.ranks.values().next().and_then(|rank| rank.info.device.as_ref());
        let told: Vec<_> = self.ranks.values().map(|rank| &rank.info).collect();
        let model = TrainedModel::of(&self.run.info, &told, None, &Selection::default());
        let peak_flops = device.and_then(|device| device.peak_flops);
        Rates::of(&self.run.info, model, peak_flops, self.run.ranks.len(), <_>::default())
    }

    /// The steps to analyze: the last ones that every rank has made and still has. The first step of a run warms up.
    fn recent_steps(&self) -> Option<(Step, Step)> {
        let last = self.last_whole()?;
        let first = self.ranks.values().filter_map(LiveRank::first_whole).filter(|first| *first <= last).max()?;
        let mut steps: Vec<Step> = self.widest().filter(|step| (first..=last).contains(step)).collect();
        if self.settled.is_empty() && steps.len() >= FEWEST_STEPS {
            steps.remove(0);
        }
        Some((*steps.get(steps.len().saturating_sub(MOST_STEPS))?, last))
    }

    /// Whether an analysis would say something new.
    pub fn has_news(&self) -> bool {
        match &self.analysis {
            None => self.is_stale,
            Some((_, Some(last))) => self.last_whole() > Some(*last),
            Some((_, None)) => self.is_stale,
        }
    }

    /// Analyzes the last steps again.
    pub fn analyze(&mut self) -> Result<(), AnalysisError> {
        self.is_stale = false;
        if self.ranks.values().all(|rank| rank.newest.is_none()) {
            return Ok(());
        }
        let recent = self.recent_steps();
        let steps = recent.map_or(StepChoice::All, |(first, last)| {
            StepChoice::Range(StepRange { from: Some(first), to: Some(Step(last.0.saturating_add(1))) })
        });
        let selection = Selection { steps, ..Selection::default() };
        let results = |ranks: &mut BTreeMap<Rank, LiveRank>, info: &RunInfo, counting: Counting<'_>| {
            ranks.values_mut().map(|rank| rank.result(info, counting)).collect::<Result<Vec<_>, _>>()
        };
        let mut ranks = results(&mut self.ranks, &self.run.info, Counting::Alone(steps))?;
        let counted = counted_of_job(&ranks, steps);
        let described = described(&self.run.info, &ranks);
        let info = described.as_ref().unwrap_or(&self.run.info);
        if described.is_some() || !ranks.iter().all(|rank| rank.agrees_with(&counted)) {
            ranks = results(&mut self.ranks, info, Counting::Known(&counted))?;
        }
        let replicas = replicas(layout(info, ranks.len(), &ranks, None).as_ref(), ranks.len());
        tell_tokens(&mut ranks, replicas, None);
        let rates = self.rates();
        let mut before = BTreeMap::new();
        for result in &ranks {
            let (rank, kept) = (result.info.rank, self.ranks[&result.info.rank].first_whole());
            let is_before =
                |step: &&RankStep| Some(step.0.step) >= kept && recent.is_some_and(|(first, _)| step.0.step < first);
            for step in result.steps.iter().filter(is_before) {
                StepSummary::add_to(&mut before, &step_figures(rank, step, |time| time, &rates));
            }
        }
        self.before_analysis = Arc::new(before);
        let (mut analysis, ()) = assemble((&self.run, info), &selection, counted, ranks, |_| ())?;
        // What is before those is told apart, and what comes after them is not whole yet.
        analysis.steps.retain(|step| steps.may_have(Some(step.step)));
        analysis.job_steps.retain(|step| steps.may_have(Some(step.step)));
        self.analysis = Some((Arc::new(analysis), recent.map(|(_, last)| last)));
        Ok(())
    }

    /// Plays what is new of memory.
    pub fn play_memory(&mut self) {
        for rank in self.ranks.values_mut() {
            rank.memory(&self.run.info);
        }
    }

    /// What it says now; its analysis is the newest there is, and so is what was played of memory.
    pub fn snapshot(&self) -> LiveSnapshot {
        let memory = self.ranks.values().filter_map(LiveRank::last_memory).collect();
        let mut loss = Loss::default();
        self.ranks.values().for_each(|rank| loss += rank.loss());
        let wall = |rank: &LiveRank| rank.info.clock.wall_clock().map(rank.newest?).map(Nanos);
        let running = self.ranks.values().filter(|rank| rank.state == State::Recording).filter_map(LiveRank::running);
        let running = running.max().map(|(step, elapsed_ns)| RunningStep { step, elapsed_ns });
        let newest_wall = self.ranks.values().filter_map(wall).max();
        let steps = self.analysis.as_ref().map_or(&[][..], |(analysis, _)| &analysis.steps);
        let running_ns = running.map_or(0, |running| running.elapsed_ns);
        LiveSnapshot {
            time: JobTime::so_far(&self.run.info, newest_wall, steps, running_ns),
            analysis: self.analysis.as_ref().map(|(analysis, _)| analysis.clone()),
            settled: self.settled.clone(),
            before_analysis: self.before_analysis.clone(),
            running,
            memory,
            newest_wall,
            loss,
        }
    }
}

impl LiveSnapshot {
    /// Every step that is known to have been made, in order. What a step came to when all of it was analyzed together is
    /// what counts.
    pub fn steps(&self) -> Vec<StepSummary> {
        let recent = self.analysis.iter().flat_map(|analysis| &analysis.job_steps);
        let recent: BTreeMap<Step, StepSummary> = recent.map(|step| (step.step, step.clone())).collect();
        let mut steps = (*self.settled).clone();
        for newer in [(*self.before_analysis).clone(), recent] {
            steps.extend(newer);
        }
        steps.into_values().collect()
    }
}

/// What there is to be kept of a step.
fn record(rank: &LiveRank, step: SettledStep, rates: &Rates) -> StepRecord {
    let SettledStep { step, extras: StepExtras { families, collectives }, allocated_bytes, devices } = step;
    let figures = step_figures(rank.rank(), &step, |time| time, rates);
    let wall_ns = rank.info.clock.wall_clock().map(figures.start_ns).map(Nanos);
    StepRecord { wall_ns, figures, families, collectives, allocated_bytes, devices }
}
