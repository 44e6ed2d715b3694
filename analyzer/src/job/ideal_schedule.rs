//! A pipeline's schedule as it is meant, run by the plan's simulation.

use stepscope_plan::{Costs, Schedule, Simulation};

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
    let sizes = [2, stages, micro_batches, chunks].map(u128::from);
    let claimed = sizes.into_iter().fold(1, u128::saturating_mul);
    if claimed > FEW_PASSES.max(recorded as u128) {
        return Err(NoIdeal::Claimed { claimed, recorded });
    }
    Simulation::run(schedule, stages, micro_batches, chunks, costs).map_err(|_| NoIdeal::Unknown)
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
    use super::*;

    #[test]
    fn more_passes_than_were_recorded_are_not_believed() {
        let costs = Costs { forward: 1.0, backward: 1.0, transfer: 0.0 };
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
