//! DualPipe (DeepSeek-AI, 2024) and DualPipeV: micro-batches go through a stage both ways, and a forward pass of one way overlaps with
//! a backward pass of the other.
//!
//! In DualPipe each of p stages holds two pieces of the model, its own and that of the stage at the other side, so that half of the
//! micro-batches come in at each end. In DualPipeV the two pieces are different ones: the way goes through the stages and back, as
//! if a DualPipe of 2p stages were folded in its middle. A stage does the same in both, as one of n on the way to the middle:
//!
//! ```text
//! warm up    near way forward          ×2(n − i − 1)
//!            both ways forward         × (i + 1)
//!            far way: back, weights, forward  × (n − i − 1)
//! go on      near forward & far back, far forward & near back  × (M − 2n + i + 1)
//! cool down  far back, then far forward & near back  × (n − i − 1)
//!            both ways back            × (i + 1)
//!            weights, near way back    × (n − i − 1)
//!            weights                   × (i + 1)
//! ```
//!
//! The gradients of weights are put off from the middle of the time on in which both ways only go back: that is what is left to do
//! while others come to their end. Two passes that overlap take as long as their costs say; nothing is gained if those say so.

use std::collections::VecDeque;

use crate::schedule::{Pass, Turn, Work};

/// Where a stage is: the i-th of n on the way to the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) index: u64,
    pub(crate) count: u64,
}

/// One of the two ways through a stage: the chunk that it goes through, and its first micro-batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) chunk: u64,
    pub(crate) first: u64,
}

/// What a stage does with so many micro-batches each way, at least 2n. It is nearer to the beginning of the first way.
pub(crate) fn turns(Place { index, count }: Place, micro_batches: u64, ways: [Way; 2]) -> Vec<Turn> {
    let mut stage = Doing { ways, done: [[0; 2]; 2], put_off: VecDeque::new(), turns: Vec::new() };
    let (near, far, behind) = (0, 1, count - index - 1);
    for _ in 0..2 * behind {
        stage.forward(near);
    }
    for _ in 0..=index {
        stage.forward(near);
        stage.forward(far);
    }
    for _ in 0..behind {
        stage.backward(far, true);
        stage.weights();
        stage.forward(far);
    }
    for round in 0..micro_batches - 2 * count + index + 1 {
        // The stage in the middle hands its first one over at once: others wait for it.
        if round == 0 && behind == 0 {
            stage.forward(near);
            stage.backward(far, false);
        } else {
            stage.both(near, far);
        }
        stage.both(far, near);
    }
    for _ in 0..behind {
        stage.backward(far, false);
        stage.both(far, near);
    }
    for last in 0..2 * (index + 1) {
        stage.backward(if last % 2 == 0 { far } else { near }, last > index);
    }
    for _ in 0..behind {
        stage.weights();
        stage.backward(near, true);
    }
    while !stage.put_off.is_empty() {
        stage.weights();
    }
    stage.turns
}

/// A stage, and what it has done so far.
struct Doing {
    ways: [Way; 2],
    /// Micro-batches of each way that have been forward, and back.
    done: [[u64; 2]; 2],
    put_off: VecDeque<Work>,
    turns: Vec<Turn>,
}

impl Doing {
    fn next(&mut self, pass: Pass, way: usize) -> Work {
        let done = &mut self.done[way][usize::from(pass == Pass::Backward)];
        let micro_batch = self.ways[way].first + *done;
        *done += 1;
        Work { pass, micro_batch, chunk: self.ways[way].chunk }
    }

    fn forward(&mut self, way: usize) {
        let work = self.next(Pass::Forward, way);
        self.turns.push(Turn::alone(work));
    }

    fn backward(&mut self, way: usize, puts_off: bool) {
        let work = self.next(Pass::Backward, way);
        self.put_off.extend(puts_off.then_some(Work { pass: Pass::Weights, ..work }));
        self.turns.push(Turn::alone(work));
    }

    fn both(&mut self, forward: usize, backward: usize) {
        let (work, beside) = (self.next(Pass::Forward, forward), self.next(Pass::Backward, backward));
        self.turns.push(Turn { work, beside: Some(beside) });
    }

    fn weights(&mut self) {
        self.turns.extend(self.put_off.pop_front().map(Turn::alone));
    }
}

#[cfg(test)]
mod tests {
    use crate::{Costs, Schedule, Simulation};

    /// The table of the authors: a bubble of (p/2 − 1)(F&B + B − 3W) for p pieces. It is exact where gradients of inputs take as
    /// long as a forward pass; where passes gain by overlapping, of the stage that waits longest.
    #[test]
    fn bubbles_are_the_published_ones() {
        for (schedule, stages, half, micro_batches) in [
            (Schedule::DualPipe, 2, 1, 4),
            (Schedule::DualPipe, 4, 2, 8),
            (Schedule::DualPipe, 8, 4, 20),
            (Schedule::DualPipeV, 4, 4, 10),
            (Schedule::DualPipeV, 8, 8, 64),
        ] {
            for (forward, backward, weights, both) in
                [(1.0, 2.0, 1.0, 3.0), (2.0, 3.0, 1.0, 5.0), (1.0, 2.0, 1.0, 2.5), (1.0, 2.0, 1.0, 2.0)]
            {
                let costs = Costs { forward, backward, weights, both, transfer: 0.0 };
                let simulation = Simulation::run(schedule, stages, micro_batches, 2, costs).unwrap();
                let busy = (0..stages as usize).map(|stage| simulation.busy(stage));
                let bubble = simulation.duration() - busy.fold(f64::INFINITY, f64::min);
                let published = f64::from(half - 1) * (both + backward - 3.0 * weights);
                assert!((bubble - published).abs() < 1e-9, "{schedule:?} {stages} {costs:?}: {bubble} {published}");
            }
        }
    }

    #[test]
    fn passes_overlap_but_for_the_first_and_last() {
        for (schedule, stages, micro_batches, passes) in [
            (Schedule::DualPipe, 2, 4, 4),
            (Schedule::DualPipe, 8, 20, 20),
            (Schedule::DualPipe, 16, 120, 120),
            (Schedule::DualPipeV, 4, 10, 20),
            (Schedule::DualPipeV, 8, 64, 128),
        ] {
            let overlapped = |stage| {
                let turns = schedule.turns(stage, stages, micro_batches, 2);
                turns.iter().filter(|turn| turn.beside.is_some()).count()
            };
            let least = (0..stages).map(overlapped).min().unwrap() as f64 / f64::from(passes);
            assert!(
                (schedule.overlapped(stages, micro_batches) - least).abs() < 1e-12,
                "{schedule:?} {stages} {least}"
            );
        }
    }

    /// The same table: activations of one micro-batch more than there are pieces.
    #[test]
    fn one_more_is_in_flight_than_there_are_pieces() {
        for (schedule, stages, pieces) in [(Schedule::DualPipe, 8, 8), (Schedule::DualPipeV, 4, 8)] {
            for stage in 0..stages {
                assert_eq!(schedule.in_flight(stage, stages, 20, 2), pieces + 1);
            }
        }
    }
}
