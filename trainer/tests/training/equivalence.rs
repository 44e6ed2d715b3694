use proptest::{prelude::*, sample::select};
use stepscope_plan::{ModelShape, ParallelLayout, Precision, Recompute, Schedule, Zero};
use stepscope_trainer::{GradientReduction, OptimizerSettings, TrainConfig};

use crate::support::{GLOBAL_BATCH, config, in_bf16, layouts, losses, reports, single};

fn assert_close(name: &str, losses: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(losses.len(), expected.len(), "{name}");
    for (step, (loss, expected)) in losses.iter().zip(expected).enumerate() {
        let error = (loss - expected).abs() / expected;
        assert!(error < tolerance, "{name}, step {step}: {loss} is not {expected}, by {error:.1e}");
    }
}

/// Of each step, the norms being those of the gradient.
fn losses_and_norms(config: &TrainConfig) -> (Vec<f64>, Vec<f64>) {
    reports(config, None).unwrap().iter().map(|step| (step.loss, step.gradient_norm)).unzip()
}

fn assert_same(name: &str, config: &TrainConfig, expected: &(Vec<f64>, Vec<f64>)) {
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
        sizes in select(&[(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (4, 1, 1), (1, 2, 2), (2, 1, 2)][..]),
        zero in select(&Zero::ALL[..]),
        schedule in select(&Schedule::ALL[..]),
        recompute in select(&Recompute::ALL[..]),
        micro_batches in select(&[1_u64, 2][..]),
        naive in any::<bool>(),
        sequence_parallel in any::<bool>(),
    ) -> TrainConfig {
        let (dp, tp, pp) = sizes;
        let schedule = if pp == 1 { Schedule::OneForwardOneBackward } else { schedule };
        let interleaved = schedule == Schedule::Interleaved;
        let micro_batches = if interleaved { pp } else { micro_batches };
        let layout = ParallelLayout {
            dp, tp, pp, zero, schedule, recompute, micro_batches,
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
