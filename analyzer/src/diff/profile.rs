//! A run as it is compared: its analysis, and each step part by part, on the replica that the others wait for.
//!
//! Ranks that wait for each other take the same time, and only one of them says why: the one that waits least. So a step
//! is looked at on one replica: a rank, or the ranks of a pipeline, whose mean it is. It is the one with the least exposed
//! communication, that between its own stages left aside; of several, the one that takes longest. A slow rank's compute is
//! then the cause, and not the waiting of all others.

use std::{cmp::Reverse, collections::HashMap};

use stepscope_plan::Axis;
use stepscope_traces::{Family, Origin, Rank, Run, SpanKind, Step};

use crate::{
    analyze::{ReadJob, analyze_and},
    error::AnalysisError,
    figures::{Analysis, Class, CountedSteps},
    job::{bubbles::idle_of_stages, clock::Alignment, stages::Stages},
    rank::{
        result::{Detail, RankResult},
        step_parts::{Amount, RankPart, RankParts},
    },
    selection::Selection,
};

/// A run as it is compared.
pub struct Profile<'a> {
    /// What it is called here.
    pub name: String,
    /// Where it is.
    pub run: &'a Run,
    /// What it says by itself.
    pub analysis: Analysis,
    /// What steps are made of.
    pub(crate) parts: Vec<StepPart>,
    /// The steps that count, in order; where the whole recording counts, that as one.
    pub(crate) steps: Vec<ProfileStep>,
}

/// What a step is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StepPart {
    /// A kernel, and what it was launched for, where that is known.
    Kernel {
        family: Family,
        name: String,
        work: Option<String>,
        recomputes: bool,
    },
    Exposed {
        operation: SpanKind,
        axis: Option<Axis>,
    },
    Copies,
    Bubble,
    Idle,
}

/// A step on the replica that the others wait for.
#[derive(Clone, Debug)]
pub(crate) struct ProfileStep {
    /// Which step; none, where it is all of the recording.
    pub(crate) step: Option<Step>,
    /// The ranks of the replica.
    pub(crate) ranks: Vec<Rank>,
    /// Their time, added up; the parts are as long.
    pub(crate) time_ns: i64,
    /// Which parts, and what of each.
    pub(crate) parts: Vec<(usize, Amount)>,
    /// On the rank where it takes longest.
    pub(crate) longest_ns: i64,
    /// Communication of all ranks, and what compute hides of it.
    pub(crate) communication_ns: i64,
    pub(crate) hidden_ns: i64,
    pub(crate) tokens: Option<f64>,
    /// What all devices drew, where all said so, in joules.
    pub(crate) energy: Option<f64>,
}

/// Reads a run to compare it under a name. `progress` is told how many ranks are done.
pub fn profile<'a>(
    run: &'a Run,
    name: &str,
    selection: &Selection,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Profile<'a>, AnalysisError> {
    let look = |job: &ReadJob<'_>| {
        let ReadJob { ranks, alignment, counted, stages, .. } = *job;
        let tables = Tables::of(ranks, alignment, stages, counted);
        let alone = || (0..ranks.len()).map(|index| vec![index]).collect();
        let pipelines = stages.map(|stages| stages.pipelines.clone()).filter(|all| !all.is_empty());
        let replicas: Vec<Vec<usize>> = pipelines.unwrap_or_else(alone);
        let steps = tables.steps(ranks, &replicas, counted);
        (tables.parts, steps)
    };
    let (analysis, (parts, mut steps)) = analyze_and(run, selection, Detail::Parts, progress, look)?;
    steps.retain(|step| step.step.map_or(analysis.window.whole, |step| analysis.window.counts(step)));
    Ok(Profile { name: name.into(), run, analysis, parts, steps })
}

/// The steps of all ranks, part by part.
struct Tables {
    parts: Vec<StepPart>,
    /// Of each rank, its steps.
    ranks: Vec<HashMap<Option<Step>, HashMap<usize, Amount>>>,
}

impl Tables {
    fn of(ranks: &[RankResult], alignment: &Alignment, stages: Option<&Stages>, counted: &CountedSteps) -> Tables {
        let idle = stages.map(|stages| idle_of_stages(stages, ranks, alignment, counted));
        let mut numbers: HashMap<StepPart, usize> = HashMap::new();
        let mut number = |part: StepPart| {
            let next = numbers.len();
            *numbers.entry(part).or_insert(next)
        };
        let mut tables = Vec::new();
        for (index, rank) in ranks.iter().enumerate() {
            let Some(parts) = &rank.parts else { continue };
            let mut known: HashMap<RankPart, usize> = HashMap::new();
            let mut steps: Vec<HashMap<usize, Amount>> = Vec::new();
            for step in &parts.steps {
                let mut table = HashMap::new();
                for (part, amount) in &step.parts {
                    let part = *known.entry(*part).or_insert_with(|| number(StepPart::of(part, parts)));
                    table.insert(part, *amount);
                }
                steps.push(table);
            }
            let bubble = number(StepPart::Bubble);
            for wait in idle.iter().flat_map(|_| &rank.stage_waits).flat_map(|waits| &waits.waits) {
                let [start, end] = [wait.start, wait.end].map(|time| alignment.align(index, time));
                let idle = idle.as_ref().map_or(0, |idle| idle[index].covered(start, end)).min(wait.end - wait.start);
                let steps = &mut steps[wait.window];
                steps.entry(known[&RankPart::from(wait.waiting)]).or_default().time_ns -= idle;
                steps.entry(bubble).or_default().time_ns += idle;
            }
            let named = parts.steps.iter().map(|step| step.step);
            tables.push(named.zip(steps).collect());
        }
        let mut parts: Vec<(StepPart, usize)> = numbers.into_iter().collect();
        parts.sort_by_key(|(_, number)| *number);
        Tables { parts: parts.into_iter().map(|(part, _)| part).collect(), ranks: tables }
    }

