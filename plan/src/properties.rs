//! What holds for every shape and layout, however odd.

use proptest::{option, prelude::*, sample::select};

use crate::{
    Assumptions, Attention, Axis, Biases, Configuration, ContextExchange, Convention, Device, Experts, FeedForward,
    Latent, MemoryPlan, ModelShape, Norm, ParallelLayout, Precision, Recompute, Request, Schedule, Split, Traffic,
    Wanted, Zero, shard,
};

fn biases() -> impl Strategy<Value = Biases> {
    any::<[bool; 3]>().prop_map(|[qkv, output, ffn]| Biases { qkv, output, ffn })
}

/// Sizes from nothing to absurd.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        20 => 1..300_u64,
        10 => select(vec![8, 64, 128, 1024, 4096, 12_288, 65_536]),
        1 => select(vec![1 << 20, 1 << 30, u64::MAX]),
    ]
}

prop_compose! {
    fn shape()(
        sizes in (size(), size(), size(), size(), size(), size(), size()),
        gated in any::<bool>(),
        flags in any::<[bool; 3]>(),
        biases in biases(),
        learned_positions in option::of(size()),
        experts in option::of((size(), size())),
        latent in option::weighted(0.2, (option::of(size()), size(), size(), size())),
    ) -> ModelShape {
        let (layers, hidden, kv_heads, share, head_dim, ffn, vocabulary) = sizes;
        let latent = latent.map(|(query_rank, kv_rank, rotary_dim, value_dim)| {
            Latent { query_rank, kv_rank, rotary_dim: rotary_dim.min(head_dim), value_dim }
        });
        let is_latent = latent.is_some();
        ModelShape {
            name: "any".into(),
            layers,
            hidden,
            heads: kv_heads.saturating_mul(if is_latent { 1 } else { share.min(16) }),
            kv_heads,
            head_dim,
            latent,
            ffn,
            feed_forward: if gated { FeedForward::Gated } else { FeedForward::Plain },
            vocabulary,
            tied_embeddings: flags[0],
            norm: if flags[1] { Norm::Rms } else { Norm::Layer },
            biases: Biases { qkv: biases.qkv && !is_latent, ..biases },
            qk_norm: flags[2] && !is_latent,
            learned_positions,
            experts: experts.map(|(count, top_k)| Experts { count, top_k: top_k.min(count), ..Experts::default() }),
        }
    }
}

