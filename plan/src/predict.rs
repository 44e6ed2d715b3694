//! How long a step should take.
//!
//! - **Compute** is added up kernel by kernel (`compute`). A pipeline goes at the pace of its busiest stage, which is the
//!   last one when the output projection is heavy: with `t` the time of a stage for one micro-batch, `m` micro-batches
//!   and `v` chunks, a step takes `m·max(t) + (Σt − max(t)) / v`. With equal stages that is the ideal bubble. In a
//!   zero-bubble schedule the others wait for less by twice the time of the gradients of weights. DualPipe's stages wait for
//!   `(pieces/2 − 1)(F&B + B − 3W)`; passes that overlap hide transfers and what goes to experts, and gain nothing else.
//! - **Tensor-parallel** communication stands in the way of compute, but for the assumed share. With sequence parallelism, so do a
//!   gather and a reduce-scatter instead of each all-reduce; gathers for the gradients of weights go on beside it.
//! - **Expert-parallel** communication stands in the way as well: tokens go to experts and back, forward and backward. Experts
//!   are taken to be chosen equally often, so that a rank sends as much to each other one: over the link to those of its node, and over
//!   its own network to all others. Where passes overlap, it hides behind the assumed share of their compute.
//! - **Rings** have a hop for each rank, and each hop takes a while however little is sent.
//! - **Pipeline** transfers: only as many micro-batches are in flight as there are stages, so each pays for its way there
//!   and back once in a round: `2·x·m·(p−1) / (p·v)` for a transfer of `x`, which the simulator bears out.
//! - **Context-parallel** rings hide behind the assumed share of attention; gathered keys and values stand in the way, and so does
//!   how often parts of sequences chose experts.
//! - **Data-parallel** communication hides behind the assumed share of the compute it can run beside. A group that spans
//!   nodes uses the network of all its devices in a node, up to the speed of the link between them.
//! - **The optimizer** reads and writes its state, reads gradients twice (for their norm, too) and writes parameters, at the
//!   assumed share of the memory's bandwidth.

