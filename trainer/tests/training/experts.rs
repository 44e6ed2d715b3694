use std::collections::BTreeMap;

use stepscope_plan::{
    Attention, Axis, ContextExchange, Experts, MemoryPlan, ModelShape, ParallelLayout, Precision, Recompute, Schedule,
    Zero,
};
use stepscope_traces::{MemoryCategory, RankData, layer_and_expert};
use stepscope_trainer::{GradientReduction, TrainConfig};
use tempfile::TempDir;

use crate::{
    checkpoints::saving,
    communication,
    equivalence::{assert_close, assert_same, losses_and_norms},
    memory::peaks,
    support::{GLOBAL_BATCH, config, in_bf16, losses, model, recorded, single},
};

const TOP_K: u64 = 2;

/// A token goes through two of four experts in each of four layers.
fn with_experts(layout: ParallelLayout) -> TrainConfig {
    let experts = Some(Experts { count: 4, top_k: TOP_K, ..Experts::default() });
    TrainConfig { model: ModelShape { layers: 4, ffn: 48, experts, ..model() }, ..config(layout) }
}

/// The same beside a network that every token goes through, but for the first layer, which has a wide one and no experts.
fn with_shared_experts(layout: ParallelLayout) -> TrainConfig {
    let mut config = with_experts(layout);
    config.model.experts =
        config.model.experts.map(|experts| Experts { shared: 2, dense_layers: 1, dense_ffn: 128, ..experts });
    config
}

fn spread(dp: u64, ep: u64, micro_batches: u64) -> ParallelLayout {
    ParallelLayout { dp, ep, micro_batches, micro_batch: GLOBAL_BATCH / dp / micro_batches, ..single() }
}

/// Layouts with the same global batch, named.
pub(crate) fn layouts() -> Vec<(String, TrainConfig)> {
    let mut layouts = Vec::new();
    let mut add = |name: String, layout: ParallelLayout| layouts.push((name, with_experts(layout)));
    add("accumulation".into(), spread(1, 1, 4));
    for recompute in [Recompute::Selective, Recompute::Full] {
        add(format!("recompute {}", recompute.name()), ParallelLayout { recompute, ..spread(1, 1, 2) });
        add(format!("dp 2 ep 2 recompute {}", recompute.name()), ParallelLayout { recompute, ..spread(2, 2, 2) });
    }
    for (dp, ep) in [(2, 1), (2, 2), (4, 2), (4, 4)] {
        for zero in Zero::ALL {
            add(format!("dp {dp} ep {ep} zero {}", u8::from(zero)), ParallelLayout { zero, ..spread(dp, ep, 2) });
        }
    }
    for zero in Zero::ALL {
        let layout = ParallelLayout { zero, unit_layers: 3, ..spread(4, 2, 2) };
        add(format!("dp 4 ep 2 zero {} unit-layers 3", u8::from(zero)), layout);
    }
    add("tp 2".into(), ParallelLayout { tp: 2, ..spread(1, 1, 2) });
    add("tp 2 dp 2 ep 2".into(), ParallelLayout { tp: 2, ..spread(2, 2, 2) });
    let shared = ParallelLayout { tp: 2, sequence_parallel: true, ..spread(2, 2, 2) };
    add("tp 2 dp 2 ep 2 sequence-parallel".into(), shared);
    add("pp 2 dp 2 ep 2".into(), ParallelLayout { pp: 2, ..spread(2, 2, 2) });
    let interleaved = ParallelLayout { pp: 2, chunks: 2, schedule: Schedule::Interleaved, ..spread(2, 2, 2) };
    add("pp 2 interleaved dp 2 ep 2".into(), interleaved);
    let put_off = |layout| ParallelLayout { pp: 2, schedule: Schedule::ZeroBubble, ..layout };
    add("pp 2 zero-bubble".into(), put_off(spread(1, 1, 4)));
    for zero in Zero::ALL {
        let layout = ParallelLayout { zero, unit_layers: 2, ..put_off(spread(4, 2, 2)) };
        add(format!("pp 2 zero-bubble dp 4 ep 2 zero {} unit-layers 2", u8::from(zero)), layout);
    }
    add("pp 2 zero-bubble tp 2 dp 2 ep 2".into(), ParallelLayout { tp: 2, ..put_off(spread(2, 2, 4)) });
    add(
        "pp 2 zero-bubble recompute full".into(),
        ParallelLayout { recompute: Recompute::Full, ..put_off(spread(1, 1, 4)) },
    );
    let full = ParallelLayout { pp: 2, zero: Zero::Three, recompute: Recompute::Full, ..spread(4, 2, 2) };
    add("pp 2 dp 4 ep 2 zero 3 recompute full".into(), full);
    let parts = |cp, layout| ParallelLayout { cp, ..layout };
    add("cp 2".into(), parts(2, spread(1, 1, 2)));
    add(
        "cp 2 ep 2 zero 3 recompute full".into(),
        ParallelLayout { zero: Zero::Three, recompute: Recompute::Full, ..parts(2, spread(1, 2, 2)) },
    );
    add(
        "dp 2 cp 2 ep 2 all-gather zero 2".into(),
        ParallelLayout { zero: Zero::Two, context: ContextExchange::AllGather, ..parts(2, spread(2, 2, 2)) },
    );
    add("dp 2 cp 2 ep 4 zero 1".into(), ParallelLayout { zero: Zero::One, ..parts(2, spread(2, 4, 2)) });
    add(
        "tp 2 cp 2 ep 2 sequence-parallel".into(),
        ParallelLayout { tp: 2, sequence_parallel: true, ..parts(2, spread(1, 2, 2)) },
    );
    add("pp 2 zero-bubble cp 2 ep 2".into(), put_off(parts(2, spread(1, 2, 4))));
    let groups = |dp_replicate, zero, layout| ParallelLayout { dp_replicate, zero, ..layout };
    for (ep, zero) in [(1, Zero::Two), (2, Zero::Three)] {
        let name = format!("dp 4 in 2 groups ep {ep} zero {}", u8::from(zero));
        add(name, groups(2, zero, spread(4, ep, 2)));
    }
    add("dp 4 in 2 groups cp 2 ep 2 zero 3".into(), groups(2, Zero::Three, parts(2, spread(4, 2, 2))));

    let naive = TrainConfig { reduction: GradientReduction::Naive, ..with_experts(spread(4, 2, 2)) };
    layouts.push(("dp 4 ep 2 naive".into(), naive.clone()));
    let layout = groups(2, Zero::One, naive.layout);
    layouts.push(("dp 4 in 2 groups ep 2 zero 1 naive".into(), TrainConfig { layout, ..naive }));
    layouts
}

