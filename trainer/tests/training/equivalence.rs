use proptest::{prelude::*, sample::select};
use stepscope_plan::{ContextExchange, ModelShape, ParallelLayout, Precision, Recompute, Schedule, Zero};
use stepscope_trainer::{GradientReduction, OptimizerSettings, TrainConfig};

use crate::support::{GLOBAL_BATCH, config, in_bf16, layouts, losses, reports, single};

pub(crate) fn assert_close(name: &str, losses: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(losses.len(), expected.len(), "{name}");
    for (step, (loss, expected)) in losses.iter().zip(expected).enumerate() {
        let error = (loss - expected).abs() / expected;
        assert!(error < tolerance, "{name}, step {step}: {loss} is not {expected}, by {error:.1e}");
    }
}

/// Of each step, the norms being those of the gradient.
pub(crate) fn losses_and_norms(config: &TrainConfig) -> (Vec<f64>, Vec<f64>) {
    reports(config, None).unwrap().iter().map(|step| (step.loss, step.gradient_norm)).unzip()
}

pub(crate) fn assert_same(name: &str, config: &TrainConfig, expected: &(Vec<f64>, Vec<f64>)) {
    let (losses, norms) = losses_and_norms(config);
    assert_close(name, &losses, &expected.0, 1e-4);
    assert_close(&format!("norms, {name}"), &norms, &expected.1, 1e-3);
}

#[test]
fn every_layout_has_the_losses_and_gradients_of_a_single_rank() {
    let expected = losses_and_norms(&config(single()));
    for (name, config) in layouts() {
        assert_same(&name, &config, &expected);
    }
}

#[test]
fn every_layout_has_them_in_bf16_too() {
    let expected = losses(&config(single()), None).unwrap();
    for (name, config) in layouts() {
        for gradients in [Precision::Bf16, Precision::Fp32] {
            let name = format!("{name}, bf16 with gradients in {}", gradients.name());
            assert_close(&name, &losses(&in_bf16(&config, gradients), None).unwrap(), &expected, 2e-2);
        }
    }
}

#[test]
fn tied_embeddings_are_one_wherever_they_are() {
    let tied = |layout| {
        let config = config(layout);
        TrainConfig { model: ModelShape { tied_embeddings: true, ..config.model.clone() }, ..config }
    };
    let expected = losses_and_norms(&tied(single()));
    let base = ParallelLayout { micro_batches: 2, micro_batch: 4, ..single() };
    for layout in [
        ParallelLayout { pp: 2, ..base },
        ParallelLayout { tp: 2, pp: 4, ..base },
        ParallelLayout { dp: 2, pp: 2, micro_batch: 2, zero: Zero::One, ..base },
        ParallelLayout { dp: 2, pp: 2, micro_batch: 2, zero: Zero::Three, ..base },
        ParallelLayout { dp: 2, micro_batch: 2, zero: Zero::Two, ..base },
        ParallelLayout { dp: 2, micro_batch: 2, zero: Zero::Three, ..base },
    ] {
        assert_same(&format!("{layout:?}"), &tied(layout), &expected);
    }
}

/// A run that evaluates, has a z-loss, and measures how noisy its gradients are.
fn measuring(layout: ParallelLayout) -> TrainConfig {
    TrainConfig { z_loss: 1e-3, noise_scale: true, evaluate_every: Some(2), ..config(layout) }
}

#[test]
fn every_layout_evaluates_and_measures_noise_alike() {
    let spread = |dp, micro_batches| ParallelLayout { dp, micro_batches, micro_batch: 2, ..single() };
    let (one, two) = (spread(1, 4), spread(2, 2));
    let interleaved = ParallelLayout { schedule: Schedule::Interleaved, chunks: 2, pp: 2, ..one };
    for (base, others) in [
        (one, [ParallelLayout { tp: 2, ..one }, ParallelLayout { pp: 2, ..one }, interleaved].to_vec()),
        (two, [Zero::One, Zero::Two, Zero::Three].map(|zero| ParallelLayout { zero, ..two }).to_vec()),
    ] {
        let expected = reports(&measuring(base), None).unwrap();
        let evaluated: Vec<bool> = expected.iter().map(|step| step.evaluation_loss.is_some()).collect();
        assert_eq!(evaluated, [false, true, false, true, false]);
        assert!(expected.iter().any(|step| step.noise_scale.is_some()), "{expected:?}");
        for layout in others {
            for (found, expected) in reports(&measuring(layout), None).unwrap().iter().zip(&expected) {
                let close = |found: Option<f64>, expected: Option<f64>, tolerance: f64| match (found, expected) {
                    (Some(found), Some(expected)) => (found / expected - 1.0).abs() < tolerance,
                    (found, expected) => found == expected,
                };
                assert!((found.loss / expected.loss - 1.0).abs() < 1e-4, "{layout:?}: {found:?} {expected:?}");
                assert!(
                    close(found.evaluation_loss, expected.evaluation_loss, 1e-4),
                    "{layout:?}: {found:?} {expected:?}"
                );
                assert!(close(found.noise_scale, expected.noise_scale, 1e-2), "{layout:?}: {found:?} {expected:?}");
            }
        }
    }
}

