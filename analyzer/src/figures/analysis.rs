//! Everything a run says.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_plan::Model;
use stepscope_traces::{Device, Family, Rank, RunSource, State, Step};

use super::{
    clock::ClockSummary,
    collectives::{CollectiveFigures, Straggler, Wait},
    critical_path::CriticalPath,
    devices::{DeviceFigures, MEMORY_USED},
    experts::ExpertFigures,
    finding::Finding,
    hang::Hang,
    host::HostFigures,
    kernels::{FamilyFigures, KernelFigures},
    launchers::{GemmFigures, KernelDurations, ModuleFigures, OperatorFigures, SourceFigures},
    layout::RunLayout,
    memory::RankMemory,
    mfu::Mfu,
    partition::Partition,
    pipeline::PipelineFigures,
    places::{PlaceFigures, PlaceKind},
    plan_score::PlanScore,
    rank::RankFigures,
    roofline::Roofline,
    segments::SegmentSummary,
    step_summary::StepSummary,
    steps::{StepFigures, StepTime},
    waterfall::WaterfallRow,
    what_if::WhatIf,
    window::{CountedSteps, CountedTime},
};
use crate::stored::fields;

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
    /// The steps that every figure is of, but those of the whole recording.
    pub window: CountedSteps,
    /// Where each rank's time goes, over the whole recording.
    pub ranks: Vec<RankFigures>,
    /// Where each rank's time goes in the steps that count.
    pub counted: Vec<CountedTime>,
    /// How time goes at each place that ranks run at: GPUs of one index, hosts, switches.
    pub places: Vec<PlaceFigures>,
    /// What the program did on the host in the steps that count; none, where nothing says when those were.
    pub host: Option<HostFigures>,
    /// How long a step takes; none without steps.
    pub step_time: Option<StepTime>,
    /// Where each step's time goes: of every step, whether it counts or not.
    pub steps: Vec<StepFigures>,
    /// Each step of the whole job: what those come to together.
    #[serde(skip)]
    pub job_steps: Vec<StepSummary>,
    /// From a device's peak to what is used of it: what takes the rest of a step, in the mean of all ranks and steps.
    pub waterfall: Vec<WaterfallRow>,
    /// What the end of a step depends on; none, where a step has too many activities.
    pub critical_path: Option<CriticalPath>,
    /// How long a step would be without something; none, where a step has too many activities.
    pub what_if: Option<WhatIf>,
    /// What ranks waited in when their recorder wrote down what it knew; none where nobody did, or that is not recorded.
    pub hang: Option<Hang>,
    /// What fills each rank's memory, over the whole recording.
    pub memory: Vec<RankMemory>,
    /// How much of the devices is used; none where the model or the peak is not known.
    pub mfu: Option<Mfu>,
    /// Device counters, where they were sampled.
    pub devices: Vec<DeviceFigures>,
    /// How the stages wait for each other; none without a pipeline.
    pub pipeline: Option<PipelineFigures>,
    /// How evenly tokens choose experts; none, where nobody counted.
    pub experts: Option<ExpertFigures>,
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
    /// Everything by the operator that launched it, the most time first; none, where that is not known.
    pub operators: Vec<OperatorFigures>,
    /// Everything by module, each before those in it.
    pub modules: Vec<ModuleFigures>,
    /// Everything by function of the program, the most time first.
    pub sources: Vec<SourceFigures>,
    /// Matrix products by shape, the most time first.
    pub gemms: Vec<GemmFigures>,
    /// How long compute kernels take; none without any.
    pub kernel_durations: Option<KernelDurations>,
    /// What lets kernels be no faster; none where the peak is not known, or ranks share a device.
    pub roofline: Option<Roofline>,
    /// What was predicted for it; none of a run that does not say its model and layout.
    pub prediction: Option<PlanScore>,
    /// What stands out, the most important first.
    pub findings: Vec<Finding>,
}

