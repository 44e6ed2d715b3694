//! A model small enough to train in every layout, and runs of it.

use std::{path::Path, sync::Mutex};

use stepscope_plan::{ContextExchange, ModelShape, ParallelLayout, Precision, Recompute, Schedule, Zero};
use stepscope_traces::{Loss, RankData, RankDirectory, Run, RunInfo, Window};
use stepscope_trainer::{CpuTraining, GradientReduction, OptimizerSettings, StepReport, TrainConfig, TrainError};
use tempfile::TempDir;

/// Sequences of a step, in every layout.
pub(crate) const GLOBAL_BATCH: u64 = 8;

/// Divides by tp 4, pp 4 and interleaved pp 2, as `tiny` does.
pub(crate) fn model() -> ModelShape {
    ModelShape {
        name: "small".into(),
        hidden: 64,
        heads: 8,
        kv_heads: 4,
        head_dim: 8,
        ffn: 96,
        vocabulary: 256,
        ..ModelShape::preset("tiny").unwrap()
    }
}

/// One rank, one micro-batch.
pub(crate) fn single() -> ParallelLayout {
    ParallelLayout {
        micro_batch: GLOBAL_BATCH,
        sequence_length: 32,
        precision: Precision::Fp32,
        gradients: Precision::Fp32,
        ..ParallelLayout::default()
    }
}

pub(crate) fn config(layout: ParallelLayout) -> TrainConfig {
    let usual = TrainConfig::new(model(), layout);
    let optimizer = OptimizerSettings { learning_rate: 3e-3, warm_up: 5, ..usual.optimizer };
    TrainConfig { steps: 5, optimizer, ..usual }
}

/// What a run says of each step.
pub(crate) fn reports(config: &TrainConfig, run: Option<&Path>) -> Result<Vec<StepReport>, TrainError> {
    let reports = Mutex::new(Vec::new());
    CpuTraining::prepare(config)?.run(run, &|step| reports.lock().unwrap().push(step))?;
    Ok(reports.into_inner().unwrap())
}

/// The losses of a run.
pub(crate) fn losses(config: &TrainConfig, run: Option<&Path>) -> Result<Vec<f64>, TrainError> {
    Ok(reports(config, run)?.iter().map(|step| step.loss).collect())
}

