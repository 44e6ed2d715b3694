//! Analyzes a run: reads its ranks, asks each question of them, and puts the answers together.

use std::collections::BTreeSet;

use stepscope_plan::Assumptions;
use stepscope_traces::{GroupInfo, Rank, RankDirectory, RankInfo, Run, RunInfo, State, SummaryUse};

use crate::{
    each_rank::each_rank,
    error::AnalysisError,
    figures::{Analysis, Cause, CountedSteps, CountedTime, DataLoss, RunSummary, StepSummary, Straggler, WhatIf},
    findings::findings,
    job::{
        bubbles::{idle_of_stages, pipeline},
        clock::Alignment,
        collectives::{GroupSizes, collectives},
        devices::devices,
        ended_early::ended_early,
        experts::experts,
        failed_sources::failed_sources,
        gemms::gemms,
        groups::{self, described},
        hang::hang,
        host::host,
        kernel_durations::kernel_durations,
        kernels::kernels,
        launched::JobKernels,
        layout::layout,
        mfu::{Rates, TrainedModel},
        modules::modules,
        one_group,
        operators::{operators, sources},
        paused::paused,
        places::places,
        plan_score::plan_score,
        recording::recording,
        roofline::roofline,
        segments::segments,
        stages::Stages,
        step_graph::{StepGraph, critical_path},
        step_time::{counted_of_job, step_time},
        steps::Steps,
        tokens::{replicas, tell_tokens},
        unseen,
        waterfall::Waterfalls,
        what_if::{Replayed, what_if},
    },
    job_summary::{self, JobFigures},
    rank::{
        axes::Axes,
        intervals::Intervals,
        reading::{Counting, read_rank},
        result::{Detail, RankResult},
    },
    selection::{Selection, StepChoice},
    summaries::summary_or_reading,
};

/// The version of what `analyze` says.
const SCHEMA: u32 = 1;

/// Analyzes a run. `progress` is told how many ranks are done, from the threads that do them.
pub fn analyze(run: &Run, selection: &Selection, progress: &(dyn Fn(usize) + Sync)) -> Result<Analysis, AnalysisError> {
    let mut analysis = match job_summary::read(run, selection) {
        Some(analysis) => analysis,
        None => analyze_and(run, selection, Detail::Figures, progress, |_| ())?.0,
    };
    if selection.words_only {
        // Findings are made of those of some ranks.
        analysis.steps = Vec::new();
    }
    Ok(analysis)
}

/// Keeps what all ranks of a run come to together, once each of them has a summary; says how long the file is. None, where a
/// rank has no summary of what is there.
pub fn summarize_job(run: &Run, progress: &(dyn Fn(usize) + Sync)) -> Result<Option<u64>, AnalysisError> {
    let Some(checksums) = job_summary::checksums(run)? else { return Ok(None) };
    if let Some(bytes) = job_summary::kept_bytes(run, &checksums) {
        return Ok(Some(bytes));
    }
    let selection = Selection { words_only: true, ..Selection::default() };
    let first_pipeline = |job: &ReadJob<'_>| job.stages.and_then(|stages| stages.pipelines.first().cloned());
    let (analysis, first_pipeline) = analyze_and(run, &selection, Detail::Figures, progress, first_pipeline)?;
    job_summary::write(run, &checksums, &JobFigures::of(analysis, first_pipeline)).map(Some)
}

/// The ranks of a run, once they have been read, and what they say together of how it is spread.
pub(crate) struct ReadJob<'a> {
    pub(crate) ranks: &'a [RankResult],
    pub(crate) groups: &'a [GroupInfo],
    pub(crate) sizes: &'a GroupSizes,
    pub(crate) alignment: &'a Alignment,
    pub(crate) counted: &'a CountedSteps,
    /// None, where it is no pipeline.
    pub(crate) stages: Option<&'a Stages>,
}

