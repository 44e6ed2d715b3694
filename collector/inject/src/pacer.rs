//! Keeps recording within its budget: stretches of recorded steps and stretches of others take turns, and are compared.
//!
//! What recording costs depends on the program: next to nothing where its device is busy, a tenth where it does little but
//! launch. So it is measured where it matters, by the time that steps take on the host. Two stretches that follow each other
//! are compared, since everything else about the program changes more slowly. The next stretch begins as soon as the average
//! of the whole recording stays within the budget; a program in which recording costs less than that is recorded on and on,
//! but for a few steps now and then that are looked at to be sure.

use std::collections::VecDeque;

use stepscope_collector::injection::{Budget, RecordedSteps};
use stepscope_traces::{MeasuredCost, Nanos, RecordingCost, Step};

/// The first stretch has so many steps and takes so long: whoever runs a program for a minute wants all of it.
const FIRST_STEPS: u64 = 32;
const FIRST_SECONDS: f64 = 2.0;
/// The steps of a stretch that are compared take so long together, and are so many.
const COMPARED_SECONDS: f64 = 2.0;
const COMPARED_STEPS: std::ops::RangeInclusive<usize> = 4..=16;
/// Stretches are short until so many comparisons were made.
const FIRST_COMPARISONS: usize = 6;
/// The newest ones count.
const MOST_COMPARISONS: usize = 64;
/// What is slower than so many times the usual step is something else: a compilation, a checkpoint, an evaluation.
const SLOWEST: f64 = 2.0;
/// The usual step is the median of so many, once there are a few.
const RECENT_STEPS: usize = 63;
const FEW_STEPS: usize = 4;
/// A stretch and the rest after it take so long together, once the cost is known.
const CYCLE_SECONDS: f64 = 30.0;
/// No stretch is longer, so that the cost is looked at again.
const MOST_STEPS: i32 = 8192;
/// Stretches are said so long before they begin, so that all ranks know of them by then.
const NOTICE_SECONDS: f64 = 0.5;
const LEAST_NOTICE: i32 = 2;
const MOST_NOTICE: i32 = 1000;

/// Which steps are recorded, and what that costs.
#[derive(Debug)]
pub(crate) struct Pacer {
    budget: f64,
    /// What was said last of it; until then, all are.
    pace: Option<RecordedSteps>,
    /// The step that the program is in, and since when.
    current: Option<(Step, Nanos)>,
    /// How long the latest steps took.
    recent: VecDeque<f64>,
    stretches: Stretches,
    totals: Totals,
    /// How long the last stretch was to be.
    length: i32,
    /// A step that took longer for another reason, as did the beginning of the one after it.
    left_out: Option<Step>,
}

/// What all steps came to. Time is that of the usual ones.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    steps: u64,
    recorded_steps: u64,
    nanos: f64,
    recorded_nanos: f64,
}

/// Steps one after the other that were all recorded, or all not.
#[derive(Debug, Default)]
struct Stretch {
    is_recorded: bool,
    /// How long its first steps took, and its last ones.
    first: Vec<f64>,
    last: VecDeque<f64>,
}

/// The latest two stretches, and what comparing them has shown so far.
#[derive(Debug, Default)]
struct Stretches {
    before: Option<Stretch>,
    now: Stretch,
    /// What a recorded step took more, as a share of one that was not.
    compared: VecDeque<f64>,
}

/// How much of a step is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    All,
    /// Recording begins or ends in it.
    Part,
    Nothing,
}

impl Pacer {
    pub(crate) fn new(budget: Budget) -> Pacer {
        Pacer {
            budget: budget.share(),
            pace: None,
            current: None,
            recent: VecDeque::new(),
            stretches: Stretches::default(),
            totals: Totals::default(),
            length: 0,
            left_out: None,
        }
    }

    /// What was said last of which steps are recorded.
    pub(crate) fn pace(&self) -> Option<RecordedSteps> {
        self.pace
    }

    /// Says which steps are recorded from now on.
    pub(crate) fn follow(&mut self, pace: RecordedSteps) {
        self.pace = Some(pace);
        self.length = pace.end.0.saturating_sub(pace.first.0);
    }

    /// Says which step is not to be compared with others, nor the one after it.
    pub(crate) fn leave_out(&mut self, step: Option<Step>) {
        self.left_out = step;
    }

