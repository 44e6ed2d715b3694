//! MFU: the model's FLOPs a second, as a share of what the devices could do.
//!
//! For users, it is defined in `docs/src/metrics.md#mfu-and-hfu`.
//!
//! MFU = FLOPs of the model per token × tokens per second / (ranks × peak FLOP/s of a device). HFU counts the FLOPs
//! that are executed, what is computed again included. Without a peak there is neither.
//!
//! The model is what whoever asks says, or the run, or else what the program said or showed while it was recorded. A program
//! does not say whether it computes anything again, so then HFU is not known.

use std::collections::BTreeMap;

use stepscope_plan::{Attention, Convention, CountedModel, Model, Recompute};
use stepscope_traces::{Family, ProgramModel, RankInfo, RunInfo};

use crate::{
    figures::{CountedTime, KernelMfu, Mfu, ModelFrom, StepTime},
    job::launched::JobKernels,
    selection::Selection,
};

/// Of so much of the time of matrix products, attention and convolutions the FLOPs must be known.
const LEAST_KNOWN: f64 = 0.9;
/// Of so much of the time of kernels of one name it must be known who launched them, to take the others to be alike.
const LEAST_LAUNCHED: f64 = 0.5;
/// Of the five products of the backward pass of attention, one computes scores again.
const SCORES_AGAIN: f64 = 1.0 / 5.0;

/// The model that is trained, and what FLOPs depend on besides.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrainedModel {
    pub(crate) model: Model,
    pub(crate) sequence_length: Option<u64>,
    recompute: Option<Recompute>,
    from: ModelFrom,
}

impl TrainedModel {
    /// As whoever asks says, or the run, or the ranks whose programs do. The ranks of a pipeline have a part of it each.
    pub(crate) fn of(
        run: &RunInfo,
        ranks: &[&RankInfo],
        pipeline: Option<&[usize]>,
        selection: &Selection,
    ) -> Option<TrainedModel> {
        let of_rank = |rank: &&RankInfo| rank.collector.program_model.clone();
        let told: Vec<ProgramModel> = ranks.iter().filter_map(of_rank).collect();
        let stages = || pipeline?.iter().map(|rank| of_rank(ranks.get(*rank)?)).collect::<Option<Vec<_>>>();
        let of_run = run.layout.map(|layout| layout.sequence_length);
        let of_program = || told.iter().find_map(|told| told.sequence_length);
        let sequence_length = selection.sequence_length.or(of_run).or_else(of_program);
        let recompute = run.layout.map(|layout| layout.recompute);
        let trained = |from, model| TrainedModel { model, sequence_length, recompute, from };
        let given = selection.model.clone().map(Model::Shape).map(|model| trained(ModelFrom::Flag, model));
        let said = || run.model.clone().map(Model::Shape).map(|model| trained(ModelFrom::Run, model));
        given.or_else(said).or_else(|| Some(trained(ModelFrom::Program, of_programs(&told, stages())?)))
    }
}

/// What the programs of all ranks train. Those that count modules see their own stage of a pipeline; where they differ and it
/// is not known which are stages of one, nothing is known.
fn of_programs(told: &[ProgramModel], stages: Option<Vec<ProgramModel>>) -> Option<Model> {
    if let Some(shape) = told.iter().find(|told| told.model.shape().is_some()) {
        return Some(shape.model.clone());
    }
    let counted = |told: ProgramModel| match told.model {
        Model::Counted(counted) => Some(counted),
        Model::Shape(_) => None,
    };
    match stages {
        Some(stages) => CountedModel::of_parts(stages.into_iter().filter_map(counted)).map(Model::Counted),
        None => told
            .first()
            .filter(|first| told.iter().all(|told| told.model == first.model))
            .map(|told| told.model.clone()),
    }
}

/// What FLOPs and devices a run has.
pub(crate) struct Rates {
    model: Option<TrainedModel>,
    peak_flops: Option<f64>,
    ranks: f64,
    convention: Convention,
}

