//! Initial weights: every number follows from the seed and its place in the model, whatever rank holds it.

use fastrand::Rng;
use stepscope_plan::{Part, Slot};

use crate::seed::mixed;

/// Spread of the weights of a matrix.
const SPREAD: f32 = 0.02;

/// The initial weights of a rank's shard of a tensor.
pub(crate) fn initial(slot: &Slot, layers: u64, seed: u64) -> Vec<f32> {
    if slot.whole.1 == 1 {
        return vec![1.0; slot.elements() as usize];
    }
    // What adds to the residual is smaller, since there are so many of it.
    let residual = if matches!(slot.name, "output" | "down") { 1.0 / (2.0 * layers as f32).sqrt() } else { 1.0 };
    // Evenly spread between ±a has a spread of a/√3.
    let limit = SPREAD * residual * 3_f32.sqrt();
    let mut weights = Vec::with_capacity(slot.elements() as usize);
    let columns = slot.first_column as usize..(slot.first_column + slot.columns) as usize;
    for row in slot.first_row..slot.first_row + slot.rows {
        let mut random = Rng::with_seed(row_seed(slot, row, seed));
        let whole = (0..slot.whole.1).map(|_| (2.0 * random.f32() - 1.0) * limit);
        weights.extend(whole.take(columns.end).skip(columns.start));
    }
    weights
}

fn row_seed(slot: &Slot, row: u64, seed: u64) -> u64 {
    let part = match slot.part {
        // Copies of one embedding.
        Part::Embedding | Part::TiedEmbedding => 0,
        Part::Head => 1,
        Part::Layer(layer) => 2 + layer,
    };
    let name = slot.name.bytes().fold(0_u64, |hash, byte| hash.wrapping_mul(257).wrapping_add(byte.into()));
    mixed(&[seed, part, name, row])
}
