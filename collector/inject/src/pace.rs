//! The pace at which this process is recorded, together with the other ranks of its job.
//!
//! What one rank records is worth most where the others record the same steps. So one of them says which: the first that has
//! something to say. It says so in the run, well ahead, and the others look there.

use std::path::{Path, PathBuf};

use stepscope_collector::injection::{Budget, RecordedSteps};
use stepscope_traces::{Nanos, RecordingCost, Step};

use crate::pacer::Pacer;

/// Keeps the recording of this process within its budget.
pub(crate) struct Pacing {
    run: PathBuf,
    pacer: Pacer,
    /// Whether this process says it for all.
    leads: bool,
}

impl Pacing {
    pub(crate) fn new(run: &Path, budget: Budget) -> Pacing {
        Pacing { run: run.to_owned(), pacer: Pacer::new(budget), leads: false }
    }

    /// Takes in the steps that have begun, but for one that took longer for another reason, and says or hears what is to be
    /// recorded next. Tells whether that is news.
    pub(crate) fn look(&mut self, begun: &[(Step, Nanos)], left_out: Option<Step>) -> bool {
        self.pacer.leave_out(left_out);
        begun.iter().for_each(|(step, time)| self.pacer.step_began(*step, *time));
        let before = self.pacer.pace();
        if !self.leads {
            RecordedSteps::find(&self.run).into_iter().for_each(|pace| self.pacer.follow(pace));
        }
        if self.leads || self.pacer.pace().is_none() {
            self.say_next();
        }
        self.pacer.pace() != before
    }

    /// The step, after this one, in which recording begins or ends, as far as that is known.
    pub(crate) fn next_change(&self, step: Step) -> Option<Step> {
        self.pacer.next_change(step)
    }

    fn say_next(&mut self) {
        let Some(pace) = self.pacer.next() else { return };
        let is_said = if self.leads { pace.leave(&self.run).is_ok() } else { self.begin_to_lead(pace) };
        if is_said {
            self.pacer.follow(pace);
        }
    }

    /// Whether this process says it for all from now on. Where nothing can be written it does so for itself.
    fn begin_to_lead(&mut self, pace: RecordedSteps) -> bool {
        self.leads = pace.lead(&self.run).unwrap_or(true);
        self.leads
    }

    /// Whether recording rests in a step.
    pub(crate) fn rests_in(&self, step: Option<Step>) -> bool {
        self.pacer.rests_in(step)
    }

    /// What recording costs.
    pub(crate) fn cost(&self) -> RecordingCost {
        self.pacer.cost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_job_record_the_same_steps() {
        let directory = tempfile::tempdir().unwrap();
        let mut ranks = [0, 1, 2].map(|_| Pacing::new(directory.path(), Budget::USUAL));
        let mut time = 0;
        let mut changes = 0;
        for step in 0..20_000 {
            for rank in &mut ranks {
                changes += u32::from(rank.look(&[(Step(step), Nanos(time))], None));
            }
            let rests = ranks.each_ref().map(|rank| rank.rests_in(Some(Step(step))));
            assert!(rests == [rests[0]; 3], "{rests:?} in {step}");
            time += if rests[0] { 10_000_000 } else { 11_000_000 };
        }
        assert_eq!(ranks.each_ref().map(|rank| rank.leads), [true, false, false]);
        assert!(changes >= 3 * 3, "stretches come and go");
        let costs = ranks.map(|rank| rank.cost());
        assert!(costs[0].recorded_steps > 0 && costs[1..].iter().all(|cost| *cost == costs[0]));
    }

    #[test]
    fn a_run_that_cannot_be_written_to_is_paced_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let mut rank = Pacing::new(&directory.path().join("gone"), Budget::USUAL);
        let steps: Vec<_> = (0..300).map(|step| (Step(step), Nanos(i64::from(step) * 100_000_000))).collect();
        assert!(rank.look(&steps, None) && rank.leads);
    }
}