/// The layouts that the field composes, each with the same global batch, named.
pub(crate) fn layouts() -> Vec<(String, TrainConfig)> {
    let mut layouts = Vec::new();
    let mut add = |name: String, layout: ParallelLayout| layouts.push((name, config(layout)));
    let spread = |dp, micro_batches| {
        let micro_batch = GLOBAL_BATCH / dp / micro_batches;
        ParallelLayout { dp, micro_batches, micro_batch, ..single() }
    };
    add("accumulation".into(), spread(1, 4));
    for recompute in [Recompute::Selective, Recompute::Full] {
        add(format!("recompute {}", recompute.name()), ParallelLayout { recompute, ..spread(1, 2) });
    }
    for dp in [2, 4] {
        for zero in Zero::ALL {
            add(format!("dp {dp} zero {}", u8::from(zero)), ParallelLayout { zero, ..spread(dp, 2) });
        }
    }
    for prefetch in [0, 2, 5] {
        let layout = ParallelLayout { zero: Zero::Three, prefetch, ..spread(2, 2) };
        add(format!("dp 2 zero 3 prefetch {prefetch}"), layout);
        add(format!("dp 2 pp 2 zero 3 prefetch {prefetch}"), ParallelLayout { pp: 2, ..layout });
    }
    for (dp, unit_layers) in [(2, 3), (4, 2)] {
        for zero in Zero::ALL {
            let layout = ParallelLayout { zero, unit_layers, ..spread(dp, 2) };
            add(format!("dp {dp} zero {} unit-layers {unit_layers}", u8::from(zero)), layout);
        }
    }
    for (recompute, prefetch) in [(Recompute::None, 0), (Recompute::Selective, 2), (Recompute::Full, 1)] {
        let layout = ParallelLayout { zero: Zero::Three, unit_layers: 3, recompute, prefetch, ..spread(2, 2) };
        let name = format!("dp 2 zero 3 unit-layers 3 prefetch {prefetch} recompute {}", recompute.name());
        add(format!("pp 2 {name}"), ParallelLayout { pp: 2, ..layout });
        add(name, layout);
    }
    for (schedule, chunks) in [(Schedule::ZeroBubble, 1), (Schedule::Interleaved, 2)] {
        let layout = ParallelLayout { pp: 2, schedule, chunks, unit_layers: 2, ..spread(2, 2) };
        for zero in [Zero::Off, Zero::Two, Zero::Three] {
            let name = format!("dp 2 pp 2 {} zero {} unit-layers 2", schedule.name(), u8::from(zero));
            add(name, ParallelLayout { zero, ..layout });
        }
    }
    add(
        "cp 2 zero 3 unit-layers 8".into(),
        ParallelLayout { cp: 2, zero: Zero::Three, unit_layers: 8, ..spread(1, 2) },
    );
    for zero in [Zero::One, Zero::Two, Zero::Three] {
        let layout = ParallelLayout { zero, dp_replicate: 2, ..spread(4, 2) };
        add(format!("dp 4 in 2 groups zero {}", u8::from(zero)), layout);
    }
    let shared = ParallelLayout { tp: 2, zero: Zero::Two, dp_replicate: 2, ..spread(4, 2) };
    add("dp 4 in 2 groups tp 2 zero 2".into(), shared);
    for tp in [2, 4] {
        add(format!("tp {tp}"), ParallelLayout { tp, ..spread(1, 2) });
    }
    let shared = |tp, layout| ParallelLayout { tp, sequence_parallel: true, ..layout };
    for tp in [2, 4] {
        add(format!("tp {tp} sequence-parallel"), shared(tp, spread(1, 2)));
    }
    for recompute in [Recompute::Selective, Recompute::Full] {
        let layout = ParallelLayout { recompute, ..shared(2, spread(1, 2)) };
        add(format!("tp 2 sequence-parallel recompute {}", recompute.name()), layout);
    }
    for zero in [Zero::Off, Zero::Two, Zero::Three] {
        let layout = ParallelLayout { zero, ..shared(2, spread(2, 2)) };
        add(format!("dp 2 tp 2 sequence-parallel zero {}", u8::from(zero)), layout);
    }
    add("tp 2 pp 2 sequence-parallel".into(), ParallelLayout { pp: 2, ..shared(2, spread(1, 4)) });
    for pp in [2, 4] {
        for schedule in Schedule::ONE_WAY {
            let chunks = if schedule == Schedule::Interleaved { 2 } else { 1 };
            let layout = ParallelLayout { pp, schedule, chunks, ..spread(1, 4) };
            add(format!("pp {pp} {}", schedule.name()), layout);
        }
    }
    add("pp 3 uneven".into(), ParallelLayout { pp: 3, ..spread(1, 4) });
    let uneven = ParallelLayout { pp: 2, schedule: Schedule::Interleaved, chunks: 3, ..spread(1, 4) };
    add("pp 2 interleaved uneven".into(), uneven);
    add("pp 3 zero-bubble uneven".into(), ParallelLayout { pp: 3, schedule: Schedule::ZeroBubble, ..spread(1, 4) });
    let filled = ParallelLayout { pp: 2, schedule: Schedule::ZeroBubble, ..spread(1, 4) };
    for recompute in [Recompute::Selective, Recompute::Full] {
        add(format!("pp 2 zero-bubble recompute {}", recompute.name()), ParallelLayout { recompute, ..filled });
    }
    add("tp 2 pp 2 zero-bubble sequence-parallel".into(), shared(2, filled));
    add("tp 2 pp 2 zero-bubble".into(), ParallelLayout { tp: 2, ..filled });
    for zero in [Zero::Off, Zero::One, Zero::Two, Zero::Three] {
        let layout = ParallelLayout { pp: 2, schedule: Schedule::ZeroBubble, zero, ..spread(2, 4) };
        add(format!("dp 2 pp 2 zero-bubble zero {}", u8::from(zero)), layout);
    }
    let parts = |cp, layout| ParallelLayout { cp, ..layout };
    for cp in [2, 4] {
        add(format!("cp {cp}"), parts(cp, spread(1, 2)));
    }
    for recompute in [Recompute::Selective, Recompute::Full] {
        let layout = ParallelLayout { recompute, ..parts(2, spread(1, 2)) };
        add(format!("cp 2 recompute {}", recompute.name()), layout);
    }
    for zero in Zero::ALL {
        add(format!("dp 2 cp 2 zero {}", u8::from(zero)), ParallelLayout { zero, ..parts(2, spread(2, 2)) });
    }
    add("tp 2 cp 2".into(), ParallelLayout { tp: 2, ..parts(2, spread(1, 2)) });
    add("tp 2 cp 2 sequence-parallel".into(), shared(2, parts(2, spread(1, 2))));
    add("cp 2 pp 2".into(), ParallelLayout { pp: 2, ..parts(2, spread(1, 4)) });
    add("cp 2 pp 2 zero-bubble".into(), parts(2, filled));
    let gathered = |cp, layout| ParallelLayout { context: ContextExchange::AllGather, ..parts(cp, layout) };
    add("cp 4 all-gather".into(), gathered(4, spread(1, 2)));
    let layout = ParallelLayout { recompute: Recompute::Selective, zero: Zero::Two, ..gathered(2, spread(2, 2)) };
    add("dp 2 cp 2 all-gather zero 2 recompute selective".into(), layout);
    let layout = ParallelLayout { dp_replicate: 2, zero: Zero::Three, ..parts(2, spread(4, 2)) };
    add("dp 4 in 2 groups cp 2 zero 3".into(), layout);
    let zero = Zero::One;
    add("dp 2 tp 2".into(), ParallelLayout { tp: 2, ..spread(2, 2) });
    add("dp 2 pp 2".into(), ParallelLayout { pp: 2, ..spread(2, 2) });
    add("tp 2 pp 2".into(), ParallelLayout { tp: 2, pp: 2, ..spread(1, 4) });
    add("dp 2 tp 2 pp 2 zero 1".into(), ParallelLayout { tp: 2, pp: 2, zero, ..spread(2, 2) });
    let full = ParallelLayout { pp: 2, zero: Zero::Three, recompute: Recompute::Full, ..spread(2, 2) };
    add("dp 2 pp 2 zero 3 recompute full".into(), full);
    for dp in [2, 4] {
        let naive = TrainConfig { reduction: GradientReduction::Naive, ..config(spread(dp, 2)) };
        layouts.push((format!("dp {dp} naive"), naive));
    }
    let zero = TrainConfig { reduction: GradientReduction::Naive, ..config(ParallelLayout { zero, ..spread(2, 2) }) };
    layouts.push(("dp 2 zero 1 naive".into(), zero));
    layouts
}

/// The same run in bf16.
pub(crate) fn in_bf16(config: &TrainConfig, gradients: Precision) -> TrainConfig {
    let layout = ParallelLayout { precision: Precision::Bf16, gradients, ..config.layout };
    TrainConfig { numbers: (&layout).into(), layout, ..config.clone() }
}

/// What every rank of a run recorded.
pub(crate) fn recorded(config: &TrainConfig) -> Vec<RankData> {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("recorded").create(&path).unwrap();
    losses(config, Some(&path)).unwrap();
    read(&path)
}

/// What every rank of a run that is whole recorded.
pub(crate) fn read(path: &Path) -> Vec<RankData> {
    let read = |rank: &RankDirectory| {
        let (data, loss) = rank.read(Window::ALL).unwrap();
        assert_eq!(loss, Loss::default());
        data
    };
    Run::open(path).unwrap().ranks.iter().map(read).collect()
}
