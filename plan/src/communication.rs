//! What ranks send each other in a step.

use serde::{Deserialize, Serialize};

use crate::{
    context::context_traffic,
    gathers::Gathers,
    layout::{ParallelLayout, Zero},
    schedule::Schedule,
    shape::ModelShape,
    units::{Holdings, UnitKind, UnitSize},
};

/// Along which side of the grid ranks talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Replicas, about gradients and sharded state.
    Data,
    /// Tensor shards, about partial results.
    Tensor,
    /// Stages, about activations and their gradients.
    Pipeline,
    /// Ranks that each hold a part of every sequence, about keys and values.
    Context,
    /// Ranks that each hold some of the experts, about tokens.
    Expert,
    /// Ranks that each hold a part of the sequence between layers, about activations.
    Sequence,
    /// Replicas and the parts of a sequence together, about gradients.
    #[serde(rename = "data+context")]
    DataContext,
    /// Tensor shards of all replicas.
    #[serde(rename = "tensor+data")]
    TensorData,
    /// Tensor shards of all parts of a sequence.
    #[serde(rename = "tensor+context")]
    TensorContext,
    /// All that holds one replica: tensor shards of all stages.
    #[serde(rename = "tensor+pipeline")]
    TensorPipeline,
    /// Tensor shards of all experts.
    #[serde(rename = "tensor+expert")]
    TensorExpert,
    /// All ranks, about the run as a whole.
    World,
    /// The first and the last stage, about an embedding that both hold.
    Embedding,
}

impl Axis {
    /// All of them.
    pub const ALL: [Axis; 13] = [
        Axis::Data,
        Axis::Tensor,
        Axis::Pipeline,
        Axis::Context,
        Axis::Expert,
        Axis::Sequence,
        Axis::DataContext,
        Axis::TensorData,
        Axis::TensorContext,
        Axis::TensorPipeline,
        Axis::TensorExpert,
        Axis::World,
        Axis::Embedding,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Data => "data",
            Axis::Tensor => "tensor",
            Axis::Pipeline => "pipeline",
            Axis::Context => "context",
            Axis::Expert => "expert",
            Axis::Sequence => "sequence",
            Axis::DataContext => "data+context",
            Axis::TensorData => "tensor+data",
            Axis::TensorContext => "tensor+context",
            Axis::TensorPipeline => "tensor+pipeline",
            Axis::TensorExpert => "tensor+expert",
            Axis::World => "world",
            Axis::Embedding => "embedding",
        }
    }

    /// Whether it is one axis, and no combination of several.
    pub fn is_single(self) -> bool {
        use Axis::{Context, Data, Expert, Pipeline, Sequence, Tensor};
        matches!(self, Data | Tensor | Pipeline | Context | Expert | Sequence)
    }

    /// Its name where there is little room.
    pub fn short_name(self) -> &'static str {
        match self {
            Axis::Data => "dp",
            Axis::Tensor => "tp",
            Axis::Pipeline => "pp",
            Axis::Context => "cp",
            Axis::Expert => "ep",
            Axis::Sequence => "sp",
            Axis::DataContext => "dp+cp",
            Axis::TensorData => "tp+dp",
            Axis::TensorContext => "tp+cp",
            Axis::TensorPipeline => "tp+pp",
            Axis::TensorExpert => "tp+ep",
            Axis::World | Axis::Embedding => self.name(),
        }
    }

    /// Its name in at most nine letters: the short one, where two axes are one.
    pub fn brief_name(self) -> &'static str {
        if self.name().contains('+') { self.short_name() } else { self.name() }
    }

    /// Whether its ranks hold the same weights, or parts of them, and see other data.
    pub fn is_of_replicas(self) -> bool {
        matches!(self, Axis::Data | Axis::DataContext)
    }
}

/// One kind of message in a step, as the busiest rank sees it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// Along which axis.
    pub axis: Axis,
    /// Which operation.
    pub operation: &'static str,
    /// How many of them.
    pub count: u64,
    /// Bytes of all messages together.
    pub bytes: f64,
    /// Bytes that cross the rank's link for them, by the ring algorithm.
    pub wire_bytes: f64,
    /// Hops from rank to rank that follow each other, by the same.
    pub hops: u64,
}