    /// Whether recording rests in a step.
    pub(crate) fn rests_in(&self, step: Option<Step>) -> bool {
        step.is_some_and(|step| {
            self.recorded(step) == Recorded::Nothing || Some(step) == self.pace.map(|pace| pace.end)
        })
    }

    /// The step, after this one, in which recording begins or ends.
    pub(crate) fn next_change(&self, step: Step) -> Option<Step> {
        let RecordedSteps { first, end } = self.pace?;
        [Step(first.0.saturating_sub(1)), end].into_iter().find(|change| step < *change)
    }

    fn recorded(&self, step: Step) -> Recorded {
        match self.pace {
            None => Recorded::All,
            Some(RecordedSteps { first, end }) if first <= step && step < end => Recorded::All,
            // Attaching takes a moment of the step before the first, and detaching one of the step after the last.
            Some(RecordedSteps { first, end }) if step.0.saturating_add(1) == first.0 || step == end => Recorded::Part,
            Some(_) => Recorded::Nothing,
        }
    }

    /// The program has begun a step: the one before it is over.
    pub(crate) fn step_began(&mut self, step: Step, time: Nanos) {
        let Some((ended, began)) = self.current.replace((step, time)) else { return };
        // Only neighbours are a step apart.
        if step.0 != ended.0.saturating_add(1) || time <= began {
            return;
        }
        let took = (time - began).0 as f64;
        let recorded = self.recorded(ended);
        self.totals.steps += 1;
        if recorded == Recorded::All {
            self.totals.recorded_steps += 1;
        }
        if self.recent.len() == RECENT_STEPS {
            self.recent.pop_front();
        }
        self.recent.push_back(took);
        if self.recent.len() < FEW_STEPS || took > SLOWEST * self.usual() {
            return;
        }
        self.totals.nanos += took;
        if recorded != Recorded::Nothing {
            self.totals.recorded_nanos += took;
        }
        let compared = self.compared_steps();
        match recorded {
            _ if self
                .left_out
                .is_some_and(|Step(left_out)| left_out == ended.0 || left_out.saturating_add(1) == ended.0) => {}
            Recorded::Part => self.stretches.end(),
            Recorded::All | Recorded::Nothing => self.stretches.add(recorded == Recorded::All, took, compared),
        }
    }

    /// How long a step usually takes, in nanoseconds.
    fn usual(&self) -> f64 {
        let mut recent: Vec<f64> = self.recent.iter().copied().collect();
        recent.sort_by(f64::total_cmp);
        recent.get(recent.len() / 2).copied().unwrap_or(1.0)
    }

    fn compared_steps(&self) -> usize {
        let steps = COMPARED_SECONDS * 1e9 / self.usual();
        (steps as usize).clamp(*COMPARED_STEPS.start(), *COMPARED_STEPS.end())
    }

    /// What is to be recorded next, if it is time to say so: for the process that says it.
    pub(crate) fn next(&self) -> Option<RecordedSteps> {
        let (Step(now), _) = self.current?;
        let notice = (NOTICE_SECONDS * 1e9 / self.usual()).ceil() as i32;
        let notice = notice.clamp(LEAST_NOTICE, MOST_NOTICE);
        let soon = now.saturating_add(notice);
        let Some(pace) = self.pace else {
            let is_over = self.totals.steps >= FIRST_STEPS && self.totals.nanos >= FIRST_SECONDS * 1e9;
            let first = now.saturating_sub(i32::try_from(self.totals.steps).unwrap_or(i32::MAX));
            return is_over.then_some(RecordedSteps { first: Step(first), end: Step(soon) });
        };
        let rests = &self.stretches.now;
        if now <= pace.end.0 || rests.is_recorded || rests.first.len() < self.compared_steps() {
            return None;
        }
        let length = self.next_length()?;
        Some(RecordedSteps { first: Step(soon), end: Step(soon.saturating_add(length)) })
    }

    /// How many steps are to be recorded now; none, as long as that would cost too much.
    fn next_length(&self) -> Option<i32> {
        let short = 2 * self.compared_steps() as i32;
        let Some(cost) = self.stretches.mean().map(|mean| mean.max(0.0)) else { return Some(short) };
        let step = self.usual();
        let length = match cost {
            _ if self.stretches.compared.len() < FIRST_COMPARISONS => short,
            cost if cost <= self.budget => self.length.saturating_mul(2),
            cost => (self.budget / cost * CYCLE_SECONDS * 1e9 / step) as i32,
        };
        let length = length.clamp(short, MOST_STEPS);
        // The whole recording, with this stretch in it.
        let spent = (self.totals.recorded_nanos + f64::from(length) * step) * cost / (1.0 + cost);
        let all = self.totals.nanos + f64::from(length) * step;
        (spent <= self.budget * (all - spent)).then_some(length)
    }