/// Those of models with shared experts and a dense first layer.
pub(crate) fn layouts_with_shared() -> Vec<(String, TrainConfig)> {
    let full = ParallelLayout { recompute: Recompute::Full, zero: Zero::Three, ..spread(4, 2, 2) };
    let put_off = ParallelLayout { pp: 2, schedule: Schedule::ZeroBubble, ..spread(1, 2, 4) };
    let selective = ParallelLayout { recompute: Recompute::Selective, zero: Zero::Two, ..spread(2, 2, 2) };
    let layouts = [
        ("accumulation", spread(1, 1, 4)),
        ("tp 2 dp 2 ep 2 sequence-parallel", ParallelLayout { tp: 2, sequence_parallel: true, ..spread(2, 2, 2) }),
        ("pp 2 dp 4 ep 2 zero 3 recompute full", ParallelLayout { pp: 2, ..full }),
        ("pp 2 zero-bubble cp 2 ep 2", ParallelLayout { cp: 2, ..put_off }),
        ("dp 2 ep 2 zero 2 unit-layers 2 recompute selective", ParallelLayout { unit_layers: 2, ..selective }),
    ];
    layouts.map(|(name, layout)| (format!("shared experts, {name}"), with_shared_experts(layout))).into()
}

/// Of either kind.
fn all_layouts() -> Vec<(String, TrainConfig)> {
    [layouts(), layouts_with_shared()].concat()
}

#[test]
fn experts_train_in_every_layout_as_on_a_single_rank() {
    for (alone, layouts) in
        [(with_experts(single()), layouts()), (with_shared_experts(single()), layouts_with_shared())]
    {
        let expected = losses_and_norms(&alone);
        assert!(expected.0[4] < expected.0[0], "{expected:?}");
        for (name, config) in layouts {
            assert_same(&name, &config, &expected);
        }
    }
}

