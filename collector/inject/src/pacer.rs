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

use crate::gpu_window::GpuRecorded;

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
const LONGEST_SECONDS: f64 = 300.0;
/// What was saved or overdrawn counts for so long. A cost that was taken for too high is forgiven then.
const MEMORY_SECONDS: f64 = 600.0;
/// Stretches are said so long before they begin, so that all ranks know of them by then.
const NOTICE_SECONDS: f64 = 0.5;
const LEAST_NOTICE: i32 = 2;
/// The latest changes are kept.
const MOST_CHANGES: usize = 64;

/// Which steps are recorded, and what that costs.
#[derive(Debug)]
pub(crate) struct Pacer {
    budget: f64,
    /// What was said last of it; until then, all are.
    pace: Option<RecordedSteps>,
    /// The step that the program is in, and since when.
    current: Option<(Step, Nanos)>,
    changes: VecDeque<Transition>,
    /// How long the latest steps took that were recorded, and the others.
    recent: [VecDeque<f64>; 2],
    stretches: Stretches,
    totals: Totals,
    /// How long the last stretch was to be.
    length: i32,
    /// A step that took longer for another reason, as did the beginning of the one after it.
    left_out: Option<Step>,
}

/// How much of the GPU is recorded changes, which takes a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transition {
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
    pub(crate) to: GpuRecorded,
}

/// What all steps came to, in nanoseconds. Time is that of the usual ones.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    steps: u64,
    recorded_steps: u64,
    all: f64,
    recorded: f64,
    /// What recording cost of that, as far as it is charged.
    spent: f64,
    /// What was recorded since something was last charged for it.
    uncharged: f64,
    /// What may be spent now. Below zero it is too much.
    balance: f64,
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
    Unknown,
}

