//! How fast the trainer is on a GPU, and what recording costs it: `cargo bench --bench gpu`.
//!
//! One training takes turns with itself, block by block of steps: recorded, by CUPTI and NVML too, and not, while nothing
//! is attached. A figure is the median of the ratios of neighbors.

mod figures;

use std::{error::Error, path::Path};

use stepscope_plan::{Convention, Device, ModelShape, ParallelLayout, Precision};
use stepscope_traces::{Run, RunInfo};
use stepscope_trainer::{CudaRank, CudaTraining, TrainConfig, look_for_gpu};

use crate::figures::{Estimate, Table};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Pairs of blocks that are compared.
const PAIRS: usize = 6;
/// Steps of each block that are left out: attaching ends in the first one.
const WARM_UP: usize = 2;

/// A model and how much of it is trained at once.
struct Case {
    name: &'static str,
    model: ModelShape,
    layout: ParallelLayout,
    /// Steps of a block.
    steps: usize,
    /// What a recorded step may cost.
    most: f64,
}

fn main() -> Outcome<()> {
    if let Err(why) = look_for_gpu(1) {
        println!("SKIPPED, nothing was measured: {why}");
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let mut table = Table::default();
    let mut notes = Vec::new();
    for case in [large()?, small()?] {
        let Measured { ratio, after, step, spans } = measure(&case, &scratch.path().join(case.name))?;
        let seconds = step.value;
        table.at_most(&format!("{}: recorded over not", case.name), "x", case.most, ratio);
        table.at_most(&format!("{}: detached over never attached", case.name), "x", 1.005, after);
        let tokens = case.layout.tokens_per_step() as f64 / seconds;
        let flops = case.model.flops_per_token(Convention::Model, case.layout.sequence_length);
        let mfu = flops * tokens / Device::named("h200")?.peaks.of(Precision::Bf16);
        notes.push(format!(
            "{}: {:.2} ms a step, {tokens:.0} tokens/s, MFU {:.1}% of an H200, {spans} spans a step",
            case.name,
            1e3 * seconds,
            100.0 * mfu
        ));
    }
    println!("{table}\n\n{}", notes.join("\n"));
    table.end()
}

/// The bar for one GPU: 1.1 B parameters.
fn large() -> Outcome<Case> {
    let model = ModelShape {
        name: "1.1b".into(),
        layers: 16,
        hidden: 2048,
        heads: 16,
        kv_heads: 16,
        head_dim: 128,
        ffn: 7168,
        vocabulary: 32000,
        ..ModelShape::preset("tiny")?
    };
    let layout = ParallelLayout { micro_batch: 4, sequence_length: 2048, ..ParallelLayout::default() };
    Ok(Case { name: "1.1b", model, layout, steps: 12, most: 1.005 })
}

/// So small that launching takes longer than computing.
fn small() -> Outcome<Case> {
    let layout = ParallelLayout { micro_batch: 2, sequence_length: 256, ..ParallelLayout::default() };
    let model = ModelShape {
        name: "launch-bound".into(),
        layers: 8,
        hidden: 512,
        heads: 8,
        kv_heads: 8,
        head_dim: 64,
        ffn: 1536,
        vocabulary: 32000,
        ..ModelShape::preset("tiny")?
    };
    Ok(Case { name: "launch-bound", model, layout, steps: 200, most: 1.05 })
}

struct Measured {
    /// Recorded steps over others.
    ratio: Estimate,
    /// Steps after detaching over steps before anything was attached.
    after: Estimate,
    /// Seconds of a step that is not recorded.
    step: Estimate,
    /// Of a recorded step.
    spans: u64,
}

fn measure(case: &Case, run: &Path) -> Outcome<Measured> {
    let config = TrainConfig { steps: u64::MAX, ..TrainConfig::new(case.model.clone(), case.layout) };
    RunInfo::of_this_process("cost").create(run)?;
    let mut plain = CudaTraining::prepare(&config, None)?.start(None)?;
    let blocks = |rank: &mut CudaRank| (0..PAIRS).map(|_| block(rank, case.steps)).collect::<Outcome<Vec<f64>>>();
    // A device is faster while it is cold.
    blocks(&mut plain)?;
    let never = blocks(&mut plain)?;
    let mut rank = CudaTraining::prepare(&config, None)?.start(Some(run))?;
    let mut ratios = Vec::new();
    for pair in 0..2 * PAIRS {
        let (mut on, mut off) = (0.0, 0.0);
        // Each goes first as often as the other.
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                rank.watch()?;
                on = block(&mut rank, case.steps)?;
            } else {
                rank.unwatch()?;
                off = block(&mut rank, case.steps)?;
            }
        }
        ratios.push(on / off);
    }
    rank.finish()?;
    let detached = blocks(&mut plain)?;
    plain.finish()?;
    let median = |values: Vec<f64>| Estimate::of(values, |sorted| sorted[sorted.len() / 2]);
    let (before, after) = (median(never), median(detached));
    let after =
        Estimate { value: after.value / before.value, low: after.low / before.value, high: after.high / before.value };
    let steps = (2 * PAIRS * case.steps) as u64;
    let spans = Run::open(run)?.ranks[0].survey()?.spans.rows / steps;
    Ok(Measured { ratio: median(ratios), after, step: before, spans })
}

/// Median seconds of a block's steps.
fn block(rank: &mut CudaRank, steps: usize) -> Outcome<f64> {
    let took = (0..steps).map(|_| Ok(rank.step()?.duration.as_secs_f64())).collect::<Outcome<Vec<f64>>>()?;
    let mut took = took[WARM_UP..].to_vec();
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}
