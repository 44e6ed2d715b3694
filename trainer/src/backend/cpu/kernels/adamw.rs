//! The optimizer.

use super::{AdamW, Element, Real, vectorised};
use crate::backend::operations::CLIP_EPSILON;

/// Updates the parameters by a step: the master copy if there is one, which is then rounded into the parameters. `squares` is of
/// the gradient of all parameters, those elsewhere too.
pub(crate) fn adamw<E: Element, G: Element<Sum = E::Sum>>(
    (settings, squares): (&AdamW, E::Sum),
    gradient: &[G],
    parameters: &mut [E],
    master: Option<&mut [E::Sum]>,
    first_moment: &mut [E::Sum],
    second_moment: &mut [E::Sum],
) {
    let count = parameters.len();
    assert!(gradient.len() == count && first_moment.len() == count && second_moment.len() == count, "{count} each");
    let update = Update::new(settings, squares);
    let moments = first_moment.iter_mut().zip(second_moment);
    let inputs = gradient.iter().zip(moments);
    match master {
        Some(master) => {
            assert_eq!(master.len(), count);
            vectorised(
                #[inline(always)]
                || {
                    for ((gradient, (first, second)), (parameter, master)) in
                        inputs.zip(parameters.iter_mut().zip(master))
                    {
                        *master = update.apply(*master, gradient.widen(), first, second);
                        *parameter = E::narrow(*master);
                    }
                },
            );
        }
        None => vectorised(
            #[inline(always)]
            || {
                for ((gradient, (first, second)), parameter) in inputs.zip(parameters) {
                    *parameter = E::narrow(update.apply(parameter.widen(), gradient.widen(), first, second));
                }
            },
        ),
    }
}

/// What is the same for all parameters.
struct Update<S> {
    betas: [S; 2],
    /// What the betas leave for the gradient.
    rests: [S; 2],
    decay: S,
    step_size: S,
    root_correction: S,
    epsilon: S,
    /// Of the gradient.
    scale: S,
}

impl<S: Real> Update<S> {
    fn new(settings: &AdamW, squares: S) -> Update<S> {
        let AdamW { learning_rate, beta1, beta2, epsilon, weight_decay, clip, step } = *settings;
        let longest = |clip: f64| S::of(clip) / (squares.sqrt() + S::of(CLIP_EPSILON));
        let bias = |beta: f64| 1.0 - beta.powf(step as f64);
        Update {
            betas: [S::of(beta1), S::of(beta2)],
            rests: [S::of(1.0 - beta1), S::of(1.0 - beta2)],
            decay: S::of(1.0 - learning_rate * weight_decay),
            step_size: S::of(learning_rate / bias(beta1)),
            root_correction: S::of(bias(beta2).sqrt().recip()),
            epsilon: S::of(epsilon),
            scale: clip.map(longest).filter(|scale| *scale < S::of(1.0)).unwrap_or(S::of(1.0)),
        }
    }

    #[inline(always)]
    fn apply(&self, parameter: S, gradient: S, first: &mut S, second: &mut S) -> S {
        let gradient = self.scale * gradient;
        *first = self.betas[0] * *first + self.rests[0] * gradient;
        *second = self.betas[1] * *second + self.rests[1] * gradient * gradient;
        parameter * self.decay - self.step_size * *first / (second.sqrt() * self.root_correction + self.epsilon)
    }
}