/// Analyzes a run, and has somebody look at its ranks before they are let go.
pub(crate) fn analyze_and<T>(
    run: &Run,
    selection: &Selection,
    detail: Detail,
    progress: &(dyn Fn(usize) + Sync),
    look: impl FnOnce(&ReadJob<'_>) -> T,
) -> Result<(Analysis, T), AnalysisError> {
    let chosen = chosen_ranks(run, &selection.ranks)?;
    let mut ranks = read_ranks(&chosen, progress, |rank| summary_or_reading(&run.info, rank, selection, detail))?;
    let counted = counted_of_job(&ranks, selection.steps);
    check_steps(&ranks, selection, &counted)?;
    let is_one_group = one_group::put_into_one(&run.info, run.ranks.len(), &mut ranks);
    let described = described(&run.info, &ranks);
    let info = described.as_ref().unwrap_or(&run.info);
    let [before, after] = [&run.info, info].map(|info| Axes::of(&info.groups));
    // A rank takes its own steps for those of the job, which they are, mostly, and axes for what groups say. One that was
    // wrong is read again.
    let is_right = |rank: &mut RankResult| {
        let has_axes = described.is_none() || rank.rename_axes(&before, &after);
        has_axes && rank.kernels.is_some() && rank.agrees_with(&counted)
    };
    let wrong: Vec<&RankDirectory> =
        chosen.into_iter().zip(&mut ranks).filter_map(|(place, rank)| (!is_right(rank)).then_some(place)).collect();
    for rank in wrong.iter().filter(|rank| matches!(rank.summary_use(), Some(SummaryUse::Read))) {
        rank.note_summary_use(SummaryUse::ReadAgain);
    }
    let known = Counting::Known(&counted);
    for mut right in read_ranks(&wrong, &|_| {}, |rank| read_rank(info, rank, selection, known, detail))? {
        if is_one_group {
            one_group::put(&mut right);
            right.rename_axes(&before, &after);
        }
        if let Some(rank) = ranks.iter_mut().find(|rank| rank.info.rank == right.info.rank) {
            *rank = right;
        }
    }
    assemble((run, info), selection, counted, ranks, look)
}

/// Puts together what the ranks of a run come to in the steps that count, and has somebody look at them before they are let
/// go. They were read with what is known of the run.
pub(crate) fn assemble<T>(
    (run, info): (&Run, &RunInfo),
    selection: &Selection,
    counted: CountedSteps,
    mut ranks: Vec<RankResult>,
    look: impl FnOnce(&ReadJob<'_>) -> T,
) -> Result<(Analysis, T), AnalysisError> {
    unseen::leave_out(&mut ranks);
    // A rank that was killed early has no device.
    let device = ranks.iter().find_map(|rank| rank.info.device.clone());
    let peak_flops = selection.peak_flops.or(device.as_ref().and_then(|device| device.peak_flops));
    let alignment = Alignment::of(&ranks, &info.groups);
    let stages = Stages::of(info, &ranks, &alignment);
    let computing = computing(run, &ranks);
    let layout = layout(info, computing, &ranks, stages.as_ref());
    let replicas = replicas(layout.as_ref(), computing);
    tell_tokens(&mut ranks, replicas, selection.tokens_per_step);
    // What is trained is told by all ranks of the job, whichever were asked for.
    let all_were_read = ranks.len() == run.ranks.len();
    let first_pipeline = stages.as_ref().filter(|_| all_were_read).and_then(|stages| stages.pipelines.first());
    let told: Vec<&RankInfo> = match all_were_read {
        true => ranks.iter().map(|rank| &rank.info).collect(),
        false => run.ranks.iter().map(|rank| &rank.info).collect(),
    };
    let hang = hang(told.iter().copied(), &info.groups);
    let model = TrainedModel::of(&run.info, &told, first_pipeline.map(Vec::as_slice), selection);
    let rates = Rates::of(&run.info, model.clone(), peak_flops, computing, selection.convention);
    let tables: Vec<_> = ranks.iter_mut().map(|rank| rank.kernels.take().unwrap_or_default()).collect();
    let ranks_on_a_device = ranks.iter().filter_map(|rank| rank.info.sharing()).max();
    // Where ranks share a device, a kernel has more of it than the rank's part, or less: nobody knows.
    let roofline = match ranks_on_a_device {
        None => roofline(selection.peak_flops, device.as_ref()),
        Some(_) => None,
    };
    let launched = JobKernels::of(&tables, roofline);
    let (kernels, families) = kernels(&launched);
    let bubbles = match &stages {
        Some(stages) => idle_of_stages(stages, &ranks, &alignment, &counted),
        None => vec![Intervals::default(); ranks.len()],
    };
    let graph = StepGraph::of(&ranks, &info.groups, &alignment, &bubbles);
    // The graph has all that they say.
    ranks.iter_mut().for_each(|rank| rank.sample = None);
    let known_device = device.as_ref().and_then(|device| stepscope_plan::Device::named(&device.name).ok());
    let step_time = step_time(&ranks, &counted);
    let counted_times: Vec<_> = ranks.iter().map(|rank| &rank.time).collect();
    let mfu = rates.overall(step_time.as_ref(), &launched, &counted_times);
    let world_size = groups::world_size(&run.info, run.ranks.len(), &ranks);
    let sizes = GroupSizes::of(&ranks, &info.groups, world_size);
    let (collectives, waits) = collectives(&ranks, &info.groups, &sizes, &counted);
    let numbers: Vec<Rank> = ranks.iter().map(|rank| rank.info.rank).collect();
    let devices = devices(&ranks, &counted);
    let replayed = Replayed { counted: &counted_times, kernels: &kernels, stages: stages.as_ref(), devices: &devices };
    let what_if = graph.as_ref().map(|graph| what_if(graph, &replayed));
    let critical_path = graph.as_ref().map(|graph| critical_path(graph, &numbers));
    let waterfalls = Waterfalls {
        alignment: &alignment,
        bubbles: &bubbles,
        counted: &counted,
        waits: &waits.exposed,
        kernels: &launched,
        // Where ranks share a device, nobody knows what the peak of one is.
        mfu: mfu.as_ref().and_then(|mfu| mfu.value).filter(|_| ranks_on_a_device.is_none()),
    };
    let (waterfall, of_ranks) = waterfalls.of(&ranks);
    let seen = look(&ReadJob {
        ranks: &ranks,
        groups: &info.groups,
        sizes: &sizes,
        alignment: &alignment,
        counted: &counted,
        stages: stages.as_ref(),
    });
    let steps = Steps { ranks: &ranks, alignment: &alignment, rates: &rates, selection };
    let job_steps = steps.of_job();
    let told: Option<BTreeSet<Rank>> =
        selection.words_only.then(|| told_of(&ranks, &job_steps, &counted, &waits.stragglers, what_if.as_ref()));
    let steps = steps.of_ranks(|rank| told.as_ref().is_none_or(|told| told.contains(&rank)));
    let mut analysis = Analysis {
        schema: SCHEMA,
        run: RunSummary {
            name: run.info.name.clone(),
            source: run.info.source,
            state: state(run, &ranks),
            world_size,
            sequence_length: model.as_ref().and_then(|model| model.sequence_length),
            model: model.map(|model| model.model),
            layout,
            axes_inferred: groups::are_inferred(&run.info, &ranks, &info.groups),
            groups_inferred: one_group::is_inferred(&ranks),
            device,
            ranks_on_a_device,
            phases_inferred: ranks.iter().any(|rank| rank.info.phases_are_inferred()),
            failed_sources: failed_sources(ranks.iter().map(|rank| &rank.info)),
            ended_early: ended_early(ranks.iter().map(|rank| &rank.info)),
            paused: paused(ranks.iter().map(|rank| &rank.info)),
            recording: recording(ranks.iter().map(|rank| &rank.info)),
            segments: segments(run),
        },
        data_loss: data_loss(&ranks),
        job_steps,
        steps,
        mfu,
        devices,
        pipeline: stages.map(|stages| pipeline(&stages, &ranks, &alignment, &counted)),
        step_time,
        hang,
        window: counted,
        clock: alignment.summary,
        memory: ranks.iter_mut().filter_map(|rank| rank.memory.take()).collect(),
        counted: ranks
            .iter()
            .zip(of_ranks)
            .map(|(rank, waterfall)| CountedTime { waterfall, ..rank.time.clone() })
            .collect(),
        host: host(&ranks),
        experts: experts(&ranks),
        places: places(&ranks, &waits.stragglers),
        ranks: ranks.into_iter().map(|rank| rank.figures).collect(),
        collectives,
        stragglers: waits.stragglers,
        waits: waits.pairs,
        waterfall,
        critical_path,
        what_if,
        kernels,
        families,
        operators: operators(&launched),
        modules: modules(&launched),
        sources: sources(&launched),
        gemms: gemms(&launched, known_device),
        kernel_durations: kernel_durations(&launched.durations),
        roofline,
        prediction: None,
        findings: Vec::new(),
    };
    analysis.prediction = plan_score(&analysis, Assumptions::of);
    analysis.findings = findings(&analysis);
    if selection.words_only {
        for memory in &mut analysis.memory {
            (memory.timeline, memory.callers_over_time) = (Vec::new(), None);
        }
    }
    Ok((analysis, seen))
}

/// The ranks whose steps findings look at: the first one, that of the longest step, and the slow ones.
fn told_of(
    ranks: &[RankResult],
    job_steps: &[StepSummary],
    counted: &CountedSteps,
    stragglers: &[Straggler],
    what_if: Option<&WhatIf>,
) -> BTreeSet<Rank> {
    let longest = job_steps.iter().filter(|step| counted.counts(step.step)).max_by_key(|step| step.duration_ns);
    let replayed = what_if.into_iter().flat_map(|what_if| &what_if.without).filter_map(|without| match without.cause {
        Cause::SlowRank { rank } => Some(rank),
        _ => None,
    });
    let first = ranks.iter().filter_map(|rank| Some((rank.steps.first()?.0.step, rank.info.rank))).min();
    let worst = stragglers.iter().max_by_key(|straggler| straggler.caused_wait_ns).map(|straggler| straggler.rank);
    first
        .map(|(_, rank)| rank)
        .into_iter()
        .chain(longest.map(|step| step.slowest))
        .chain(worst)
        .chain(replayed)
        .collect()
}

/// How many ranks compute. One that only asked CUDA something does nothing, and may not say so.
fn computing(run: &Run, ranks: &[RankResult]) -> usize {
    let computing = ranks.iter().filter(|rank| rank.figures.kernel_count > 0).count();
    let all_were_read = ranks.len() == run.ranks.len();
    if all_were_read && computing > 0 { computing } else { run.ranks.len() }
}

/// What became of a run. That a trace of another tool is cut off is known when it has been read.
fn state(run: &Run, ranks: &[RankResult]) -> State {
    let cut_off = ranks.iter().any(|rank| rank.state == State::Interrupted);
    if cut_off && run.state() == State::Complete { State::Interrupted } else { run.state() }
}

/// The ranks that were asked for; all of them, if none was. One that is not there is an error.
pub fn chosen_ranks<'a>(run: &'a Run, wanted: &[Rank]) -> Result<Vec<&'a RankDirectory>, AnalysisError> {
    if run.ranks.is_empty() {
        return Err(AnalysisError::Selection(format!("{} has no ranks: nothing was recorded", run.path.display())));
    }
    if wanted.is_empty() {
        return Ok(run.ranks.iter().collect());
    }
    let find = |rank: &Rank| {
        let there = run.ranks.len();
        run.rank(*rank)
            .ok_or_else(|| AnalysisError::Selection(format!("there is no rank {} among the {there} recorded", rank.0)))
    };
    wanted.iter().map(find).collect()
}

