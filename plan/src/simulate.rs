//! Runs a schedule: when each piece of work can begin, given what it takes.

use std::collections::HashMap;

use crate::{
    error::PlanError,
    schedule::{Pass, Schedule, Work},
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
        let orders: Vec<Vec<Work>> =
            (0..stages).map(|stage| schedule.order(stage, stages, micro_batches, chunks)).collect();
        Simulation::run_orders(&orders, chunks, costs)
    }

    /// Runs any lists of work; those that wait for each other are an error.
    pub fn run_orders(orders: &[Vec<Work>], chunks: u64, costs: Costs) -> Result<Simulation, PlanError> {
        let mut done: Vec<Vec<TimedWork>> = vec![Vec::new(); orders.len()];
        let mut ends: HashMap<(u64, Work), f64> = HashMap::new();
        let is_split = orders.iter().flatten().any(|work| work.pass == Pass::Weights);
        let cost = |pass: Pass| match pass {
            Pass::Forward => costs.forward,
            Pass::Backward if is_split => costs.backward - costs.weights,
            Pass::Backward => costs.backward,
            Pass::Weights => costs.weights,
        };
        let mut progress = true;
        while progress {
            progress = false;
            for (stage, order) in orders.iter().enumerate() {
                while let Some(&work) = order.get(done[stage].len()) {
                    let ready = match work.input(stage as u64, orders.len() as u64, chunks) {
                        None => Some(0.0),
                        Some(input) => {
                            let hop = if input.0 == stage as u64 { 0.0 } else { costs.transfer };
                            ends.get(&input).map(|end| end + hop)
                        }
                    };
                    let Some(ready) = ready else { break };
                    let free = done[stage].last().map_or(0.0, |last| last.end);
                    let start = free.max(ready);
                    let end = start + cost(work.pass);
                    ends.insert((stage as u64, work), end);
                    done[stage].push(TimedWork { work, start, end });
                    progress = true;
                }
            }
        }
        match orders.iter().zip(&done).position(|(order, done)| done.len() < order.len()) {
            None => Ok(Simulation { stages: done }),
            Some(stage) => {
                let work = orders[stage][done[stage].len()];
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
        let busy: f64 = self.stages.iter().flatten().map(|work| work.end - work.start).sum();
        1.0 - busy / (self.duration() * self.stages.len() as f64)
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
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn schedules() -> impl Strategy<Value = (Schedule, u64, u64, u64)> {
        prop_oneof![
            (1..7_u64, 1..20_u64).prop_map(|(p, m)| (Schedule::Gpipe, p, m, 1)),
            (1..7_u64, 1..20_u64).prop_map(|(p, m)| (Schedule::OneForwardOneBackward, p, m, 1)),
            (2..6_u64, 1..5_u64, 2..5_u64).prop_map(|(p, rounds, v)| (Schedule::Interleaved, p, p * rounds, v)),
            (1..7_u64, 1..20_u64).prop_map(|(p, m)| (Schedule::ZeroBubble, p, m, 1)),
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
                prop_assert_eq!(order.len() as u64, schedule.passes() * m * v);
                prop_assert_eq!(once.len() as u64, schedule.passes() * m * v);
                prop_assert!(once.iter().all(|work| work.micro_batch < m && work.chunk < v));
            }
        }

        #[test]
        fn nothing_begins_before_its_input_is_there(
            (schedule, p, m, v) in schedules(),
            forward in 0.1..5.0_f64,
            backward in 0.1..5.0_f64,
            transfer in 0.0..2.0_f64,
        ) {
            let costs = Costs { forward, backward, weights: backward / 2.0, transfer };
            let simulation = Simulation::run(schedule, p, m, v, costs).unwrap();
            // In the order in which a micro-batch goes through the chunks of all stages.
            let mut times = HashMap::new();
            for (stage, done) in simulation.stages.iter().enumerate() {
                prop_assert!(done.windows(2).all(|pair| pair[0].end <= pair[1].start));
                for TimedWork { work, start, end } in done {
                    times.insert((work.pass, work.micro_batch, work.chunk * p + stage as u64), (*start, *end));
                }
            }
            let hop = if p > 1 { transfer } else { 0.0 };
            for micro_batch in 0..m {
                for place in 1..p * v {
                    let forward = |place| times[&(Pass::Forward, micro_batch, place)];
                    let backward = |place| times[&(Pass::Backward, micro_batch, place)];
                    prop_assert!(forward(place - 1).1 + hop <= forward(place).0);
                    prop_assert!(backward(place).1 + hop <= backward(place - 1).0);
                }
                let last = p * v - 1;
                prop_assert!(times[&(Pass::Forward, micro_batch, last)].1 <= times[&(Pass::Backward, micro_batch, last)].0);
            }
        }

        #[test]
        fn the_bubble_of_equal_costs_is_the_closed_form((schedule, p, m, v) in schedules()) {
            // With equal costs of all passes the closed form holds for the interleaved schedule too.
            let backward = (schedule.passes() - 1) as f64;
            let costs = Costs { forward: 1.0, backward, weights: 1.0, transfer: 0.0 };
            let simulation = Simulation::run(schedule, p, m, v, costs).unwrap();
            let ideal = schedule.ideal_bubble(p, m, v);
            prop_assert!((simulation.bubble() - ideal).abs() < 1e-9, "{} {}", simulation.bubble(), ideal);
        }

        #[test]
        fn as_many_are_in_flight_as_the_closed_form_says((schedule, p, m, v) in schedules()) {
            let costs = Costs { forward: 1.0, backward: 2.0, weights: 1.0, transfer: 0.1 };
            let simulation = Simulation::run(schedule, p, m, v, costs).unwrap();
            for stage in 0..p {
                let in_flight = schedule.in_flight(stage, p, m, v);
                prop_assert_eq!(simulation.peak_in_flight(stage as usize), in_flight);
                prop_assert_eq!(most_put_off(&schedule.order(stage, p, m, v), in_flight), schedule.put_off(stage, p, m));
            }
            let at_head = simulation.peak_in_flight_through(p as usize - 1, v - 1);
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
        let costs = Costs { forward: 1.0, backward: 2.0, weights: 1.0, transfer: 0.0 };
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
            let costs = Costs { forward, backward, weights, transfer: 0.0 };
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
    fn stages_that_wait_for_each_other_are_found_out() {
        let work = |pass, micro_batch| Work { pass, micro_batch, chunk: 0 };
        let orders = [
            vec![work(Pass::Backward, 0), work(Pass::Forward, 0)],
            vec![work(Pass::Forward, 0), work(Pass::Backward, 0)],
        ];
        let costs = Costs { forward: 1.0, backward: 1.0, weights: 0.0, transfer: 0.0 };
        let error = Simulation::run_orders(&orders, 1, costs).unwrap_err().to_string();
        assert!(error.contains("stands still: stage 0"), "{error}");
    }
}
