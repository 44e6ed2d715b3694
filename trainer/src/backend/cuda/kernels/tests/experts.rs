use half::bf16;

use super::{
    super::{Part, RoutedArrays},
    Buffer, Gpu, Kernels, Stored, assert_near, assert_within, gpu, random, twice,
};
use crate::backend::{Routing, cpu::kernels};

/// Experts and choices: fewer experts than lanes, as many as are chosen, and some for every lane and a part of one more.
const CHOICES: [(usize, usize); 8] = [(2, 2), (4, 1), (4, 2), (8, 2), (64, 8), (256, 8), (256, 1), (300, 16)];
/// Sequences, chunks of each, and tokens of these: a single one, less than a block of them, and many blocks.
const SEQUENCES: [(usize, usize, usize); 4] = [(1, 1, 1), (2, 1, 5), (3, 1, 701), (3, 2, 350)];

/// How tokens choose, and how many there are: half of those of a sequence, where it has two chunks here.
fn routings() -> impl Iterator<Item = (Routing, usize)> {
    CHOICES.into_iter().flat_map(|(experts, top_k)| {
        SEQUENCES.into_iter().map(move |(sequences, chunks, chunk)| {
            let sequence = chunk * chunks * chunks;
            (Routing { sequences, sequence, chunk, experts, top_k, balance: 0.3 }, sequences * chunks * chunk)
        })
    })
}

/// What tokens chose on the CPU.
struct Chosen {
    probabilities: Vec<f32>,
    weights: Vec<f32>,
    choices: Vec<u32>,
    counts: Vec<f32>,
}

impl Chosen {
    fn of(routing: Routing, logits: &[f32]) -> Chosen {
        let count = logits.len() / routing.experts * routing.top_k;
        let (weights, choices) = (vec![0.0; count], vec![0; count]);
        let counts = vec![0.0; routing.sequences * routing.experts];
        let mut chosen = Chosen { probabilities: logits.to_vec(), weights, choices, counts };
        kernels::route(routing, &mut chosen.probabilities, &mut chosen.weights, &mut chosen.choices);
        kernels::count_choices(routing, &chosen.choices, &mut chosen.counts);
        chosen
    }

    fn upload(&self, gpu: &Gpu) -> OnGpu {
        OnGpu {
            probabilities: gpu.upload(&self.probabilities),
            weights: gpu.upload(&self.weights),
            choices: gpu.upload_tokens(&self.choices),
            counts: gpu.upload(&self.counts),
        }
    }
}

struct OnGpu {
    probabilities: Buffer,
    weights: Buffer,
    choices: Buffer,
    counts: Buffer,
}

impl OnGpu {
    fn arrays(&self) -> RoutedArrays {
        let OnGpu { probabilities, weights, choices, counts } = self;
        let [probabilities, weights, choices, counts] =
            [probabilities, weights, choices, counts].map(|buffer| buffer.array);
        RoutedArrays { probabilities, weights, choices, counts }
    }
}

/// Logits of which the last expert's are so low that nobody chooses it, where another one can be chosen.
fn logits(seed: u64, routing: Routing, tokens: usize) -> Vec<f32> {
    let mut logits: Vec<f32> = random::<f32>(seed, tokens * routing.experts).iter().map(|logit| 3.0 * logit).collect();
    if routing.experts > routing.top_k {
        logits.chunks_exact_mut(routing.experts).for_each(|row| row[routing.experts - 1] = -20.0);
    }
    logits
}