/// Reads ranks on all cores.
fn read_ranks(
    chosen: &[&RankDirectory],
    progress: &(dyn Fn(usize) + Sync),
    read: impl Fn(&RankDirectory) -> Result<RankResult, AnalysisError> + Sync,
) -> Result<Vec<RankResult>, AnalysisError> {
    let ranks = each_rank(chosen, progress, read)?;
    let mut ranks = ranks.into_iter().collect::<Result<Vec<RankResult>, AnalysisError>>()?;
    ranks.sort_by_key(|rank| rank.info.rank);
    Ok(ranks)
}

fn check_steps(ranks: &[RankResult], selection: &Selection, counted: &CountedSteps) -> Result<(), AnalysisError> {
    if matches!(selection.steps, StepChoice::Range(_)) && counted.steps.is_none() {
        let others = || ranks.iter().flat_map(|rank| rank.steps.iter().map(|(window, ..)| window.step));
        let recorded = others().min().zip(others().max());
        return Err(AnalysisError::NoSuchSteps { recorded });
    }
    Ok(())
}

fn data_loss(ranks: &[RankResult]) -> DataLoss {
    let mut all = DataLoss::default();
    for loss in ranks.iter().map(|rank| &rank.loss) {
        all.dropped_events += loss.dropped_events;
        all.unreadable_bytes += loss.unreadable_bytes;
        all.unreadable_events += loss.unreadable_events;
    }
    all
}
