//! Runs a schedule: when each piece of work can begin, given what it takes.

use std::collections::{HashMap, HashSet};

use crate::{
    error::PlanError,
    schedule::{Pass, Schedule, Turn, Work},
};

/// What work takes, in any one unit of time.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A forward pass of one micro-batch through one chunk.
    pub forward: f64,
    /// A backward pass of one micro-batch through one chunk, gradients of weights included.
    pub backward: f64,
    /// Of that, the gradients of weights, where they have a pass of their own.
    pub weights: f64,
    /// A forward and a backward pass that overlap, where a schedule has such: at most as long as both.
    pub both: f64,
    /// Handing a micro-batch to the next chunk.
    pub transfer: f64,
}

/// Work and when it is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedWork {
    /// The work.
    pub work: Work,
    /// When it begins.
    pub start: f64,
    /// When it ends.
    pub end: f64,
}

/// A schedule, run.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// What each stage does, and when.
    pub stages: Vec<Vec<TimedWork>>,
}

impl Simulation {
    /// Runs a schedule: each stage does its work in order, each as soon as its input is there.
    pub fn run(
        schedule: Schedule,
        stages: u64,
        micro_batches: u64,
        chunks: u64,
        costs: Costs,
    ) -> Result<Simulation, PlanError> {
        if schedule.is_dual() {
            schedule.check_both_ways(stages, micro_batches, chunks)?;
        }
        let turns: Vec<Vec<Turn>> =
            (0..stages).map(|stage| schedule.turns(stage, stages, micro_batches, chunks)).collect();
        Simulation::run_turns(schedule, &turns, chunks, costs)
    }

    /// Runs any lists of work; those that wait for each other are an error.
    fn run_turns(schedule: Schedule, orders: &[Vec<Turn>], chunks: u64, costs: Costs) -> Result<Simulation, PlanError> {
        let mut done: Vec<Vec<TimedWork>> = vec![Vec::new(); orders.len()];
        let mut turns = vec![0; orders.len()];
        let mut ends: HashMap<(u64, Work), f64> = HashMap::new();
        // Backward passes whose gradients of weights have a pass of their own.
        let split: HashSet<(usize, Work)> = orders
            .iter()
            .enumerate()
            .flat_map(|(stage, order)| order.iter().map(move |turn| (stage, turn.work)))
            .filter(|(_, work)| work.pass == Pass::Weights)
            .map(|(stage, work)| (stage, Work { pass: Pass::Backward, ..work }))
            .collect();
        let cost = |stage: usize, turn: &Turn| match (turn.beside, turn.work.pass) {
            (Some(_), _) => costs.both,
            (None, Pass::Forward) => costs.forward,
            (None, Pass::Backward) if split.contains(&(stage, turn.work)) => costs.backward - costs.weights,
            (None, Pass::Backward) => costs.backward,
            (None, Pass::Weights) => costs.weights,
        };
        let mut progress = true;
        while progress {
            progress = false;
            for (stage, order) in orders.iter().enumerate() {
                while let Some(turn) = order.get(turns[stage]) {
                    let ready = |work: Work| match schedule.input(work, stage as u64, orders.len() as u64, chunks) {
                        None => Some(0.0),
                        Some(input) => {
                            let hop = if input.0 == stage as u64 { 0.0 } else { costs.transfer };
                            ends.get(&input).map(|end| end + hop)
                        }
                    };
                    let all_ready = turn.passes().map(ready).try_fold(0.0, |all: f64, one| Some(all.max(one?)));
                    let Some(ready) = all_ready else { break };
                    let free = done[stage].last().map_or(0.0, |last| last.end);
                    let start = free.max(ready);
                    let end = start + cost(stage, turn);
                    for work in turn.passes() {
                        ends.insert((stage as u64, work), end);
                        done[stage].push(TimedWork { work, start, end });
                    }
                    turns[stage] += 1;
                    progress = true;
                }
            }
        }
        match orders.iter().zip(&turns).position(|(order, turns)| *turns < order.len()) {
            None => Ok(Simulation { stages: done }),
            Some(stage) => {
                let work = orders[stage][turns[stage]].work;
                Err(PlanError::Layout(format!("the schedule stands still: stage {stage} waits for {work:?}")))
            }
        }
    }