    /// What recording costs, as far as it is known.
    pub(crate) fn cost(&self) -> RecordingCost {
        let Totals { steps, recorded_steps, nanos, recorded_nanos } = self.totals;
        RecordingCost {
            budget: self.budget,
            while_on: self.stretches.cost(),
            steps,
            recorded_steps,
            nanos: nanos as u64,
            recorded_nanos: recorded_nanos as u64,
        }
    }
}

impl Stretches {
    fn add(&mut self, is_recorded: bool, took: f64, compared: usize) {
        if self.now.is_recorded != is_recorded {
            self.end();
        }
        self.now.is_recorded = is_recorded;
        if self.now.first.len() < *COMPARED_STEPS.end() {
            self.now.first.push(took);
        }
        if self.now.last.len() == *COMPARED_STEPS.end() {
            self.now.last.pop_front();
        }
        self.now.last.push_back(took);
        if self.now.first.len() >= compared
            && let Some(before) = self.before.take_if(|before| before.last.len() >= compared)
        {
            self.compare(&before, compared);
        }
    }

    /// Another stretch begins.
    fn end(&mut self) {
        if !self.now.last.is_empty() {
            self.before = Some(std::mem::take(&mut self.now));
        }
    }

    /// Compares the last steps of a stretch with the first ones of the next.
    fn compare(&mut self, before: &Stretch, steps: usize) {
        let last: Vec<f64> = before.last.iter().rev().take(steps).copied().collect();
        let first = &self.now.first[..steps.min(self.now.first.len())];
        if before.is_recorded == self.now.is_recorded {
            return;
        }
        let mean = |steps: &[f64]| steps.iter().sum::<f64>() / steps.len() as f64;
        let (recorded, other) =
            if before.is_recorded { (mean(&last), mean(first)) } else { (mean(first), mean(&last)) };
        self.compared.push_back(recorded / other - 1.0);
        if self.compared.len() > MOST_COMPARISONS {
            self.compared.pop_front();
        }
    }

    /// What a recorded step costs, by all comparisons.
    fn mean(&self) -> Option<f64> {
        let count = self.compared.len();
        (count > 0).then(|| self.compared.iter().sum::<f64>() / count as f64)
    }

    /// The same with an interval, once two comparisons say so.
    fn cost(&self) -> Option<MeasuredCost> {
        let count = self.compared.len();
        let mean = self.mean().filter(|_| count >= 2)?;
        let squares: f64 = self.compared.iter().map(|one| (one - mean).powi(2)).sum();
        let around = student(count - 1) * (squares / (count - 1) as f64 / count as f64).sqrt();
        Some(MeasuredCost { share: mean, low: mean - around, high: mean + around, comparisons: count as u64 })
    }
}