use crate::{
    assumptions::Assumptions,
    communication::{Axis, Traffic},
    compute::Compute,
    context::ContextExchange,
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
        let computed = Compute::of(model, device, assumptions, layout);
        let times = (0..layout.pp).map(|stage| {
            let layers = layout.layers_of_stage(model, stage);
            let all = computed.of_stage(layers, layout.has_embedding(stage), layout.has_head(stage));
            all.seconds(assumptions) * layout.through_a_chunk() as f64 / m
        });
        let (all, busiest_stage) = times.fold((0.0, 0.0), |(all, most): (f64, f64), time| (all + time, most.max(time)));
        let compute = m * busiest_stage;

        let in_the_way = ParallelLayout { sequence_parallel: false, ..*layout };
        let stages = [0, layout.pp / 2, layout.pp - 1].map(|stage| Traffic::of_stage(model, &in_the_way, stage));
        let busiest = |axis: Axis, link: &dyn Fn(&Traffic) -> (f64, f64)| {
            stages.iter().fold(0.0, |most: f64, traffic| {
                let of_axis = traffic.iter().filter(|traffic| traffic.axis == axis);
                let seconds = of_axis.map(|traffic| {
                    let (bandwidth, latency) = link(traffic);
                    traffic.seconds(bandwidth, latency)
                });
                most.max(seconds.sum())
            })
        };
        let node = assumptions.gpus_per_node;
        let Assumptions { link_bandwidth, link_latency, network_bandwidth, network_latency, .. } = *assumptions;
        let link = (link_bandwidth, link_latency);
        // A group of which so many are in a node. A ring goes over the network once for each node.
        let ring = |ranks: u64, in_node: u64| match ranks <= in_node {
            true => link,
            false => {
                let in_node = in_node as f64;
                let latency = (network_latency + (in_node - 1.0) * link_latency) / in_node;
                ((network_bandwidth * in_node).min(link_bandwidth), latency)
            }
        };
        // Tensor shards are neighbors, then parts of a sequence, then replicas, then stages.
        let tensor = busiest(Axis::Tensor, &|_| ring(layout.tp, node)) * (1.0 - assumptions.tensor_overlap);
        let near = (node / layout.tp).max(1);
        // How often tokens chose experts has nothing to hide behind.
        let is_of_choices = |traffic: &Traffic| traffic.operation == "all_reduce";
        let of_context = |choices: bool| {
            let link = ring(layout.cp, near);
            let link =
                move |traffic: &Traffic| if is_of_choices(traffic) == choices { link } else { (f64::INFINITY, 0.0) };
            busiest(Axis::Context, &link)
        };
        let context = match layout.context {
            // Attention to what is there goes on while the next keys come.
            ContextExchange::Ring => {
                let layers = (0..layout.pp).map(|stage| layout.stage_layers(model, stage)).max().unwrap_or(0);
                let attention = m * (computed.attention * layers as f64).seconds(assumptions);
                (of_context(false) - assumptions.data_overlap * attention).max(0.0)
            }
            ContextExchange::AllGather => of_context(false),
        } + of_context(true);
        // What goes to experts and back stands in the way, too: a rank has nothing to do for them before, unless it has another
        // pass. Those who share experts are neighbors among replicas and parts of sequences.
        let (ep, in_node) = (layout.ep, near);
        let expert = busiest(Axis::Expert, &|traffic| match traffic.operation {
            "all_to_all" if ep > in_node => {
                let (_, latency) = ring(ep, in_node);
                let others = (ep - 1) as f64;
                let in_this_node = link_bandwidth * others / (in_node - 1) as f64;
                (in_this_node.min(network_bandwidth * others / (ep - in_node) as f64), latency)
            }
            _ => ring(ep, in_node),
        });
        let overlapped = layout.schedule.overlapped(layout.pp, layout.micro_batches);
        let hidden = overlapped * expert.min(assumptions.data_overlap * compute);
        let tensor = tensor + expert - hidden;
        let (shards, groups) = (layout.shards(), layout.dp_replicate);
        let data = busiest(layout.replica_axis(), &|traffic| match traffic.operation {
            "all_reduce" if groups > 1 => ring(groups, (near / shards).max(1)),
            _ => ring(shards, near),
        });
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
        let (pipeline_bandwidth, pipeline_latency) =
            if layout.world_size() <= node { link } else { (network_bandwidth, network_latency) };
        // Of messages something else is said below.
        let data = data
            + busiest(Axis::Pipeline, &|traffic| match traffic.operation {
                "all_reduce" => (pipeline_bandwidth, pipeline_latency),
                _ => (f64::INFINITY, 0.0),
            });
        let data = (data - assumptions.data_overlap * beside).max(0.0);
        let message = (layout.micro_batch_tokens() * model.hidden * layout.precision.bytes()) as f64
            / layout.token_shares() as f64;
        let transfer = message / pipeline_bandwidth + pipeline_latency;
        let pipeline = match layout.schedule.is_dual() {
            // Passes that overlap hide them: of all of them one way there and back is left.
            true => 2.0 * transfer * (layout.schedule.pieces(layout.pp, layout.chunks) - 1) as f64,
            false => exposed_transfers(transfer, p, m, v),
        };

        let (stage, others) = (busiest_stage + tensor / m, all - busiest_stage + (p - 1.0) * tensor / m);
        // The gradients of weights of a micro-batch, over all stages.
        let flops = model.weight_gradient_flops_per_token() * layout.micro_batch_tokens() as f64;
        let weights = flops / (layout.tp as f64 * peak * assumptions.compute_efficiency);
        let waits = match layout.schedule {
            Schedule::ZeroBubble => others - 2.0 * (p - 1.0) / p * weights,
            Schedule::DualPipe | Schedule::DualPipeV => {
                let pieces = layout.schedule.pieces(layout.pp, layout.chunks) as f64;
                let piece = (stage + others) / pieces;
                (pieces / 2.0 - 1.0) * (piece + 2.0 / 3.0 * piece - 3.0 * weights / pieces)
            }
            _ => others / v,
        };
        let passes = m * stage + waits.max(0.0);
        let parameters = memory.optimizer_state / optimizer_bytes(layout.precision);
        let of_parameter = 2 * layout.gradients.bytes() + layout.precision.bytes();
        let touched = 2.0 * memory.optimizer_state as f64 + parameters as f64 * of_parameter as f64;
        let update = touched / (device.memory_bandwidth * assumptions.memory_efficiency);
        let step = passes + context + data + pipeline + update;
        let model_flops = model.flops_per_token(Convention::Model, layout.sequence_length) * tokens;
        Prediction {
            step,
            exposed_communication: tensor + context + data + pipeline,
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
        let predicted = predict(&model, "h100", layout, |assumptions| assumptions.kernel_gap = 0.0);
        let device = Device::named("h100").unwrap();
        let assumptions = Assumptions { kernel_gap: 0.0, ..Assumptions::of(device) };
        let computed = Compute::of(&model, device, &assumptions, &layout).of_stage(model.layers_of(0..16), true, true);
        let compute = 3.0 * computed.seconds(&assumptions);
        // Two times 12 bytes of state, two times 2 of gradient, 2 of weight, for each parameter.
        let update = 1_235_814_400.0 * 30.0 / (0.8 * 3350e9);
        assert!(close(predicted.step, compute + update), "{predicted:?}");
        assert_eq!((predicted.exposed_communication, predicted.bubble), (0.0, 0.0));
        let flops = model.flops_per_token(Convention::Model, 2048) * 6.0 * 2048.0;
        assert!(close(predicted.mfu, flops / 989.4e12 / (compute + update)));
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

    /// Eight replicas of a node share, and two nodes hold the same.
    #[test]
    fn hybrid_sharding_keeps_gathers_inside_a_node() {
        let model = ModelShape::preset("llama-8b").unwrap();
        let exposed = |dp, dp_replicate| {
            let layout = ParallelLayout { dp, dp_replicate, zero: Zero::One, ..ParallelLayout::default() };
            predict(&model, "h100", layout, |assumptions| assumptions.data_overlap = 0.0).exposed_communication
        };
        let across = 2.0 * 8_030_261_248.0 / 8.0 * 2.0 / 2.0 / 50e9;
        assert!(close(exposed(16, 2), exposed(8, 1) + across), "{} {}", exposed(16, 2), exposed(8, 1));
    }

    #[test]
    fn tensor_ranks_that_do_not_fit_into_a_node_talk_over_the_network() {
        let model = ModelShape::preset("llama-8b").unwrap();
        let layout = ParallelLayout { tp: 8, ..ParallelLayout::default() };
        let exposed = |node: fn(&mut Assumptions)| predict(&model, "h100", layout, node).exposed_communication;
        let (one, two) = (exposed(|_| {}), exposed(|assumptions| assumptions.gpus_per_node = 4));
        assert!(close(two / one, 450.0 / 200.0), "four networks of 50 GB/s each: {one} {two}");
    }

    /// Tokens to ranks of other nodes go over the one network of a rank, whichever share of them that is.
    #[test]
    fn experts_on_other_nodes_are_as_far_as_the_network() {
        let model = ModelShape::preset("deepseek-moe-16b").unwrap();
        let exposed = |ep| {
            let layout = ParallelLayout { dp: 32, ep, zero: Zero::One, ..ParallelLayout::default() };
            predict(&model, "h100", layout, |assumptions| assumptions.data_overlap = 1.0).exposed_communication
        };
        // 27 layers, there and back, forward and backward; six experts for each of 1,024 tokens.
        let bytes = 27.0 * 4.0 * 6.0 * 1024.0 * 2048.0 * 2.0;
        let counts = |ep: f64| 27.0 * 4.0 * 64.0 * (ep - 1.0);
        let inside = (bytes * 7.0 / 8.0 + counts(8.0)) / 450e9;
        assert!(close(exposed(8), inside), "{} {inside}", exposed(8));
        let across = bytes * 24.0 / 32.0 / 50e9 + counts(32.0) / 400e9;
        assert!(close(exposed(32), across), "{} {across}", exposed(32));
    }

    #[test]
    fn passes_that_overlap_hide_what_goes_to_experts() {
        let model = ModelShape { layers: 4, ..ModelShape::preset("deepseek-v3").unwrap() };
        let experts = model.experts.map(|experts| crate::Experts { dense_layers: 0, dense_ffn: 0, ..experts });
        let model = ModelShape { experts, ..model };
        let (schedule, chunks) = (Schedule::DualPipe, 2);
        let layout =
            ParallelLayout { dp: 8, ep: 8, pp: 4, micro_batches: 40, schedule, chunks, ..ParallelLayout::default() };
        let exposed = |overlap: fn(&mut Assumptions)| predict(&model, "h800", layout, overlap).exposed_communication;
        let all = exposed(|assumptions| assumptions.data_overlap = 0.0);
        let some = exposed(|assumptions| assumptions.data_overlap = 0.01);
        // A stage at an end has two layers, the embedding and the head, and half of the micro-batches go through each. Replicas
        // have the last backward pass, and experts all passes that overlap.
        let device = Device::named("h800").unwrap();
        let assumptions = Assumptions::of(device);
        let computed = Compute::of(&model, device, &assumptions, &layout).of_stage(model.layers_of(0..2), true, true);
        let compute = 20.0 * computed.seconds(&assumptions);
        let hidden = 0.01 * compute * (2.0 / 3.0 / 40.0 + (40.0 - 5.0) / 40.0);
        assert!(close(all - some, hidden), "{} {hidden}", all - some);
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
        // So deep that its ends weigh nothing.
        let slim = ModelShape { layers: 80_000, vocabulary: 8, ..ModelShape::preset("llama-8b").unwrap() };
        let heavy = ModelShape::preset("llama-8b").unwrap();
        let layout = ParallelLayout { pp: 8, micro_batches: 16, ..ParallelLayout::default() };
        let bubble = |model: &ModelShape| predict(model, "h100", layout, |_| {}).bubble;
        assert!((bubble(&slim) - layout.schedule.ideal_bubble(8, 16, 1)).abs() < 1e-4, "{}", bubble(&slim));
        assert!(bubble(&heavy) > bubble(&slim) + 0.1, "{}", bubble(&heavy));
    }

    #[test]
    fn put_off_gradients_fill_what_the_simulator_says() {
        // So deep that its ends weigh nothing.
        let model = ModelShape { layers: 80_000, vocabulary: 8, ..ModelShape::preset("llama-8b").unwrap() };
        let layout =
            ParallelLayout { pp: 8, micro_batches: 16, schedule: Schedule::ZeroBubble, ..ParallelLayout::default() };
        let device = Device::named("h100").unwrap();
        let assumptions = Assumptions::of(device);
        let stage =
            Compute::of(&model, device, &assumptions, &layout).of_stage(model.layers_of(0..10_000), false, false);
        let (stage, products) =
            (stage.seconds(&assumptions), device.peaks.of(layout.precision) * assumptions.compute_efficiency);
        let weights = model.weight_gradient_flops_per_token() / 8.0 * layout.micro_batch_tokens() as f64 / products;
        let costs = Costs { forward: stage / 3.0, backward: stage * 2.0 / 3.0, weights, both: stage, transfer: 0.0 };
        let simulated = Simulation::run(layout.schedule, 8, 16, 1, costs).unwrap().bubble();
        let bubble = |schedule| predict(&model, "h100", ParallelLayout { schedule, ..layout }, |_| {}).bubble;
        assert!(
            (bubble(Schedule::ZeroBubble) - simulated).abs() < 1e-4,
            "{} {simulated}",
            bubble(Schedule::ZeroBubble)
        );
        assert!(bubble(Schedule::ZeroBubble) < 0.6 * bubble(Schedule::OneForwardOneBackward));
    }

    #[test]
    fn schedules_that_go_both_ways_wait_as_the_simulator_says() {
        // So deep that its ends weigh nothing.
        let model = ModelShape { layers: 80_000, vocabulary: 8, ..ModelShape::preset("llama-8b").unwrap() };
        let base = ParallelLayout { pp: 8, micro_batches: 32, chunks: 2, ..ParallelLayout::default() };
        for schedule in [Schedule::DualPipe, Schedule::DualPipeV] {
            let layout = ParallelLayout { schedule, ..base };
            // Attention and norms have no weights: gradients of inputs take longer than a forward pass, and fill some of it.
            let costs = Costs { forward: 1.0, backward: 2.0, weights: 1.0, both: 3.0, transfer: 0.0 };
            let simulated = Simulation::run(schedule, 8, 32, 2, costs).unwrap().bubble();
            let predicted = predict(&model, "h100", layout, |_| {}).bubble;
            assert!((0.9..1.6).contains(&(predicted / simulated)), "{schedule:?}: {predicted} {simulated}");
        }
    }

    /// Nearly exact for 1F1B; for interleaved schedules an upper bound within a factor of three.
    #[test]
    fn transfers_cost_what_the_simulator_says() {
        for (schedule, chunks, most) in [(Schedule::OneForwardOneBackward, 1, 1.15), (Schedule::Interleaved, 2, 3.0)] {
            for (stages, micro_batches) in [(2, 16), (4, 32), (8, 64)] {
                let duration = |transfer| {
                    let costs = Costs { forward: 1.0, backward: 2.0, weights: 1.0, both: 3.0, transfer };
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
