//! The search for a configuration: what fits, and how fast it should be.
//!
//! The recipe people use: the global batch is fixed; tensor shards stay inside a node; stages go across nodes; what is
//! left are replicas, and micro-batches make up the rest of the batch. Every combination is tried, its memory and time
//! are predicted, and for each one the micro-batch and schedule that do best are kept.

use std::cmp::Ordering;

use serde::Serialize;

use crate::{
    activations::Attention,
    communication::{Axis, Traffic},
    device::Device,
    error::PlanError,
    flops::Convention,
    layout::{ParallelLayout, Precision, Recompute, Zero},
    memory::{MemoryPlan, optimizer_bytes},
    schedule::Schedule,
    shape::ModelShape,
};

/// What is taken for granted. Each can be set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// The share of the peak that compute reaches while it computes.
    pub compute_efficiency: f64,
    /// The share of a device's memory that training can use.
    pub usable_memory: f64,
    /// Devices of a node.
    pub gpus_per_node: u64,
    /// Bytes a second, one way, between two devices of a node.
    pub link_bandwidth: f64,
    /// Bytes a second, one way, from a device to another node.
    pub network_bandwidth: f64,
    /// The share of the compute beside which data-parallel communication can run that really hides it.
    pub data_overlap: f64,
    /// The share of tensor-parallel communication that is hidden.
    pub tensor_overlap: f64,
    /// How attention is computed.
    pub attention: Attention,
}

impl Assumptions {
    /// For a device.
    pub fn of(device: &Device) -> Assumptions {
        Assumptions {
            compute_efficiency: 0.6,
            usable_memory: 0.92,
            gpus_per_node: 8,
            link_bandwidth: device.link_bandwidth,
            network_bandwidth: 50e9,
            data_overlap: 0.8,
            tensor_overlap: 0.0,
            attention: Attention::Flash,
        }
    }

    fn check(&self) -> Result<(), PlanError> {
        let shares = [
            ("compute efficiency", self.compute_efficiency, 0.001),
            ("usable memory", self.usable_memory, 0.001),
            ("data overlap", self.data_overlap, 0.0),
            ("tensor overlap", self.tensor_overlap, 0.0),
        ];
        for (what, share, least) in shares {
            if !(least..=1.0).contains(&share) {
                return Err(PlanError::Request(format!("{what} is {share}, not a share between {least} and 1")));
            }
        }
        let rates = [("link bandwidth", self.link_bandwidth), ("network bandwidth", self.network_bandwidth)];
        for (what, rate) in rates {
            if !rate.is_finite() || rate < 1.0 {
                return Err(PlanError::Request(format!("{what} is {rate} bytes a second")));
            }
        }
        if self.gpus_per_node == 0 {
            return Err(PlanError::Request("a node has at least one GPU".into()));
        }
        Ok(())
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model.
    pub model: ModelShape,
    /// The device.
    pub device: Device,
    /// How many devices.
    pub gpus: u64,
    /// Tokens of a step.
    pub global_batch_tokens: u64,
    /// Tokens of a sequence.
    pub sequence_length: u64,
    /// What parameters and activations are in.
    pub precision: Precision,
    /// What gradients are in.
    pub gradients: Precision,
    /// What is taken for granted.
    pub assumptions: Assumptions,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Search {
    /// What fits, best predicted throughput first.
    pub configurations: Vec<Configuration>,
    /// What does not, nearest misses first: of each grid the one that lacks least, or why it does not work at all.
    pub rejected: Vec<Rejection>,
}

/// A configuration that fits, and what is predicted for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Configuration {
    /// The layout.
    pub layout: ParallelLayout,
    /// Memory of the fullest rank.
    pub memory: MemoryPlan,
    /// All of that.
    pub memory_bytes: u64,
    /// A step.
    pub step_time_ns: f64,
    /// Over all ranks.
    pub tokens_per_second: f64,
    /// By the default convention.
    pub mfu: f64,
    /// The share of time stages wait, ideally.
    pub bubble: f64,
    /// Communication that nothing hides.
    pub exposed_communication_ns: f64,
}

/// A configuration that does not fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rejection {
    /// The layout.
    pub layout: ParallelLayout,
    /// Why.
    pub why: String,
    /// Bytes it lacks, if it is about memory.
    #[serde(skip)]
    lacking: Option<u64>,
}

