//! What an analysis says of single moments and spans: for a picture of the whole run, which shows them where they are.

use hashbrown::HashMap;
use stepscope_traces::{Loss, Rank, RankInfo, Run, SpanKind, State};

use crate::{
    analyze::{ReadJob, analyze_and},
    detail::links::{Link, links},
    error::AnalysisError,
    figures::Analysis,
    job::{bubbles::idle_of_stages, clock::AlignedClock},
    rank::{
        result::{Detail, RankResult},
        step_windows::StepWindow,
        streams::{LabelCounts, StreamUse},
    },
    selection::{Selection, StepChoice},
};

/// What an analysis says of single moments and spans of a run.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// Of each rank.
    pub ranks: Vec<RankOverlay>,
    /// How many numbers links have.
    pub links: u64,
}

/// What an analysis says of single moments and spans of a rank.
#[derive(Clone, Debug)]
pub struct RankOverlay {
    /// Which rank.
    pub rank: Rank,
    /// What it says of itself, once it has been read.
    pub info: RankInfo,
    /// What became of it.
    pub state: State,
    /// What of it is lost.
    pub loss: Loss,
    /// Its clock.
    pub clock: AlignedClock,
    /// From the first to the last moment of its activity and its steps, in its own clock.
    pub extent: Option<(i64, i64)>,
    /// When the first event of its memory or the first sample of a counter was, in its own clock.
    pub first_other: Option<i64>,
    /// The steps that are looked at, in its own clock.
    pub steps: Vec<StepWindow>,
    /// Its stage, in a pipeline.
    pub stage: Option<u64>,
    /// What its streams are for.
    pub streams: Vec<StreamUse>,
    /// How many spans it recorded, by kind in the order of [`SpanKind::ALL`].
    pub spans: [u64; SpanKind::ALL.len()],
    /// How many kernels, copies and fills say what of themselves.
    pub labels: LabelCounts,
    /// How many events of memory.
    pub memory_events: u64,
    /// When it has nothing to do in a pipeline, in the steps that count and in the clock all ranks are aligned to.
    pub bubbles: Vec<(i64, i64)>,
    /// What other ranks say of its communication: of what belongs to steps that are looked at, in the order of its files.
    pub links: Vec<Link>,
}

impl Overlay {
    /// Leaves some ranks alone: links to the others lead nowhere, and have no number any more.
    pub fn leave(&mut self, is_left: impl Fn(Rank) -> bool) {
        self.ranks.retain(|rank| is_left(rank.rank));
        let mut ends: HashMap<u64, u32> = HashMap::new();
        let numbers = self.ranks.iter().flat_map(|rank| &rank.links).filter_map(|link| link.number);
        numbers.for_each(|number| *ends.entry(number).or_default() += 1);
        for link in self.ranks.iter_mut().flat_map(|rank| &mut rank.links) {
            link.number = link.number.filter(|number| ends[number] > 1);
        }
    }

    /// What ranks say, when they have been analyzed.
    fn of(job: &ReadJob<'_>, chosen: StepChoice) -> Overlay {
        let ReadJob { ranks, alignment, counted, .. } = *job;
        let (all_links, count) = links(ranks, job.groups, job.sizes);
        let idle = job.stages.map(|stages| idle_of_stages(stages, ranks, alignment, counted)).unwrap_or_default();
        let stages = job.stages.map(|stages| stages.of_ranks.as_slice()).unwrap_or_default();
        let overlay = |(index, (rank, links)): (usize, (&RankResult, Vec<Link>))| RankOverlay {
            rank: rank.info.rank,
            info: rank.info.clone(),
            state: rank.state,
            loss: rank.loss,
            clock: alignment.clock(index),
            extent: rank.extent,
            first_other: rank.first_other,
            steps: {
                let steps = rank.steps.iter().map(|(window, ..)| *window);
                steps.filter(|window| chosen.may_have(Some(window.step))).collect()
            },
            stage: stages.get(index).copied(),
            streams: rank.streams.uses(),
            spans: rank.streams.counts(),
            labels: rank.streams.labels(),
            memory_events: rank.memory_events,
            bubbles: idle.get(index).map(|idle| idle.iter().collect()).unwrap_or_default(),
            links: {
                let links = rank.communication.iter().zip(links);
                links.filter(|(span, _)| chosen.may_have(span.step)).map(|(_, link)| link).collect()
            },
        };
        Overlay { ranks: ranks.iter().zip(all_links).enumerate().map(overlay).collect(), links: count }
    }
}

/// As [`analyze`](crate::analyze()), with what it says of single moments and spans.
pub fn analyze_with_overlay(
    run: &Run,
    selection: &Selection,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<(Analysis, Overlay), AnalysisError> {
    analyze_and(run, selection, Detail::Figures, progress, |job| Overlay::of(job, selection.steps))
}
