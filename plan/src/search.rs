//! The search for a configuration: what fits, and how fast it should be.
//!
//! The recipe people use: the global batch is fixed, and micro-batches make up what replicas leave of it. Every candidate is tried, its
//! memory and time are predicted, and for each grid, what it shares and what it computes again, the micro-batch and schedule that
//! do best are kept.

use std::cmp::Ordering;

use serde::Serialize;

use crate::{
    assumptions::Assumptions,
    candidates::Wanted,
    device::Device,
    error::PlanError,
    layout::{ParallelLayout, Precision, Zero},
    memory::MemoryPlan,
    predict::Prediction,
    shape::ModelShape,
    text,
};

/// Of usable memory, what should be left: predictions are within 3%, and allocators leave gaps.
const HEAD_ROOM: f64 = 0.05;
/// A miss is near when it lacks at most this part of the memory there is.
const NEAR: u64 = 4;

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
    /// What layouts must have.
    pub wanted: Wanted,
    /// What is taken for granted.
    pub assumptions: Assumptions,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// What fits, best predicted throughput first.
    pub configurations: Vec<Configuration>,
    /// What does not, nearest misses first: grids on which nothing works, and why; and what would be faster than all
    /// that fits, if it did.
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
    /// Whether so little of what is usable is left that it may not fit after all.
    pub tight: bool,
    /// A step.
    pub step_time_ns: f64,
    /// A step, if efficiencies and bandwidths are higher by the assumed spread.
    pub step_time_low_ns: f64,
    /// A step, if they are lower by it.
    pub step_time_high_ns: f64,
    /// Over all ranks.
    pub tokens_per_second: f64,
    /// With the longest step of the range.
    pub tokens_per_second_low: f64,
    /// With the shortest.
    pub tokens_per_second_high: f64,
    /// By the default convention.
    pub mfu: f64,
    /// The share of time that stages wait for each other.
    pub bubble: f64,
    /// Communication that nothing hides.
    pub exposed_communication_ns: f64,
}

/// A configuration that does not fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rejection {
    /// The layout. Where no memory is lacking only its grid (dp, tp, pp) was looked at.
    pub layout: ParallelLayout,
    /// Why.
    pub why: String,
    /// Bytes it lacks, if that is why.
    pub lacking_bytes: Option<u64>,
}

impl Request {
    /// Searches all layouts. Some of them must have what is asked for, whether or not they fit.
    pub fn search(&self) -> Result<Search, PlanError> {
        self.assumptions.check()?;
        let sequences = self.sequences()?;
        // What is wrong on one rank is wrong on every grid.
        self.base().check(&self.model)?;
        let search = self.search_all(sequences);
        if self.wanted == Wanted::default() || !search.layouts().is_empty() {
            return Ok(search);
        }
        Err(PlanError::NoLayout {
            wanted: self.wanted.options(),
            gpus: self.gpus,
            why: search.rejected.first().map_or_else(String::new, |rejection| format!(": {}", rejection.why)),
            instead: self.instead(|request| request.search_all(sequences).layouts()),
        })
    }

    fn search_all(&self, sequences: u64) -> Search {
        let (mut search, mut faster) = (Search::default(), Vec::new());
        for grid in self.grids() {
            faster.extend(self.try_grid(grid, sequences, &mut search));
        }
        search.configurations.sort_by(Configuration::better);
        let best = search.configurations.first().map_or(0.0, |best| best.tokens_per_second);
        faster.retain(|(_, estimate)| estimate.tokens_per_second() > best);
        search.rejected.extend(faster.iter().map(|(miss, _)| self.rejection(miss)));
        search.rejected.sort_by_key(|rejection| rejection.lacking_bytes.unwrap_or(u64::MAX));
        search
    }

    pub(crate) fn base(&self) -> ParallelLayout {
        let (sequence_length, precision, gradients) = (self.sequence_length, self.precision, self.gradients);
        ParallelLayout { sequence_length, precision, gradients, ..ParallelLayout::default() }
    }

    /// Sequences of a step.
    fn sequences(&self) -> Result<u64, PlanError> {
        let (tokens, length) = (self.global_batch_tokens, self.sequence_length);
        let wrong = |why: String| Err(PlanError::Request(why));
        match (self.gpus, length) {
            (0, _) => return wrong("at least one GPU is needed".into()),
            (gpus, _) if gpus > 1 << 22 => {
                let (gpus, most) = (text::count(gpus), text::count(1 << 22));
                return wrong(format!("{gpus} GPUs are too many; the maximum is {most}"));
            }
            (_, 0) => return wrong("a sequence needs at least one token".into()),
            _ => {}
        }
        if tokens == 0 || !tokens.is_multiple_of(length) {
            let near = tokens.div_ceil(length).max(1).saturating_mul(length);
            return wrong(format!(
                "a global batch of {tokens} tokens is not a multiple of the sequence length {length}; the nearest is {near}"
            ));
        }
        if tokens > 1 << 40 {
            return Err(PlanError::TooLarge("the global batch"));
        }
        Ok(tokens / length)
    }