impl Request {
    /// Searches all layouts.
    pub fn search(&self) -> Result<Search, PlanError> {
        self.assumptions.check()?;
        let sequences = self.sequences()?;
        // What is wrong on one rank is wrong on every grid.
        self.base().check(&self.model)?;
        let mut search = Search { configurations: Vec::new(), rejected: Vec::new() };
        for tp in divisors(self.assumptions.gpus_per_node).filter(|tp| self.gpus.is_multiple_of(*tp)) {
            for pp in divisors(self.gpus / tp).filter(|pp| *pp <= self.model.layers) {
                let dp = self.gpus / tp / pp;
                self.try_grid(ParallelLayout { dp, tp, pp, ..self.base() }, sequences, &mut search);
            }
        }
        search.configurations.sort_by(Configuration::better);
        search.rejected.sort_by_key(|rejection| rejection.lacking.unwrap_or(u64::MAX));
        Ok(search)
    }

    fn base(&self) -> ParallelLayout {
        let (sequence_length, precision, gradients) = (self.sequence_length, self.precision, self.gradients);
        ParallelLayout { sequence_length, precision, gradients, ..ParallelLayout::default() }
    }

    /// Sequences of a step.
    fn sequences(&self) -> Result<u64, PlanError> {
        let (tokens, length) = (self.global_batch_tokens, self.sequence_length);
        let wrong = |why: String| Err(PlanError::Request(why));
        match (self.gpus, length) {
            (0, _) => return wrong("there must be at least one GPU".into()),
            (gpus, _) if gpus > 1 << 22 => return wrong(format!("{gpus} GPUs are more than {}", 1 << 22)),
            (_, 0) => return wrong("a sequence has at least one token".into()),
            _ => {}
        }
        if tokens == 0 || !tokens.is_multiple_of(length) {
            let near = tokens.div_ceil(length).max(1).saturating_mul(length);
            return wrong(format!(
                "a global batch of {tokens} tokens is no whole number of sequences of {length}; {near} is"
            ));
        }
        if tokens > 1 << 40 {
            return Err(PlanError::TooLarge("a global batch of so many tokens"));
        }
        Ok(tokens / length)
    }

    /// Every way to train on one grid of ranks.
    fn try_grid(&self, grid: ParallelLayout, sequences: u64, search: &mut Search) {
        if let Err(error) = grid.check(&self.model) {
            let why = if let PlanError::Layout(why) = error { why } else { error.to_string() };
            search.rejected.push(Rejection { layout: grid, why, lacking: None });
            return;
        }
        if !sequences.is_multiple_of(grid.dp) {
            let why = format!("{sequences} sequences of a step cannot be shared by dp {}", grid.dp);
            search.rejected.push(Rejection { layout: grid, why, lacking: None });
            return;
        }
        let mut nearest: Option<Rejection> = None;
        let stages_of_zero = if grid.dp > 1 { &Zero::ALL[..] } else { &Zero::ALL[..1] };
        for &zero in stages_of_zero {
            for recompute in Recompute::ALL {
                let layout = ParallelLayout { zero, recompute, ..grid };
                search.configurations.extend(self.best_micro_batch(layout, sequences / grid.dp, &mut nearest));
            }
        }
        search.rejected.extend(nearest);
    }

    /// The micro-batch and schedule that do best, of those that fit; the least that is lacking where none does.
    fn best_micro_batch(
        &self,
        layout: ParallelLayout,
        sequences: u64,
        nearest: &mut Option<Rejection>,
    ) -> Option<Configuration> {
        let mut best: Option<Configuration> = None;
        let sizes = (0..40).map(|power| 1 << power).take_while(|size| *size <= sequences);
        for micro_batch in sizes.filter(|size| sequences.is_multiple_of(*size)) {
            let layout = ParallelLayout { micro_batch, micro_batches: sequences / micro_batch, ..layout };
            for layout in schedules(layout, &self.model) {
                let Ok(memory) = MemoryPlan::fullest(&self.model, &layout, self.assumptions.attention) else {
                    continue;
                };
                match self.lacking(&memory) {
                    None => {
                        let configuration = self.predict(layout, memory);
                        if best.as_ref().is_none_or(|best| configuration.better(best) == Ordering::Less) {
                            best = Some(configuration);
                        }
                    }
                    Some(lacking) => {
                        let nearer = nearest.as_ref().is_none_or(|nearest| Some(lacking) < nearest.lacking);
                        if nearer {
                            *nearest = Some(self.rejection(layout, &memory, lacking));
                        }
                    }
                }
            }
        }
        best
    }