impl Rates {
    pub(crate) fn of(
        run: &RunInfo,
        model: Option<TrainedModel>,
        peak_flops: Option<f64>,
        ranks: usize,
        convention: Convention,
    ) -> Rates {
        // A world of no ranks is not this one.
        let ranks = run.world_size.filter(|size| *size > 0).map_or(ranks as f64, f64::from);
        Rates { model, peak_flops, ranks, convention }
    }

    /// A share of what all devices could do.
    fn utilisation(&self, flops_per_token: f64, tokens_per_second: f64) -> Option<f64> {
        Some(flops_per_token * tokens_per_second / (self.ranks * self.peak_flops?))
    }

    fn flops_per_token(&self, convention: Convention) -> Option<f64> {
        let model = self.model.as_ref()?;
        model.model.flops_per_token(convention, model.sequence_length?)
    }

    fn hardware_flops_per_token(&self) -> Option<f64> {
        let model = self.model.as_ref()?;
        let shape = model.model.shape()?;
        Some(shape.hardware_flops_per_token(model.recompute?, Attention::Flash, model.sequence_length?))
    }

    /// MFU and HFU at a rate.
    pub(crate) fn at(&self, tokens_per_second: Option<f64>) -> (Option<f64>, Option<f64>) {
        let at = |flops: Option<f64>| self.utilisation(flops?, tokens_per_second?);
        (at(self.flops_per_token(self.convention)), at(self.hardware_flops_per_token()))
    }

    /// MFU of all steps but the first ones, over all ranks.
    pub(crate) fn overall(
        &self,
        step_time: Option<&StepTime>,
        kernels: &JobKernels<'_>,
        counted: &[&CountedTime],
    ) -> Option<Mfu> {
        let (flops_per_token, peak_flops) = (self.flops_per_token(self.convention), self.peak_flops?);
        let by_kernels = by_kernels(kernels, counted, peak_flops);
        if flops_per_token.is_none() {
            return self.of_shapes(by_kernels?, peak_flops, step_time);
        }
        let tokens_per_second = step_time.and_then(|step_time| step_time.tokens_per_second);
        let (value, hfu) = self.at(tokens_per_second);
        let (training_value, _) = self.at(step_time.and_then(|step_time| step_time.training_tokens_per_second));
        let by_convention = Convention::ALL.into_iter().filter_map(|convention| {
            let value = self.utilisation(self.flops_per_token(convention)?, tokens_per_second?)?;
            Some((convention.name(), value))
        });
        Some(Mfu {
            model_from: self.model.as_ref()?.from,
            convention: self.convention,
            flops_per_token,
            peak_flops,
            value,
            training_value,
            hfu,
            by_convention: by_convention.collect(),
            tokens_per_second,
            by_kernels,
        })
    }

    /// MFU of a model of which nothing is known but the FLOPs of its kernels.
    fn of_shapes(&self, by_kernels: KernelMfu, peak_flops: f64, step_time: Option<&StepTime>) -> Option<Mfu> {
        // Without steps nobody knows whether this is training.
        let tokens_per_second = step_time?.tokens_per_second;
        let flops_per_second = by_kernels.value * self.ranks * peak_flops;
        Some(Mfu {
            model_from: ModelFrom::Shapes,
            convention: Convention::Model,
            flops_per_token: tokens_per_second.map(|tokens| flops_per_second / tokens),
            peak_flops,
            value: Some(by_kernels.value),
            training_value: None,
            hfu: Some(by_kernels.hfu),
            by_convention: Default::default(),
            tokens_per_second,
            by_kernels: Some(by_kernels),
        })
    }
}