impl Traffic {
    pub(crate) fn new(axis: Axis, operation: &'static str, ranks: u64, count: u64, bytes: f64) -> Traffic {
        let shares = (ranks - 1) as f64 / ranks as f64;
        let factor = match operation {
            "all_reduce" => 2.0 * shares,
            "all_gather" | "reduce_scatter" | "all_to_all" => shares,
            _ => 1.0,
        };
        let hops = match operation {
            "all_reduce" => 2 * (ranks - 1),
            "all_gather" | "reduce_scatter" | "all_to_all" => ranks - 1,
            _ => 1,
        };
        Traffic { axis, operation, count, bytes, wire_bytes: factor * bytes, hops: count * hops }
    }

    fn add(&mut self, other: &Traffic) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.wire_bytes += other.wire_bytes;
        self.hops += other.hops;
    }

    /// Seconds it takes at a bandwidth in bytes a second, where a hop takes so long however little is sent.
    pub fn seconds(&self, bandwidth: f64, latency: f64) -> f64 {
        self.wire_bytes / bandwidth + self.hops as f64 * latency
    }

    /// Everything a rank of a stage takes part in, in one step. The layout must fit the model.
    pub fn of_stage(model: &ModelShape, layout: &ParallelLayout, stage: u64) -> Vec<Traffic> {
        let mut traffic = data_traffic(model, layout, stage);
        let message = (layout.micro_batch_tokens() * model.hidden * layout.precision.bytes()) as f64;
        let m = layout.through_a_chunk();
        if layout.tp > 1 {
            traffic.extend(tensor_traffic(model, layout, stage, message));
        }
        traffic.extend(context_traffic(model, layout, stage));
        if layout.ep > 1 {
            traffic.extend(expert_traffic(model, layout, stage, message));
        }
        if layout.pp > 1 {
            // To the next chunk and back from it; only the two ends of the pipeline have a neighbor less. Where the way is folded,
            // the stage there hands over to itself.
            let is_fold = layout.schedule == Schedule::DualPipeV && stage + 1 == layout.pp;
            let ends =
                u64::from(layout.has_embedding(stage)) + u64::from(layout.has_head(stage)) + 2 * u64::from(is_fold);
            let count = m * (2 * layout.chunks - ends);
            let message = message / layout.token_shares() as f64;
            traffic.push(Traffic::new(Axis::Pipeline, "send", layout.pp, count, count as f64 * message));
        }
        // Two stages hold the same pieces.
        if layout.schedule == Schedule::DualPipe {
            let all = Holdings::of(model, layout).units(model, layout, stage);
            let parameters: u64 = all.values().map(|unit| unit.count * unit.padded(layout.zero)).sum();
            let (bytes, units) = (parameters * layout.gradients.bytes(), all.values().map(|unit| unit.count).sum());
            traffic.push(Traffic::new(Axis::Pipeline, "all_reduce", 2, units, bytes as f64));
        }
        traffic
    }
}

/// Tokens on their way to experts and back, forward and backward, on an average over ranks. What a rank keeps for its own experts
/// is part of a message, as the parts of other collectives are.
fn expert_traffic(model: &ModelShape, layout: &ParallelLayout, stage: u64, message: f64) -> Vec<Traffic> {
    let layers = layout.layers_of_stage(model, stage).sparse;
    let Some(experts) = model.experts.filter(|_| layers > 0) else { return Vec::new() };
    let of = |operation, count: u64, bytes: f64| {
        Traffic::new(Axis::Expert, operation, layout.ep, count, count as f64 * bytes)
    };
    let forwards = layout.forwards() * layout.through_a_chunk() * layers;
    let backwards = layout.through_a_chunk() * layers;
    // Before rows go, all ranks tell how many go to each expert.
    let counts = (4 * layout.ep * experts.count) as f64;
    vec![
        of("all_to_all", 2 * (forwards + backwards), experts.top_k as f64 * message),
        of("all_gather", forwards, counts),
    ]
}

