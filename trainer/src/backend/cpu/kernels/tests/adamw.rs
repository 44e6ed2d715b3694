//! The optimizer against its textbook.

use half::bf16;

use super::super::{AdamW, Element, adamw};
use super::{SINGLE, assert_close, random, stored};

const SETTINGS: AdamW =
    AdamW { learning_rate: 1e-2, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip: None, step: 1 };
const COUNT: usize = 21;

fn gradient(step: u64) -> Vec<f64> {
    random(10 + step, COUNT)
}

/// Gradients are scaled.
fn textbook(steps: u64, scale: f64) -> Vec<f64> {
    let mut parameters = random(1, COUNT);
    for (index, parameter) in parameters.iter_mut().enumerate() {
        let (mut m, mut v) = (0.0, 0.0);
        for t in 1..=steps {
            let g = scale * gradient(t)[index];
            m = 0.9 * m + 0.1 * g;
            v = 0.95 * v + 0.05 * g * g;
            let (m_hat, v_hat) = (m / (1.0 - 0.9_f64.powi(t as i32)), v / (1.0 - 0.95_f64.powi(t as i32)));
            *parameter -= 1e-2 * (m_hat / (v_hat.sqrt() + 1e-8) + 0.1 * *parameter);
        }
    }
    parameters
}

/// Parameters and master after three steps.
fn run<E: Element>(with_master: bool) -> (Vec<E>, Vec<E::Sum>) {
    run_clipped(with_master, None, 0.0)
}

/// The same, where the squares of all gradients are so many.
fn run_clipped<E: Element>(with_master: bool, clip: Option<f64>, squares: f64) -> (Vec<E>, Vec<E::Sum>) {
    let squares = stored::<_, E::Sum>(&[squares])[0];
    let mut parameters: Vec<E> = stored(&random(1, COUNT));
    let mut master: Vec<E::Sum> = stored(&parameters);
    let (mut first, mut second) = (vec![E::Sum::default(); COUNT], vec![E::Sum::default(); COUNT]);
    for step in 1..=3 {
        let gradient: Vec<E::Sum> = stored(&gradient(step));
        let master = with_master.then_some(master.as_mut_slice());
        let settings = AdamW { step, clip, ..SETTINGS };
        adamw((&settings, squares), &gradient, &mut parameters, master, &mut first, &mut second);
    }
    (parameters, master)
}

#[test]
fn three_steps_are_those_of_the_textbook() {
    assert_close(&run::<f64>(false).0, &textbook(3, 1.0), 1e-12);
    assert_close(&run::<f32>(false).0, &textbook(3, 1.0), SINGLE);
}

#[test]
fn a_gradient_that_is_too_long_is_scaled() {
    let scale = 0.5 / (4.0 + 1e-6);
    assert_close(&run_clipped::<f64>(false, Some(0.5), 16.0).0, &textbook(3, scale), 1e-12);
    assert_close(&run_clipped::<f64>(false, Some(5.0), 16.0).0, &textbook(3, 1.0), 1e-12);
}

#[test]
fn a_master_keeps_what_the_parameters_cannot() {
    let (parameters, master) = run::<bf16>(true);
    assert_close(&master, &textbook(3, 1.0), SINGLE);
    assert_eq!(parameters, stored::<_, bf16>(&master));
    assert_ne!(parameters, run::<bf16>(false).0);
}
