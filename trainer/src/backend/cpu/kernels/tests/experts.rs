//! Mixtures of experts.

use half::bf16;

use super::super::{Element, balance_loss, combine, combine_backward, count_choices, dispatch, route, route_backward};
use super::{BRAIN, SINGLE, assert_close, assert_gradient, dot, random, stored};
use crate::backend::Routing;

/// Two sequences of five tokens, which go through two of four experts.
const ROUTING: Routing = Routing { sequences: 2, sequence: 5, chunk: 5, experts: 4, top_k: 2, balance: 0.3 };
const TOKENS: usize = 10;

fn routed(logits: &[f64]) -> (Vec<f64>, Vec<f64>, Vec<u32>) {
    let (mut probabilities, mut weights) = (logits.to_vec(), vec![0.0; 2 * TOKENS]);
    let mut choices = vec![0; 2 * TOKENS];
    route(ROUTING, &mut probabilities, &mut weights, &mut choices);
    (probabilities, weights, choices)
}

#[test]
fn tokens_choose_the_likeliest_experts() {
    let logits = random(1, TOKENS * 4);
    let (probabilities, weights, choices) = routed(&logits);
    for (token, row) in logits.chunks(4).enumerate() {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        let expected: Vec<f64> = row.iter().map(|logit| logit.exp() / sum).collect();
        assert_close(&probabilities[4 * token..][..4], &expected, 1e-12);
        let mut by_size: Vec<usize> = (0..4).collect();
        by_size.sort_by(|one, other| expected[*other].total_cmp(&expected[*one]));
        let chosen = expected[by_size[0]] + expected[by_size[1]];
        for choice in 0..2 {
            assert_eq!(choices[2 * token + choice] as usize, by_size[choice]);
            assert!((weights[2 * token + choice] - expected[by_size[choice]] / chosen).abs() < 1e-12);
        }
    }
    let (_, weights, choices) = routed(&[0.5; TOKENS * 4]);
    assert_eq!((&choices[..2], &weights[..2]), (&[0, 1][..], &[0.5, 0.5][..]), "of equal ones the first");
}

fn counted(routing: Routing, choices: &[u32]) -> Vec<f64> {
    let mut counts = vec![f64::NAN; routing.sequences * routing.experts];
    count_choices(routing, choices, &mut counts);
    counts
}

fn loss_of_balance(logits: &[f64]) -> f64 {
    let (probabilities, _, choices) = routed(logits);
    let mut total = [1.0];
    balance_loss(ROUTING, &probabilities, &counted(ROUTING, &choices), &mut total);
    total[0] - 1.0
}

#[test]
fn what_is_chosen_evenly_has_a_balance_of_one() {
    // Each of four experts is chosen by every second token, by all with the same weight in the end.
    let even: Vec<f64> =
        (0..8).flat_map(|token| (0..4).map(move |expert| if (expert + token) % 4 < 2 { 1.0 } else { 0.0 })).collect();
    let routing = Routing { sequences: 1, sequence: 8, chunk: 8, ..ROUTING };
    let (mut probabilities, mut weights, mut choices) = (even, vec![0.0; 16], vec![0; 16]);
    route(routing, &mut probabilities, &mut weights, &mut choices);
    let mut total = [0.0];
    balance_loss(routing, &probabilities, &counted(routing, &choices), &mut total);
    assert!((total[0] - 0.3).abs() < 1e-12, "{}", total[0]);
    // All go through the first two, with certainty: twice as uneven, in each of two sequences.
    let uneven: Vec<f64> = (0..TOKENS).flat_map(|_| [50.0, 50.0, 0.0, 0.0]).collect();
    assert!((loss_of_balance(&uneven) - 2.0 * 0.3 * 2.0).abs() < 1e-12);
}

#[test]
fn the_gradient_of_logits_is_that_of_differences() {
    let (logits, d_weights) = (random(1, TOKENS * 4), random(2, TOKENS * 2));
    let (probabilities, weights, choices) = routed(&logits);
    let mut d_logits = vec![0.0; logits.len()];
    let counts = counted(ROUTING, &choices);
    route_backward::<f64>(ROUTING, (&probabilities, &weights, &choices, &counts), &d_weights, &mut d_logits);
    assert_gradient(&d_logits, &logits, |logits| dot(&routed(logits).1, &d_weights) + loss_of_balance(logits));
}

