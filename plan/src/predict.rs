//! How long a step should take.
//!
//! - **Compute** runs at the assumed share of the peak. A pipeline goes at the pace of its busiest stage, which is the
//!   last one when the output projection is heavy: with `t` the time of a stage for one micro-batch, `m` micro-batches
//!   and `v` chunks, a step takes `m·max(t) + (Σt − max(t)) / v`. With equal stages that is the ideal bubble. In a
//!   zero-bubble schedule the others wait for less by twice the time of the gradients of weights.
//! - **Tensor-parallel** communication stands in the way of compute, but for the assumed share. With sequence parallelism, so do a
//!   gather and a reduce-scatter instead of each all-reduce; gathers for the gradients of weights go on beside it.
//! - **Rings** have a hop for each rank, and each hop takes a while however little is sent.
//! - **Pipeline** transfers: only as many micro-batches are in flight as there are stages, so each pays for its way there
//!   and back once in a round: `2·x·m·(p−1) / (p·v)` for a transfer of `x`, which the simulator bears out.
//! - **Data-parallel** communication hides behind the assumed share of the compute it can run beside. A group that spans
//!   nodes uses the network of all its devices in a node, up to the speed of the link between them.
//! - **The optimizer** reads and writes its state, reads gradients and writes parameters, at the memory's bandwidth.

use crate::{
    assumptions::Assumptions,
    communication::{Axis, Traffic},
    device::Device,
    flops::Convention,
    layout::{ParallelLayout, Zero},
    memory::{MemoryPlan, optimizer_bytes},
    schedule::Schedule,
    shape::ModelShape,
};

/// What is predicted for a step, in seconds unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prediction {
    pub(crate) step: f64,
    pub(crate) exposed_communication: f64,
    /// The share of time that stages wait for each other.
    pub(crate) bubble: f64,
    /// By the default convention.
    pub(crate) mfu: f64,
}

