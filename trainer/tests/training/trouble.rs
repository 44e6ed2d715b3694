use std::fs;

use stepscope_plan::{ModelShape, ParallelLayout, Schedule, Zero};
use stepscope_trainer::{CpuTraining, OptimizerSettings, StepReport, TrainConfig};
use tempfile::TempDir;

use crate::support::{config, losses, single};

fn error(config: &TrainConfig) -> String {
    losses(config, None).unwrap_err().to_string()
}

#[test]
fn layouts_that_do_not_fit_are_refused() {
    let base = single();
    for (layout, why) in [
        (ParallelLayout { tp: 3, ..base }, "8 heads are not divisible by tp 3"),
        (
            ParallelLayout { schedule: Schedule::DualPipe, chunks: 2, pp: 2, micro_batches: 4, ..base },
            "--schedule dualpipe is planned and analyzed, not trained",
        ),
        (ParallelLayout { pp: 9, ..base }, "8 layers are too few for pp 9"),
        (ParallelLayout { micro_batches: 0, ..base }, "micro-batches is 0"),
        (
            ParallelLayout { pp: 2, schedule: Schedule::Interleaved, chunks: 2, micro_batches: 3, ..base },
            "a multiple of pp 2 micro-batches",
        ),
    ] {
        assert!(error(&config(layout)).contains(why), "{}", error(&config(layout)));
    }
}

#[test]
fn models_without_code_are_refused() {
    for (name, why) in [("gpt2-124m", "not RMS norms"), ("deepseek-v3", "latent"), ("qwen3-8b", "queries and keys")] {
        let config = TrainConfig::new(ModelShape::preset(name).unwrap(), ParallelLayout::default());
        assert!(error(&config).contains(why), "{}", error(&config));
    }
    let mut few = config(single());
    few.model.vocabulary = 100;
    assert!(error(&few).contains("tokens are bytes"));
}

#[test]
fn a_model_that_is_too_large_for_the_machine_is_refused() {
    let config = TrainConfig::new(ModelShape::preset("llama-405b").unwrap(), ParallelLayout::default());
    assert!(error(&config).contains("memory"), "{}", error(&config));
}

#[test]
fn data_is_bytes_of_files() {
    let directory = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let same = file("same", &[b'a'; 1000]);
    let learned = TrainConfig { data: vec![same.clone(), same], steps: 20, ..config(single()) };
    let losses = losses(&learned, None).unwrap();
    assert!(losses[19] < 1.0, "a text of one letter is learned at once: {losses:?}");
    let short = TrainConfig { data: vec![file("short", b"too short")], ..config(single()) };
    assert!(error(&short).contains("it has 9 bytes, but a sequence needs 33"), "{}", error(&short));
    let missing = TrainConfig { data: vec![directory.path().join("missing")], ..config(single()) };
    assert!(error(&missing).contains("cannot open"));
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_on_all_ranks() {
    let layout = ParallelLayout { dp: 2, pp: 2, micro_batch: 2, micro_batches: 2, ..single() };
    let usual = config(layout);
    let optimizer = OptimizerSettings { learning_rate: 1e30, ..usual.optimizer };
    let wild = TrainConfig { optimizer, steps: 100, ..usual };
    assert!(error(&wild).contains("the loss of step"), "{}", error(&wild));
}

#[test]
fn a_rank_that_dies_ends_the_run() {
    for layout in [
        ParallelLayout { dp: 4, micro_batch: 2, zero: Zero::Three, ..single() },
        ParallelLayout { tp: 2, pp: 2, micro_batch: 4, micro_batches: 2, ..single() },
    ] {
        // Steps are reported on the thread of rank 0.
        let dies = |step: StepReport| assert!(step.step < 2, "out of paper");
        let training = CpuTraining::prepare(&TrainConfig { steps: 100, ..config(layout) }).unwrap();
        let error = training.run(None, &dies).unwrap_err().to_string();
        assert!(error.contains("out of paper"), "{error}");
    }
}