#[test]
fn experts_train_in_bf16_too() {
    let parts = ParallelLayout { cp: 2, dp_replicate: 2, zero: Zero::Two, ..spread(4, 2, 1) };
    for of in [with_experts, with_shared_experts] {
        let expected = losses(&of(single()), None).unwrap();
        for layout in [single(), spread(4, 2, 1), ParallelLayout { tp: 2, ..spread(2, 2, 2) }, parts] {
            let found = losses(&in_bf16(&of(layout), Precision::Fp32), None).unwrap();
            assert_close(&format!("{layout:?}"), &found, &expected, 2e-2);
        }
    }
}

/// Each of four layers adds its balance loss, which is one if experts are chosen equally often, and never less for long.
#[test]
fn the_balance_loss_is_a_part_of_the_loss_and_not_of_evaluation() {
    let with = |balance_loss, evaluate_every| {
        let config = TrainConfig { balance_loss, evaluate_every, steps: 1, ..with_experts(single()) };
        crate::support::reports(&config, None).unwrap()[0]
    };
    let (none, some) = (with(0.0, None), with(0.1, None));
    let added = (some.loss - none.loss) / (4.0 * 0.1);
    assert!((0.95..1.5).contains(&added), "{added}");
    // One step changes the weights by so little that cross-entropy stays where it is, within a hundredth.
    let (without, with) = (with(0.0, Some(1)).evaluation_loss.unwrap(), with(0.1, Some(1)).evaluation_loss.unwrap());
    assert!((without - with).abs() < 0.01 * without, "{without} {with}");
}

/// How many rows a rank's experts get depends on the data, so activations are compared on an average over ranks, which may be so
/// many times what was planned: ranks are fullest in different micro-batches. All the rest is exact on each.
pub(crate) fn assert_memory_as_planned(name: &str, config: &TrainConfig, ranks: Vec<RankData>, most: f64) {
    let mut activations = BTreeMap::<u64, Vec<f64>>::new();
    for (rank, peaks) in peaks(ranks).into_iter().enumerate() {
        let stage = config.layout.coordinates(rank as u64).stage;
        let moments = MemoryPlan::moments_of_stage(&config.model, &config.layout, Attention::Flash, stage).unwrap();
        let plan = moments[0];
        let peak = |category| peaks.get(&category).copied().unwrap_or(0);
        assert_eq!(peak(MemoryCategory::Parameters), plan.parameters, "parameters, {name}, rank {rank}");
        assert_eq!(peak(MemoryCategory::Gradients), plan.gradients, "gradients, {name}, rank {rank}");
        assert_eq!(peak(MemoryCategory::OptimizerState), plan.optimizer_state, "optimizer, {name}, rank {rank}");
        let planned = moments.map(|plan| plan.activations).into_iter().max().unwrap() as f64;
        activations.entry(stage).or_default().push(peak(MemoryCategory::Activations) as f64 / planned);
    }
    for (stage, shares) in activations {
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        // What is computed again is one layer at a time, so the one whose experts were chosen most unevenly is the peak.
        let is_one_layer = config.layout.recompute == Recompute::Full && config.layout.ep > 1;
        let most = if is_one_layer { 1.25 } else { most };
        assert!((0.95..most).contains(&mean), "activations, {name}, stage {stage}: {shares:?} of what was planned");
    }
}

#[test]
fn experts_take_the_memory_that_was_planned() {
    for (name, config) in all_layouts() {
        let config = TrainConfig { steps: 2, ..config };
        assert_memory_as_planned(&name, &config, recorded(&config), 1.05);
    }
}

/// How much one rank sends to experts depends on the data; together, ranks send each choice there and back, in both passes.
pub(crate) fn assert_traffic_as_planned(name: &str, config: &TrainConfig, ranks: &[RankData]) {
    let exchanged = (Axis::Expert, "all_to_all");
    let mut sums = BTreeMap::<u64, (f64, f64)>::new();
    for (rank, data) in ranks.iter().enumerate() {
        let stage = config.layout.coordinates(rank as u64).stage;
        let (mut measured, mut planned) =
            (communication::measured(config, data), communication::planned(config, stage));
        let of_experts = [&mut measured, &mut planned].map(|traffic| traffic.remove(&exchanged).unwrap_or(0.0));
        assert_eq!(measured, planned, "{name}, rank {rank}");
        let sum = sums.entry(stage).or_default();
        *sum = (sum.0 + of_experts[0], sum.1 + of_experts[1]);
    }
    for (stage, (measured, planned)) in sums {
        assert_eq!(measured, planned, "{name}, stage {stage}");
        assert_eq!(measured > 0.0, config.layout.ep > 1, "{name}");
    }
}

