//! Which pass of the training a program was in, where nothing says so but the kernels it ran.
//!
//! Kernels of a pass say so in their names, some of them: `softmax_warp_backward`, `flash_fwd`, `multi_tensor_apply` with
//! what updates weights. Between two that say the same, it is the same pass. Between two that differ, the later pass begins
//! with the first message after the earlier one, since stages of a pipeline hand over between passes. Where there is no
//! message, the forward pass has what lies between, from the beginning of the step on, and the optimizer what follows the
//! backward pass.

use crate::{ids::Nanos, vocabulary::Phase};

/// The pass that the name of a kernel tells of, if it does.
pub(super) fn pass_named(name: &str) -> Option<Phase> {
    let lower = name.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if says(&["multi_tensor_apply", "adam"]) {
        Some(Phase::Optimizer)
    } else if says(&["backward", "bwd", "bprop", "dgrad", "wgrad", "grad_"]) {
        Some(Phase::Backward)
    } else if says(&["forward", "fwd", "fprop"]) {
        Some(Phase::Forward)
    } else {
        None
    }
}

/// From when on a program was in which pass, in order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct InferredPasses(Vec<(Nanos, Phase)>);

impl InferredPasses {
    /// Of the kernels that tell, and the messages and steps, by when each begins; and when the first kernel of all does.
    pub(super) fn of(told: &[(Nanos, Phase)], messages: &[Nanos], steps: &[Nanos], first: Nanos) -> InferredPasses {
        let mut passes: Vec<(Nanos, Phase)> = told.first().map(|(_, phase)| (first, *phase)).into_iter().collect();
        // The last kernel that told of the pass that goes on.
        let mut last = first;
        for (start, phase) in told {
            if let Some((_, before)) = passes.last().filter(|(_, before)| before != phase) {
                let between = |times: &[Nanos]| {
                    let next = times.partition_point(|time| *time <= last);
                    times.get(next).copied().filter(|time| time < start)
                };
                let step = between(steps).filter(|_| *phase == Phase::Forward);
                let from = between(messages).or(step).unwrap_or(match before {
                    Phase::Forward => *start,
                    _ => Nanos(last.0.saturating_add(1)),
                });
                passes.push((from, *phase));
            }
            last = *start;
        }
        InferredPasses(passes)
    }

    /// The pass at a time.
    pub(super) fn at(&self, time: Nanos) -> Option<Phase> {
        let begun = self.0.partition_point(|(from, _)| *from <= time);
        Some(self.0[begun.checked_sub(1)?].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_tell_of_their_pass_by_name() {
        for (name, expected) in [
            ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", Some(Phase::Forward)),
            ("void softmax_warp_backward<float>(float*)", Some(Phase::Backward)),
            ("void layer_norm_grad_input_kernel<float>()", Some(Phase::Backward)),
            ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma", Some(Phase::Backward)),
            ("multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>", Some(Phase::Optimizer)),
            ("nvjet_sm90_tst_128x256_64x4_4x2_h_bz_coopA_NNN", None),
        ] {
            assert_eq!(pass_named(name), expected, "{name}");
        }
    }

    #[test]
    fn passes_change_with_messages_or_with_what_kernels_say() {
        let told = [(10, Phase::Forward), (30, Phase::Backward), (40, Phase::Forward), (60, Phase::Backward)];
        let told: Vec<(Nanos, Phase)> = told
            .into_iter()
            .chain([(90, Phase::Optimizer), (120, Phase::Forward)])
            .map(|(at, p)| (Nanos(at), p))
            .collect();
        let passes = InferredPasses::of(&told, &[Nanos(5), Nanos(20), Nanos(25)], &[Nanos(0), Nanos(100)], Nanos(0));
        let at = |time| passes.at(Nanos(time));
        assert_eq!(at(-1), None);
        assert_eq!([at(0), at(19)], [Some(Phase::Forward); 2]);
        assert_eq!([at(20), at(30)], [Some(Phase::Backward); 2], "from the message on");
        assert_eq!([at(31), at(59)], [Some(Phase::Forward); 2], "a backward pass ends with what tells of it");
        assert_eq!(at(90), Some(Phase::Optimizer));
        assert_eq!(at(61), Some(Phase::Optimizer), "after the last backward pass comes the optimizer");
        assert_eq!([at(99), at(100)], [Some(Phase::Optimizer), Some(Phase::Forward)], "the next step begins");
        assert_eq!(InferredPasses::of(&[], &[], &[], Nanos(0)).at(Nanos(1)), None);
    }
}