fn routed(gpu: &Gpu, routing: Routing, logits: &[f32]) -> (Vec<f32>, Vec<f32>, Vec<u32>) {
    let [probabilities, weights, choices] = twice(|| {
        let count = logits.len() / routing.experts * routing.top_k;
        let on_gpu = OnGpu {
            probabilities: gpu.upload(logits),
            weights: gpu.poisoned::<f32>(count),
            choices: gpu.upload_tokens(&vec![u32::MAX; count]),
            counts: gpu.poisoned::<f32>(routing.sequences * routing.experts),
        };
        gpu.kernels.expert_route(gpu.stream(), routing, on_gpu.arrays()).unwrap();
        let OnGpu { probabilities, weights, choices, .. } = &on_gpu;
        // Bits, since what is not a number is not equal to itself.
        [probabilities, weights, choices].map(|buffer| gpu.download_tokens(buffer))
    });
    let numbers = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect();
    (numbers(probabilities), numbers(weights), choices)
}

#[test]
fn tokens_choose_the_experts_that_they_choose_on_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for (routing, tokens) in routings() {
        let logits = logits(1, routing, tokens);
        let expected = Chosen::of(routing, &logits);
        let (probabilities, weights, choices) = routed(gpu, routing, &logits);
        assert_near(&format!("probabilities, {routing:?}"), &probabilities, &expected.probabilities);
        assert_near(&format!("weights, {routing:?}"), &weights, &expected.weights);
        assert_eq!(choices, expected.choices, "{routing:?}");
    }
}

#[test]
fn of_equal_experts_the_first_are_chosen_and_nothing_else_than_experts() {
    let Some(gpu) = gpu() else { return };
    for (routing, tokens) in routings() {
        let first: Vec<u32> = (0..routing.top_k as u32).collect();
        for logit in [0.5, f32::NAN] {
            let (_, weights, choices) = routed(gpu, routing, &vec![logit; tokens * routing.experts]);
            assert!(choices.chunks(routing.top_k).all(|choices| choices == first), "{routing:?}, {logit}");
            let even = 1.0 / routing.top_k as f32;
            let is_as_told = |weight: &f32| match logit.is_nan() {
                true => weight.is_nan(),
                false => (weight - even).abs() < 1e-6,
            };
            assert!(weights.iter().all(is_as_told), "{routing:?}, {logit}");
        }
        // Equal ones behind one that is better, of which some are so unlikely that nothing is left of them.
        let mut logits = vec![-200.0_f32; tokens * routing.experts];
        logits.chunks_exact_mut(routing.experts).for_each(|row| row[routing.experts - 1] = 1.0);
        let (_, _, choices) = routed(gpu, routing, &logits);
        assert_eq!(choices, Chosen::of(routing, &logits).choices, "{routing:?}");
    }
}

#[test]
fn choices_are_counted_as_on_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for (routing, tokens) in routings() {
        let chosen = Chosen::of(routing, &logits(2, routing, tokens));
        let counts = gpu.poisoned::<f32>(chosen.counts.len());
        let on_gpu = OnGpu { counts, ..chosen.upload(gpu) };
        gpu.kernels.expert_count_choices(gpu.stream(), routing, on_gpu.arrays()).unwrap();
        assert_eq!(gpu.download::<f32>(&on_gpu.counts), chosen.counts, "{routing:?}");
    }
}

#[test]
fn balance_losses_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for (routing, tokens) in routings() {
        let chosen = Chosen::of(routing, &logits(2, routing, tokens));
        let mut expected = [0.25_f32];
        kernels::balance_loss(routing, &chosen.probabilities, &chosen.counts, &mut expected);
        assert!(expected[0] > 0.25, "there is something to add");
        let actual = twice(|| {
            let (on_gpu, total) = (chosen.upload(gpu), gpu.upload(&[0.25_f32]));
            let room = gpu.workspace(Kernels::EXPERT_WORKSPACE_BYTES);
            gpu.kernels.expert_balance_loss(gpu.stream(), routing, on_gpu.arrays(), total.array, room.array).unwrap();
            gpu.download::<f32>(&total)
        });
        assert_near(&format!("the balance loss, {routing:?}"), &actual, &expected);
    }
}