    /// Every way to train on one grid of ranks. Returns the fastest that does not fit, if others do.
    fn try_grid(&self, grid: ParallelLayout, sequences: u64, search: &mut Search) -> Option<(Miss, Estimate)> {
        let mut reject = |why: String| {
            // However many share the experts, it is for the same reason.
            if grid.ep == self.wanted.ep.unwrap_or(1) {
                search.rejected.push(Rejection { layout: grid, why, lacking_bytes: None });
            }
            None
        };
        match grid.check(&self.model) {
            Err(PlanError::Layout(why)) => return reject(why),
            Err(error) => return reject(error.to_string()),
            Ok(()) => {}
        }
        if !sequences.is_multiple_of(grid.dp) {
            return reject(format!("{sequences} sequences per step are not divisible by dp {}", grid.dp));
        }
        let mut misses = Misses::default();
        let found = search.configurations.len();
        let sequences = sequences / grid.dp;
        for recompute in self.recomputations() {
            let mut least = None;
            for (zero, dp_replicate) in self.sharings(&grid) {
                // What shards gradients or parameters talks in every micro-batch: beside a pipeline only if it must.
                if grid.pp > 1 && zero >= Zero::Two && least.is_some_and(|least| least < zero) {
                    break;
                }
                let layout = ParallelLayout { zero, dp_replicate, recompute, ..grid };
                let best = self.best(layout, sequences, &mut misses);
                if best.is_some() {
                    least.get_or_insert(zero);
                }
                search.configurations.extend(best);
            }
        }
        if search.configurations.len() > found {
            return misses.fastest;
        }
        let why = misses.nearest.map(|miss| self.rejection(&miss));
        let nothing = || Rejection { layout: grid, why: self.why_nothing(grid, sequences), lacking_bytes: None };
        search.rejected.push(why.unwrap_or_else(nothing));
        None
    }

    /// The micro-batch and schedule that do best, of those that fit.
    fn best(&self, layout: ParallelLayout, sequences: u64, misses: &mut Misses) -> Option<Configuration> {
        let fitting = self.layouts(layout, sequences).filter_map(|layout| {
            let memory = MemoryPlan::fullest(&self.model, &layout, self.assumptions.attention).ok()?.on_gpu();
            let estimate = || Estimate::of(&self.model, &self.device, &self.assumptions, layout, memory);
            match memory.total().saturating_sub(self.usable_bytes()) {
                0 => Some(estimate()),
                lacking => {
                    misses.add(Miss { layout, memory, lacking }, self.usable_bytes() / NEAR, estimate);
                    None
                }
            }
        });
        let best = fitting.min_by(Estimate::better)?;
        Some(best.configuration(&self.model, &self.device, &self.assumptions))
    }

    fn usable_bytes(&self) -> u64 {
        self.assumptions.usable_bytes(&self.device)
    }

    fn rejection(&self, miss: &Miss) -> Rejection {
        let Miss { layout, memory, .. } = *miss;
        let (largest, bytes) = memory.categories().into_iter().max_by_key(|(_, bytes)| *bytes).unwrap_or_default();
        let why = format!(
            "{} short: needs {} of {} usable, {} of it for {}",
            text::bytes(miss.lacking),
            text::bytes(memory.total()),
            text::bytes(self.usable_bytes()),
            text::bytes(bytes),
            largest.replace('_', " ")
        );
        Rejection { layout, why, lacking_bytes: Some(miss.lacking) }
    }
}

impl Search {
    /// All layouts that fit, or would if there were more memory.
    fn layouts(&self) -> Vec<ParallelLayout> {
        let found = self.configurations.iter().map(|found| found.layout);
        let lacking = self.rejected.iter().filter(|rejection| rejection.lacking_bytes.is_some());
        found.chain(lacking.map(|rejection| rejection.layout)).collect()
    }
}

/// What would work if there were more memory.
#[derive(Clone, Copy, Debug)]
struct Miss {
    layout: ParallelLayout,
    memory: MemoryPlan,
    lacking: u64,
}

/// The misses of a grid that are worth telling.
#[derive(Default)]
struct Misses {
    nearest: Option<Miss>,
    fastest: Option<(Miss, Estimate)>,
}

