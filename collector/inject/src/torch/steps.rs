//! Which step the program is in, by its optimizers.
//!
//! A step ends with its last optimizer. Where there are several, they take turns: the one that steps first in the program
//! leads, and whoever stepped last before the leader steps again is the last of a step. An optimizer that steps several times
//! between two backward passes, for one group of parameters after the other, takes as many turns. If it goes on without
//! backward passes, they are replayed as a CUDA graph, and each time it is a step. The first step begins with the first backward
//! pass, since what comes before that is no training yet. What comes behind an optimizer, evaluation and saving included, is of
//! the next step.
//!
//! What comes before a backward pass is forward; where none is seen nobody knows. After as many of them as the step before had, the optimizer is next: what
//! prepares it, such as clipping and norms of gradients, is counted as its own.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use stepscope_traces::{CollectorNote, Mark, Nanos, Phase, PhasesFrom, Span, SpanKind, Step, TrainingEvent};

use super::{event::Event, follow, inbox};
use crate::{place, recording::recorder};

/// A leader that others have stepped without so often leads no more. Nobody takes so many turns.
const PATIENCE: u32 = 16;
/// After so many rounds it is known how often an optimizer steps between backward passes.
const ROUNDS: u32 = 2;

static NOTED: Once = Once::new();
static PROGRAM: Mutex<Program> = Mutex::new(Program::NEW);

/// What the program does now.
#[derive(Debug)]
struct Program {
    step: Option<i32>,
    /// When the step began, and the outermost of what goes on.
    step_began: Nanos,
    phase_began: Nanos,
    backward: u32,
    /// The backward passes of this step that have ended, and how many the step before had.
    passes: u32,
    usual_passes: Option<u32>,
    optimizer: u32,
    /// The optimizers that have called back, and wait.
    waiting: u32,
    recomputation: u32,
    evaluates: bool,
    saving: u32,
    loading: u32,
    turns: Turns,
}

/// An optimizer, and how often it has stepped since a backward pass: several turns of one.
type Turn = (u64, u32);

/// Which optimizers take turns.
#[derive(Debug)]
struct Turns {
    leader: Option<Turn>,
    /// The last of a step.
    last: Option<Turn>,
    /// Who stepped most recently.
    recent: Option<Turn>,
    /// Which turn it is since the last backward pass, of the optimizer that stepped most recently. Without backward passes
    /// each is the first.
    repeated: Option<Turn>,
    /// How often others stepped since the leader did.
    without_leader: u32,
    /// How often optimizers have stepped behind a backward pass, and the highest of their turns.
    rounds: u32,
    highest: u32,
}

impl Turns {
    const NEW: Turns =
        Turns { leader: None, last: None, recent: None, repeated: None, without_leader: 0, rounds: 0, highest: 0 };

    fn backward_ended(&mut self) {
        if let Some((1.., turn)) = self.repeated.replace((0, 0)) {
            self.rounds = self.rounds.saturating_add(1);
            self.highest = self.highest.max(turn);
        }
    }

    fn begins(&mut self, optimizer: u64) {
        let number = match self.repeated {
            Some((same, number)) if same == optimizer => number + 1,
            _ => 0,
        };
        if number > PATIENCE {
            self.rounds = ROUNDS;
        }
        let number = if self.rounds >= ROUNDS && number > self.highest { 0 } else { number };
        self.repeated = self.repeated.map(|_| (optimizer, number));
        let turn = (optimizer, number);
        let leads = self.leader.is_none_or(|leader| leader == turn) || self.without_leader >= PATIENCE;
        if leads {
            let same = self.leader == Some(turn);
            self.leader = Some(turn);
            self.last = Some(self.recent.filter(|_| same).unwrap_or(turn));
            self.without_leader = 0;
        } else {
            self.without_leader += 1;
        }
    }

    /// Whether a step ends with it.
    fn ends(&mut self, optimizer: u64) -> bool {
        let number = self.repeated.filter(|(same, _)| *same == optimizer).map_or(0, |(_, number)| number);
        self.recent = Some((optimizer, number));
        self.last == self.recent
    }
}