    /// From the first beginning to the last end.
    pub fn duration(&self) -> f64 {
        self.stages.iter().flatten().map(|work| work.end).fold(0.0, f64::max)
    }

    /// The idle share of all stages.
    pub fn bubble(&self) -> f64 {
        let busy: f64 = (0..self.stages.len()).map(|stage| self.busy(stage)).sum();
        1.0 - busy / (self.duration() * self.stages.len() as f64)
    }

    /// How long a stage works. What overlaps counts once.
    pub fn busy(&self, stage: usize) -> f64 {
        let mut until = 0.0;
        let new =
            self.stages[stage].iter().map(|work| work.end - work.start.max(std::mem::replace(&mut until, work.end)));
        new.sum()
    }

    /// How many micro-batches (of a chunk each) a stage holds the activations of, at most.
    pub fn peak_in_flight(&self, stage: usize) -> u64 {
        peak(self.stages[stage].iter())
    }

    /// How many micro-batches one chunk of a stage holds the activations of, at most.
    pub fn peak_in_flight_through(&self, stage: usize, chunk: u64) -> u64 {
        peak(self.stages[stage].iter().filter(|work| work.work.chunk == chunk))
    }
}

/// How many forwards are ahead of their backwards, at most.
fn peak<'a>(work: impl Iterator<Item = &'a TimedWork>) -> u64 {
    let held = work.scan(0_u64, |held, work| {
        match work.work.pass {
            Pass::Forward => *held += 1,
            Pass::Backward => *held = held.saturating_sub(1),
            Pass::Weights => {}
        }
        Some(*held)
    });
    held.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn schedules() -> impl Strategy<Value = (Schedule, u64, u64, u64)> {
        prop_oneof![
            (1..7_u64, 1..20_u64).prop_map(|(p, m)| (Schedule::Gpipe, p, m, 1)),
            (1..7_u64, 1..20_u64).prop_map(|(p, m)| (Schedule::OneForwardOneBackward, p, m, 1)),
            (2..6_u64, 1..5_u64, 2..5_u64).prop_map(|(p, rounds, v)| (Schedule::Interleaved, p, p * rounds, v)),
            (1..7_u64, 1..20_u64).prop_map(|(p, m)| (Schedule::ZeroBubble, p, m, 1)),
            (1..4_u64, 0..9_u64).prop_map(|(half, more)| (Schedule::DualPipe, 2 * half, 4 * half + 2 * more, 2)),
            (2..6_u64, 0..9_u64).prop_map(|(p, more)| (Schedule::DualPipeV, p, 2 * p + more, 2)),
        ]
    }

    /// How many micro-batches are held for the gradients of weights, at most, while so many have not come back.
    fn most_put_off(order: &[Work], in_flight: u64) -> u64 {
        let (mut held, mut put_off, mut most) = (0, 0, 0);
        for work in order {
            match work.pass {
                Pass::Forward => held += 1,
                Pass::Backward => (held, put_off) = (held - 1, put_off + 1),
                Pass::Weights => put_off -= 1,
            }
            if held == in_flight && order.iter().any(|work| work.pass == Pass::Weights) {
                most = most.max(put_off);
            }
        }
        most
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn every_micro_batch_makes_every_pass_through_every_chunk_once((schedule, p, m, v) in schedules()) {
            for stage in 0..p {
                let order = schedule.order(stage, p, m, v);
                let once: HashSet<Work> = order.iter().copied().collect();
                prop_assert_eq!(once.len(), order.len());
                prop_assert!(once.iter().all(|work| work.micro_batch < m && work.chunk < v));
                let count = |pass| once.iter().filter(|work| work.pass == pass).count() as u64;
                // Each goes one way where there are two copies.
                let ways = if schedule == Schedule::DualPipe { 1 } else { v };
                prop_assert_eq!([count(Pass::Forward), count(Pass::Backward)], [m * ways; 2]);
                match schedule {
                    _ if schedule.is_dual() => prop_assert!(count(Pass::Weights) < m * ways),
                    Schedule::ZeroBubble => prop_assert_eq!(count(Pass::Weights), m),
                    _ => prop_assert_eq!(count(Pass::Weights), 0),
                }
            }
        }

        #[test]
        fn nothing_begins_before_its_input_is_there(
            (schedule, p, m, v) in schedules(),
            forward in 0.1..5.0_f64,
            backward in 0.1..5.0_f64,
            transfer in 0.0..2.0_f64,
        ) {
            let costs = Costs { forward, backward, weights: backward / 2.0, both: forward + backward, transfer };
            let simulation = Simulation::run(schedule, p, m, v, costs).unwrap();
            // In the order in which a micro-batch goes through the pieces of the model.
            let (mut times, mut stages) = (HashMap::new(), HashMap::new());
            for (stage, done) in simulation.stages.iter().enumerate() {
                let together = |one: &TimedWork, two: &TimedWork| (one.start, one.end) == (two.start, two.end);
                prop_assert!(done.windows(2).all(|pair| pair[0].end <= pair[1].start || together(&pair[0], &pair[1])));
                for TimedWork { work, start, end } in done {
                    let piece = schedule.piece(stage as u64, p, work.chunk);
                    times.insert((work.pass, work.micro_batch, piece), (*start, *end));
                    stages.insert((work.micro_batch, piece), stage);
                }
            }
            for micro_batch in 0..m {
                let last = schedule.pieces(p, v) - 1;
                for piece in 1..=last {
                    let forward = |piece| times[&(Pass::Forward, micro_batch, piece)];
                    let backward = |piece| times[&(Pass::Backward, micro_batch, piece)];
                    let is_here = stages[&(micro_batch, piece - 1)] == stages[&(micro_batch, piece)];
                    let hop = if is_here { 0.0 } else { transfer };
                    prop_assert!(forward(piece - 1).1 + hop <= forward(piece).0);
                    prop_assert!(backward(piece).1 + hop <= backward(piece - 1).0);
                }
                prop_assert!(times[&(Pass::Forward, micro_batch, last)].1 <= times[&(Pass::Backward, micro_batch, last)].0);
            }
        }

        #[test]
        fn the_bubble_of_equal_costs_is_the_closed_form((schedule, p, m, v) in schedules()) {
            // With equal costs of all passes the closed form holds for the interleaved schedule too.
            let backward = (schedule.passes() - 1) as f64;
            let costs = Costs { forward: 1.0, backward, weights: 1.0, both: 1.0 + backward, transfer: 0.0 };
            let simulation = Simulation::run(schedule, p, m, v, costs).unwrap();
            let ideal = schedule.ideal_bubble(p, m, v);
            prop_assert!((simulation.bubble() - ideal).abs() < 1e-9, "{} {}", simulation.bubble(), ideal);
        }

        #[test]
        fn as_many_are_in_flight_as_the_closed_form_says((schedule, p, m, v) in schedules()) {
            let costs = Costs { forward: 1.0, backward: 2.0, weights: 1.0, both: 3.0, transfer: 0.1 };
            let simulation = Simulation::run(schedule, p, m, v, costs).unwrap();
            for stage in 0..p {
                let in_flight = schedule.in_flight(stage, p, m, v);
                prop_assert_eq!(simulation.peak_in_flight(stage as usize), in_flight);
                if !schedule.is_dual() {
                    prop_assert_eq!(most_put_off(&schedule.order(stage, p, m, v), in_flight), schedule.put_off(stage, p, m));
                }
            }
            let last = if schedule.is_dual() { 0 } else { p as usize - 1 };
            let at_head = simulation.peak_in_flight_through(last, v - 1);
            prop_assert_eq!(at_head, schedule.in_flight_at_head(m));
        }
    }

    #[test]
    fn one_f_one_b_holds_fewer_micro_batches_than_gpipe() {
        assert_eq!(Schedule::Gpipe.in_flight(0, 4, 16, 1), 16);
        assert_eq!(Schedule::OneForwardOneBackward.in_flight(0, 4, 16, 1), 4);
        assert_eq!(Schedule::OneForwardOneBackward.in_flight(3, 4, 16, 1), 1);
        assert_eq!(Schedule::OneForwardOneBackward.in_flight(0, 4, 2, 1), 2);
    }

    #[test]
    fn twice_the_backward_leaves_the_bubble_as_it_is() {
        let costs = Costs { forward: 1.0, backward: 2.0, weights: 1.0, both: 3.0, transfer: 0.0 };
        for (schedule, chunks, ideal) in [
            (Schedule::Gpipe, 1, 3.0 / 11.0),
            (Schedule::OneForwardOneBackward, 1, 3.0 / 11.0),
            (Schedule::Interleaved, 2, 3.0 / 19.0),
        ] {
            let bubble = Simulation::run(schedule, 4, 8, chunks, costs).unwrap().bubble();
            assert!((bubble - ideal).abs() < 1e-9, "{schedule:?}: {bubble} {ideal}");
        }
    }

    /// Qi et al. (2024), table 2: a bubble of (p − 1)(F + B − W), B being what is left of a backward pass without W.
    #[test]
    fn gradients_of_weights_fill_the_bubble() {
        for (forward, backward, weights) in [(1.0, 2.0, 1.0), (1.0, 2.5, 0.9), (2.0, 3.0, 0.5)] {
            let costs = Costs { forward, backward, weights, both: forward + backward, transfer: 0.0 };
            for (stages, micro_batches) in [(2, 2), (4, 8), (8, 64)] {
                let run = |schedule| Simulation::run(schedule, stages, micro_batches, 1, costs).unwrap().duration();
                let work = micro_batches as f64 * (forward + backward);
                let waits = (stages - 1) as f64 * (forward + backward);
                assert!((run(Schedule::OneForwardOneBackward) - work - waits).abs() < 1e-9);
                let filled = (stages - 1) as f64 * 2.0 * weights;
                assert!((run(Schedule::ZeroBubble) - work - (waits - filled)).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn both_ways_need_enough_of_everything() {
        let costs = Costs { forward: 1.0, backward: 2.0, weights: 1.0, both: 3.0, transfer: 0.0 };
        for (stages, micro_batches, chunks) in
            [(1, 8, 2), (3, 12, 2), (4, 6, 2), (4, 9, 2), (4, 8, 1), (u64::MAX, 2, 2)]
        {
            assert!(Simulation::run(Schedule::DualPipe, stages, micro_batches, chunks, costs).is_err());
        }
        assert!(Simulation::run(Schedule::DualPipeV, 3, 7, 2, costs).is_ok());
    }

    #[test]
    fn stages_that_wait_for_each_other_are_found_out() {
        let work = |pass, micro_batch| Turn::alone(Work { pass, micro_batch, chunk: 0 });
        let orders = [
            vec![work(Pass::Backward, 0), work(Pass::Forward, 0)],
            vec![work(Pass::Forward, 0), work(Pass::Backward, 0)],
        ];
        let costs = Costs { forward: 1.0, backward: 1.0, weights: 0.0, both: 2.0, transfer: 0.0 };
        let error = Simulation::run_turns(Schedule::Gpipe, &orders, 1, costs).unwrap_err().to_string();
        assert!(error.contains("stands still: stage 0"), "{error}");
    }
}
