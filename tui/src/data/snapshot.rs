//! What is known of a run at a moment: all that views draw, and nothing that changes.

use std::{path::PathBuf, sync::Arc};

use stepscope_analyzer::{
    Analysis, JobTime, KnownIncident, LiveSnapshot, RankMemory, RunningStep, StepSummary, known_incidents,
};
use stepscope_plan::{Model, ParallelLayout};
use stepscope_traces::{Device, Incident, IncidentKind, Loss, Nanos, Rank, Run, RunSource, State};

/// What is known of a run at a moment.
#[derive(Clone)]
pub(crate) struct Snapshot {
    /// How far reading is.
    pub(crate) stage: Stage,
    /// What was run, once it is there.
    pub(crate) run: Option<RunFacts>,
    /// What the analyzer says of the steps in scope.
    pub(crate) analysis: Option<Arc<Analysis>>,
    /// Which steps the analysis is of.
    pub(crate) scope: Scope,
    /// Every step, in order.
    pub(crate) steps: Arc<Vec<StepSummary>>,
    /// The step that is being made.
    pub(crate) running: Option<RunningStep>,
    /// How long it has run, and how long it has to go.
    pub(crate) time: JobTime,
    /// What fills the memory of each rank, over all of the run.
    pub(crate) memory: Vec<Arc<RankMemory>>,
    /// What is lost.
    pub(crate) loss: Loss,
    /// When the newest activity ended, since 1970, UTC.
    pub(crate) newest: Option<Nanos>,
}

/// How far reading is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is nothing yet: what is waited for.
    Waiting(String),
    /// It is being read for the first time.
    Reading {
        /// Ranks that are read.
        done: usize,
        /// All of them.
        all: usize,
    },
    /// It grows, and is followed.
    Following,
    /// All of it is read, and no more will come.
    Read,
    /// It cannot be read: why.
    Failed(String),
}

/// Which steps an analysis is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of the run.
    Whole,
    /// The last steps that all ranks have made.
    Recent,
    /// The one that is chosen.
    Chosen,
}

/// What was run.
#[derive(Clone, Debug)]
pub(crate) struct RunFacts {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) source: RunSource,
    pub(crate) state: State,
    /// Ranks that did not end well.
    pub(crate) interrupted: Vec<Rank>,
    /// The ranks that there are.
    pub(crate) ranks: Vec<Rank>,
    /// How many there should be, if that is known.
    pub(crate) world_size: Option<u32>,
    pub(crate) model: Option<Model>,
    pub(crate) layout: Option<ParallelLayout>,
    /// The first rank's.
    pub(crate) device: Option<Device>,
    /// Steps that it is to make, where it says so.
    pub(crate) planned_steps: Option<u64>,
    /// Why files beside its own are not read.
    pub(crate) passed_over: Vec<String>,
    /// What went wrong, the first first.
    pub(crate) incidents: Vec<KnownIncident>,
}

impl RunFacts {
    /// What a run says, and what is known to have gone wrong in it.
    pub(crate) fn of(run: &Run, incidents: Vec<KnownIncident>) -> RunFacts {
        RunFacts {
            path: run.path.clone(),
            name: run.info.name.clone(),
            source: run.info.source,
            state: run.state(),
            interrupted: {
                let ended_badly = run.ranks.iter().filter(|rank| rank.state == State::Interrupted);
                ended_badly.map(|rank| rank.info.rank).collect()
            },
            ranks: run.ranks.iter().map(|rank| rank.info.rank).collect(),
            world_size: run.info.world_size,
            model: {
                // Stages of a pipeline have a part each.
                let mut told = run.ranks.iter().filter_map(|rank| rank.info.collector.program_model.as_ref());
                let first = told.next().filter(|first| told.all(|other| other.model == first.model));
                run.info.model.clone().map(Model::Shape).or_else(|| first.map(|told| told.model.clone()))
            },
            layout: run.info.layout,
            device: run.ranks.iter().find_map(|rank| rank.info.device.clone()),
            planned_steps: run.info.planned_steps(),
            passed_over: run.passed_over.iter().map(ToString::to_string).collect(),
            incidents,
        }
    }
}

impl Snapshot {
    /// Nothing, at a stage.
    pub(crate) fn at(stage: Stage) -> Snapshot {
        Snapshot {
            stage,
            run: None,
            analysis: None,
            scope: Scope::Whole,
            steps: Arc::default(),
            running: None,
            time: JobTime::default(),
            memory: Vec::new(),
            loss: Loss::default(),
            newest: None,
        }
    }

    /// All of a run.
    pub(crate) fn whole(run: &Run, analysis: Analysis) -> Snapshot {
        let mut facts = RunFacts::of(run, known_incidents(run));
        facts.state = analysis.run.state;
        facts.device = analysis.run.device.clone();
        let lost = analysis.data_loss;
        Snapshot {
            run: Some(facts),
            steps: Arc::new(analysis.job_steps.clone()),
            memory: analysis.memory.iter().cloned().map(Arc::new).collect(),
            loss: Loss {
                dropped_events: lost.dropped_events,
                unreadable_bytes: lost.unreadable_bytes,
                unreadable_events: lost.unreadable_events,
            },
            time: JobTime::of_ended(&analysis.ranks),
            analysis: Some(Arc::new(analysis)),
            ..Snapshot::at(Stage::Read)
        }
    }

    /// What a run that grows says.
    pub(crate) fn live(run: RunFacts, live: LiveSnapshot, steps: Arc<Vec<StepSummary>>) -> Snapshot {
        Snapshot {
            run: Some(run),
            analysis: live.analysis,
            scope: Scope::Recent,
            steps,
            running: live.running,
            time: live.time,
            memory: live.memory,
            loss: live.loss,
            newest: live.newest_wall,
            ..Snapshot::at(Stage::Following)
        }
    }

    /// The hang that the run is in, if it is in one: nothing was recorded since.
    pub(crate) fn hang(&self) -> Option<&Incident> {
        let run = self.run.as_ref().filter(|run| run.state == State::Recording)?;
        let last = &run.incidents.last()?.incident;
        let is_over = self.newest.is_some_and(|newest| newest > last.time_ns);
        (last.kind == IncidentKind::Hang && !is_over).then_some(last)
    }

    /// What became of the run, if there is one.
    pub(crate) fn state(&self) -> Option<State> {
        self.run.as_ref().map(|run| run.state)
    }
}