    fn usable_bytes(&self) -> u64 {
        (self.device.memory_bytes as f64 * self.assumptions.usable_memory) as u64
    }

    fn lacking(&self, memory: &MemoryPlan) -> Option<u64> {
        memory.total().checked_sub(self.usable_bytes()).filter(|lacking| *lacking > 0)
    }

    fn rejection(&self, layout: ParallelLayout, memory: &MemoryPlan, lacking: u64) -> Rejection {
        let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
        let (largest, bytes) = memory.categories().into_iter().max_by_key(|(_, bytes)| *bytes).unwrap_or_default();
        let why = format!(
            "needs {} of {} usable; {} of it {}",
            gigabytes(memory.total()),
            gigabytes(self.usable_bytes()),
            gigabytes(bytes),
            largest.replace('_', " ")
        );
        Rejection { layout, why, lacking: Some(lacking) }
    }

    /// Predicts the time of a step.
    ///
    /// Compute runs at the assumed share of the peak, slowed down by the ideal bubble. Tensor-parallel communication
    /// stands in its way, but for the assumed share. Data-parallel communication hides behind the compute it can run
    /// beside. A pipeline is filled and drained once.
    fn predict(&self, layout: ParallelLayout, memory: MemoryPlan) -> Configuration {
        let (model, assumptions, ranks) = (&self.model, &self.assumptions, layout.world_size() as f64);
        let peak = self.device.peaks.of(layout.precision);
        let tokens = layout.tokens_per_step() as f64;
        let hardware = model.hardware_flops_per_token(layout.recompute, assumptions.attention, layout.sequence_length);
        let compute = hardware * tokens / (ranks * peak * assumptions.compute_efficiency);

        let traffic = Traffic::of_stage(model, &layout, layout.pp / 2);
        let seconds = |axis: Axis, span: u64| -> f64 {
            let bandwidth = if span <= assumptions.gpus_per_node {
                assumptions.link_bandwidth
            } else {
                assumptions.network_bandwidth
            };
            traffic.iter().filter(|traffic| traffic.axis == axis).map(|traffic| traffic.seconds(bandwidth)).sum()
        };
        let tensor = seconds(Axis::Tensor, layout.tp) * (1.0 - assumptions.tensor_overlap);
        let m = layout.micro_batches as f64;
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
        let data = (seconds(Axis::Data, layout.dp * layout.tp) - assumptions.data_overlap * beside).max(0.0);
        // One micro-batch's way there and back; the others are on their way while work goes on.
        let hops = 2.0 * (layout.pp - 1) as f64;
        let sends = traffic.iter().find(|traffic| traffic.axis == Axis::Pipeline).map_or(1, |traffic| traffic.count);
        let pipeline = seconds(Axis::Pipeline, layout.world_size()) / sends.max(1) as f64 * hops;

        let bubble = layout.schedule.ideal_bubble(layout.pp, layout.micro_batches, layout.chunks);
        // The optimizer reads and writes its state, reads gradients and writes parameters.
        let (state, rate) = (memory.optimizer_state, self.device.memory_bandwidth);
        let parameters = state / optimizer_bytes(layout.precision);
        let touched = 2 * state + parameters * (layout.gradients.bytes() + layout.precision.bytes());
        let step = (compute + tensor) / (1.0 - bubble) + data + pipeline + touched as f64 / rate;

        let tokens_per_second = tokens / step;
        let model_flops = model.flops_per_token(Convention::Model, layout.sequence_length);
        Configuration {
            layout,
            memory,
            memory_bytes: memory.total(),
            step_time_ns: step * 1e9,
            tokens_per_second,
            mfu: model_flops * tokens_per_second / (ranks * peak),
            bubble,
            exposed_communication_ns: (tensor + data + pipeline) * 1e9,
        }
    }
}

impl Rejection {
    /// Whether it is only memory that it lacks: then the layout is a whole one, else only its grid counts.
    pub fn lacks_memory(&self) -> bool {
        self.lacking.is_some()
    }
}

impl Configuration {
    /// Faster first; of equally fast ones the larger micro-batch, then the simpler layout.
    fn better(&self, other: &Configuration) -> Ordering {
        let simplicity = |configuration: &Configuration| {
            let layout = &configuration.layout;
            (layout.recompute, layout.zero, layout.pp, layout.tp, layout.chunks, layout.schedule)
        };
        other
            .tokens_per_second
            .total_cmp(&self.tokens_per_second)
            .then_with(|| other.layout.micro_batch.cmp(&self.layout.micro_batch))
            .then_with(|| simplicity(self).cmp(&simplicity(other)))
    }
}