impl Misses {
    /// Only what lacks at most `near` bytes is worth telling for its speed.
    fn add(&mut self, miss: Miss, near: u64, estimate: impl Fn() -> Estimate) {
        if self.nearest.is_none_or(|nearest| miss.lacking < nearest.lacking) {
            self.nearest = Some(miss);
        }
        if miss.lacking <= near {
            let estimate = estimate();
            if self.fastest.is_none_or(|(_, fastest)| estimate.better(&fastest) == Ordering::Less) {
                self.fastest = Some((miss, estimate));
            }
        }
    }
}

/// How fast a layout should be, without what that may be off by.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    layout: ParallelLayout,
    memory: MemoryPlan,
    prediction: Prediction,
}

impl Estimate {
    fn of(
        model: &ModelShape,
        device: &Device,
        assumptions: &Assumptions,
        layout: ParallelLayout,
        memory: MemoryPlan,
    ) -> Estimate {
        Estimate { layout, memory, prediction: Prediction::of(model, device, assumptions, &layout, &memory) }
    }

    fn tokens_per_second(&self) -> f64 {
        self.layout.tokens_per_step() as f64 / self.prediction.step
    }

    fn better(&self, other: &Estimate) -> Ordering {
        faster_first((self.tokens_per_second(), &self.layout), (other.tokens_per_second(), &other.layout))
    }

    /// All that is said of it.
    fn configuration(self, model: &ModelShape, device: &Device, assumptions: &Assumptions) -> Configuration {
        let Estimate { layout, memory, prediction } = self;
        let [faster, slower] = [assumptions.faster(), assumptions.slower()]
            .map(|assumptions| Estimate::of(model, device, &assumptions, layout, memory));
        Configuration {
            layout,
            memory,
            memory_bytes: memory.total(),
            tight: memory.total() as f64 > (1.0 - HEAD_ROOM) * assumptions.usable_bytes(device) as f64,
            step_time_ns: nanoseconds(prediction.step),
            step_time_low_ns: nanoseconds(faster.prediction.step),
            step_time_high_ns: nanoseconds(slower.prediction.step),
            tokens_per_second: self.tokens_per_second(),
            tokens_per_second_low: slower.tokens_per_second(),
            tokens_per_second_high: faster.tokens_per_second(),
            mfu: prediction.mfu,
            bubble: prediction.bubble,
            exposed_communication_ns: nanoseconds(prediction.exposed_communication),
        }
    }
}

impl Configuration {
    /// What is predicted for a layout, whether or not it fits.
    pub fn predict(
        model: &ModelShape,
        device: &Device,
        assumptions: &Assumptions,
        layout: ParallelLayout,
    ) -> Result<Configuration, PlanError> {
        assumptions.check()?;
        let memory = MemoryPlan::fullest(model, &layout, assumptions.attention)?.on_gpu();
        Ok(Estimate::of(model, device, assumptions, layout, memory).configuration(model, device, assumptions))
    }

    fn better(&self, other: &Configuration) -> Ordering {
        faster_first((self.tokens_per_second, &self.layout), (other.tokens_per_second, &other.layout))
    }
}

/// Whole ones: no prediction is finer.
fn nanoseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round()
}

