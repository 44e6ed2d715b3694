//! One rank, read once and in pieces: what is collected of its spans, and what all of it comes to.

use std::collections::BTreeMap;

use stepscope_traces::{
    CollectorSource, CounterSamples, MemoryTimes, Names, Rank, RankData, RankDirectory, RankInfo, RankReport, RunInfo,
    RunSource, Spans, State, Step, beside,
};

use crate::{
    error::AnalysisError,
    figures::{Class, CountedSteps, CountedTime, RankFigures, RankMemory},
    rank::{
        activity::Activities,
        backward_passes::BackwardPasses,
        communication::{self, CommunicationSpan},
        counted_steps::{RecordedStep, counted_steps},
        device_samples::DeviceSamples,
        expert_tokens::expert_tokens,
        family_times::FamilyTimes,
        host::HostReading,
        host_calls::HostCallReading,
        idle_reasons::IdleReasons,
        intervals::Intervals,
        kernel_sums::{CountedKernels, KernelSums},
        memory::{MemoryReplay, TakenEvents},
        recorded_windows::RecordedWindows,
        reduce::{Looking, Reduced, nothing_ran, partitions, reduce},
        result::{Detail, RankResult, RankStep},
        stage_waits::StageWaits,
        step_counters::{Besides, StepCounters},
        step_extras::StepExtras,
        step_parts::RankParts,
        step_sample::StepSamples,
        step_windows::{self, StepWindow, step_extents, windows},
        streams::StreamTimes,
        work::{self, Work},
    },
    selection::{Selection, StepChoice},
};

/// Which steps of a rank count.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counting<'a> {
    /// Those that would if there were no other rank, of those that are asked for.
    Alone(StepChoice),
    /// These.
    Known(&'a CountedSteps),
}

/// What is collected of a rank while its spans are read.
pub(crate) struct RankReading<'a> {
    counting: Counting<'a>,
    detail: Detail,
    activities: Activities,
    kernels: KernelSums,
    communication: Vec<CommunicationSpan>,
    annotated: Vec<StepWindow>,
    besides: BTreeMap<Step, Besides>,
    backward_passes: BackwardPasses,
    recorded: RecordedWindows,
    streams: StreamTimes,
    host: HostReading,
    calls: HostCallReading,
    samples: StepSamples,
}