impl Program {
    const NEW: Program = Program {
        step: None,
        step_began: Nanos(0),
        phase_began: Nanos(0),
        backward: 0,
        passes: 0,
        usual_passes: None,
        optimizer: 0,
        waiting: 0,
        recomputation: 0,
        evaluates: false,
        saving: 0,
        loading: 0,
        turns: Turns::NEW,
    };

    /// The phase that it is in.
    fn phase(&self) -> Option<Phase> {
        match self {
            Program { backward: 1.., recomputation: 1.., .. } => Some(Phase::Recompute),
            Program { backward: 1.., .. } => Some(Phase::Backward),
            Program { saving: 1.., .. } => Some(Phase::Checkpoint),
            Program { evaluates: true, .. } => Some(Phase::Evaluation),
            // What is loaded before the first step is no training yet.
            Program { loading: 1.., step, .. } => step.map(|_| Phase::Data),
            Program { optimizer: 1.., .. } => Some(Phase::Optimizer),
            Program { passes: passes @ 1.., usual_passes: Some(usual), .. } if passes >= usual => {
                Some(Phase::Optimizer)
            }
            Program { usual_passes: Some(0), passes: 0, .. } => None,
            Program { step: Some(_), .. } => Some(Phase::Forward),
            _ => None,
        }
    }

    /// Changes it, and tells whether a step ended, and which phase did.
    fn change(&mut self, event: Event, optimizer: u64, time: Nanos) -> Change {
        let before = self.phase();
        let is_outermost = |depth: u32| depth == 1;
        let mut step_ended = None;
        match event {
            Event::BackwardBegins => self.backward = self.backward.saturating_add(1),
            Event::BackwardEnds => {
                self.passes = self.passes.saturating_add(is_outermost(self.backward).into());
                self.backward = self.backward.saturating_sub(1);
                self.turns.backward_ended();
            }
            Event::RecomputationBegins => self.recomputation = self.recomputation.saturating_add(1),
            Event::RecomputationEnds => self.recomputation = self.recomputation.saturating_sub(1),
            Event::ClosureBegins => self.waiting = std::mem::take(&mut self.optimizer),
            Event::ClosureEnds => self.optimizer = std::mem::take(&mut self.waiting),
            Event::EvaluationBegins => self.evaluates = true,
            Event::EvaluationEnds => self.evaluates = false,
            Event::CheckpointBegins => self.saving = self.saving.saturating_add(1),
            Event::CheckpointEnds => self.saving = self.saving.saturating_sub(1),
            Event::LoadingBegins => self.loading = self.loading.saturating_add(1),
            Event::LoadingEnds => self.loading = self.loading.saturating_sub(1),
            Event::OptimizerBegins => {
                self.optimizer = self.optimizer.saturating_add(1);
                if is_outermost(self.optimizer) {
                    self.turns.begins(optimizer);
                }
            }
            Event::OptimizerEnds => {
                if is_outermost(self.optimizer) && self.turns.ends(optimizer) {
                    step_ended = self.step.map(|step| (Step(step), self.step_began));
                    self.step = self.step.map(|step| step.saturating_add(1));
                    self.step_began = time;
                    self.usual_passes = Some(std::mem::take(&mut self.passes));
                }
                self.optimizer = self.optimizer.saturating_sub(1);
            }
        }
        if self.step.is_none() && self.phase().is_some() {
            (self.step, self.step_began) = (Some(0), time);
        }
        let phase_ended = before.filter(|phase| Some(*phase) != self.phase()).map(|phase| (phase, self.phase_began));
        if before != self.phase() {
            self.phase_began = time;
        }
        Change { step_ended, phase_ended }
    }
}

/// What ended, and when it had begun.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    step_ended: Option<(Step, Nanos)>,
    phase_ended: Option<(Phase, Nanos)>,
}

/// The first step in which operators are looked at: those before it are warm-up; and how often after that.
const FIRST_LOOK: i32 = 2;
const LOOK_EVERY: i32 = 512;

/// In which steps operators are looked at.
#[derive(Debug)]
struct Looks {
    /// The newest one, by optimizers and as the process numbers it.
    latest: Option<i32>,
    numbered: Option<Step>,
    /// The step in which recording began again, which is not whole; every step while it rests.
    not_whole: Option<i32>,
    rests: bool,
}

static LOOKS: Mutex<Looks> = Mutex::new(Looks::NONE);

