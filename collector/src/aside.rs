//! What a rank does beside training, and may take long at: evaluation and checkpoints.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use stepscope_traces::Phase;

/// How many of each are open.
#[derive(Default)]
pub(crate) struct Aside {
    evaluations: AtomicU32,
    checkpoints: AtomicU32,
}

impl Aside {
    fn open(&self, phase: Phase) -> Option<&AtomicU32> {
        match phase {
            Phase::Evaluation => Some(&self.evaluations),
            Phase::Checkpoint => Some(&self.checkpoints),
            _ => None,
        }
    }

    pub(crate) fn begin(&self, phase: Phase) {
        self.open(phase).into_iter().for_each(|open| _ = open.fetch_add(1, Relaxed));
    }

    pub(crate) fn end(&self, phase: Phase) {
        self.open(phase).into_iter().for_each(|open| _ = open.fetch_sub(1, Relaxed));
    }

    /// What it is at now, also by the phase that its process says to be in.
    pub(crate) fn now(&self, process: Option<Phase>) -> Option<Phase> {
        let is_open = |phase: &Phase| self.open(*phase).is_some_and(|open| open.load(Relaxed) > 0);
        [Phase::Checkpoint, Phase::Evaluation]
            .into_iter()
            .find(is_open)
            .or(process.filter(|phase| self.open(*phase).is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_long_is_told_and_only_while_it_lasts() {
        let aside = Aside::default();
        for phase in [Phase::Forward, Phase::Checkpoint, Phase::Checkpoint] {
            aside.begin(phase);
        }
        aside.end(Phase::Checkpoint);
        assert_eq!(aside.now(Some(Phase::Evaluation)), Some(Phase::Checkpoint));
        aside.end(Phase::Checkpoint);
        assert_eq!(aside.now(Some(Phase::Evaluation)), Some(Phase::Evaluation), "as the process says");
        assert_eq!(aside.now(Some(Phase::Backward)), None);
    }
}
