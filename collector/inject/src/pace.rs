//! The pace at which this process is recorded, together with the other ranks of its job.
//!
//! What one rank records is worth most where the others record the same steps. So one of them says which: the first that has
//! something to say. It says so in the run, well ahead and again and again, and the others look there. If it is silent for
//! long, or takes it back because it ends, another one does.

use std::{
    hash::{BuildHasher, RandomState},
    path::{Path, PathBuf},
};

use stepscope_collector::injection::{Budget, RecordedSteps, SaidPace};
use stepscope_traces::{Nanos, RecordingCost, Step};

use crate::{
    gpu_window::GpuRecorded,
    pacer::{Pacer, Transition},
};

/// How often it is said again.
const SAY_EVERY: Nanos = Nanos(10_000_000_000);
/// Whoever has said nothing for so long is gone.
const SILENCE: Nanos = Nanos(60_000_000_000);

/// Keeps the recording of this process within its budget.
pub(crate) struct Pacing {
    run: PathBuf,
    pacer: Pacer,
    /// A number of this process alone.
    id: u64,
    /// When this process said it last, if it says it for all.
    said: Option<Nanos>,
    /// When another one said what was heard last.
    heard: Option<Nanos>,
}

impl Pacing {
    pub(crate) fn new(run: &Path, budget: Budget) -> Pacing {
        let id = RandomState::new().hash_one(std::process::id());
        Pacing { run: run.to_owned(), pacer: Pacer::new(budget), id, said: None, heard: None }
    }

    /// Says that how much of the GPU is recorded has changed, from when to when.
    pub(crate) fn changed(&mut self, from: Nanos, until: Nanos, to: GpuRecorded) {
        self.pacer.changed(Transition { from, until, to });
    }

    /// Takes in the steps that have begun, but for one that took longer for another reason, and says or hears what is to be
    /// recorded next, at this time of day. Tells whether that is news.
    pub(crate) fn look(&mut self, begun: &[(Step, Nanos)], left_out: Option<Step>, wall: Nanos) -> bool {
        self.pacer.leave_out(left_out);
        begun.iter().for_each(|(step, time)| self.pacer.step_began(*step, *time));
        let before = self.pacer.pace();
        let other = SaidPace::find(&self.run).filter(|said| said.leader != self.id && wall - said.wall_ns < SILENCE);
        if let Some(other) = other.filter(|other| self.said.is_none_or(|said| said <= other.wall_ns)) {
            (self.said, self.heard) = (None, Some(other.wall_ns));
            self.pacer.follow(other.steps);
        }
        if self.heard.is_some_and(|heard| wall - heard >= SILENCE) {
            self.heard = None;
            self.pacer.forget();
        }
        if self.heard.is_none() {
            self.say(wall);
        }
        self.pacer.pace() != before
    }

    /// Says what is next, or what holds again, for all.
    fn say(&mut self, wall: Nanos) {
        let next = self.pacer.next();
        let is_due = self.said.is_some_and(|said| wall - said >= SAY_EVERY);
        let Some(steps) = next.or(self.pacer.pace().filter(|_| is_due)) else { return };
        if self.begins_or_goes_on_to_lead(steps, wall) {
            self.said = Some(wall);
            self.pacer.follow(steps);
        }
    }

    /// Whether this process says it for all. Where nothing can be written it does so for itself.
    fn begins_or_goes_on_to_lead(&self, steps: RecordedSteps, wall_ns: Nanos) -> bool {
        let said = SaidPace { steps, leader: self.id, wall_ns };
        let is_first = self.said.is_none() && SaidPace::find(&self.run).is_none();
        if is_first {
            return said.say_first(&self.run).unwrap_or(true);
        }
        drop(said.say(&self.run));
        true
    }

    /// Says no more, since the process ends.
    pub(crate) fn end(&self) {
        if self.said.is_some() {
            drop(SaidPace::take_back(&self.run));
        }
    }

    /// The step, after this one, in which recording begins or ends, as far as that is known.
    pub(crate) fn next_change(&self, step: Step) -> Option<Step> {
        self.pacer.next_change(step)
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

    /// Ranks of a job that take their steps together, each a tenth slower while it is recorded.
    struct Job {
        ranks: Vec<Pacing>,
        step: i32,
        time: i64,
    }

    impl Job {
        fn new(run: &Path, ranks: usize) -> Job {
            let mut ranks: Vec<Pacing> = (0..ranks).map(|_| Pacing::new(run, Budget::USUAL)).collect();
            ranks.iter_mut().for_each(|rank| rank.changed(Nanos(0), Nanos(0), GpuRecorded::All));
            Job { ranks, step: 0, time: 1 }
        }

        /// Takes some steps; tells how often the first rank changed, and how many steps it recorded.
        fn run(&mut self, steps: i32) -> (u32, u32) {
            let (mut changes, mut recorded, mut rested) = (0, 0, false);
            for _ in 0..steps {
                let (step, now) = (Step(self.step), Nanos(self.time));
                for rank in &mut self.ranks {
                    rank.look(&[(step, now)], None, now);
                    let to = if rank.rests_in(Some(step)) { GpuRecorded::Nothing } else { GpuRecorded::All };
                    rank.changed(now, now, to);
                }
                let rests: Vec<bool> = self.ranks.iter().map(|rank| rank.rests_in(Some(step))).collect();
                assert!(rests.iter().all(|one| *one == rests[0]), "{rests:?} in {step}");
                changes += u32::from(rests[0] != rested);
                recorded += u32::from(!rests[0]);
                rested = rests[0];
                self.step += 1;
                self.time += if rested { 10_000_000 } else { 11_000_000 };
            }
            (changes, recorded)
        }
    }

    #[test]
    fn ranks_of_a_job_record_the_same_steps() {
        let directory = tempfile::tempdir().unwrap();
        let mut job = Job::new(directory.path(), 3);
        let (changes, recorded) = job.run(20_000);
        assert!(changes >= 5 && (1_000..4_000).contains(&recorded), "{changes} {recorded}");
        assert_eq!(job.ranks.iter().map(|rank| rank.said.is_some()).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(job.ranks[1].cost(), job.ranks[0].cost());
        // The one that says it is killed; after a minute another one does.
        job.ranks.remove(0);
        let (changes, recorded) = job.run(20_000);
        assert!(changes >= 5 && (500..4_000).contains(&recorded), "{changes} {recorded}");
        // What ends well is taken back, and another program begins at once.
        job.ranks.iter().for_each(Pacing::end);
        assert_eq!(SaidPace::find(directory.path()), None);
        let (_, recorded) = Job::new(directory.path(), 1).run(40);
        assert_eq!(recorded, 40);
    }

    #[test]
    fn a_run_that_cannot_be_written_to_is_paced_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let (changes, recorded) = Job::new(&directory.path().join("gone"), 1).run(20_000);
        assert!(changes >= 5 && (1_000..4_000).contains(&recorded), "{changes} {recorded}");
    }
}