/// The schedules a layout can have: 1F1B, and interleaved with every number of chunks. GPipe has the same bubble as
/// 1F1B and needs more memory.
fn schedules(layout: ParallelLayout, model: &ModelShape) -> impl Iterator<Item = ParallelLayout> {
    let plain = ParallelLayout { schedule: Schedule::OneForwardOneBackward, chunks: 1, ..layout };
    let most_chunks = if layout.pp > 1 { layout.stage_layers(model) } else { 1 };
    let interleaved = divisors(most_chunks).filter(|chunks| (2..=8).contains(chunks));
    let interleaved =
        interleaved.map(move |chunks| ParallelLayout { schedule: Schedule::Interleaved, chunks, ..layout });
    let possible = move |layout: &ParallelLayout| {
        layout.schedule != Schedule::Interleaved || layout.micro_batches.is_multiple_of(layout.pp)
    };
    std::iter::once(plain).chain(interleaved).filter(possible)
}

fn divisors(number: u64) -> impl Iterator<Item = u64> {
    (1..=number).filter(move |divisor| number.is_multiple_of(*divisor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(model: &str, gpu: &str, gpus: u64) -> Request {
        let device = Device::named(gpu).unwrap().clone();
        Request {
            model: ModelShape::preset(model).unwrap(),
            assumptions: Assumptions::of(&device),
            device,
            gpus,
            global_batch_tokens: 4 << 20,
            sequence_length: 4096,
            precision: Precision::Bf16,
            gradients: Precision::Bf16,
        }
    }

    #[test]
    fn what_is_found_fits_and_is_in_order() {
        let request = request("llama-70b", "h100", 64);
        let search = request.search().unwrap();
        assert!(search.configurations.len() > 10);
        for configuration in &search.configurations {
            let layout = &configuration.layout;
            assert_eq!(layout.check(&request.model), Ok(()));
            assert_eq!(layout.world_size(), 64);
            assert_eq!(layout.tokens_per_step(), 4 << 20);
            assert!(configuration.memory_bytes <= request.usable_bytes());
            assert_eq!(configuration.memory_bytes, configuration.memory.total());
            assert!((0.0..0.6).contains(&configuration.mfu), "{configuration:?}");
            assert!(configuration.step_time_ns > 0.0 && configuration.exposed_communication_ns >= 0.0);
        }
        assert!(search.configurations.is_sorted_by(|one, two| one.tokens_per_second >= two.tokens_per_second));
        assert!(search.configurations[0].layout.tp <= 8, "tensor shards stay inside a node");
    }

    #[test]
    fn what_does_not_fit_says_why() {
        let search = request("llama-405b", "a10", 8).search().unwrap();
        assert!(search.configurations.is_empty());
        let nearest = &search.rejected[0];
        assert!(
            nearest.why.contains("needs ") && nearest.why.contains("22.1") || nearest.why.contains("GB usable"),
            "{}",
            nearest.why
        );
        let search = request("llama-8b", "h100", 8).search().unwrap();
        assert!(search.configurations.iter().all(|configuration| configuration.layout.dp <= 8));
    }

    #[test]
    fn a_small_model_needs_nothing_but_replicas() {
        let search = request("gpt2-124m", "a100-80gb", 8);
        let search = Request { sequence_length: 1024, ..search }.search().unwrap();
        let best = search.configurations[0].layout;
        assert_eq!((best.dp, best.tp, best.pp, best.recompute), (8, 1, 1, Recompute::None));
    }

    #[test]
    fn questions_without_sense_are_refused() {
        let base = request("tiny", "h100", 8);
        let wrong = |request: Request| request.search().unwrap_err().to_string();
        assert!(wrong(Request { gpus: 0, ..base.clone() }).contains("at least one GPU"));
        assert!(wrong(Request { sequence_length: 0, ..base.clone() }).contains("at least one token"));
        let uneven = wrong(Request { global_batch_tokens: 1000, sequence_length: 300, ..base.clone() });
        assert!(uneven.contains("1200 is"), "{uneven}");
        let assumptions = Assumptions { compute_efficiency: 1.5, ..base.assumptions };
        assert!(wrong(Request { assumptions, ..base.clone() }).contains("compute efficiency is 1.5"));
        let assumptions = Assumptions { network_bandwidth: f64::NAN, ..base.assumptions };
        assert!(wrong(Request { assumptions, ..base }).contains("network bandwidth"));
    }
}