fn gradients_of_logits<E: Stored>(gpu: &Gpu, routing: Routing, tokens: usize) {
    let chosen = Chosen::of(routing, &logits(3, routing, tokens));
    let d_weights = random::<f32>(4, tokens * routing.top_k);
    let mut expected = vec![E::default(); tokens * routing.experts];
    let of = (&chosen.probabilities[..], &chosen.weights[..], &chosen.choices[..], &chosen.counts[..]);
    kernels::route_backward(routing, of, &d_weights, &mut expected);
    let actual = twice(|| {
        let (on_gpu, d_weights) = (chosen.upload(gpu), gpu.upload(&d_weights));
        let d_logits = gpu.poisoned::<E>(expected.len());
        let (d_weights, to) = (d_weights.array, d_logits.array);
        gpu.kernels.expert_route_backward(gpu.stream(), routing, on_gpu.arrays(), d_weights, to).unwrap();
        gpu.download::<E>(&d_logits)
    });
    assert_near(&format!("the logits' gradient, {routing:?}"), &actual, &expected);
}

#[test]
fn gradients_of_logits_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for (routing, tokens) in routings() {
        gradients_of_logits::<bf16>(gpu, routing, tokens);
        gradients_of_logits::<f32>(gpu, routing, tokens);
    }
}

/// All choices of some tokens sorted by expert, and where each is; one of the experts has none.
fn sorted(tokens: usize, top_k: usize) -> (Vec<u32>, Vec<u32>) {
    let routing = Routing { sequences: 1, sequence: tokens, chunk: tokens, experts: top_k + 3, top_k, balance: 0.0 };
    let Chosen { choices, .. } = Chosen::of(routing, &logits(5, routing, tokens));
    assert!(choices.iter().all(|expert| *expert < top_k as u32 + 2));
    let mut order: Vec<u32> = (0..choices.len() as u32).collect();
    order.sort_by_key(|choice| choices[*choice as usize]);
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, choice)| places[*choice as usize] = place as u32);
    (order, places)
}

/// Tokens, choices and widths of rows.
const ROWS: [(usize, usize, usize); 7] =
    [(1, 1, 1), (1, 2, 64), (5, 2, 9), (77, 8, 128), (300, 2, 2048), (33, 16, 100), (9, 2, 4099)];

fn goes_and_comes_back<E: Stored>(gpu: &Gpu, (tokens, top_k, width): (usize, usize, usize)) {
    let what = |name: &str| format!("{name} of {tokens} × {top_k} by {width}");
    let (order, places) = sorted(tokens, top_k);
    let (rows, weights) = (random::<E>(1, tokens * width), random::<f32>(2, order.len()));
    let (stream, order_there, places_there) = (gpu.stream(), gpu.upload_tokens(&order), gpu.upload_tokens(&places));
    let weights_there = gpu.upload(&weights);

    let mut expected = vec![E::default(); order.len() * width];
    kernels::dispatch(&rows, &order, top_k, &mut expected);
    for from in [gpu.upload(&rows), gpu.upload_misaligned(&rows)] {
        let to = gpu.poisoned::<E>(expected.len());
        gpu.kernels.expert_dispatch(stream, from.array, order_there.array, to.array, top_k).unwrap();
        assert!(gpu.download::<E>(&to) == expected, "{}", what("sorted rows"));
    }

    let sorted = random::<E>(3, order.len() * width);
    for weighted in [true, false] {
        let mut expected = vec![E::default(); tokens * width];
        kernels::combine(&sorted, &places, weighted.then_some(&weights[..]), top_k, &mut expected);
        let actual = twice(|| {
            let (from, to) = (gpu.upload_misaligned(&sorted), gpu.poisoned::<E>(expected.len()));
            let by = weighted.then_some(weights_there.array);
            gpu.kernels.expert_combine(stream, from.array, places_there.array, by, to.array, top_k).unwrap();
            gpu.download::<E>(&to)
        });
        assert_near(&what("combined rows"), &actual, &expected);
    }

    let d_tokens = random::<E>(4, tokens * width);
    let (mut expected, mut expected_weights) = (vec![E::default(); sorted.len()], vec![0.0_f32; weights.len()]);
    kernels::combine_backward(&d_tokens, (&sorted, &order, &weights), top_k, &mut expected, &mut expected_weights);
    let (actual, actual_weights) = twice(|| {
        let (d_tokens, sorted) = (gpu.upload(&d_tokens), gpu.upload_misaligned(&sorted));
        let (d_sorted, d_weights) = (gpu.poisoned::<E>(expected.len()), gpu.poisoned::<f32>(weights.len()));
        let of = (sorted.array, order_there.array, weights_there.array);
        let gradients = (d_sorted.array, d_weights.array);
        gpu.kernels.expert_combine_backward(stream, d_tokens.array, of, gradients, top_k).unwrap();
        (gpu.download::<E>(&d_sorted), gpu.download::<f32>(&d_weights))
    });
    assert_within(&what("the rows' gradient"), &actual, &expected, 0.0);
    // Sums of products of both signs, in f32 either way.
    assert_near(&what("the weights' gradient"), &actual_weights, &expected_weights);
}