#[test]
fn ranks_send_experts_what_was_planned() {
    for (name, config) in all_layouts() {
        let config = TrainConfig { steps: 2, ..config };
        assert_traffic_as_planned(&name, &config, &recorded(&config));
    }
}

/// Tokens by layer and expert that a rank recorded, of each step.
fn expert_tokens(data: &RankData) -> BTreeMap<(u64, u64), Vec<f64>> {
    let mut tokens = BTreeMap::<_, Vec<f64>>::new();
    for sample in data.counters.rows() {
        let name = data.names.iter().find(|(id, _)| id.0 == u32::from(sample.counter.0));
        if let Some(place) = name.and_then(|(_, name)| layer_and_expert(name)) {
            tokens.entry(place).or_default().push(sample.value);
        }
    }
    tokens
}

#[test]
fn tokens_of_experts_are_recorded_where_the_experts_are() {
    let parts = ParallelLayout { cp: 2, ..spread(2, 4, 2) };
    for layout in [spread(4, 2, 2), ParallelLayout { pp: 2, tp: 2, ..spread(2, 2, 2) }, parts] {
        let config = TrainConfig { steps: 2, evaluate_every: Some(1), ..with_experts(layout) };
        let mut of_layers = BTreeMap::<u64, f64>::new();
        for (rank, data) in recorded(&config).iter().enumerate() {
            let at = layout.coordinates(rank as u64);
            let tokens = expert_tokens(data);
            let here = layout.experts_here(config.model.experts.unwrap(), at);
            assert!(tokens.keys().all(|(_, expert)| here.contains(expert)), "rank {rank}: {tokens:?}");
            assert_eq!(tokens.is_empty(), at.tp > 0, "tensor ranks share experts");
            for ((layer, _), tokens) in tokens {
                assert_eq!(tokens.len(), 2, "one for each step");
                *of_layers.entry(layer).or_default() += tokens[1];
            }
        }
        let all = (layout.tokens_per_step() * TOP_K) as f64;
        assert_eq!(of_layers, (0..4).map(|layer| (layer, all)).collect());
    }
}

#[test]
fn a_run_with_experts_goes_on_with_others_sharing_them() {
    let layout = ParallelLayout { zero: Zero::One, ..spread(4, 2, 1) };
    let config = with_experts(layout);
    let whole = losses(&config, None).unwrap();
    let directory = TempDir::new().unwrap();
    losses(&TrainConfig { steps: 3, ..saving(&config, directory.path(), 3) }, None).unwrap();
    let parts = ParallelLayout { cp: 2, zero: Zero::Two, ..spread(2, 4, 1) };
    let groups = ParallelLayout { dp_replicate: 2, zero: Zero::Two, ..spread(4, 2, 1) };
    let sharded = ParallelLayout { zero: Zero::Three, ..spread(2, 2, 1) };
    for other in [layout, spread(4, 4, 1), spread(2, 1, 2), sharded, parts, groups] {
        let resumed = TrainConfig { resume: Some(directory.path().to_owned()), layout: other, ..config.clone() };
        assert_close(&format!("{other:?}"), &losses(&resumed, None).unwrap(), &whole[3..], 1e-4);
    }
}

#[test]
fn what_experts_cannot_do_is_said() {
    let error = |config: TrainConfig| losses(&config, None).unwrap_err().to_string();
    let noise = TrainConfig { noise_scale: true, ..with_experts(spread(2, 2, 2)) };
    assert!(error(noise).contains("--noise-scale needs experts that are not shared"));
    let deepseek = TrainConfig { model: ModelShape::preset("deepseek-v3").unwrap(), ..with_experts(single()) };
    assert!(error(deepseek).contains("deepseek-v3 is not one: its attention is latent"));
    assert!(error(TrainConfig { balance_loss: 2.0, ..with_experts(single()) }).contains("--balance-loss must be"));
}