impl Prediction {
    pub(crate) fn of(
        model: &ModelShape,
        device: &Device,
        assumptions: &Assumptions,
        layout: &ParallelLayout,
        memory: &MemoryPlan,
    ) -> Prediction {
        let peak = device.peaks.of(layout.precision);
        let (p, m, v) = (layout.pp as f64, layout.micro_batches as f64, layout.chunks as f64);
        let tokens = layout.tokens_per_step() as f64;

        // Time of each stage for one micro-batch.
        let length = layout.sequence_length;
        let head = 6.0 * (model.vocabulary * model.hidden) as f64;
        let whole = model.hardware_flops_per_token(layout.recompute, assumptions.attention, length);
        let rate = layout.tp as f64 * peak * assumptions.compute_efficiency;
        let of_stage = |flops: f64| flops * layout.micro_batch_tokens() as f64 / rate;
        let of_layers = |stage: u64| (whole - head) * layout.stage_layers(model, stage) as f64 / model.layers as f64;
        let times =
            (0..layout.pp).map(|stage| of_stage(of_layers(stage) + if stage + 1 == layout.pp { head } else { 0.0 }));
        let (all, busiest_stage) = times.fold((0.0, 0.0), |(all, most): (f64, f64), time| (all + time, most.max(time)));
        let compute = m * busiest_stage;

        let in_the_way = ParallelLayout { sequence_parallel: false, ..*layout };
        let busiest = |axis: Axis, (bandwidth, latency): (f64, f64)| {
            [0, layout.pp / 2, layout.pp - 1].into_iter().fold(0.0, |most: f64, stage| {
                let traffic = Traffic::of_stage(model, &in_the_way, stage);
                let of_axis = traffic.iter().filter(|traffic| traffic.axis == axis);
                most.max(of_axis.map(|traffic| traffic.seconds(bandwidth, latency)).sum())
            })
        };
        let node = assumptions.gpus_per_node;
        let Assumptions { link_bandwidth, link_latency, network_bandwidth, network_latency, .. } = *assumptions;
        let link = (link_bandwidth, link_latency);
        let tensor = busiest(Axis::Tensor, link) * (1.0 - assumptions.tensor_overlap);
        // Tensor shards are neighbors, then replicas, then stages.
        let of_group_in_node = (node / layout.tp).clamp(1, layout.dp) as f64;
        let between_replicas = match layout.dp * layout.tp <= node {
            true => link,
            // A ring goes over the network once for each node.
            false => {
                let latency = (network_latency + (of_group_in_node - 1.0) * link_latency) / of_group_in_node;
                ((network_bandwidth * of_group_in_node).min(link_bandwidth), latency)
            }
        };
        let data = busiest(Axis::Data, between_replicas);
        let beside = compute
            * match layout.zero {
                // The backward pass of the last micro-batch.
                Zero::Off => 2.0 / 3.0 / m,
                // And the forward pass of the next step's first.
                Zero::One => 1.0 / m,
                // Every backward pass.
                Zero::Two => 2.0 / 3.0 + 1.0 / 3.0 / m,
                Zero::Three => 1.0,
            };
        let data = (data - assumptions.data_overlap * beside).max(0.0);
        let (pipeline_bandwidth, pipeline_latency) =
            if layout.world_size() <= node { link } else { (network_bandwidth, network_latency) };
        let message = (layout.micro_batch_tokens() * model.hidden * layout.precision.bytes()) as f64
            / layout.token_shares() as f64;
        let pipeline = exposed_transfers(message / pipeline_bandwidth + pipeline_latency, p, m, v);

        let (stage, others) = (busiest_stage + tensor / m, all - busiest_stage + (p - 1.0) * tensor / m);
        let filled = match layout.schedule {
            Schedule::ZeroBubble => (p - 1.0) * 2.0 * of_stage(model.weight_gradient_flops_per_token() / p),
            _ => 0.0,
        };
        let passes = m * stage + (others - filled) / v;
        let parameters = memory.optimizer_state / optimizer_bytes(layout.precision);
        let touched = 2 * memory.optimizer_state + parameters * (layout.gradients.bytes() + layout.precision.bytes());
        let step = passes + data + pipeline + touched as f64 / device.memory_bandwidth;
        let model_flops = model.flops_per_token(Convention::Model, length) * tokens;
        Prediction {
            step,
            exposed_communication: tensor + data + pipeline,
            bubble: 1.0 - m * (stage + others) / (p * passes),
            mfu: model_flops / (step * layout.world_size() as f64 * peak),
        }
    }
}