/// MFU and HFU by the FLOPs of the kernels that multiply, in the time that counts.
fn by_kernels(job: &JobKernels<'_>, counted: &[&CountedTime], peak_flops: f64) -> Option<KernelMfu> {
    let mut names: BTreeMap<&str, NameFlops> = BTreeMap::new();
    for kernel in &job.kernels {
        let again = match kernel.kind.family {
            Family::Attention => kernel.sum.flops_backward * SCORES_AGAIN,
            Family::Matmul | Family::Convolution => 0.0,
            _ => continue,
        };
        let name = names.entry(&kernel.key.name).or_default();
        name.all += kernel.sum.flops;
        name.model += kernel.sum.flops - kernel.sum.flops_again - again;
        name.known_ns += job.counted_ns(kernel);
        name.whole_ns += kernel.sum.total_ns;
        name.launched_ns += if kernel.origin.is_some() { kernel.sum.total_ns } else { 0 };
    }
    let scaled = |part: fn(&NameFlops) -> f64| names.values().map(|name| part(name) * name.scale()).sum::<f64>();
    let (model, all) = (scaled(|name| name.model), scaled(|name| name.all));
    let whole_ns: i64 = names.values().map(|name| name.whole_ns).sum();
    let known_share = scaled(|name| name.known_ns as f64) / whole_ns.max(1) as f64;
    let device_seconds: f64 = counted.iter().map(|time| time.partition.span_ns as f64 / 1e9).sum();
    let steps = counted.iter().map(|time| time.windows).max().filter(|windows| *windows > 0);
    let possible = device_seconds * peak_flops;
    (known_share >= LEAST_KNOWN && all > 0.0 && possible > 0.0).then(|| KernelMfu {
        value: model / possible,
        hfu: all / possible,
        model_flops_per_step: steps.map(|steps| model / steps as f64),
        flops_per_step: steps.map(|steps| all / steps as f64),
        known_share: known_share.min(1.0),
    })
}

/// What kernels of one name compute.
#[derive(Default)]
struct NameFlops {
    model: f64,
    all: f64,
    /// The time of those whose FLOPs are known.
    known_ns: i64,
    /// The time of those of which it is known who launched them.
    launched_ns: i64,
    whole_ns: i64,
}

impl NameFlops {
    /// A recording looks at the operators of some steps: where it is known of most kernels of a name who launched them, the
    /// others compute as much in their time.
    fn scale(&self) -> f64 {
        let launched_share = self.launched_ns as f64 / self.whole_ns.max(1) as f64;
        if launched_share >= LEAST_LAUNCHED { 1.0 / launched_share } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{CollectorNote, Rank};

    use stepscope_plan::ModelShape;

    use super::*;

    fn of(run: &RunInfo, ranks: &[RankInfo]) -> Option<TrainedModel> {
        TrainedModel::of(run, &ranks.iter().collect::<Vec<_>>(), None, &Selection::default())
    }

    /// A rank whose program says a model, and how long sequences are.
    fn rank(number: u32, model: &str, sequence_length: Option<u64>) -> RankInfo {
        let mut info = RankInfo::of_this_process(Rank(number));
        let shape = ModelShape::preset(model).unwrap();
        let model = ProgramModel { model: Model::Shape(shape), sequence_length, zero: None };
        info.collector.add(CollectorNote::ProgramModel(model));
        info
    }

    #[test]
    fn the_model_is_what_the_run_says_or_else_the_first_program_that_does() {
        let mut run = RunInfo::of_this_process("test");
        let silent = RankInfo::of_this_process(Rank(0));
        assert_eq!(of(&run, std::slice::from_ref(&silent)), None);
        let ranks = [silent, rank(1, "llama-1b", Some(1024)), rank(2, "tiny", None)];
        let told = of(&run, &ranks).unwrap();
        assert_eq!((told.model.name(), told.sequence_length, told.from), ("llama-1b", Some(1024), ModelFrom::Program));
        run.model = Some(ModelShape::preset("tiny").unwrap());
        let told = of(&run, &ranks).unwrap();
        assert_eq!((told.model.name(), told.from), ("tiny", ModelFrom::Run));
    }

    #[test]
    fn a_program_that_says_its_model_has_mfu_and_no_hfu() {
        let run = RunInfo::of_this_process("test");
        let rates = |length| {
            let model = of(&run, &[rank(0, "llama-1b", length)]);
            Rates::of(&run, model, Some(1e15), 2, Convention::Model)
        };
        let flops = ModelShape::preset("llama-1b").unwrap().flops_per_token(Convention::Model, 1024);
        assert_eq!(rates(Some(1024)).at(Some(1e5)), (Some(flops * 1e5 / 2e15), None));
        assert_eq!(rates(None).at(Some(1e5)), (None, None), "attention depends on how long a sequence is");
    }
}
