//! In which order a pipeline stage works.

/// A pipeline schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// All forwards, then all backwards.
    Gpipe,
    /// One forward, one backward, as soon as the first backward can be done.
    OneForwardOneBackward,
}

/// One pass of one micro-batch through one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) backward: bool,
    pub(super) micro_batch: u32,
}

impl Schedule {
    /// What a stage does, in order.
    pub(super) fn order(self, stage: u32, stages: u32, micro_batches: u32) -> Vec<Work> {
        let forward = |micro_batch| Work { backward: false, micro_batch };
        let backward = |micro_batch| Work { backward: true, micro_batch };
        let warm_up = match self {
            Schedule::Gpipe => micro_batches,
            Schedule::OneForwardOneBackward => (stages - stage - 1).min(micro_batches),
        };
        let steady = (warm_up..micro_batches).flat_map(|next| [forward(next), backward(next - warm_up)]);
        let cool_down = (micro_batches - warm_up..micro_batches).map(backward);
        (0..warm_up).map(forward).chain(steady).chain(cool_down).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_micro_batch_goes_forward_and_backward_once() {
        for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
            for (stages, micro_batches) in [(1, 1), (4, 8), (4, 2), (3, 3)] {
                for stage in 0..stages {
                    let order = schedule.order(stage, stages, micro_batches);
                    for backward in [false, true] {
                        let done = order.iter().filter(|work| work.backward == backward);
                        let done: Vec<u32> = done.map(|work| work.micro_batch).collect();
                        assert_eq!(done, (0..micro_batches).collect::<Vec<_>>());
                    }
                }
            }
        }
    }
}