fn tensor_traffic(model: &ModelShape, layout: &ParallelLayout, stage: u64, message: f64) -> Vec<Traffic> {
    let (layers, m, tokens) =
        (layout.stage_layers(model, stage), layout.through_a_chunk(), layout.micro_batch_tokens());
    let (embedding, head) = (u64::from(layout.has_embedding(stage)), u64::from(layout.has_head(stage)));
    let of = |operation, count: u64, bytes: f64| Traffic::new(Axis::Tensor, operation, layout.tp, count, bytes);
    // Of these messages some are of what goes into attention, which is narrower where attention is latent.
    let before = (tokens * model.width_before_attention() * layout.precision.bytes()) as f64;
    let activations = |operation, count: u64, before_attention: u64| {
        let bytes = (count - before_attention) as f64 * message + before_attention as f64 * before;
        of(operation, m * count, m as f64 * bytes)
    };
    // The head has logits of some of the vocabulary: the largest of each row, its sum and its target's, in fp32.
    let rows = of("all_reduce", 2 * m * head, (12 * tokens * m * head) as f64);
    // Each rank knows a part of what the weights of a token's experts would change.
    let sparse = layout.layers_of_stage(model, stage).sparse;
    let top_k = model.experts.map_or(0, |experts| experts.top_k);
    let choices = of("all_reduce", m * sparse, (4 * m * sparse * top_k * tokens) as f64);
    // After attention and after the network, forward and backward; forward again where layers are repeated. The embedding
    // has a sum forward, the head one backward.
    let forwards = layout.forwards();
    let sums = 2 * (forwards + 1) * layers + embedding + head;
    if !layout.sequence_parallel {
        return with_all_reduces(vec![activations("all_reduce", sums, layers)], [rows, choices]);
    }
    // Before each pair of matrices, forward; backward for the gradient, and for the input that a weight's gradient needs.
    let gathers = 2 * (forwards + 2) * layers + embedding + 2 * head;
    // Each rank has seen some of the rows that go through the norms, which all of them hold.
    let times = if layout.zero >= Zero::Two && layout.replicas() > 1 { m } else { 1 };
    let norms = times * (2 * layers + head);
    let norms = of("all_reduce", norms, (norms * model.hidden * layout.gradients.bytes()) as f64);
    // The same holds for matrices that go down to narrow vectors, and for the norms of these.
    let narrow = model.latent.map_or(0, |latent| model.hidden * latent.down() + latent.normed());
    let times = if narrow > 0 { times * layers } else { 0 };
    let narrow = of("all_reduce", times, (times * narrow * layout.gradients.bytes()) as f64);
    let gathered = activations("all_gather", gathers, (forwards + 1) * layers);
    let scattered = activations("reduce_scatter", sums, layers);
    with_all_reduces(vec![gathered, scattered], [rows, choices, norms, narrow])
}

/// Kinds of messages, with further all-reduces of the same ranks.
fn with_all_reduces(mut traffic: Vec<Traffic>, others: impl IntoIterator<Item = Traffic>) -> Vec<Traffic> {
    for other in others.into_iter().filter(|other| other.count > 0) {
        match traffic.iter_mut().find(|traffic| traffic.operation == other.operation) {
            Some(traffic) => traffic.add(&other),
            None => traffic.push(other),
        }
    }
    traffic
}

fn data_traffic(model: &ModelShape, layout: &ParallelLayout, stage: u64) -> Vec<Traffic> {
    if layout.replicas() == 1 {
        return Vec::new();
    }
    let units = Holdings::of(model, layout).units(model, layout, stage);
    let gathers = match layout.zero {
        Zero::Three => Gathers::of_stage(model, layout, stage),
        _ => Gathers::default(),
    };
    let (of_experts, shared): (Vec<_>, Vec<_>) = units.into_iter().partition(|(kind, _)| *kind == UnitKind::Experts);
    let gathered = |units: Vec<(UnitKind, UnitSize)>| -> Vec<(UnitSize, u64)> {
        units.into_iter().map(|(kind, unit)| (unit, gathers.of(kind))).collect()
    };
    [replica_traffic(layout, &gathered(shared)), replica_traffic(layout, &gathered(of_experts))].concat()
}