/// Three sequences of eight tokens: the first and last two of each on one rank, the others on another one.
#[test]
fn parts_of_sequences_lose_what_whole_ones_do() {
    let whole = Routing { sequences: 3, sequence: 8, chunk: 8, experts: 4, top_k: 2, balance: 0.3 };
    let part = Routing { chunk: 2, ..whole };
    let all = random(1, 24 * 4);
    let logits =
        |tokens: &[usize]| -> Vec<f64> { tokens.iter().flat_map(|token| all[4 * token..][..4].to_vec()).collect() };
    let chunk = |chunk: usize| (0..3).flat_map(move |sequence| [0, 1].map(|token| 8 * sequence + 2 * chunk + token));
    let parts = [[0, 3], [1, 2]].map(|chunks| chunks.into_iter().flat_map(chunk).collect::<Vec<usize>>());
    let routed = |routing: Routing, logits: Vec<f64>| {
        let tokens = logits.len() / 4;
        let (mut probabilities, mut weights, mut choices) = (logits, vec![0.0; 2 * tokens], vec![0; 2 * tokens]);
        route(routing, &mut probabilities, &mut weights, &mut choices);
        (probabilities, weights, choices)
    };
    let gradients =
        |routing: Routing, (probabilities, weights, choices): &(Vec<f64>, Vec<f64>, Vec<u32>), counts: &[f64]| {
            let mut d_logits = vec![0.0; probabilities.len()];
            let of = (&probabilities[..], &weights[..], &choices[..], counts);
            route_backward::<f64>(routing, of, &vec![0.0; weights.len()], &mut d_logits);
            d_logits
        };
    let of_whole = routed(whole, all.clone());
    let counts = counted(whole, &of_whole.2);
    let of_parts = parts.each_ref().map(|tokens| routed(part, logits(tokens)));
    let [one, other] = of_parts.each_ref().map(|(_, _, choices)| counted(part, choices));
    let sums: Vec<f64> = one.iter().zip(&other).map(|(one, other)| one + other).collect();
    assert_eq!(sums, counts);
    let (mut expected, mut total) = ([0.0], [0.0]);
    balance_loss(whole, &of_whole.0, &counts, &mut expected);
    of_parts.iter().for_each(|(probabilities, ..)| balance_loss(part, probabilities, &counts, &mut total));
    assert_close(&total, &expected, 1e-12);
    let expected = gradients(whole, &of_whole, &counts);
    for (tokens, of_part) in parts.iter().zip(&of_parts) {
        let of_tokens: Vec<f64> = tokens.iter().flat_map(|token| expected[4 * token..][..4].to_vec()).collect();
        assert_close(&gradients(part, of_part, &counts), &of_tokens, 1e-12);
    }
}

#[test]
fn balance_losses_of_many_tokens_are_exact_in_single_precision() {
    // Where all experts are chosen, every token adds the same, and is rounded the same way.
    let routing = Routing { sequences: 3, sequence: 700, chunk: 350, experts: 2, top_k: 2, balance: 0.3 };
    let counts = vec![700.0; 6];
    let (mut exact, mut total) = ([0.25_f64], [0.25_f32]);
    balance_loss(routing, &[0.5_f64; 4200], &counts, &mut exact);
    balance_loss(routing, &[0.5_f32; 4200], &counts.iter().map(|count| *count as f32).collect::<Vec<_>>(), &mut total);
    assert_close(&[f64::from(total[0])], &exact, 5e-6);
}

/// All choices sorted by expert, and where each is.
fn sorted(choices: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut order: Vec<u32> = (0..choices.len() as u32).collect();
    order.sort_by_key(|choice| choices[*choice as usize]);
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, choice)| places[*choice as usize] = place as u32);
    (order, places)
}

const WIDTH: usize = 3;

fn combined<E: Element>(rows: &[f64], weights: Option<&[f64]>, places: &[u32]) -> Vec<E> {
    let mut tokens = vec![E::default(); TOKENS * WIDTH];
    let weights = weights.map(stored::<f64, E::Sum>);
    combine(&stored::<_, E>(rows), places, weights.as_deref(), 2, &mut tokens);
    tokens
}

#[test]
fn rows_go_to_their_experts_and_back() {
    let (_, weights, choices) = routed(&random(1, TOKENS * 4));
    let (order, places) = sorted(&choices);
    let tokens = random(3, TOKENS * WIDTH);
    let mut rows = vec![0.0; 2 * TOKENS * WIDTH];
    dispatch(&tokens, &order, 2, &mut rows);
    for (row, choice) in rows.chunks(WIDTH).zip(&order) {
        assert_eq!(row, &tokens[*choice as usize / 2 * WIDTH..][..WIDTH]);
    }
    assert_close(&combined::<f64>(&rows, Some(&weights), &places), &tokens, 1e-12);
    let twice: Vec<f64> = tokens.iter().map(|value| 2.0 * value).collect();
    assert_close(&combined::<f64>(&rows, None, &places), &twice, 1e-12);
    assert_close(&combined::<f32>(&rows, Some(&weights), &places), &tokens, SINGLE);
    assert_close(&combined::<bf16>(&rows, Some(&weights), &places), &tokens, BRAIN);
}

#[test]
fn the_gradients_of_what_is_combined_are_those_of_differences() {
    let (_, weights, choices) = routed(&random(1, TOKENS * 4));
    let (order, places) = sorted(&choices);
    let (rows, d_tokens) = (random(3, 2 * TOKENS * WIDTH), random(4, TOKENS * WIDTH));
    let (mut d_rows, mut d_weights) = (vec![0.0; rows.len()], vec![0.0; weights.len()]);
    combine_backward(&d_tokens, (&rows, &order, &weights), 2, &mut d_rows, &mut d_weights);
    assert_gradient(&d_rows, &rows, |rows| dot(&combined(rows, Some(&weights), &places), &d_tokens));
    assert_gradient(&d_weights, &weights, |weights| dot(&combined(&rows, Some(weights), &places), &d_tokens));
    // Going to experts is undone by adding up without weights.
    let tokens = random(5, TOKENS * WIDTH);
    assert_gradient(&combined::<f64>(&rows, None, &places), &tokens, |tokens| {
        let mut sorted = vec![0.0; rows.len()];
        dispatch(tokens, &order, 2, &mut sorted);
        dot(&sorted, &rows)
    });
}
