//! The gradients of a whole model against central differences of its loss, in double precision.

use std::sync::Arc;

use stepscope_collector::Recorder;
use stepscope_plan::{Experts, ModelShape, ParallelLayout, Recompute};
use stepscope_traces::Rank;

use super::TrainingRank;
use crate::{
    backend::cpu::CpuBackend,
    comm::local::{LocalCommunicator, LocalWorld},
    config::TrainConfig,
    data::Dataset,
    numbers::Numbers,
    parts::RankParts,
    state::State,
};

fn rank(config: &TrainConfig) -> TrainingRank {
    let recorder = Recorder::disabled();
    let backend = Arc::new(CpuBackend::start(recorder.clone()).unwrap());
    let communicator = Arc::new(LocalCommunicator::new(Arc::new(LocalWorld::default()), Rank(0), backend.clone()));
    TrainingRank::new(config, Rank(0), RankParts { backend, communicator, recorder }).unwrap()
}

impl TrainingRank {
    fn loss_at(&mut self, data: &Dataset) -> f64 {
        self.accumulate(data).unwrap();
        self.totals().unwrap().loss
    }
}

/// Compares a few elements of every tensor.
fn check(tied_embeddings: bool, recompute: Recompute) {
    check_model(small(tied_embeddings), recompute);
}

fn small(tied_embeddings: bool) -> ModelShape {
    ModelShape {
        layers: 2,
        hidden: 16,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        ffn: 24,
        vocabulary: 256,
        tied_embeddings,
        ..ModelShape::preset("tiny").unwrap()
    }
}

fn check_model(model: ModelShape, recompute: Recompute) {
    let layout = ParallelLayout {
        micro_batch: 2,
        micro_batches: 2,
        sequence_length: 12,
        recompute,
        ..ParallelLayout::default()
    };
    let config =
        TrainConfig { numbers: Numbers::CHECK, z_loss: 0.01, balance_loss: 0.1, ..TrainConfig::new(model, layout) };
    let (mut rank, data) = (rank(&config), Dataset::built_in());
    rank.loss_at(&data);
    let mut random = fastrand::Rng::with_seed(7);
    let parts: [Part; 2] = [|state| state, |state| state.experts.as_deref().unwrap()];
    for part in &parts[..if rank.state.experts.is_some() { 2 } else { 1 }] {
        // What another part's comparison left behind is of other weights.
        rank.loss_at(&data);
        check_part(&mut rank, *part, &data, &mut random);
    }
}

/// What all replicas hold, or experts.
type Part = fn(&State) -> &State;

fn check_part(rank: &mut TrainingRank, part: Part, data: &Dataset, random: &mut fastrand::Rng) {
    let placement = part(&rank.state).placement.clone();
    let gradient = |unit| rank.parts.backend.download(&part(&rank.state).owned_gradient(unit)).unwrap();
    let gradients: Vec<Vec<f64>> = (0..placement.units.len()).map(gradient).collect();
    for slot in placement.slots.clone() {
        let unit = placement.units.iter().position(|unit| unit.range.contains(&slot.offset)).unwrap();
        let start = (slot.offset - placement.units[unit].range.start) as usize;
        let of_slot = &gradients[unit][start..start + slot.elements() as usize];
        let scale = of_slot.iter().map(|gradient| gradient.abs()).fold(0.0, f64::max);
        assert!(scale > 0.0, "{} of {:?} has no gradient", slot.name, slot.part);
        for _ in 0..3 {
            // Where the gradient is not zero: an embedding's is, for tokens that are not in the batch.
            let element = loop {
                let element = random.usize(0..of_slot.len());
                if of_slot[element].abs() > 0.05 * scale {
                    break start + element;
                }
            };
            let weights = rank.parts.backend.download(&part(&rank.state).owned_weights(unit)).unwrap();
            let values: Vec<f32> = weights.into_iter().map(|weight| weight as f32).collect();
            let mut loss_with = |step: f32| {
                let mut moved = values.clone();
                moved[element] += step;
                let there = f64::from(moved[element]);
                part(&rank.state).restore(unit, "master", moved);
                (there, rank.loss_at(data))
            };
            let ((above, loss_above), (below, loss_below)) = (loss_with(5e-5), loss_with(-5e-5));
            part(&rank.state).restore(unit, "master", values);
            let (difference, gradient) = ((loss_above - loss_below) / (above - below), gradients[unit][element]);
            let error = (difference - gradient).abs() / scale;
            assert!(error < 1e-5, "{} of {:?}: {gradient} is not {difference}", slot.name, slot.part);
        }
    }
}

#[test]
fn gradients_are_what_the_loss_does() {
    check(false, Recompute::None);
}

#[test]
fn gradients_of_a_tied_embedding_come_from_both_its_uses() {
    check(true, Recompute::None);
}

#[test]
fn gradients_with_recomputation_are_those_without() {
    check(false, Recompute::Selective);
    check(false, Recompute::Full);
}

#[test]
fn gradients_of_router_and_experts_are_what_the_loss_does() {
    let experts = Experts { count: 4, top_k: 2, ..Experts::default() };
    for recompute in [Recompute::None, Recompute::Full] {
        check_model(ModelShape { experts: Some(experts), ..small(false) }, recompute);
    }
    let beside = Experts { shared: 2, dense_layers: 1, dense_ffn: 40, ..experts };
    check_model(ModelShape { experts: Some(beside), ..small(false) }, Recompute::Selective);
}