#[test]
fn rows_go_to_experts_and_back_as_on_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for shape in ROWS {
        goes_and_comes_back::<bf16>(gpu, shape);
        goes_and_comes_back::<f32>(gpu, shape);
    }
}

#[test]
fn more_choices_than_experts_or_lanes_are_refused() {
    let Some(gpu) = gpu() else { return };
    for (experts, top_k) in [(4, 5), (64, 33)] {
        let routing = Routing { sequences: 1, sequence: 1, chunk: 1, experts, top_k, balance: 0.0 };
        let on_gpu = OnGpu {
            probabilities: gpu.upload(&vec![0.0_f32; experts]),
            weights: gpu.upload(&vec![0.0_f32; top_k]),
            choices: gpu.upload_tokens(&vec![0; top_k]),
            counts: gpu.upload(&vec![0.0_f32; experts]),
        };
        let refused = gpu.kernels.expert_route(gpu.stream(), routing, on_gpu.arrays()).unwrap_err().to_string();
        assert!(refused.contains(&format!("{top_k} choices of {experts} experts")), "{refused}");
    }
}

fn parts_are_copied<E: Stored>(gpu: &Gpu, lengths: &[usize], offset: usize) {
    let (all, bytes) = (lengths.iter().sum::<usize>(), size_of::<E>() as u64);
    let from = random::<E>(1, all + offset);
    // Parts in the opposite order.
    let (mut expected, mut places, mut place) = (Vec::new(), Vec::new(), offset);
    for length in lengths {
        places.push(place);
        place += length;
    }
    let target = gpu.poisoned::<E>(all);
    let source = gpu.upload(&from);
    let (mut parts, mut to) = (Vec::new(), 0);
    for (place, length) in places.iter().zip(lengths).rev() {
        expected.extend_from_slice(&from[*place..place + length]);
        let address = |buffer: &Buffer, place: usize| buffer.array.address + place as u64 * bytes;
        let (from, into) = (address(&source, *place), address(&target, to));
        parts.push(Part { from, to: into, bytes: *length as u64 * bytes });
        to += length;
    }
    gpu.kernels.copy_parts(gpu.stream(), &parts).unwrap();
    assert!(gpu.download::<E>(&target) == expected, "{lengths:?} from {offset}");
}

#[test]
fn parts_go_where_they_should_in_whatever_number_and_length() {
    let Some(gpu) = gpu() else { return };
    let many: Vec<usize> = (0..200).map(|part| part * 7 % 40 * 8).collect();
    for lengths in [&[][..], &[1], &[0, 3, 0, 5], &[8, 16, 1024], &[100_003, 2, 70_000], &many] {
        for offset in [0, 1, 8] {
            parts_are_copied::<bf16>(gpu, lengths, offset);
            parts_are_copied::<f32>(gpu, lengths, offset);
        }
    }
}
