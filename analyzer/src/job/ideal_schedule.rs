//! A pipeline's schedule as it is meant, run by the plan's simulation.

use std::collections::HashSet;

use stepscope_plan::{Costs, Schedule, Simulation};

use crate::rank::work::{Pass, WorkItem};

/// Schedules up to this many passes are always simulated; longer ones only if as many passes were recorded.
const FEW_PASSES: u128 = 1 << 16;

/// Runs the schedule of a step. A layout, and the number of a micro-batch, may claim any number of passes: what was
/// recorded says how many are believed.
pub(crate) fn run_schedule(
    schedule: Schedule,
    (stages, micro_batches, chunks): (u64, u64, u64),
    recorded: usize,
    costs: Costs,
) -> Result<Simulation, NoIdeal> {
    let sizes = [schedule.passes(), stages, micro_batches, chunks].map(u128::from);
    let claimed = sizes.into_iter().fold(1, u128::saturating_mul);
    if claimed > FEW_PASSES.max(recorded as u128) {
        return Err(NoIdeal::Claimed { claimed, recorded });
    }
    Simulation::run(schedule, stages, micro_batches, chunks, costs).map_err(|_| NoIdeal::Unknown)
}

/// What a pass takes on average, over the work of some ranks. Where a stage comes back to a micro-batch, it is for the
/// gradients of weights; where it goes on to them at once, both are one. Where passes overlap they cannot be told apart so: each is
/// what its kernels take, nothing is gained, and weights take half of a backward pass.
pub(crate) fn mean_costs<'a>(
    schedule: Schedule,
    ranks: impl Iterator<Item = impl Iterator<Item = &'a WorkItem>>,
) -> Option<Costs> {
    let (mut forward, mut backward, mut weights) = (Mean::default(), Mean::default(), Mean::default());
    if schedule.is_dual() {
        return overlapping_costs(schedule, ranks);
    }
    for items in ranks {
        let mut came_back = HashSet::new();
        for item in items {
            let time = item.end - item.start;
            match item.pass {
                Pass::Forward => forward.add(time),
                Pass::Backward if schedule != Schedule::ZeroBubble => backward.add(time),
                Pass::Backward if came_back.insert((item.step, item.micro_batch)) => backward.add(time),
                Pass::Backward | Pass::Weights => {
                    weights.add(time);
                    // It is of the backward pass that came before it.
                    backward.sum += time;
                }
            }
        }
    }
    let (forward, backward, weights) = (forward.mean()?, backward.mean()?, weights.mean().unwrap_or(0.0));
    Some(Costs { forward, backward, weights, both: forward + backward, transfer: 0.0 })
}

/// What a pass takes on average, where kernels of two passes take turns: all of a micro-batch's, however many pieces they are in.
fn overlapping_costs<'a>(
    schedule: Schedule,
    ranks: impl Iterator<Item = impl Iterator<Item = &'a WorkItem>>,
) -> Option<Costs> {
    let (mut sums, mut passes) = ([0, 0], [0, 0]);
    for items in ranks {
        let mut micro_batches = HashSet::new();
        for item in items {
            let pass = usize::from(item.pass != Pass::Forward);
            sums[pass] += item.end - item.start;
            passes[pass] += usize::from(micro_batches.insert((item.step, item.micro_batch, pass)));
        }
    }
    // Through one of the copies, or there and back.
    let chunks = if schedule == Schedule::DualPipe { 1.0 } else { 2.0 };
    let mean = |pass: usize| (passes[pass] > 0).then(|| sums[pass] as f64 / passes[pass] as f64 / chunks);
    let (forward, backward) = (mean(0)?, mean(1)?);
    Some(Costs { forward, backward, weights: backward / 2.0, both: forward + backward, transfer: 0.0 })
}

#[derive(Default)]
struct Mean {
    sum: i64,
    count: u32,
}

impl Mean {
    fn add(&mut self, time: i64) {
        (self.sum, self.count) = (self.sum + time, self.count + 1);
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / f64::from(self.count))
    }
}

/// Why it is not known what a step would be ideally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoIdeal {
    /// There is no forward pass in it, or no backward pass.
    Unknown,
    /// The run claims far more passes than were recorded.
    Claimed {
        /// So many of a step.
        claimed: u128,
        /// How many passes were recorded.
        recorded: usize,
    },
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{MicroBatch, Step};

    use super::*;

    #[test]
    fn what_comes_back_to_a_micro_batch_is_for_its_weights() {
        let item = |micro_batch, pass, start, end| WorkItem {
            step: Step(0),
            micro_batch: MicroBatch(micro_batch),
            pass,
            start,
            end,
        };
        let items = [
            item(0, Pass::Forward, 0, 10),
            item(0, Pass::Backward, 10, 22),
            item(1, Pass::Forward, 22, 32),
            item(1, Pass::Backward, 32, 44),
            item(0, Pass::Backward, 44, 52),
            item(1, Pass::Backward, 52, 60),
        ];
        let costs = |schedule| {
            let Costs { forward, backward, weights, .. } = mean_costs(schedule, [items.iter()].into_iter()).unwrap();
            (forward, backward, weights)
        };
        assert_eq!(costs(Schedule::ZeroBubble), (10.0, 20.0, 8.0));
        assert_eq!(costs(Schedule::Gpipe), (10.0, 10.0, 0.0));
        assert_eq!(costs(Schedule::DualPipe), (10.0, 20.0, 10.0), "of each micro-batch 20 back, in two pieces");
        assert_eq!(costs(Schedule::DualPipeV), (5.0, 10.0, 5.0), "there and back");
        assert!(mean_costs(Schedule::Gpipe, [items[..1].iter()].into_iter()).is_none());
    }

    #[test]
    fn more_passes_than_were_recorded_are_not_believed() {
        let costs = Costs { forward: 1.0, backward: 1.0, weights: 0.0, both: 2.0, transfer: 0.0 };
        let run = |sizes, recorded| {
            let simulation = run_schedule(Schedule::OneForwardOneBackward, sizes, recorded, costs)?;
            Ok(simulation.stages.iter().map(Vec::len).sum::<usize>())
        };
        let most = 1 << 24;
        for sizes in [(2, most, 1), (1_000_000, 1_000_000, 1), (most, most, most), (2, u64::MAX, u64::MAX)] {
            assert!(matches!(run(sizes, 1000), Err(NoIdeal::Claimed { recorded: 1000, .. })), "{sizes:?}");
        }
        assert_eq!(run((2, 8, 1), 0), Ok(32), "what takes no memory is believed");
        assert_eq!(run((2, 50_000, 1), 200_000), Ok(200_000));
        assert!(run((2, 50_000, 1), 199_999).is_err());
    }
}