// What is not stored follows from the rest, and from what the run says.
fields!(Analysis {
    schema,
    run,
    data_loss,
    clock,
    window,
    ranks,
    counted,
    places,
    host,
    step_time,
    steps,
    job_steps,
    waterfall,
    critical_path,
    what_if,
    hang,
    memory,
    mfu,
    devices,
    pipeline,
    experts,
    collectives,
    stragglers,
    waits,
    kernels,
    families,
    operators,
    modules,
    sources,
    gemms,
    kernel_durations;
    roofline,
    prediction,
    findings
});

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
    pub model: Option<Model>,
    /// How many tokens a sequence has, if it is known.
    pub sequence_length: Option<u64>,
    /// How it was spread over ranks, if that is known.
    pub layout: Option<RunLayout>,
    /// Whether the axis of a group was told from its use.
    pub axes_inferred: bool,
    /// Whether collectives that name no group were found to be of one group of all ranks.
    pub groups_inferred: bool,
    /// What computed, if it is known: the first device that a rank has.
    pub device: Option<Device>,
    /// How many ranks share a device, at most, if they do: then times are not those of as many devices.
    pub ranks_on_a_device: Option<u32>,
    /// Whether phases were told from something else than what the program said, at least in part.
    pub phases_inferred: bool,
    /// What could not be found out about the program, and why. Everything else was.
    pub failed_sources: Vec<FailedSource>,
    /// Why the recordings of ranks ended early, where they say so.
    pub ended_early: Vec<EndedEarly>,
    /// How often the GPU was not recorded because the program's own profiler ran, if ever.
    pub paused: Option<Paused>,
    /// What recording cost, where it was kept within a budget.
    pub recording: Option<Recording>,
    /// The jobs that make up the run, of which one is analyzed; none of a run that nobody continues.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<SegmentSummary>,
}

fields!(RunSummary {
    name, source, state, world_size, layout, axes_inferred, groups_inferred, ranks_on_a_device, phases_inferred,
    failed_sources, ended_early, paused, recording;
    device, model, sequence_length, segments
});

/// A source of knowledge about a program that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedSource {
    /// What it would have told: `steps`, `phases`, `checkpoints`, `memory`, `tokens`, `model`, `groups`.
    pub source: String,
    /// Why it failed.
    pub why: String,
    /// On which ranks.
    pub ranks: Vec<Rank>,
}

fields!(FailedSource { source, why, ranks });

/// Why the recordings of some ranks ended early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndedEarly {
    /// Why.
    pub why: String,
    /// Those of which ranks.
    pub ranks: Vec<Rank>,
}

fields!(EndedEarly { why, ranks });

/// How often the GPU was not recorded because the program's own profiler ran: of the ranks, the one for the longest time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Paused {
    /// How often.
    pub count: u64,
    /// For how long, all together.
    pub paused_ns: u64,
    /// The ranks that have no kernels after that, since their profiler keeps what records them.
    pub ranks_without_kernels: Vec<Rank>,
}

fields!(Paused { count, paused_ns, ranks_without_kernels });

/// What recording cost, and how much of the run was recorded for it: of the ranks, the one that paid most. Shares are of the
/// time that steps take without being recorded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recording {
    /// What recording was allowed to cost on average.
    pub budget: f64,
    /// What a recorded step cost, if enough were compared with others.
    pub cost_while_on: Option<f64>,
    /// Where the interval of 95% around that begins.
    pub cost_low: Option<f64>,
    /// Where it ends.
    pub cost_high: Option<f64>,
    /// For how much of the time the GPU was recorded.
    pub duty: f64,
    /// What recording cost on average.
    pub average_cost: Option<f64>,
    /// How many steps have ended.
    pub steps: u64,
    /// How many of them were recorded whole.
    pub recorded_steps: u64,
}

fields!(Recording { budget, cost_while_on, cost_low, cost_high, duty, average_cost, steps, recorded_steps });

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