impl RankReading<'_> {
    pub(crate) fn new<'a>(run: &RunInfo, counting: Counting<'a>, detail: Detail) -> RankReading<'a> {
        RankReading {
            counting,
            detail,
            activities: Activities::new(&run.groups),
            kernels: match counting {
                Counting::Known(counted) => KernelSums::knowing(counted),
                Counting::Alone(_) => KernelSums::default(),
            },
            communication: Vec::new(),
            annotated: Vec::new(),
            besides: BTreeMap::new(),
            backward_passes: BackwardPasses::default(),
            recorded: RecordedWindows::default(),
            streams: StreamTimes::default(),
            host: HostReading::default(),
            calls: HostCallReading::default(),
            samples: StepSamples::default(),
        }
    }

    pub(crate) fn take(&mut self, names: &Names, spans: &Spans) {
        self.activities.take(spans);
        self.kernels.take(spans);
        communication::take(&mut self.communication, spans);
        self.annotated.extend(step_windows::annotated(spans));
        Besides::add_all(&mut self.besides, spans);
        self.backward_passes.take(spans);
        self.recorded.take(names, spans);
        self.streams.take(spans);
        self.host.take(names, spans);
        self.calls.take(names, spans);
        self.samples.take(spans);
    }

    /// What all of it comes to. What memory says depends on when steps are, and on what the device says.
    pub(crate) fn finish(
        self,
        run: &RunInfo,
        RankReport { info, state, loss, steps_are_inferred }: RankReport,
        data: &RankData,
        events: TakenEvents,
        memory: impl FnOnce(&[StepWindow], &DeviceSamples) -> Option<RankMemory> + Send,
    ) -> Result<RankResult, AnalysisError> {
        let RankReading {
            counting,
            detail,
            mut activities,
            kernels,
            mut communication,
            annotated,
            besides,
            backward_passes,
            mut recorded,
            streams,
            host,
            calls,
            samples,
        } = self;
        let first_on_host = host.first;
        let device = DeviceSamples::of(&data.counters, &data.names, info.sharing().is_some());
        activities.sort();
        check_times(info.rank, &activities)?;
        recorded.finish(&activities);
        let extents = recorded.extents(&activities);
        // Where nothing is known of a device, steps are where the program says.
        let is_annotated = run.source == RunSource::Kineto && !annotated.is_empty();
        let is_host_alone = activities.items.is_empty() && (host.has_operators() || is_annotated);
        let windows = match is_host_alone {
            true => step_windows::on_the_host(&annotated),
            false => windows(&activities, &annotated, &extents, state == State::Complete),
        };
        let mut counters =
            StepCounters::of(&windows, &annotated, &besides, &recorded, &extents, &data.counters, &data.names);
        let is_injected = info.collector.source == Some(CollectorSource::Injected);
        if state != State::Complete
            && is_injected
            && let Some(last) = counters.last_mut()
        {
            // The host ran ahead of the GPU: it had ended a step of which not all had run.
            last.is_complete = false;
        }
        let Work { items: work, is_inferred: work_is_inferred } = work::of_activities(&activities);
        let compute = activities.items.iter().filter(|item| activities.place(item).class == Class::Compute);
        let compute = Intervals::union_of(compute.map(|item| (item.start, item.end)).collect());
        communication::expose(&mut communication, &compute);
        // All ranks are kept.
        communication.shrink_to_fit();
        // A rank that does not say what it worked on worked when it computed.
        let worked = match work.as_slice() {
            [] => compute.clone(),
            items => Intervals::union_of(items.iter().map(|item| (item.start, item.end)).collect()),
        };
        let may_be_stage = run.layout.map_or(!work.is_empty(), |layout| layout.pp > 1);
        let counted = match counting {
            Counting::Known(counted) => counted.clone(),
            Counting::Alone(choice) => {
                let recorded = windows.iter().zip(&counters).map(|(window, counters)| RecordedStep {
                    step: window.step,
                    span_ns: window.end - window.start,
                    is_complete: counters.is_complete,
                });
                counted_steps(&recorded.collect::<Vec<_>>(), choice)
            }
        };
        let compared = if counted.whole { &[] } else { windows.as_slice() };
        let mut parts = (detail == Detail::Parts).then(|| RankParts::new(compared, &activities, &data.names));
        let mut stage_waits = may_be_stage.then(|| StageWaits::new(worked));
        let of_memory = || {
            let of_host = memory_has_times_of_host(run, &info).then(|| step_windows::on_the_host(&annotated));
            (memory(of_host.as_ref().unwrap_or(&windows), &device), kernels.counted(&counted))
        };
        // To play memory takes about as long as to go through activities.
        let ((memory, (kernels, kernel_count)), (sample, host, reduced)) = beside("memory", of_memory, || {
            let reasons = IdleReasons::of(&activities, &calls.finish(), &host.waiting_for_data(), &data.names);
            let sample = samples.finish(&counted, &windows, &data.names, &reasons, (&activities, &communication));
            let host = host.finish(info.rank, &annotated, &counted, &data.names);
            let looking = Looking {
                families: FamilyTimes::new(&data.names),
                reasons,
                waits: stage_waits.as_mut(),
                parts: parts.as_mut(),
            };
            let reduced = match is_host_alone {
                true => nothing_ran(&windows, &counted),
                false => reduce(&activities, &windows, &extents, &counted, looking),
            };
            (sample, host, reduced)
        });
        let Reduced { whole, counted: time, idle_before, families, idle, steps } = reduced;
        for (window, counters) in windows.iter().zip(&mut counters) {
            counters.host = host.steps.get(&window.step).copied();
        }
        let steps = windows.iter().zip(steps).zip(counters);
        let steps: Vec<RankStep> =
            steps.map(|((window, partition), counters)| (*window, partition, counters)).collect();
        let is_stage = run.layout.is_some_and(|layout| layout.pp > 1);
        let unlabelled = windows.iter().filter(|_| is_stage && work.is_empty());
        let unlabelled_work = unlabelled.map(|step| (step.step, compute.within(step.start, step.end))).collect();
        let expert_tokens = expert_tokens(&data.counters, &data.names, &windows, &counted);
        let first_counter = data.counters.time_ns.iter().map(|time| time.0).min();
        let extent = extent(&activities, &annotated);
        Ok(RankResult {
            backward_passes,
            loss,
            state,
            figures: RankFigures {
                rank: info.rank,
                host: Some(info.host.clone()).filter(|host| host != "unknown"),
                partition: whole.0,
                kernel_count,
                breakdown: whole.1,
            },
            time: CountedTime {
                rank: info.rank,
                windows: match counted.whole {
                    true => 1,
                    false => steps.iter().filter(|(window, ..)| counted.counts(window.step)).count() as u64,
                },
                partition: time.0,
                kernel_count: kernels.as_ref().map_or(0, CountedKernels::kernel_count),
                breakdown: time.1,
                families: families.0,
                recomputation_ns: families.1,
                idle,
                // Known when all ranks are.
                waterfall: Vec::new(),
            },
            kernels: kernels.map(|kernels| kernels.table(&data.names, &idle_before.into_sums())),
            counted,
            steps,
            steps_are_inferred,
            parts: parts.map(|parts| parts.called(&data.names)),
            stage_waits,
            expert_tokens,
            streams,
            memory_events: events.count,
            first_other: {
                // Where work was recorded, it is what a rank begins with.
                let on_host = first_on_host.filter(|_| extent.is_none());
                [events.first, first_counter, on_host].into_iter().flatten().min()
            },
            extent,
            memory,
            info,
            device,
            host,
            communication,
            work,
            work_is_inferred,
            unlabelled_work,
            sample,
        })
    }
}