/// What transfers of `x` add to a step of `m` micro-batches on `p` stages with `v` chunks each.
fn exposed_transfers(x: f64, p: f64, m: f64, v: f64) -> f64 {
    2.0 * x * m * (p - 1.0) / (p * v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attention, Costs, Precision, Recompute, Simulation};

    fn predict(model: &ModelShape, device: &str, layout: ParallelLayout, change: fn(&mut Assumptions)) -> Prediction {
        layout.check(model).unwrap();
        let device = Device::named(device).unwrap();
        let mut assumptions = Assumptions { link_latency: 0.0, network_latency: 0.0, ..Assumptions::of(device) };
        change(&mut assumptions);
        let memory = MemoryPlan::fullest(model, &layout, assumptions.attention).unwrap();
        Prediction::of(model, device, &assumptions, &layout, &memory)
    }

    fn close(one: f64, two: f64) -> bool {
        (one / two - 1.0).abs() < 1e-9
    }

    #[test]
    fn one_rank_computes_and_updates() {
        let model = ModelShape::preset("llama-1b").unwrap();
        let layout =
            ParallelLayout { sequence_length: 2048, micro_batch: 2, micro_batches: 3, ..ParallelLayout::default() };
        let predicted = predict(&model, "h100", layout, |_| {});
        let compute = model.flops_per_token(Convention::Model, 2048) * 6.0 * 2048.0 / (0.6 * 989.4e12);
        // Two times 12 bytes of state, 2 of gradient, 2 of weight, for each parameter.
        let update = 1_235_814_400.0 * 28.0 / 3350e9;
        assert!(close(predicted.step, compute + update), "{predicted:?}");
        assert_eq!((predicted.exposed_communication, predicted.bubble), (0.0, 0.0));
        assert!(close(predicted.mfu, 0.6 * compute / (compute + update)));
    }

    #[test]
    fn replicas_in_and_across_nodes_have_the_bandwidth_of_their_group() {
        let model = ModelShape::preset("llama-8b").unwrap();
        let exposed = |dp, tp| {
            let layout = ParallelLayout { dp, tp, ..ParallelLayout::default() };
            let with = predict(&model, "h100", layout, |assumptions| assumptions.data_overlap = 0.0);
            let tensor = predict(&model, "h100", ParallelLayout { dp: 1, ..layout }, |_| {});
            with.exposed_communication - tensor.exposed_communication
        };
        let gradients = 2.0 * 8_030_261_248.0;
        assert!(close(exposed(8, 1), gradients * 2.0 * 7.0 / 8.0 / 450e9), "inside a node: the link");
        assert!(close(exposed(16, 1), gradients * 2.0 * 15.0 / 16.0 / 400e9), "across: eight networks, 50 GB/s each");
        let shard = 2.0 * (8_030_261_248.0 - 65.0 * 4096.0) / 8.0 + 2.0 * 65.0 * 4096.0;
        assert!(close(exposed(2, 8), shard * 2.0 / 2.0 / 50e9), "one device of a node in each group: its own network");
    }

    #[test]
    fn a_ring_of_many_ranks_takes_its_time() {
        let model = ModelShape::preset("llama-1b").unwrap();
        let exposed = |dp, latency: fn(&mut Assumptions)| {
            let layout = ParallelLayout { dp, ..ParallelLayout::default() };
            predict(&model, "h100", layout, latency).exposed_communication
        };
        let added = |dp| {
            let with = |assumptions: &mut Assumptions| {
                (assumptions.data_overlap, assumptions.link_latency, assumptions.network_latency) = (0.0, 3e-6, 14e-6);
            };
            exposed(dp, with) - exposed(dp, |assumptions| assumptions.data_overlap = 0.0)
        };
        // The embedding, which is the head too, 16 layers and the last norm; one hop of eight is between nodes.
        assert!(close(added(8), 18.0 * 2.0 * 7.0 * 3e-6), "{}", added(8));
        assert!(close(added(1024), 18.0 * 2.0 * 1023.0 * (14e-6 + 7.0 * 3e-6) / 8.0), "{}", added(1024));
    }

    #[test]
    fn replicas_hide_behind_the_compute_beside_them() {
        let model = ModelShape::preset("llama-8b").unwrap();
        let layout = ParallelLayout { dp: 64, micro_batches: 4, sequence_length: 8192, ..ParallelLayout::default() };
        let exposed = |zero, overlap: fn(&mut Assumptions)| {
            predict(&model, "h100", ParallelLayout { zero, ..layout }, overlap).exposed_communication
        };
        for zero in Zero::ALL {
            let all = exposed(zero, |assumptions| assumptions.data_overlap = 0.0);
            let some = exposed(zero, |assumptions| assumptions.data_overlap = 0.5);
            assert!(some < all && all > 0.0, "{zero:?}: {some} {all}");
        }
        assert!(exposed(Zero::One, |_| {}) <= exposed(Zero::Off, |_| {}));
    }

    /// Korthikanti et al. (2022), table 5: 175 B on 64 A100 (t 8, p 8, interleaved 3), batch 64.
    #[test]
    fn a_published_step_is_met_within_a_tenth() {
        let gpt3 = ModelShape { vocabulary: 51_200, ..ModelShape::preset("gpt3-175b").unwrap() };
        let layout = ParallelLayout {
            tp: 8,
            pp: 8,
            schedule: Schedule::Interleaved,
            chunks: 3,
            micro_batches: 64,
            sequence_length: 2048,
            ..ParallelLayout::default()
        };
        for (recompute, published) in [(Recompute::Selective, 13.75), (Recompute::Full, 18.13)] {
            let layout = ParallelLayout { recompute, ..layout };
            let predicted = predict(&gpt3, "a100", layout, |assumptions| assumptions.attention = Attention::Naive);
            assert!((predicted.step / published - 1.0).abs() < 0.1, "{recompute:?}: {} {published}", predicted.step);
        }
    }

    #[test]
    fn equal_stages_have_the_ideal_bubble_and_a_heavy_head_a_larger_one() {
        let slim = ModelShape { vocabulary: 8, ..ModelShape::preset("llama-8b").unwrap() };
        let heavy = ModelShape::preset("llama-8b").unwrap();
        let layout = ParallelLayout { pp: 8, micro_batches: 16, ..ParallelLayout::default() };
        let bubble = |model: &ModelShape| predict(model, "h100", layout, |_| {}).bubble;
        assert!((bubble(&slim) - layout.schedule.ideal_bubble(8, 16, 1)).abs() < 1e-4, "{}", bubble(&slim));
        assert!(bubble(&heavy) > bubble(&slim) + 0.1, "{}", bubble(&heavy));
    }

    #[test]
    fn put_off_gradients_fill_what_the_simulator_says() {
        let model = ModelShape { vocabulary: 8, ..ModelShape::preset("llama-8b").unwrap() };
        let layout =
            ParallelLayout { pp: 8, micro_batches: 16, schedule: Schedule::ZeroBubble, ..ParallelLayout::default() };
        let flops = model.flops_per_token(Convention::Model, layout.sequence_length);
        let weights = model.weight_gradient_flops_per_token();
        let costs = Costs { forward: flops / 3.0, backward: flops * 2.0 / 3.0, weights, transfer: 0.0 };
        let simulated = Simulation::run(layout.schedule, 8, 16, 1, costs).unwrap().bubble();
        let bubble = |schedule| predict(&model, "h100", ParallelLayout { schedule, ..layout }, |_| {}).bubble;
        assert!(
            (bubble(Schedule::ZeroBubble) - simulated).abs() < 1e-4,
            "{} {simulated}",
            bubble(Schedule::ZeroBubble)
        );
        assert!(bubble(Schedule::ZeroBubble) < 0.5 * bubble(Schedule::OneForwardOneBackward));
    }

    /// Nearly exact for 1F1B; for interleaved schedules an upper bound within a factor of three.
    #[test]
    fn transfers_cost_what_the_simulator_says() {
        for (schedule, chunks, most) in [(Schedule::OneForwardOneBackward, 1, 1.15), (Schedule::Interleaved, 2, 3.0)] {
            for (stages, micro_batches) in [(2, 16), (4, 32), (8, 64)] {
                let duration = |transfer| {
                    let costs = Costs { forward: 1.0, backward: 2.0, weights: 1.0, transfer };
                    Simulation::run(schedule, stages, micro_batches, chunks, costs).unwrap().duration()
                };
                let simulated = duration(0.1) - duration(0.0);
                let formula = exposed_transfers(0.1, stages as f64, micro_batches as f64, chunks as f64);
                let ratio = formula / simulated;
                assert!((0.85..most).contains(&ratio), "{schedule:?} {stages}: {formula} {simulated}");
            }
        }
    }

    #[test]
    fn fp32_computes_at_its_own_peak() {
        let model = ModelShape::preset("llama-1b").unwrap();
        let layout =
            ParallelLayout { precision: Precision::Fp32, gradients: Precision::Fp32, ..ParallelLayout::default() };
        let (slow, fast) =
            (predict(&model, "h100", layout, |_| {}), predict(&model, "h100", ParallelLayout::default(), |_| {}));
        assert!(slow.step > 5.0 * fast.step);
    }
}