/// The first step, by runs of which one has the first micro-batch alone.
#[test]
fn the_noise_scale_follows_from_gradients_of_two_batch_sizes() {
    let first = |micro_batch, micro_batches| {
        let config = config(ParallelLayout { micro_batch, micro_batches, ..single() });
        reports(&TrainConfig { noise_scale: micro_batches > 1, steps: 1, ..config }, None).unwrap()[0]
    };
    let (small, large) = (first(2, 1), first(2, 4));
    let ([small, large_square], tokens) = ([small, large].map(|step| step.gradient_norm.powi(2)), (64.0, 256.0));
    let signal = (tokens.1 * large_square - tokens.0 * small) / (tokens.1 - tokens.0);
    let noise = (small - large_square) / (1.0 / tokens.0 - 1.0 / tokens.1);
    let found = large.noise_scale.unwrap();
    assert!((found / (noise / signal) - 1.0).abs() < 1e-3, "{found} {}", noise / signal);
}

#[test]
fn evaluation_changes_no_loss_of_the_same_data_and_a_z_loss_adds_to_it() {
    let base = TrainConfig { evaluate_every: Some(1), ..config(single()) };
    let losses = |config: &TrainConfig| losses(config, None).unwrap();
    assert_eq!(losses(&base), losses(&TrainConfig { evaluate_every: Some(3), ..base.clone() }));
    let with = losses(&TrainConfig { z_loss: 1e-2, ..base.clone() })[0] - losses(&base)[0];
    // The square of the logarithm of 256 even logits' sum.
    assert!((with / 1e-2 - 256_f64.ln().powi(2)).abs() < 1.0, "{with}");
}

#[test]
fn losses_are_the_ones_they_always_were_and_fall() {
    let config = config(single());
    let optimizer = OptimizerSettings { clip: None, ..config.optimizer };
    let found = losses(&TrainConfig { optimizer, ..config }, None).unwrap();
    let known = [5.545046, 5.342534, 5.156720, 5.033134, 4.870891];
    assert_close("the single rank", &found, &known, 1e-4);
    assert!(found[0] > 5.5 && found[4] < found[0]);
}

#[test]
fn two_runs_are_the_same_to_the_last_bit() {
    for (name, config) in layouts() {
        let config = in_bf16(&config, Precision::Bf16);
        assert_eq!(losses(&config, None).unwrap(), losses(&config, None).unwrap(), "{name}");
    }
}

prop_compose! {
    fn any_layout()(
        sizes in select(&[
            (1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (2, 2, 1, 1), (4, 1, 1, 1), (1, 2, 2, 1), (2, 1, 2, 1),
            (1, 1, 1, 2), (1, 1, 1, 4), (2, 1, 1, 2), (1, 2, 1, 2), (1, 1, 2, 2),
        ][..]),
        context in select(&ContextExchange::ALL[..]),
        zero in select(&Zero::ALL[..]),
        schedule in select(&Schedule::ONE_WAY[..]),
        recompute in select(&Recompute::ALL[..]),
        micro_batches in select(&[1_u64, 2][..]),
        naive in any::<bool>(),
        sequence_parallel in any::<bool>(),
    ) -> TrainConfig {
        let (dp, tp, pp, cp) = sizes;
        let schedule = if pp == 1 { Schedule::OneForwardOneBackward } else { schedule };
        let interleaved = schedule == Schedule::Interleaved;
        let micro_batches = if interleaved { pp } else { micro_batches };
        let layout = ParallelLayout {
            dp, tp, cp, context, pp, zero, schedule, recompute, micro_batches,
            sequence_parallel: sequence_parallel && tp > 1,
            chunks: if interleaved { 2 } else { 1 },
            micro_batch: GLOBAL_BATCH / dp / micro_batches,
            ..single()
        };
        let reduction = if naive { GradientReduction::Naive } else { GradientReduction::Bucketed };
        TrainConfig { reduction, ..config(layout) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn any_layout_has_the_losses_of_a_single_rank(config in any_layout()) {
        let expected = losses(&crate::support::config(single()), None).unwrap();
        assert_close(&format!("{:?}", config.layout), &losses(&config, None).unwrap(), &expected, 1e-4);
    }
}