/// Reads a rank and reduces it.
pub(crate) fn read_rank(
    run: &RunInfo,
    rank: &RankDirectory,
    selection: &Selection,
    counting: Counting<'_>,
    detail: Detail,
) -> Result<RankResult, AnalysisError> {
    let mut reading = RankReading::new(run, counting, detail);
    let mut memory = MemoryReplay::default();
    let window = selection.window_of(rank.info.rank);
    let spans = |data: &RankData, spans: &Spans| reading.take(&data.names, spans);
    let (data, report) = rank.read_in_pieces(window, spans, |events| memory.take(events))?;
    let (info, taken) = (report.info.clone(), memory.taken());
    let memory = |steps: &[StepWindow], device: &DeviceSamples| memory.figures(run, &info, steps, device, &data.names);
    reading.finish(run, report, &data, taken, memory)
}

/// The steps that some spans of a rank are of; and what each of them did, if that is asked for.
pub(crate) fn steps_alone(
    run: &RunInfo,
    spans: &[&Spans],
    counters: &CounterSamples,
    names: &Names,
    with_extras: bool,
) -> (Vec<RankStep>, BTreeMap<Step, StepExtras>) {
    let (mut activities, mut annotated) = (Activities::new(&run.groups), Vec::new());
    let mut besides = BTreeMap::new();
    for &spans in spans {
        activities.take(spans);
        annotated.extend(step_windows::annotated(spans));
        Besides::add_all(&mut besides, spans);
    }
    activities.sort();
    let every_step = step_extents(&activities).windows();
    let recorded = RecordedWindows::default();
    let extents = recorded.extents(&activities);
    let counters = StepCounters::of(&every_step, &annotated, &besides, &recorded, &extents, counters, names);
    let partitions = partitions(&activities, &every_step, &extents, |_, _| {});
    let extras = with_extras.then(|| StepExtras::of(&activities, &every_step, &extents, spans, names));
    let steps = every_step.iter().zip(partitions).zip(counters);
    (steps.map(|((window, part), counted)| (*window, part, counted)).collect(), extras.unwrap_or_default())
}

/// Our own recorder brings memory into the device's time; frameworks have the host's, which runs ahead.
pub(crate) fn memory_has_times_of_host(run: &RunInfo, info: &RankInfo) -> bool {
    run.source != RunSource::Stepscope || matches!(info.collector.memory_times, Some(MemoryTimes::Host { .. }))
}

/// From the first to the last moment of any activity, or of a step.
fn extent(activities: &Activities, annotated: &[StepWindow]) -> Option<(i64, i64)> {
    let activity = activities.items.iter().map(|activity| (activity.start, activity.end));
    let steps = annotated.iter().map(|window| (window.start, window.end));
    activity.chain(steps).reduce(|(first, last), (start, end)| (first.min(start), last.max(end)))
}

/// Refuses times that lie further apart than any run lasts: they would not add up.
fn check_times(rank: Rank, activities: &Activities) -> Result<(), AnalysisError> {
    let first = activities.items.first().map_or(0, |activity| activity.start);
    let last = activities.items.iter().map(|activity| activity.end).max().unwrap_or(first);
    match last.checked_sub(first) {
        Some(extent) if extent <= LONGEST_NS => Ok(()),
        _ => Err(AnalysisError::Times { rank, first, last }),
    }
}

/// A hundred years.
pub(crate) const LONGEST_NS: i64 = 100 * 366 * 86_400 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_the_times_of_the_clock_that_the_rank_names() {
        let run = RunInfo::of_this_process("run");
        let of_host = |memory_times: Option<MemoryTimes>| {
            let mut info = RankInfo::of_this_process(Rank(0));
            info.collector.memory_times = memory_times;
            memory_has_times_of_host(&run, &info)
        };
        // As the trainer has it where CUPTI cannot order memory, and as it is for PyTorch's.
        assert!(of_host(Some(MemoryTimes::Host { why: Some("not supported".into()) })));
        assert!(of_host(Some(MemoryTimes::Host { why: None })));
        assert!(!of_host(Some(MemoryTimes::Device)));
        assert!(!of_host(None));
    }
}
