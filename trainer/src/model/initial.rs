//! Initial weights: every number follows from the seed and its place in the model, whatever rank holds it.

use std::thread::{self, available_parallelism};

use fastrand::Rng;
use stepscope_plan::{Part, Slot};

use crate::seed::mixed;

/// Spread of the weights of a matrix.
const SPREAD: f32 = 0.02;

/// Rows are made by several threads where there are more numbers than this.
const MANY: usize = 1 << 22;

/// Writes the initial weights of a rank's shard of a tensor.
pub(crate) fn initial(slot: &Slot, layers: u64, seed: u64, weights: &mut [f32]) {
    if slot.whole.1 == 1 {
        return weights.fill(1.0);
    }
    // What adds to the residual is smaller, since there are so many of it.
    let residual = if matches!(slot.name, "output" | "down") { 1.0 / (2.0 * layers as f32).sqrt() } else { 1.0 };
    // Evenly spread between ±a has a spread of a/√3.
    let limit = SPREAD * residual * 3_f32.sqrt();
    let columns = slot.columns as usize;
    let make = |first: usize, rows: &mut [f32]| {
        for (row, weights) in rows.chunks_exact_mut(columns).enumerate() {
            let mut random = Rng::with_seed(row_seed(slot, slot.first_row + (first + row) as u64, seed));
            let whole = (0..slot.whole.1).map(|_| (2.0 * random.f32() - 1.0) * limit);
            weights.iter_mut().zip(whole.skip(slot.first_column as usize)).for_each(|(to, weight)| *to = weight);
        }
    };
    let threads = if weights.len() > MANY { available_parallelism().map_or(1, usize::from) } else { 1 };
    let rows = (slot.rows as usize).div_ceil(threads).max(1);
    thread::scope(|scope| {
        let mut parts = weights.chunks_mut(rows * columns).enumerate();
        let own = parts.next();
        for (part, weights) in parts {
            let make = &make;
            scope.spawn(move || make(part * rows, weights));
        }
        own.into_iter().for_each(|(_, weights)| make(0, weights));
    });
}

fn row_seed(slot: &Slot, row: u64, seed: u64) -> u64 {
    let (part, row) = match slot.part {
        // Copies of one embedding.
        Part::Embedding | Part::TiedEmbedding => (0, row),
        Part::Head => (1, row),
        Part::Layer(layer) => (2 + layer, row),
        // Rows that no other tensor of the layer has.
        Part::Experts(layer) => (2 + layer, (slot.copy + 1) << 32 | row),
    };
    let name = slot.name.bytes().fold(0_u64, |hash, byte| hash.wrapping_mul(257).wrapping_add(byte.into()));
    mixed(&[seed, part, name, row])
}