/// What replicas exchange about units that all of them hold, or share; each of these is gathered so often, all of them together.
fn replica_traffic(layout: &ParallelLayout, units: &[(UnitSize, u64)]) -> Vec<Traffic> {
    let sum = |of: &dyn Fn(&(UnitSize, u64)) -> u64| units.iter().map(of).sum::<u64>();
    // A message for each unit.
    let count = sum(&|(unit, _)| unit.count);
    let Some((unit, _)) = units.iter().find(|_| count > 0) else { return Vec::new() };
    let (shards, groups) = (unit.replicas, layout.dp_replicate);
    let parameters = sum(&|(unit, _)| unit.count * unit.padded(layout.zero)) as f64;
    let (gradients, weights) =
        (parameters * layout.gradients.bytes() as f64, parameters * layout.precision.bytes() as f64);
    let (m, axis) = (layout.through_a_chunk(), layout.replica_axis());
    // What each replica has of the gradients of the step, over all groups.
    let across = Traffic::new(axis, "all_reduce", groups, count, gradients / shards as f64);
    let across = (groups > 1).then_some(across);
    if shards == 1 {
        return across.into_iter().collect();
    }
    let of =
        |operation, times: u64, bytes: f64| Traffic::new(axis, operation, shards, times * count, times as f64 * bytes);
    let mut traffic = match layout.zero {
        Zero::Off => vec![of("all_reduce", 1, gradients)],
        Zero::One => vec![of("reduce_scatter", 1, gradients), of("all_gather", 1, weights)],
        // Gradients that are not kept whole are reduced for every micro-batch.
        Zero::Two => vec![of("reduce_scatter", m, gradients), of("all_gather", 1, weights)],
        // Weights that are not kept whole are gathered for every pass, but for what is still there.
        Zero::Three => {
            let gathered = units.iter().map(|(unit, times)| *times as f64 * unit.padded(layout.zero) as f64);
            let bytes = gathered.sum::<f64>() * layout.precision.bytes() as f64;
            let gathers = Traffic::new(axis, "all_gather", shards, sum(&|(_, times)| *times), bytes);
            vec![of("reduce_scatter", m, gradients), gathers]
        }
    };
    traffic.extend(across);
    traffic
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recompute;

    fn traffic(layout: ParallelLayout, stage: u64, axis: Axis) -> Vec<(&'static str, u64, f64, f64)> {
        let model = ModelShape::preset("llama-8b").unwrap();
        layout.check(&model).unwrap();
        let of_axis = Traffic::of_stage(&model, &layout, stage).into_iter().filter(|traffic| traffic.axis == axis);
        of_axis.map(|traffic| (traffic.operation, traffic.count, traffic.bytes, traffic.wire_bytes)).collect()
    }

    #[test]
    fn replicas_exchange_what_each_stage_of_zero_needs() {
        let n = 8_030_261_248.0;
        let base =
            ParallelLayout { dp: 4, micro_batches: 3, gradients: crate::Precision::Fp32, ..ParallelLayout::default() };
        let at = |zero| traffic(ParallelLayout { zero, ..base }, 0, Axis::Data);
        // An embedding, 32 layers and a head.
        let units = 34;
        assert_eq!(at(Zero::Off), [("all_reduce", units, 4.0 * n, 6.0 * n)]);
        let gather = ("all_gather", units, 2.0 * n, 1.5 * n);
        assert_eq!(at(Zero::One), [("reduce_scatter", units, 4.0 * n, 3.0 * n), gather]);
        assert_eq!(at(Zero::Two), [("reduce_scatter", 3 * units, 12.0 * n, 9.0 * n), gather]);
        // The embedding forward, layers both ways, and the head once for both.
        let gathered = 12.0 * n - 3.0 * 2.0 * (2.0 * 128_256.0 * 4096.0 + 4096.0);
        assert_eq!(
            at(Zero::Three),
            [
                ("reduce_scatter", 3 * units, 12.0 * n, 9.0 * n),
                ("all_gather", 6 * units - 6, gathered, 0.75 * gathered)
            ]
        );
        assert_eq!(traffic(ParallelLayout { dp: 1, ..base }, 0, Axis::Data), []);
        let hybrid = ParallelLayout { dp: 8, dp_replicate: 2, zero: Zero::One, ..base };
        let whole = at(Zero::One);
        // A quarter of the gradients, of one of four replicas in each of two groups.
        let across = ("all_reduce", units, n, n);
        assert_eq!(traffic(hybrid, 0, Axis::Data), [whole[0], whole[1], across]);
    }

    #[test]
    fn tensor_shards_reduce_twice_a_layer_and_pass() {
        let message = 1024.0 * 4096.0 * 2.0;
        let base = ParallelLayout { tp: 2, micro_batches: 3, ..ParallelLayout::default() };
        // Two more at the head, of three numbers for each token.
        let (rows, of_head) = (3 * 2, (3 * 12 * 1024) as f64);
        let bytes = |count: u64| count as f64 * message + of_head;
        let count = 3 * (2 * 2 * 32 + 2);
        assert_eq!(traffic(base, 0, Axis::Tensor), [("all_reduce", count + rows, bytes(count), bytes(count))]);
        let again = traffic(ParallelLayout { recompute: Recompute::Full, ..base }, 0, Axis::Tensor);
        assert_eq!(again[0].1, 3 * (2 * 3 * 32 + 2) + rows);
        let shared = ParallelLayout { sequence_parallel: true, ..base };
        let of = |operation, count| (operation, count, count as f64 * message, count as f64 * message / 2.0);
        let (gathers, scatters) = (3 * (6 * 32 + 3), 3 * (4 * 32 + 2));
        let small = of_head + (65 * 4096 * 2) as f64;
        assert_eq!(
            traffic(shared, 0, Axis::Tensor),
            [of("all_gather", gathers), of("reduce_scatter", scatters), ("all_reduce", rows + 65, small, small)]
        );
    }

    /// Gradients of 1,536 + 512 + 64 instead of 7,168 go back from latent attention, and tensor ranks hold what goes down to these.
    #[test]
    fn latent_attention_has_narrow_messages_before_it() {
        let model = ModelShape { experts: None, ..ModelShape::preset("deepseek-v3").unwrap() };
        let of = |layout: ParallelLayout| -> Vec<(&'static str, u64, f64)> {
            layout.check(&model).unwrap();
            let all = Traffic::of_stage(&model, &layout, 0).into_iter().filter(|traffic| traffic.axis == Axis::Tensor);
            all.map(|traffic| (traffic.operation, traffic.count, traffic.bytes)).collect()
        };
        let base = ParallelLayout { tp: 2, ..ParallelLayout::default() };
        let message = |width: u64| (1024 * width * 2) as f64;
        let (wide, narrow, rows) = (message(7168), message(2112), 12.0 * 1024.0);
        let sums = (3.0 * 61.0 + 2.0) * wide + 61.0 * narrow;
        assert_eq!(of(base), [("all_reduce", 4 * 61 + 2 + 2, sums + rows)]);
        let down = 61.0 * 2.0 * (7168.0 * 2112.0 + 2048.0);
        assert_eq!(
            of(ParallelLayout { sequence_parallel: true, ..base }),
            [
                ("all_gather", 6 * 61 + 3, (4.0 * 61.0 + 3.0) * wide + 2.0 * 61.0 * narrow),
                ("reduce_scatter", 4 * 61 + 2, sums),
                ("all_reduce", 2 + 123 + 61, rows + 123.0 * 2.0 * 7168.0 + down),
            ]
        );
    }

    #[test]
    fn stages_send_each_micro_batch_on_and_back() {
        let message = 1024.0 * 4096.0 * 2.0;
        let base = ParallelLayout { pp: 4, micro_batches: 8, ..ParallelLayout::default() };
        let sent = |layout, stage| traffic(layout, stage, Axis::Pipeline)[0];
        assert_eq!(sent(base, 0), ("send", 8, 8.0 * message, 8.0 * message));
        assert_eq!(sent(base, 1).1, 16);
        assert_eq!(sent(base, 3).1, 8);
        let interleaved = ParallelLayout { schedule: crate::Schedule::Interleaved, chunks: 2, ..base };
        assert_eq!((sent(interleaved, 0).1, sent(interleaved, 1).1), (24, 32));
        let both_ways = |schedule| ParallelLayout { schedule, chunks: 2, ..base };
        // Each goes through the stages and back; or through them once, from either end.
        assert_eq!([0, 1, 3].map(|stage| sent(both_ways(Schedule::DualPipeV), stage).1), [16, 32, 16]);
        assert_eq!([0, 1, 3].map(|stage| sent(both_ways(Schedule::DualPipe), stage).1), [8, 16, 8]);
        let shared = ParallelLayout { tp: 2, sequence_parallel: true, ..base };
        assert_eq!(sent(shared, 0).2, 8.0 * message / 2.0, "each tensor rank sends its tokens");
    }

    #[test]
    fn tokens_go_to_their_experts_and_back() {
        let model = ModelShape::preset("mixtral-8x7b").unwrap();
        let base = ParallelLayout { dp: 8, ep: 4, micro_batches: 3, ..ParallelLayout::default() };
        let of = |layout: ParallelLayout, axis| {
            layout.check(&model).unwrap();
            let all = Traffic::of_stage(&model, &layout, 0).into_iter().filter(move |traffic| traffic.axis == axis);
            all.map(|traffic| (traffic.operation, traffic.count, traffic.bytes, traffic.wire_bytes)).collect::<Vec<_>>()
        };
        // Twice forward and twice backward; every token twice.
        let message = 2.0 * 1024.0 * 4096.0 * 2.0;
        let (rows, counts) = (3 * 32 * 4, 3 * 32);
        let exchanged = rows as f64 * message;
        let told = (counts * 4 * 8 * 4) as f64;
        assert_eq!(
            of(base, Axis::Expert),
            [("all_to_all", rows, exchanged, 0.75 * exchanged), ("all_gather", counts, told, 0.75 * told)]
        );
        let again = of(ParallelLayout { recompute: Recompute::Full, ..base }, Axis::Expert);
        assert_eq!((again[0].1, again[1].1), (3 * 32 * 6, 3 * 32 * 2));
        // Two of eight experts here, which one other rank of eight has, too.
        let experts = (32 * 2 * 3 * 4096 * 14_336_u64) as f64;
        let others = model.parameters() as f64 - 4.0 * experts;
        assert_eq!(
            of(base, Axis::Data),
            [
                ("all_reduce", 34, 2.0 * others, 2.0 * others * 2.0 * 7.0 / 8.0),
                ("all_reduce", 32, 2.0 * experts, 2.0 * experts)
            ]
        );
        let alone = of(ParallelLayout { dp: 4, ..base }, Axis::Data);
        assert_eq!(alone.len(), 1, "nobody else has the same experts: {alone:?}");
        let groups = of(ParallelLayout { dp_replicate: 2, zero: Zero::One, ..base }, Axis::Data);
        // What two groups of four have of all but experts, which each of them has once.
        let across = |bytes: f64, count| ("all_reduce", count, bytes, bytes);
        assert_eq!(groups[2..], [across(2.0 * others / 4.0, 34), across(2.0 * experts, 32)]);
        let parts = ParallelLayout { dp: 2, cp: 4, sequence_length: 4096, ..base };
        assert_eq!(of(parts, Axis::DataContext), of(base, Axis::Data), "parts of sequences are as replicas");
        assert_eq!(of(parts, Axis::Expert), of(base, Axis::Expert), "of as many tokens");
        // A sequence of each micro-batch, and how often it chose each of eight experts.
        let told = (3 * 32 * 8 * 4) as f64;
        assert_eq!(of(parts, Axis::Context)[1], ("all_reduce", 3 * 32, told, told * 2.0 * 3.0 / 4.0));
    }

    #[test]
    fn bandwidth_turns_bytes_into_time() {
        let traffic = Traffic::new(Axis::Data, "all_reduce", 8, 1, 80e9);
        assert!((traffic.seconds(350e9, 0.0) - 0.4).abs() < 1e-12);
        // A ring of eight goes around it twice.
        assert!((traffic.seconds(350e9, 1e-3) - 0.414).abs() < 1e-12);
    }
}