    /// Each step, on the replica that waits least.
    fn steps(&self, ranks: &[RankResult], replicas: &[Vec<usize>], counted: &CountedSteps) -> Vec<ProfileStep> {
        let mut names: Vec<Option<Step>> = self.ranks.iter().flat_map(|rank| rank.keys().copied()).collect();
        names.sort_unstable();
        names.dedup();
        let all_ranks = AllRanks::new(ranks, counted);
        let step = |step: &Option<Step>| {
            let there =
                replicas.iter().filter(|replica| replica.iter().all(|rank| self.ranks[*rank].contains_key(step)));
            let chosen =
                there.min_by_key(|replica| (self.exposed(replica, *step), Reverse(self.time(replica, *step))))?;
            let mut sums: HashMap<usize, Amount> = HashMap::new();
            for (part, amount) in chosen.iter().flat_map(|rank| &self.ranks[*rank][step]) {
                let sum = sums.entry(*part).or_default();
                sum.time_ns += amount.time_ns;
                sum.count += amount.count;
            }
            let mut parts: Vec<(usize, Amount)> = sums.into_iter().collect();
            parts.sort_by_key(|(part, _)| *part);
            Some(ProfileStep {
                step: *step,
                ranks: chosen.iter().map(|rank| ranks[*rank].info.rank).collect(),
                time_ns: self.time(chosen, *step),
                parts,
                ..all_ranks.step(*step)
            })
        };
        names.iter().filter_map(step).collect()
    }

    fn time(&self, replica: &[usize], step: Option<Step>) -> i64 {
        replica.iter().flat_map(|rank| self.ranks[*rank][&step].values()).map(|amount| amount.time_ns).sum()
    }

    /// How long a replica waits for others, as far as that can be seen.
    fn exposed(&self, replica: &[usize], step: Option<Step>) -> i64 {
        let waits =
            |part: &usize| matches!(self.parts[*part], StepPart::Exposed { axis, .. } if axis != Some(Axis::Pipeline));
        let parts = replica.iter().flat_map(|rank| &self.ranks[*rank][&step]);
        parts.filter(|(part, _)| waits(part)).map(|(_, amount)| amount.time_ns).sum()
    }
}

impl StepPart {
    fn of(part: &RankPart, parts: &RankParts) -> StepPart {
        match part {
            RankPart::Kernel { name, work, recomputes } => {
                let name = parts.names.get(*name).unwrap_or("unnamed");
                let work = work.and_then(|work| Origin::of(parts.names.get(work)?).work());
                StepPart::Kernel {
                    family: Class::Compute.family(name),
                    name: name.into(),
                    work,
                    recomputes: *recomputes,
                }
            }
            RankPart::Exposed { operation, axis } => StepPart::Exposed { operation: *operation, axis: *axis },
            RankPart::Copies => StepPart::Copies,
            RankPart::Idle => StepPart::Idle,
        }
    }
}

/// What all ranks say of a step together.
struct AllRanks<'a> {
    ranks: &'a [RankResult],
    /// Where each rank has its steps.
    places: Vec<HashMap<Step, usize>>,
    /// Tokens of all steps that count.
    tokens: Option<f64>,
}

impl AllRanks<'_> {
    fn new<'a>(ranks: &'a [RankResult], counted: &CountedSteps) -> AllRanks<'a> {
        let places = |rank: &RankResult| {
            rank.steps.iter().enumerate().map(|(place, (window, ..))| (window.step, place)).collect()
        };
        let mut tokens: HashMap<Step, f64> = HashMap::new();
        for (window, _, counters) in ranks.iter().flat_map(|rank| &rank.steps) {
            if let Some(more) = counters.tokens.filter(|_| counted.counts(window.step)) {
                let tokens = tokens.entry(window.step).or_default();
                *tokens = tokens.max(more);
            }
        }
        let tokens = (!tokens.is_empty()).then(|| tokens.values().sum());
        AllRanks { ranks, places: ranks.iter().map(places).collect(), tokens }
    }

    /// Of one step; of none, that is of the whole recording.
    fn step(&self, step: Option<Step>) -> ProfileStep {
        let mut all = ProfileStep {
            step,
            ranks: Vec::new(),
            time_ns: 0,
            parts: Vec::new(),
            longest_ns: 0,
            communication_ns: 0,
            hidden_ns: 0,
            tokens: if step.is_none() { self.tokens } else { None },
            energy: None,
        };
        let (mut energy, mut devices) = (0.0, 0);
        for (rank, places) in self.ranks.iter().zip(&self.places) {
            let (extent, partition) = match step {
                None => (rank.extent, &rank.figures.partition),
                Some(step) => {
                    let Some((window, partition, counters)) = places.get(&step).map(|place| &rank.steps[*place]) else {
                        continue;
                    };
                    all.tokens = all.tokens.into_iter().chain(counters.tokens).reduce(f64::max);
                    (Some((window.start, window.end)), partition)
                }
            };
            all.longest_ns = all.longest_ns.max(partition.span_ns);
            all.communication_ns += partition.communication_ns;
            all.hidden_ns += partition.overlapped_communication_ns;
            if let Some(drawn) = extent.and_then(|(start, end)| rank.device.energy(start, end)) {
                energy += drawn;
                // Where ranks share a device, one of them asks it.
                devices += rank.info.sharing().unwrap_or(1) as usize;
            }
        }
        all.energy = (devices >= self.ranks.len()).then_some(energy);
        all
    }
}
