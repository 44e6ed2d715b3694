//! The table of embeddings.

use half::bf16;

use super::super::{embedding, embedding_backward};
use super::{assert_close, assert_gradient, dot, random, stored};

const TOKENS: [u32; 5] = [4, 0, 7, 4, 3];
const WIDTH: usize = 3;

fn forward(table: &[f64], first: u32) -> Vec<f64> {
    let mut out = vec![9.0; TOKENS.len() * WIDTH];
    embedding(&TOKENS, table, &mut out, WIDTH, first);
    out
}

#[test]
fn parts_of_the_table_add_up_to_the_whole() {
    let table = random(1, 8 * WIDTH);
    let whole = forward(&table, 0);
    for (token, row) in TOKENS.iter().zip(whole.chunks(WIDTH)) {
        assert_eq!(row, &table[*token as usize * WIDTH..][..WIDTH]);
    }
    let (lower, upper) = (forward(&table[..4 * WIDTH], 0), forward(&table[4 * WIDTH..], 4));
    let sums: Vec<f64> = lower.iter().zip(&upper).map(|(lower, upper)| lower + upper).collect();
    assert_eq!(sums, whole);
}

#[test]
fn the_gradient_is_that_of_differences() {
    let (table, d_out) = (random(1, 4 * WIDTH), random(2, TOKENS.len() * WIDTH));
    let mut d_table = vec![0.0; table.len()];
    embedding_backward(&TOKENS, &d_out, &mut d_table, WIDTH, 3);
    assert_gradient(&d_table, &table, |table| dot(&forward(table, 3), &d_out));
}

#[test]
fn gradients_are_added_in_their_own_precision() {
    let d_out = random(2, TOKENS.len() * WIDTH);
    let mut expected = vec![1.0; 8 * WIDTH];
    embedding_backward(&TOKENS, &d_out, &mut expected, WIDTH, 0);
    let mut d_table = vec![1.0_f32; 8 * WIDTH];
    embedding_backward(&TOKENS, &stored::<_, bf16>(&d_out), &mut d_table, WIDTH, 0);
    assert_close(&d_table, &expected, 1e-7);
}

#[test]
fn gradients_of_a_frequent_token_do_not_vanish() {
    let ones = vec![bf16::ONE; 1000 * WIDTH];
    let mut d_table = vec![bf16::ZERO; 8 * WIDTH];
    embedding_backward(&[5; 1000], &ones, &mut d_table, WIDTH, 0);
    assert_eq!(d_table[5 * WIDTH], bf16::from_f32(1000.0), "one by one they stop at 256");
}