impl Looks {
    const NONE: Looks = Looks { latest: None, numbered: None, not_whole: None, rests: false };

    fn wants(&mut self, step: i32) -> bool {
        let is_due = self.latest.is_none_or(|latest| step - latest >= LOOK_EVERY);
        if self.latest != Some(step) && is_due && step >= FIRST_LOOK && self.not_whole != Some(step) && !self.rests {
            self.latest = Some(step);
            self.numbered = place::latest_step();
        }
        self.latest == Some(step) && !self.rests
    }
}

fn looks() -> MutexGuard<'static, Looks> {
    LOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether operators are to be looked at in the step that the program is in.
pub(super) fn wants_operators() -> bool {
    let step = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner).step;
    step.is_some_and(|step| looks().wants(step))
}

/// Says whether what runs on the GPU is not recorded for a while.
pub(super) fn rest(rests: bool) {
    let step = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner).step;
    let mut looks = looks();
    looks.rests = rests;
    if !rests {
        // It begins to be recorded now.
        looks.not_whole = step;
    }
}

/// The newest step in which operators were looked at.
pub(super) fn looked_at() -> Option<Step> {
    looks().numbered
}

/// The program begins or ends something: tells the recording and the assignment of memory categories.
pub(super) fn mark(event: Event, optimizer: u64, time_ns: Nanos) {
    let mut program = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
    let change = program.change(event, optimizer, time_ns);
    let (step, phase) = (program.step.map(Step), program.phase());
    drop(program);
    let (step, is_ours) = place::by_framework(step, phase);
    if let Some(recorder) = recorder() {
        NOTED.call_once(|| recorder.note(CollectorNote::Phases(PhasesFrom::TorchHooks)));
        let span = |kind, name: &str, began: Nanos| Span::new(kind, recorder.name(name), began, time_ns - began);
        let ended = change.step_ended.map(|(ended, _)| ended);
        let phase_step = if is_ours { ended.or(step) } else { step };
        if let Some((phase, began)) = change.phase_ended {
            recorder.record(Span {
                step: phase_step,
                phase: Some(phase),
                ..span(SpanKind::Phase, phase.word(), began)
            });
        }
        if let Some((step, began)) = change.step_ended.filter(|_| is_ours) {
            recorder.record(Span { step: Some(step), ..span(SpanKind::Step, "step", began) });
        }
    }
    if !follow::is_history_on() {
        return;
    }
    inbox::leave(|inbox| {
        event.for_memory().into_iter().for_each(|event| inbox.mark(Mark { time_ns, event, step }));
        if change.step_ended.is_some() {
            inbox.mark(Mark { time_ns, event: TrainingEvent::StepEnds, step });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program does, by letters: `(` and `)` a backward pass, a letter its optimizer. Tells after which of them
    /// steps ended.
    fn steps_of(program: &str) -> String {
        let mut state = Program::NEW;
        let mut told = String::new();
        for (time, what) in program.chars().enumerate() {
            let time = Nanos(time as i64);
            let ended = match what {
                '(' => state.change(Event::BackwardBegins, 0, time),
                ')' => state.change(Event::BackwardEnds, 0, time),
                optimizer => {
                    state.change(Event::OptimizerBegins, optimizer.into(), time);
                    state.change(Event::OptimizerEnds, optimizer.into(), time)
                }
            };
            told.push(what);
            told.extend(ended.step_ended.map(|_| '|'));
        }
        told
    }

    #[test]
    fn a_step_ends_with_its_last_optimizer() {
        assert_eq!(steps_of("()a()a()a"), "()a|()a|()a|");
        assert_eq!(steps_of("()()()a()()()a"), "()()()a|()()()a|", "gradients are accumulated");
        assert_eq!(steps_of("()ab()ab()ab"), "()a|b()ab|()ab|", "that there is another shows after the first step");
        assert_eq!(steps_of("()d()g()d()g()d()g"), "()d|()g()d()g|()d()g|");
        assert_eq!(
            steps_of("()aaa()aaa()aaa"),
            "()a|aa()aaa|()aaa|",
            "it takes one group of parameters after the other"
        );
        assert_eq!(steps_of("()aab()aab"), "()a|ab()aab|");
        assert_eq!(steps_of("aaa"), "a|a|a|", "nothing is known of backward passes");
        assert_eq!(steps_of("()a()a()a()aaaa"), "()a|()a|()a|()a|a|a|a|", "a graph is replayed");
        assert_eq!(steps_of("()ab()ab()abab"), "()a|b()ab|()ab|ab|", "with two of them");
        assert_eq!(steps_of("()aa()aa()aaaaaa"), "()a|a()aa|()aa|aa|aa|", "with two turns of one");
        assert!(steps_of(&format!("()()(){}", "a".repeat(40))).ends_with("a|a|a|a|a|"), "it was not warmed up");
        assert_eq!(steps_of("()ab()ab()a()a()a"), "()a|b()ab|()a()a|()a|", "one may not come again");
    }

    #[test]
    fn operators_are_looked_at_in_whole_recorded_steps_now_and_then() {
        let mut looks = Looks::NONE;
        assert_eq!([0, 1, 2, 3, 513].map(|step| looks.wants(step)), [false, false, true, false, false]);
        looks.rests = true;
        assert!(!looks.wants(514) && !looks.wants(700));
        (looks.rests, looks.not_whole) = (false, Some(700));
        assert_eq!(
            [700, 701, 701, 702, 1212, 1213].map(|step| looks.wants(step)),
            [false, true, true, false, false, true]
        );
    }

    #[test]
    fn a_leader_that_is_gone_is_replaced() {
        let told = steps_of(&format!("()a{}", "()b".repeat(40)));
        assert!(told.ends_with("()b|()b|()b|"), "{told}");
    }

    #[test]
    fn phases_are_those_of_the_outermost_and_steps_begin_with_a_backward_pass() {
        let mut state = Program::NEW;
        assert_eq!(state.phase(), None);
        let mut phases = Vec::new();
        for event in [
            Event::BackwardBegins,
            Event::RecomputationBegins,
            Event::RecomputationEnds,
            Event::BackwardEnds,
            Event::OptimizerBegins,
            Event::BackwardBegins,
            Event::BackwardEnds,
            Event::OptimizerEnds,
        ] {
            state.change(event, 1, Nanos(0));
            phases.push(state.phase().map(|phase| phase.word()));
        }
        let words = ["backward", "recompute", "backward", "forward", "optimizer", "backward", "optimizer", "forward"];
        assert_eq!(phases, words.map(Some));
        assert_eq!(state.step, Some(1));
    }

    #[test]
    fn a_program_that_waits_for_a_batch_is_in_no_pass() {
        let mut state = Program::NEW;
        state.change(Event::LoadingBegins, 0, Nanos(0));
        assert_eq!((state.phase(), state.step), (None, None), "no step begins with it");
        state.change(Event::LoadingEnds, 0, Nanos(1));
        for event in [Event::BackwardBegins, Event::BackwardEnds, Event::OptimizerBegins, Event::OptimizerEnds] {
            state.change(event, 1, Nanos(2));
        }
        state.change(Event::LoadingBegins, 0, Nanos(10));
        assert_eq!(state.phase(), Some(Phase::Data));
        let change = state.change(Event::LoadingEnds, 0, Nanos(30));
        assert_eq!((change.phase_ended, state.phase()), (Some((Phase::Data, Nanos(10))), Some(Phase::Forward)));
    }

    #[test]
    fn what_prepares_the_optimizer_is_the_optimizers_from_the_second_step_on() {
        let mut state = Program::NEW;
        let mut after_passes = Vec::new();
        // Steps of two backward passes, then one of three.
        for passes in [2, 2, 3, 3] {
            let mut told = String::new();
            for _ in 0..passes {
                state.change(Event::BackwardBegins, 0, Nanos(0));
                state.change(Event::BackwardEnds, 0, Nanos(0));
                told.extend(state.phase().and_then(|phase| phase.word().chars().next()));
            }
            state.change(Event::OptimizerBegins, 1, Nanos(0));
            state.change(Event::OptimizerEnds, 1, Nanos(0));
            assert_eq!(state.phase(), Some(Phase::Forward));
            after_passes.push(told);
        }
        assert_eq!(after_passes, ["ff", "fo", "foo", "ffo"]);
    }
}