fields!(DataLoss { dropped_events, unreadable_bytes, unreadable_events });

impl Analysis {
    /// How long a step is: the median; where there are none, the recording.
    pub fn step_ns(&self) -> Option<i64> {
        let median = self.step_time.as_ref().filter(|_| !self.window.whole).map(|time| time.median_ns);
        median.or_else(|| self.counted.iter().map(|time| time.partition.span_ns).max()).filter(|step| *step > 0)
    }

    /// The loss of each step of which one is known: the last rank's that recorded one, since that may be the last stage.
    pub fn losses(&self) -> BTreeMap<Step, f64> {
        self.job_steps.iter().filter_map(|step| Some((step.step, step.loss?))).collect()
    }

    /// The last loss on data that was not trained on, and in which step.
    pub fn evaluation_loss(&self) -> Option<(Step, f64)> {
        self.job_steps.iter().rev().find_map(|step| Some((step.step, step.evaluation_loss?)))
    }

    /// The gradient noise scale after the last step, in tokens; none, where gradients do not show one then.
    pub fn gradient_noise_scale(&self) -> Option<f64> {
        self.job_steps.last()?.gradient_noise_scale
    }

    /// Those of the steps that count, in their order.
    pub fn counted_losses(&self) -> Vec<(Step, f64)> {
        self.losses().into_iter().filter(|(step, _)| self.window.has(Some(*step))).collect()
    }

    /// How much of the peak a matrix product reaches, if that is more than all of it: the peak is too low, then.
    pub fn beyond_peak(&self) -> Option<f64> {
        let products = self.kernels.iter().filter(|kernel| kernel.family == Family::Matmul);
        let most = products.filter_map(|kernel| kernel.rates.peak_share).fold(0.0, f64::max);
        (most > 1.0).then_some(most)
    }

    /// Where the time of all ranks goes in the steps that count.
    pub fn counted_time(&self) -> Partition {
        Partition::sum(self.counted.iter().map(|time| &time.partition))
    }

    /// The rank that others wait for most, if they wait.
    pub fn straggler(&self) -> Option<&Straggler> {
        let caused = self.stragglers.iter().filter(|straggler| straggler.caused_wait_ns > 0);
        // Of several, the first.
        caused.rev().max_by_key(|straggler| straggler.caused_wait_ns)
    }

    /// What was never used of the device of a rank with this memory; none, where ranks share it and nobody sampled it.
    pub fn headroom_bytes(&self, memory: &RankMemory) -> Option<u64> {
        let device_bytes = self.run.device.as_ref()?.memory_bytes?;
        let sampled = self.devices.iter().find(|device| device.rank == memory.rank);
        let sampled = sampled.and_then(|device| device.counters.get(MEMORY_USED)).map(|used| used.most as u64);
        let is_alone = self.run.ranks_on_a_device.is_none();
        let used = sampled.max(is_alone.then(|| memory.device_used_bytes()))?;
        Some(device_bytes.saturating_sub(used))
    }

    /// What a place is called.
    pub fn place_name(&self, place: &PlaceFigures) -> String {
        let name = place.name.as_deref().unwrap_or("unknown");
        match place.kind {
            // A core has no index of its own.
            PlaceKind::GpuIndex if self.run.device.as_ref().is_some_and(Device::is_core) => {
                format!("local rank {name}")
            }
            PlaceKind::GpuIndex => format!("GPU {name}"),
            PlaceKind::Host => name.to_owned(),
            PlaceKind::Switch => format!("switch {name}"),
        }
    }

    /// The steps that count, of the whole job.
    pub fn counted_job_steps(&self) -> impl Iterator<Item = &StepSummary> + Clone {
        self.job_steps.iter().filter(|step| self.window.counts(step.step))
    }

    /// The steps that count, of all ranks.
    pub fn counted_steps(&self) -> impl Iterator<Item = &StepFigures> + Clone {
        self.steps.iter().filter(|step| self.window.counts(step.step))
    }
}