/// More tokens per second first; of equally many the larger micro-batch, then the simpler layout.
fn faster_first(one: (f64, &ParallelLayout), other: (f64, &ParallelLayout)) -> Ordering {
    let simplicity = |layout: &ParallelLayout| {
        let ParallelLayout {
            recompute, zero, dp_replicate, pp, cp, tp, ep, sequence_parallel, chunks, schedule, ..
        } = *layout;
        (recompute, (zero, dp_replicate), pp, cp, tp, ep, sequence_parallel, chunks, schedule)
    };
    let (by_speed, by_size) = (other.0.total_cmp(&one.0), other.1.micro_batch.cmp(&one.1.micro_batch));
    by_speed.then(by_size).then_with(|| simplicity(one.1).cmp(&simplicity(other.1)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{layout::Recompute, schedule::Schedule};

    pub(crate) fn request(model: &str, gpu: &str, gpus: u64) -> Request {
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
            wanted: Wanted::default(),
        }
    }

    fn wanted(schedule: Schedule) -> Wanted {
        Wanted { schedule: Some(schedule), ..Wanted::default() }
    }

    #[test]
    fn only_the_schedule_that_is_asked_for_is_tried() {
        for schedule in Schedule::ALL {
            let request = Request { wanted: wanted(schedule), ..request("llama-8b", "h100", 64) };
            let found = request.search().unwrap().configurations;
            assert!(found.iter().any(|found| found.layout.pp > 1), "{schedule:?}");
            assert!(
                found.iter().all(|found| found.layout.pp == 1 || found.layout.schedule == schedule),
                "{schedule:?}"
            );
            assert!(found.iter().all(|found| found.layout.check(&request.model).is_ok()), "{schedule:?}");
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
            let left = 1.0 - configuration.memory_bytes as f64 / request.usable_bytes() as f64;
            assert_eq!(configuration.tight, left < 0.05, "{left}");
            assert_eq!(configuration.memory_bytes, configuration.memory.total());
            assert!((0.0..request.assumptions.compute_efficiency).contains(&configuration.mfu), "{configuration:?}");
            assert!(configuration.step_time_low_ns < configuration.step_time_ns, "{configuration:?}");
            assert!(configuration.step_time_ns < configuration.step_time_high_ns, "{configuration:?}");
            let low = 4_194_304.0 / (configuration.step_time_high_ns / 1e9);
            assert!((configuration.tokens_per_second_low / low - 1.0).abs() < 1e-9);
            assert!(configuration.tokens_per_second < configuration.tokens_per_second_high);
            assert!(configuration.step_time_ns > 0.0 && configuration.exposed_communication_ns >= 0.0);
        }
        assert!(search.configurations.is_sorted_by(|one, two| one.tokens_per_second >= two.tokens_per_second));
        assert!(search.configurations[0].layout.tp <= 8, "tensor shards stay inside a node");
    }

    #[test]
    fn experts_are_spread_where_that_makes_room() {
        let search = request("mixtral-8x7b", "h100", 64).search().unwrap();
        let found = search.configurations.iter().map(|configuration| configuration.layout.ep);
        let found: std::collections::BTreeSet<u64> = found.collect();
        assert!(found.iter().all(|ep| [1, 2, 4, 8].contains(ep)) && found.contains(&8), "{found:?}");
        assert!(search.configurations[0].layout.ep > 1, "{:?}", search.configurations[0].layout);
        let dense = request("llama-8b", "h100", 16).search().unwrap();
        assert!(dense.configurations.iter().all(|configuration| configuration.layout.ep == 1));
    }

    #[test]
    fn what_does_not_fit_says_why() {
        let search = request("llama-405b", "a10", 8).search().unwrap();
        assert!(search.configurations.is_empty());
        let nearest = &search.rejected[0];
        // 92% of 24 GiB.
        assert!(nearest.lacking_bytes.is_some() && nearest.why.contains(" of 23.7 GB usable, "), "{}", nearest.why);
        let search = request("llama-405b", "a10", 12).search().unwrap();
        let grid = |why: &str| search.rejected.iter().any(|rejection| rejection.why == why);
        assert!(grid("1024 sequences per step are not divisible by dp 3"));
    }

    #[test]
    fn a_miss_is_told_where_nothing_fits_or_it_would_be_the_fastest() {
        for (model, gpus) in [("llama-70b", 64), ("llama-8b", 8), ("gpt3-175b", 1024)] {
            let request = Request { sequence_length: 2048, ..request(model, "a100", gpus) };
            let search = request.search().unwrap();
            let best = search.configurations[0].tokens_per_second;
            for rejection in search.rejected.iter().filter(|rejection| rejection.lacking_bytes.is_some()) {
                let layout = rejection.layout;
                let grid = |layout: &ParallelLayout| (layout.dp, layout.tp, layout.cp, layout.pp);
                let same = |other: &ParallelLayout| grid(other) == grid(&layout);
                let fits = search.configurations.iter().any(|configuration| same(&configuration.layout));
                let Request { model, device, assumptions, .. } = &request;
                let predicted = Configuration::predict(model, device, assumptions, layout).unwrap();
                assert!(!fits || predicted.tokens_per_second > best, "{rejection:?}");
            }
        }
    }

    #[test]
    fn stages_and_chunks_are_tried() {
        let search = request("llama-70b", "h100", 64).search().unwrap();
        let has = |wanted: fn(&ParallelLayout) -> bool| search.configurations.iter().any(|found| wanted(&found.layout));
        assert!(has(|layout| layout.schedule == Schedule::Interleaved));
        assert!(has(|layout| layout.pp > 1 && layout.zero <= Zero::One));
        assert!(has(|layout| layout.zero == Zero::Three && layout.pp == 1));
        assert!(has(|layout| layout.tp == 8) && has(|layout| layout.recompute == Recompute::Full));
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
        assert!(uneven.contains("the nearest is 1200"), "{uneven}");
        let assumptions = Assumptions { compute_efficiency: 1.5, ..base.assumptions };
        assert!(wrong(Request { assumptions, ..base.clone() }).contains("compute efficiency is 1.5"));
        let assumptions = Assumptions { network_bandwidth: f64::NAN, ..base.assumptions };
        assert!(wrong(Request { assumptions, ..base.clone() }).contains("network bandwidth"));
        let assumptions = Assumptions { gpus_per_node: u64::MAX, ..base.assumptions };
        assert!(wrong(Request { assumptions, ..base }).contains("a node cannot have"));
    }
}
