//! What the module in the program's Python sees, by its numbers.

use stepscope_traces::TrainingEvent;

/// What a program begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    BackwardBegins,
    BackwardEnds,
    OptimizerBegins,
    OptimizerEnds,
    RecomputationBegins,
    RecomputationEnds,
    /// An optimizer calls back: the passes in there are none of its own.
    ClosureBegins,
    ClosureEnds,
    EvaluationBegins,
    EvaluationEnds,
    CheckpointBegins,
    CheckpointEnds,
    /// The program waits for its next batch.
    LoadingBegins,
    LoadingEnds,
}

impl Event {
    const ALL: [Event; 14] = [
        Event::BackwardBegins,
        Event::BackwardEnds,
        Event::OptimizerBegins,
        Event::OptimizerEnds,
        Event::RecomputationBegins,
        Event::RecomputationEnds,
        Event::ClosureBegins,
        Event::ClosureEnds,
        Event::EvaluationBegins,
        Event::EvaluationEnds,
        Event::CheckpointBegins,
        Event::CheckpointEnds,
        Event::LoadingBegins,
        Event::LoadingEnds,
    ];

    /// The event with a number of the module's.
    pub(super) fn of(number: u32) -> Option<Event> {
        Event::ALL.get(number as usize).copied()
    }

    /// What it is to whoever says what memory is for.
    pub(super) fn for_memory(self) -> Option<TrainingEvent> {
        Some(match self {
            Event::BackwardBegins => TrainingEvent::BackwardBegins,
            Event::BackwardEnds => TrainingEvent::BackwardEnds,
            Event::OptimizerBegins | Event::ClosureEnds => TrainingEvent::OptimizerBegins,
            Event::OptimizerEnds | Event::ClosureBegins => TrainingEvent::OptimizerEnds,
            Event::RecomputationBegins => TrainingEvent::RecomputationBegins,
            Event::RecomputationEnds => TrainingEvent::RecomputationEnds,
            Event::EvaluationBegins
            | Event::EvaluationEnds
            | Event::CheckpointBegins
            | Event::CheckpointEnds
            | Event::LoadingBegins
            | Event::LoadingEnds => return None,
        })
    }
}