/// Student's t for an interval of 95%.
fn student(freedom: usize) -> f64 {
    const OF_FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    // Beyond that, its expansion around the normal distribution is right to a thousandth.
    OF_FEW.get(freedom.saturating_sub(1)).copied().unwrap_or(1.96 + 2.42 / freedom as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program whose steps take so long, some more or less, and longer by a share when they are recorded.
    struct Program {
        step_ns: f64,
        noise: f64,
        cost: f64,
    }

    /// Runs it for so many steps; tells what recording really cost on average, and what is said of it.
    fn run(program: &Program, budget: &str, steps: i32) -> (f64, RecordingCost) {
        let mut pacer = Pacer::new(budget.parse().unwrap());
        let mut random = fastrand::Rng::with_seed(7);
        let (mut time, mut without, mut slow) = (0.0, 0.0, 0.0);
        for step in 0..steps {
            pacer.step_began(Step(step), Nanos(time as i64));
            if let Some(pace) = pacer.next() {
                assert!(pace.first < pace.end && pace.end > Step(step), "{pace:?} in {step}");
                pacer.follow(pace);
            }
            // The machine is faster or slower for a while.
            slow = 0.95 * slow + 0.05 * (2.0 * random.f64() - 1.0) * program.noise * 4.0;
            let took = program.step_ns * (1.0 + slow + program.noise * (2.0 * random.f64() - 1.0));
            let is_on = pacer.recorded(Step(step)) != Recorded::Nothing;
            without += took;
            time += if is_on { took * (1.0 + program.cost) } else { took };
        }
        (time / without - 1.0, pacer.cost())
    }

    #[test]
    fn the_average_stays_within_the_budget_and_comes_close_to_it() {
        for (step_ms, cost, steps) in
            [(12.0, 0.12, 20_000), (12.0, 0.30, 40_000), (200.0, 0.05, 6_000), (100.0, 0.02, 6_000)]
        {
            let program = Program { step_ns: step_ms * 1e6, noise: 0.05, cost };
            let (really, said) = run(&program, "1%", steps);
            let at = format!("{step_ms} ms, {cost}: {really} {said:?}");
            assert!((0.007..0.013).contains(&really), "{at}");
            let measured = said.while_on.unwrap();
            assert!((measured.share - cost).abs() < 0.15 * cost + 0.002, "{at}");
            assert!((said.average().unwrap() - really).abs() < 0.003, "{at}");
        }
    }

    #[test]
    fn what_costs_little_is_recorded_nearly_always() {
        let (really, said) = run(&Program { step_ns: 111e6, noise: 0.005, cost: 0.002 }, "1%", 5_000);
        assert!(said.duty() > 0.95 && really < 0.0025, "{really} {said:?}");
        let (_, short) = run(&Program { step_ns: 1e9, noise: 0.01, cost: 0.0 }, "1%", 32);
        assert_eq!(
            (short.steps, short.recorded_steps, short.while_on),
            (31, 31, None),
            "a short program is recorded whole"
        );
    }

    #[test]
    fn steps_that_are_something_else_are_not_what_recording_costs() {
        let mut pacer = Pacer::new(Budget::USUAL);
        let mut time = 0;
        for step in 0..5_000 {
            pacer.step_began(Step(step), Nanos(time));
            pacer.next().into_iter().for_each(|pace| pacer.follow(pace));
            let is_on = pacer.recorded(Step(step)) == Recorded::All;
            time += if is_on { 10_500_000 } else { 10_000_000 };
            // It is compiled at first, and saves a checkpoint now and then.
            time += if step == 0 { 90_000_000_000 } else { 0 };
            time += if step % 97 == 0 { 400_000_000 } else { 0 };
        }
        let cost = pacer.cost();
        let (share, seconds) = (cost.while_on.unwrap().share, cost.nanos / 1_000_000_000);
        assert!((0.045..0.055).contains(&share) && (48..52).contains(&seconds), "{share}, {seconds} s");
        assert!((0.008..0.0101).contains(&cost.average().unwrap()), "{cost:?}");
    }

    #[test]
    fn recording_begins_one_step_early_and_ends_where_it_is_said() {
        let mut pacer = Pacer::new(Budget::USUAL);
        assert!(!pacer.rests_in(Some(Step(5))) && !pacer.rests_in(None) && pacer.next_change(Step(5)).is_none());
        pacer.follow(RecordedSteps { first: Step(10), end: Step(12) });
        let rests = [8, 9, 10, 11, 12, 13].map(|step| pacer.rests_in(Some(Step(step))));
        assert_eq!(rests, [true, false, false, false, true, true]);
        assert_eq!(
            [8, 9, 11, 12].map(|step| pacer.next_change(Step(step))),
            [Some(Step(9)), Some(Step(12)), Some(Step(12)), None]
        );
    }

    #[test]
    fn numbers_that_jump_are_no_steps() {
        let mut pacer = Pacer::new(Budget::USUAL);
        for (step, time) in [(0, 0), (1, 10), (5, 20), (3, 30), (4, 40), (4, 45), (i32::MAX, 50), (i32::MIN, 60)] {
            pacer.step_began(Step(step), Nanos(time));
            assert_eq!(pacer.next(), None);
        }
        assert_eq!(pacer.cost().steps, 2);
    }

    #[test]
    fn intervals_are_students() {
        assert!(
            (student(1) - 12.706).abs() < 1e-9
                && (student(20) - 2.086).abs() < 0.01
                && (student(63) - 1.998).abs() < 0.01
        );
    }
}
