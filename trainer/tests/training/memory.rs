use std::collections::{BTreeMap, HashMap};

use stepscope_plan::{Attention, MemoryPlan, ParallelLayout, Precision, Recompute, Zero};
use stepscope_traces::{MemoryCategory, MemoryOperation, RankData};
use stepscope_trainer::TrainConfig;

use crate::support::{config, in_bf16, layouts, recorded, single};

/// The most that each rank had of each category at a time.
fn measured(config: &TrainConfig) -> Vec<BTreeMap<MemoryCategory, u64>> {
    peaks(recorded(&TrainConfig { steps: 2, ..config.clone() }))
}

pub(crate) fn peaks(ranks: Vec<RankData>) -> Vec<BTreeMap<MemoryCategory, u64>> {
    let peaks = ranks.into_iter().map(|data| {
        let mut events: Vec<_> = data.memory.rows().collect();
        events.sort_by_key(|event| event.time_ns);
        let (mut blocks, mut now, mut peaks) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        for event in events {
            match event.op {
                MemoryOperation::Alloc => {
                    let (category, bytes) = (event.category.unwrap(), event.bytes.unwrap());
                    let before = if bytes > 0 { blocks.insert(event.address, (category, bytes)) } else { None };
                    assert_eq!(before, None, "a block was handed out twice");
                    let now: &mut u64 = now.entry(category).or_default();
                    *now += bytes;
                    let peak: &mut u64 = peaks.entry(category).or_default();
                    *peak = (*peak).max(*now);
                }
                MemoryOperation::Free => {
                    if let Some((category, bytes)) = blocks.remove(&event.address) {
                        *now.entry(category).or_default() -= bytes;
                    }
                }
                _ => {}
            }
        }
        peaks
    });
    peaks.collect()
}

/// Looks whether all ranks of a run had the memory that was planned.
pub(crate) fn assert_as_planned(name: &str, config: &TrainConfig, ranks: Vec<RankData>) {
    for (rank, peaks) in peaks(ranks).into_iter().enumerate() {
        let stage = config.layout.coordinates(rank as u64).stage;
        let moments = MemoryPlan::moments_of_stage(&config.model, &config.layout, Attention::Flash, stage).unwrap();
        let plan = moments[0];
        let peak = |category| peaks.get(&category).copied().unwrap_or(0);
        assert_eq!(peak(MemoryCategory::Parameters), plan.parameters, "parameters, {name}, rank {rank}");
        assert_eq!(peak(MemoryCategory::Gradients), plan.gradients, "gradients, {name}, rank {rank}");
        assert_eq!(peak(MemoryCategory::OptimizerState), plan.optimizer_state, "optimizer, {name}, rank {rank}");
        let (activations, planned) = (
            peak(MemoryCategory::Activations) as f64,
            moments.map(|plan| plan.activations).into_iter().max().unwrap() as f64,
        );
        let error = (activations - planned).abs() / planned;
        assert!(error < 0.05, "activations, {name}, rank {rank}: {activations}, planned {planned}");
    }
}

#[test]
fn every_layout_has_the_memory_that_was_planned() {
    for (name, config) in layouts() {
        let config = TrainConfig { steps: 2, ..config };
        assert_as_planned(&name, &config, recorded(&config));
        let config = in_bf16(&config, Precision::Bf16);
        assert_as_planned(&format!("{name}, bf16"), &config, recorded(&config));
    }
}

/// One stage of equal layers: those that come in beside the one that computes, and two gradients.
#[test]
fn so_many_units_are_gathered_ahead() {
    for prefetch in [0, 1, 2, 4] {
        let base = ParallelLayout { dp: 2, micro_batch: 2, micro_batches: 2, zero: Zero::Three, ..single() };
        let config = config(ParallelLayout { prefetch, ..base });
        let planned = MemoryPlan::fullest(&config.model, &config.layout, Attention::Flash).unwrap().communication;
        for (rank, peaks) in measured(&config).into_iter().enumerate() {
            assert_eq!(peaks[&MemoryCategory::Communication], planned, "prefetch {prefetch}, rank {rank}");
        }
    }
}

/// Gradients exactly. Parameters are planned as if the largest came in beside the largest gradients, which few large units do not;
/// more is never taken.
#[test]
fn units_of_several_layers_take_the_buffers_that_were_planned() {
    let base = ParallelLayout { dp: 2, micro_batch: 2, micro_batches: 2, ..single() };
    for (unit_layers, prefetch, vocabulary) in [(2, 1, 256), (2, 2, 256), (4, 1, 256), (3, 1, 256), (8, 1, 1024)] {
        for zero in [Zero::Two, Zero::Three] {
            let layout = ParallelLayout { zero, unit_layers, prefetch, ..base };
            let mut config = config(layout);
            config.model.vocabulary = vocabulary;
            let planned = MemoryPlan::fullest(&config.model, &config.layout, Attention::Flash).unwrap().communication;
            let least = if zero == Zero::Two || unit_layers == 2 { planned } else { 0 };
            for (rank, peaks) in measured(&config).into_iter().enumerate() {
                let peak = peaks[&MemoryCategory::Communication];
                assert!((least..=planned).contains(&peak), "{layout:?}, rank {rank}: {peak}, planned {planned}");
            }
        }
    }
}

#[test]
fn strategies_save_what_theory_says() {
    let base = ParallelLayout { dp: 2, micro_batch: 2, micro_batches: 2, ..single() };
    let peaks = |layout| measured(&config(layout))[0].clone();
    let of = |layout, category| peaks(layout)[&category] as f64;
    use MemoryCategory::{Activations, Gradients, OptimizerState, Parameters};
    let zero = |zero| ParallelLayout { zero, ..base };
    for (category, first) in [(OptimizerState, Zero::One), (Gradients, Zero::Two), (Parameters, Zero::Three)] {
        let whole = of(zero(Zero::Off), category);
        for stage in Zero::ALL {
            let share = if stage >= first { 0.5 } else { 1.0 };
            assert_eq!(of(zero(stage), category), share * whole, "{category} with {stage:?}");
        }
    }
    let recompute = |recompute| of(ParallelLayout { recompute, ..base }, Activations);
    let (none, selective, full) =
        (recompute(Recompute::None), recompute(Recompute::Selective), recompute(Recompute::Full));
    assert!(full < 0.4 * none && selective < 0.85 * none, "{none} {selective} {full}");
    let split = ParallelLayout { tp: 2, ..base };
    assert!(of(split, Parameters) < 0.51 * of(base, Parameters));
    let staged = ParallelLayout { pp: 2, ..base };
    assert!(of(staged, Parameters) < 0.51 * of(base, Parameters));
}