prop_compose! {
    fn layout()(
        grid in (size(), select(vec![1, 2, 3, 4, 8]), select(vec![1, 2, 4, 5])),
        ep in select(vec![1, 1, 2, 4]),
        sequence_parallel in any::<bool>(),
        (cp, context) in (select(vec![1, 1, 2, 3, 4]), select(&ContextExchange::ALL[..])),
        batch in (size(), size(), size()),
        zero in (select(&Zero::ALL[..]), size(), select(vec![1, 1, 1, 2, 3])),
        unit_layers in select(vec![1, 1, 2, 3]),
        schedule in select(&Schedule::ALL[..]),
        chunks in 0..4_u64,
        recompute in select(&Recompute::ALL[..]),
        precisions in (select(vec![Precision::Bf16, Precision::Fp32]), select(vec![Precision::Bf16, Precision::Fp32])),
    ) -> ParallelLayout {
        let ((dp, tp, pp), (micro_batch, micro_batches, sequence_length)) = (grid, batch);
        let (zero, prefetch, dp_replicate) = zero;
        let (precision, gradients) = precisions;
        let chunks = match schedule {
            Schedule::Interleaved => chunks,
            _ if schedule.is_dual() => 2,
            _ => chunks.min(1),
        };
        ParallelLayout {
            dp, tp, sequence_parallel, cp, context, ep, pp, zero, dp_replicate, prefetch, unit_layers, schedule, chunks, micro_batch,
            micro_batches, sequence_length, recompute, precision, gradients,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn nothing_panics_and_nothing_is_negative(shape in shape(), layout in layout()) {
        let Ok(shape) = shape.check() else { return Ok(()) };
        prop_assert!(shape.parameters() > 0);
        prop_assert!(shape.active_parameters() <= shape.parameters());
        for convention in Convention::ALL {
            let flops = shape.flops_per_token(convention, layout.sequence_length);
            prop_assert!(flops.is_finite() && flops >= 0.0, "{:?}: {}", convention, flops);
        }
        if layout.check(&shape).is_err() {
            return Ok(());
        }
        for attention in [Attention::Flash, Attention::Naive] {
            let model = shape.flops_per_token(Convention::Model, layout.sequence_length);
            let hardware = shape.hardware_flops_per_token(layout.recompute, attention, layout.sequence_length);
            prop_assert!(hardware >= model);
            for stage in [0, layout.pp - 1] {
                // Only more memory than there are addresses is an error.
                if let Ok(plan) = MemoryPlan::of_stage(&shape, &layout, attention, stage) {
                    prop_assert!(plan.parameters > 0 && plan.gradients > 0 && plan.optimizer_state > 0);
                    prop_assert!(plan.activations > 0);
                    let whole = MemoryPlan::of_stage(&shape, &ParallelLayout { zero: Zero::Off, dp_replicate: 1, ..layout }, attention, stage);
                    let whole = whole.unwrap();
                    prop_assert!(plan.optimizer_state <= whole.optimizer_state);
                    // Each layer, its experts, the embedding, the head and a copy of the embedding may be padded.
                    let padding = (2 * layout.stage_layers(&shape, stage) + 3) * (layout.replicas() - 1) * layout.precision.bytes();
                    prop_assert!(plan.parameters <= whole.parameters + padding);
                }
            }
        }
        let traffic = Traffic::of_stage(&shape, &layout, 0);
        let axes = [
            (layout.replica_axis(), layout.replicas()),
            (Axis::Tensor, layout.tp),
            (Axis::Context, layout.cp),
            (Axis::Pipeline, layout.pp),
        ];
        for (axis, ranks) in axes {
            let bytes: f64 = traffic.iter().filter(|traffic| traffic.axis == axis).map(|traffic| traffic.bytes).sum();
            prop_assert_eq!(bytes > 0.0, ranks > 1, "{:?} of {}", axis, ranks);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn shards_partition_every_tensor(shape in shape(), tp in 1..9_u64, dp in 1..70_u64) {
        let Ok(shape) = (ModelShape { layers: shape.layers.min(3), ..shape }).check() else { return Ok(()) };
        for tensor in shape.tensors() {
            let whole = match tensor.split {
                None => tensor.rows,
                Some(Split::Rows) => tensor.rows,
                Some(Split::Columns) => tensor.columns,
            };
            let shards: Vec<_> = (0..tp).map(|rank| shard(whole, tp, rank)).collect();
            prop_assert_eq!(shards.iter().map(|shard| shard.end - shard.start).sum::<u64>(), whole);
            prop_assert!(shards.windows(2).all(|pair| pair[0].end == pair[1].start));
            let fullest = shards.iter().map(|shard| shard.end - shard.start).max().unwrap_or(0);
            let of_a_rank = if tensor.split.is_some() { tensor.parameters() / whole * fullest } else { tensor.parameters() };
            prop_assert_eq!(tensor.parameters_of_a_rank(tp), of_a_rank);
            let zero: u64 = (0..dp).map(|rank| shard(tensor.parameters(), dp, rank)).map(|shard| shard.end - shard.start).sum();
            prop_assert_eq!(zero, tensor.parameters());
        }
    }

    #[test]
    fn a_search_never_panics(shape in shape(), gpus in 0..70_u64, tokens in size(), length in size()) {
        let Ok(model) = shape.check() else { return Ok(()) };
        let device = Device::named("h100").unwrap().clone();
        let request = Request {
            model,
            assumptions: Assumptions::of(&device),
            device,
            gpus,
            global_batch_tokens: tokens.saturating_mul(length),
            sequence_length: length,
            precision: Precision::Bf16,
            gradients: Precision::Fp32,
            wanted: Wanted::default(),
        };
        // No device does more than its peak. MFU counts the whole square of attention, of which half is computed.
        let flops = |convention| request.model.flops_per_token(convention, length);
        let computed = flops(Convention::Causal) / flops(Convention::Model);
        if let Ok(search) = request.search() {
            let is_possible = |found: &Configuration| found.step_time_ns > 0.0 && computed * found.mfu <= 1.0;
            prop_assert!(search.configurations.iter().all(is_possible));
        }
    }
}