impl Pacer {
    pub(crate) fn new(budget: Budget) -> Pacer {
        Pacer {
            budget: budget.share(),
            pace: None,
            current: None,
            changes: VecDeque::new(),
            recent: Default::default(),
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

    /// Forgets what was said of it.
    pub(crate) fn forget(&mut self) {
        self.pace = None;
    }

    /// Says that how much of the GPU is recorded has changed.
    pub(crate) fn changed(&mut self, change: Transition) {
        if self.changes.len() == MOST_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    /// Says which step is not to be compared with others, nor the one after it.
    pub(crate) fn leave_out(&mut self, step: Option<Step>) {
        self.left_out = step;
    }

    /// Whether recording rests in a step. It takes a moment to attach: better during the step before the first.
    pub(crate) fn rests_in(&self, step: Option<Step>) -> bool {
        let rests = |(step, pace): (Step, RecordedSteps)| step.0.saturating_add(1) < pace.first.0 || pace.end <= step;
        step.zip(self.pace).is_some_and(rests)
    }

    /// The step, after this one, in which recording begins or ends.
    pub(crate) fn next_change(&self, step: Step) -> Option<Step> {
        let RecordedSteps { first, end } = self.pace?;
        [Step(first.0.saturating_sub(1)), end].into_iter().find(|change| step < *change)
    }

    /// How much was recorded of a step, by what really happened.
    fn recorded(&self, began: Nanos, ended: Nanos) -> Recorded {
        let mut recorded = Recorded::Unknown;
        for change in &self.changes {
            if change.until <= began {
                recorded = match change.to {
                    GpuRecorded::All => Recorded::All,
                    GpuRecorded::Nothing => Recorded::Nothing,
                    GpuRecorded::Unknown => Recorded::Unknown,
                };
            } else if change.from < ended {
                return Recorded::Part;
            }
        }
        recorded
    }

    /// The program has begun a step: the one before it is over.
    pub(crate) fn step_began(&mut self, step: Step, time: Nanos) {
        let Some((ended, began)) = self.current.replace((step, time)) else { return };
        if step < ended && self.pace.is_some() {
            // Its numbers begin anew: what was said of them is over.
            self.pace = Some(RecordedSteps { first: step, end: step });
        }
        // Only neighbours are a step apart.
        if step.0 != ended.0.saturating_add(1) || time <= began {
            return self.stretches.end();
        }
        let took = (time - began).0 as f64;
        let is_left_out = |Step(left_out): Step| left_out == ended.0 || left_out.saturating_add(1) == ended.0;
        let is_left_out = self.left_out.is_some_and(is_left_out);
        match self.recorded(began, time) {
            Recorded::Unknown => return self.stretches.end(),
            Recorded::Part => {
                self.totals.steps += 1;
                self.stretches.end();
                self.pay_more_than_usual(took);
            }
            Recorded::All if is_left_out => {
                self.totals.steps += 1;
                self.totals.recorded_steps += 1;
                self.pay_more_than_usual(took);
            }
            recorded => self.add(recorded == Recorded::All, took),
        }
        let most = self.budget * MEMORY_SECONDS * 1e9;
        self.totals.balance = self.totals.balance.clamp(-most, most);
    }

    /// A step was recorded as a whole, or not at all.
    fn add(&mut self, is_recorded: bool, took: f64) {
        self.totals.steps += 1;
        self.totals.recorded_steps += u64::from(is_recorded);
        let recent = &mut self.recent[usize::from(is_recorded)];
        if recent.len() == RECENT_STEPS {
            recent.pop_front();
        }
        recent.push_back(took);
        if recent.len() < FEW_STEPS || median(recent).is_some_and(|usual| took > SLOWEST * usual) {
            return;
        }
        self.totals.all += took;
        self.totals.balance += self.budget * took;
        if is_recorded {
            self.totals.recorded += took;
            self.totals.uncharged += took;
        }
        let compared = self.compared_steps();
        if self.stretches.add(is_recorded, took, compared) {
            let spent = self.unpaid();
            self.totals.uncharged = 0.0;
            self.totals.spent += spent;
            self.totals.balance -= spent;
        }
    }

    /// What the time cost that nothing was charged for yet.
    fn unpaid(&self) -> f64 {
        let cost = self.stretches.mean().unwrap_or(0.0).max(0.0);
        self.totals.uncharged * cost / (1.0 + cost)
    }

    /// A step took longer because of recording, whatever else it did.
    fn pay_more_than_usual(&mut self, took: f64) {
        let Some(usual) = self.usual() else { return };
        let took = took.min(SLOWEST * usual);
        let more = (took - usual).max(0.0);
        self.totals.all += took;
        self.totals.spent += more;
        self.totals.balance += self.budget * took - more;
    }

    /// How long a step usually takes, in nanoseconds: one that is not recorded, if there were any.
    fn usual(&self) -> Option<f64> {
        self.recent.iter().find_map(median)
    }

    fn compared_steps(&self) -> usize {
        let steps = self.usual().map_or(0.0, |usual| COMPARED_SECONDS * 1e9 / usual);
        (steps as usize).clamp(*COMPARED_STEPS.start(), *COMPARED_STEPS.end())
    }

    /// What is to be recorded next, if it is time to say so: for the process that says it.
    pub(crate) fn next(&self) -> Option<RecordedSteps> {
        let ((Step(now), _), usual) = self.current.zip(self.usual())?;
        let notice = ((NOTICE_SECONDS * 1e9 / usual).ceil() as i32).max(LEAST_NOTICE);
        let soon = now.saturating_add(notice);
        let Some(pace) = self.pace else {
            let is_over = self.totals.steps >= FIRST_STEPS && self.totals.all >= FIRST_SECONDS * 1e9;
            let first = now.saturating_sub(i32::try_from(self.totals.steps).unwrap_or(i32::MAX));
            return is_over.then_some(RecordedSteps { first: Step(first), end: Step(soon) });
        };
        let rests = &self.stretches.now;
        if now < pace.end.0 || rests.is_recorded || rests.first.len() < self.compared_steps() {
            return None;
        }
        let length = self.next_length(usual)?;
        Some(RecordedSteps { first: Step(soon), end: Step(soon.saturating_add(length)) })
    }

    /// How many steps are to be recorded now; none, as long as that would cost too much.
    fn next_length(&self, usual: f64) -> Option<i32> {
        // Enough of them are left once recording has begun.
        let slowest = self.changes.iter().map(|change| change.until - change.from).max();
        let slowest = slowest.map_or(0.0, |slowest| slowest.0 as f64 / usual);
        let short = (2 * self.compared_steps() as i32).saturating_add(slowest.ceil() as i32);
        let Some(cost) = self.stretches.mean().map(|mean| mean.max(0.0)) else { return Some(short) };
        let length = match cost {
            _ if self.stretches.compared.len() < FIRST_COMPARISONS => short,
            cost if cost <= self.budget => self.length.saturating_mul(2),
            cost => (self.budget / cost * CYCLE_SECONDS * 1e9 / usual) as i32,
        };
        let longest = (LONGEST_SECONDS * 1e9 / usual) as i32;
        let length = length.min(longest).max(short);
        let left = self.totals.balance - self.unpaid() + f64::from(length) * usual * (self.budget - cost);
        (left >= 0.0).then_some(length)
    }

    /// What recording costs, as far as it is known.
    pub(crate) fn cost(&self) -> RecordingCost {
        let Totals { steps, recorded_steps, all, recorded, spent, .. } = self.totals;
        RecordingCost {
            budget: self.budget,
            while_on: self.stretches.cost(),
            steps,
            recorded_steps,
            nanos: all as u64,
            recorded_nanos: recorded as u64,
            spent_nanos: (spent + self.unpaid()) as u64,
        }
    }
}

fn median(steps: &VecDeque<f64>) -> Option<f64> {
    let mut steps: Vec<f64> = steps.iter().copied().collect();
    steps.sort_by(f64::total_cmp);
    steps.get(steps.len() / 2).copied()
}

impl Stretches {
    /// Adds a step; tells whether something was compared.
    fn add(&mut self, is_recorded: bool, took: f64, compared: usize) -> bool {
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
        let is_enough = |before: &mut Stretch| before.last.len() >= compared && before.is_recorded != is_recorded;
        let before = if self.now.first.len() >= compared { self.before.take_if(is_enough) } else { None };
        before.as_ref().is_some_and(|before| {
            self.compare(before, compared);
            true
        })
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

    /// A program whose steps take so long, some more or less, and longer by a share when they are recorded. It takes a while
    /// to begin and to end recording.
    struct Program {
        step_ns: f64,
        noise: f64,
        cost: f64,
        lag_ns: f64,
    }

    const QUICK: Program = Program { step_ns: 12e6, noise: 0.05, cost: 0.12, lag_ns: 20e6 };

    /// Runs it for so many steps; tells what recording really cost on average, and what is said of it.
    fn run(program: &Program, budget: &str, steps: i32) -> (f64, RecordingCost) {
        let mut pacer = Pacer::new(budget.parse().unwrap());
        let mut random = fastrand::Rng::with_seed(7);
        let (mut time, mut without, mut slow) = (0.0, 0.0, 0.0);
        pacer.changed(Transition { from: Nanos(0), until: Nanos(0), to: GpuRecorded::All });
        // What is recorded, and when that will have changed; nobody looks at steps meanwhile.
        let (mut is_on, mut changes, mut begun) = (true, None, Vec::new());
        for step in 0..steps {
            begun.push((Step(step), Nanos(time as i64)));
            if let Some((at, to)) = changes.filter(|(at, _)| *at <= time) {
                is_on = to;
                changes = None;
                let from = Nanos((at - program.lag_ns) as i64);
                let to = if is_on { GpuRecorded::All } else { GpuRecorded::Nothing };
                pacer.changed(Transition { from, until: Nanos(at as i64), to });
            }
            if changes.is_none() {
                begun.drain(..).for_each(|(step, time)| pacer.step_began(step, time));
                if let Some(pace) = pacer.next() {
                    assert!(pace.first < pace.end && pace.end > Step(step), "{pace:?} in {step}");
                    pacer.follow(pace);
                }
                if is_on == pacer.rests_in(Some(Step(step))) {
                    changes = Some((time + program.lag_ns, !is_on));
                }
            }
            // The machine is faster or slower for a while.
            slow = 0.95 * slow + 0.05 * (2.0 * random.f64() - 1.0) * program.noise * 4.0;
            let took = program.step_ns * (1.0 + slow + program.noise * (2.0 * random.f64() - 1.0));
            without += took;
            time += if is_on || changes.is_some() { took * (1.0 + program.cost) } else { took };
        }
        (time / without - 1.0, pacer.cost())
    }

    #[test]
    fn the_average_comes_close_to_the_budget() {
        for program in [
            QUICK,
            Program { cost: 0.30, ..QUICK },
            Program { lag_ns: 300e6, ..QUICK },
            Program { step_ns: 2.2e6, cost: 0.24, lag_ns: 50e6, ..QUICK },
            Program { step_ns: 200e6, cost: 0.05, ..QUICK },
            Program { step_ns: 100e6, cost: 0.02, ..QUICK },
        ] {
            let steps = ((900e9 / program.step_ns) as i32).min(75_000);
            let (really, said) = run(&program, "1%", steps);
            let at = format!("{} ms, {}: {really} {said:?}", program.step_ns / 1e6, program.cost);
            assert!((0.006..0.013).contains(&really), "{at}");
            let measured = said.while_on.unwrap();
            assert!((measured.share - program.cost).abs() < 0.15 * program.cost + 0.003, "{at}");
            assert!((said.average().unwrap() - really).abs() < 0.003, "{at}");
        }
    }

    #[test]
    fn what_costs_little_is_recorded_nearly_always() {
        let program = Program { step_ns: 111e6, noise: 0.005, cost: 0.002, ..QUICK };
        let (really, said) = run(&program, "1%", 20_000);
        assert!(said.duty() > 0.95 && really < 0.0025, "{really} {said:?}");
        let noisy = Program { step_ns: 1e9, noise: 0.1, cost: 0.003, ..QUICK };
        let (_, said) = run(&noisy, "1%", 20_000);
        assert!(said.duty() > 0.5, "{said:?}");
        let (_, short) = run(&Program { step_ns: 1e9, noise: 0.01, cost: 0.0, ..QUICK }, "1%", 32);
        assert_eq!(
            (short.steps, short.recorded_steps, short.while_on),
            (31, 31, None),
            "a short program is recorded whole"
        );
    }

    /// Runs a program that numbers its steps so, and adds to the time of some.
    fn numbered(steps: impl Iterator<Item = i32>, more: impl Fn(usize) -> i64) -> RecordingCost {
        let mut pacer = Pacer::new(Budget::USUAL);
        pacer.changed(Transition { from: Nanos(0), until: Nanos(0), to: GpuRecorded::All });
        let (mut time, mut is_on) = (1, true);
        for (count, step) in steps.enumerate() {
            pacer.step_began(Step(step), Nanos(time));
            pacer.next().into_iter().for_each(|pace| pacer.follow(pace));
            if is_on == pacer.rests_in(Some(Step(step))) {
                is_on = !is_on;
                let to = if is_on { GpuRecorded::All } else { GpuRecorded::Nothing };
                pacer.changed(Transition { from: Nanos(time), until: Nanos(time + 1), to });
            }
            time += if is_on { 10_500_000 } else { 10_000_000 } + more(count);
        }
        pacer.cost()
    }

    #[test]
    fn steps_that_are_something_else_are_not_what_recording_costs() {
        // It is compiled at first, and saves a checkpoint now and then.
        let more = |count: usize| match count {
            0 => 90_000_000_000,
            count if count.is_multiple_of(97) => 400_000_000,
            _ => 0,
        };
        let cost = numbered(0..20_000, more);
        let (share, seconds) = (cost.while_on.unwrap().share, cost.nanos / 1_000_000_000);
        assert!((0.045..0.055).contains(&share) && (195..202).contains(&seconds), "{share}, {seconds} s");
        assert!((0.007..0.012).contains(&cost.average().unwrap()), "{cost:?}");
    }

    #[test]
    fn numbers_may_begin_anew_and_anywhere() {
        let plain = numbered(0..20_000, |_| 0);
        for cost in [numbered((0..20_000).map(|step| step % 1_000), |_| 0), numbered(50_000..70_000, |_| 0)] {
            let ratio = cost.recorded_steps as f64 / plain.recorded_steps as f64;
            assert!((0.6..1.5).contains(&ratio), "{cost:?} {plain:?}");
        }
    }

    #[test]
    fn a_cost_that_doubles_a_step_is_seen() {
        let (really, said) = run(&Program { cost: 1.3, ..QUICK }, "1%", 150_000);
        assert!((1.0..1.6).contains(&said.while_on.unwrap().share) && really < 0.02, "{really} {said:?}");
    }

    #[test]
    fn steps_outside_of_a_window_count_for_nothing() {
        let mut pacer = Pacer::new(Budget::USUAL);
        for step in 0..1_000 {
            pacer.step_began(Step(step), Nanos(i64::from(step) * 10_000_000));
        }
        assert_eq!((pacer.cost().steps, pacer.next()), (0, None));
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
        pacer.changed(Transition { from: Nanos(-1), until: Nanos(-1), to: GpuRecorded::All });
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
