//! Where the search puts configurations that people published.

use crate::{
    Assumptions, Configuration, ModelShape, ParallelLayout, Precision, Recompute, Request, Schedule, Wanted, Zero,
    search::tests::request,
};

/// The best configuration of each grid, best first.
fn grids(request: &Request) -> Vec<Configuration> {
    let mut best: Vec<Configuration> = Vec::new();
    let grid = |configuration: &Configuration| {
        let ParallelLayout { dp, tp, cp, pp, .. } = configuration.layout;
        (dp, tp, cp, pp)
    };
    for configuration in request.search().unwrap().configurations {
        if best.iter().all(|other| grid(other) != grid(&configuration)) {
            best.push(configuration);
        }
    }
    best
}

/// Korthikanti et al. (2022), table 3: t 8, p 8 on 64 A100, and t 8, p 35 in three chunks on 280; sequences as many.
#[test]
fn megatrons_configurations_are_near_the_top() {
    let gpt3 = ModelShape { vocabulary: 51_200, ..ModelShape::preset("gpt3-175b").unwrap() };
    let large = ModelShape {
        layers: 105,
        hidden: 20_480,
        heads: 128,
        kv_heads: 128,
        head_dim: 160,
        ffn: 81_920,
        ..gpt3.clone()
    };
    assert_eq!(large.parameters() / 1_000_000_000, 529);
    let trained = |model: ModelShape, gpus: u64| {
        let base = request("gpt3-175b", "a100", gpus);
        let assumptions = Assumptions { attention: crate::Attention::Naive, ..base.assumptions };
        let (sequence_length, global_batch_tokens) = (2048, gpus * 2048);
        grids(&Request { model, assumptions, sequence_length, global_batch_tokens, gradients: Precision::Fp32, ..base })
    };
    let best = trained(gpt3, 64);
    let published = best.iter().position(|configuration| (configuration.layout.tp, configuration.layout.pp) == (8, 8));
    let published = &best[published.filter(|place| *place < 3).unwrap()];
    assert!(published.tokens_per_second > 0.97 * best[0].tokens_per_second, "{published:?}");
    let ParallelLayout { tp, sequence_parallel, pp, chunks, recompute, .. } = trained(large, 280)[0].layout;
    assert_eq!((tp, sequence_parallel, pp, chunks, recompute), (8, true, 35, 3, Recompute::Selective));
}

/// Grattafiori et al. (2024), table 4: t 8, p 16 on 16,384 H100, with fewer layers on the first and on the last stage.
#[test]
fn llama_405b_has_eight_tensor_ranks_and_a_pipeline_of_16() {
    let request = Request {
        sequence_length: 8192,
        global_batch_tokens: 16_384 * 1024,
        gradients: Precision::Fp32,
        ..request("llama-405b", "h100", 16_384)
    };
    let best: Vec<(u64, u64)> = grids(&request).iter().map(|found| (found.layout.tp, found.layout.pp)).collect();
    assert!(best.iter().position(|grid| *grid == (8, 16)).is_some_and(|place| place < 3), "{best:?}");
    assert!(best[..4].iter().all(|(tp, _)| *tp == 8), "{best:?}");
}

/// The same table: t 8, c 16, p 16 for sequences of 131,072 tokens.
#[test]
fn long_sequences_of_llama_405b_are_shared_by_16_ranks() {
    let request = Request {
        sequence_length: 131_072,
        global_batch_tokens: 16 << 20,
        gradients: Precision::Fp32,
        ..request("llama-405b", "h100", 16_384)
    };
    let grids: Vec<_> =
        grids(&request).iter().map(|found| (found.layout.tp, found.layout.cp, found.layout.pp)).collect();
    assert!(
        grids.iter().position(|grid| *grid == (8, 16, 16)).is_some_and(|place| place < 3),
        "{:?}",
        &grids[..grids.len().min(12)]
    );
}

/// DeepSeek-AI (2024): p 16, e 64, ZeRO-1 and DualPipe on 2,048 H800, with 15,360 sequences of 4,096 tokens.
#[test]
fn deepseek_v3_has_a_pipeline_of_16_and_experts_as_far_as_its_network_allows() {
    let request = Request {
        global_batch_tokens: 15_360 * 4096,
        gradients: Precision::Fp32,
        wanted: Wanted { schedule: Some(Schedule::DualPipe), ..Wanted::default() },
        ..request("deepseek-v3", "h800", 2048)
    };
    let published = |request: &Request| {
        let found = request.search().unwrap().configurations;
        let is_it = |layout: &ParallelLayout| (layout.tp, layout.pp, layout.ep, layout.zero) == (1, 16, 64, Zero::One);
        let published = found.iter().find(|found| is_it(&found.layout)).unwrap();
        published.tokens_per_second / found[0].tokens_per_second
    };
    // Gradients of weights are put off, and with them the rows of eight experts: of two bytes each here, and of one in theirs. So
    // a pipeline of 32 leaves more room, and theirs comes next.
    let grids: Vec<_> =
        grids(&request)[..2].iter().map(|found| (found.layout.dp, found.layout.tp, found.layout.pp)).collect();
    assert_eq!(grids, [(64, 1, 32), (128, 1, 16)]);
    // A token goes to eight experts, of which seven are on other nodes, with two bytes both ways. Theirs goes to four nodes at
    // most, once to each, half of the time to its own among them; with one byte on the way there.
    // What is put off beside the shared expert takes it less than 1% over the memory that is usable by default.
    let assumptions = Assumptions { usable_memory: 0.93, ..request.assumptions };
    let request = Request { assumptions, ..request };
    let share = published(&request);
    assert!((0.6..0.7).contains(&share), "{share}");
    let network_bandwidth = request.assumptions.network_bandwidth * (7.0 * (2.0 + 2.0)) / (3.5 * (1.0 + 2.0));
    let assumptions = Assumptions { network_bandwidth, ..request.assumptions };
    let share = published(&Request { assumptions, ..request });
    assert!(share > 0.9, "{share}");
}
