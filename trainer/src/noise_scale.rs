//! How noisy gradients are: the gradient noise scale of McCandlish et al. (2018, appendix A), from the gradients of two batch sizes.
//!
//! With `g` the gradient that all data would have and `Σ` the covariance of those of single tokens, a batch of `B` tokens has
//! `|G|² = |g|² + tr Σ / B` in the mean. Two batch sizes give both; `tr Σ / |g|²` is about the batch from which on more tokens help
//! less: the critical batch size, in tokens.

/// Over how many steps means go, once there were as many.
const STEPS: f64 = 50.0;

/// The means of what two batch sizes say, step after step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoiseScale {
    means: Option<Means>,
    steps: f64,
}

#[derive(Clone, Copy, Debug)]
struct Means {
    /// The square of the gradient, and the trace of its covariance.
    signal: f64,
    noise: f64,
}

/// The square of a gradient, and of how many tokens it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) square: f64,
    pub(crate) tokens: f64,
}

impl NoiseScale {
    /// Adds what a step has measured of a small and a large batch. Tells the scale in tokens, if there is one yet: single steps
    /// may well say that there is no signal.
    pub(crate) fn add(&mut self, small: Measured, large: Measured) -> Option<f64> {
        let now = Means {
            signal: (large.tokens * large.square - small.tokens * small.square) / (large.tokens - small.tokens),
            noise: (small.square - large.square) / (1.0 / small.tokens - 1.0 / large.tokens),
        };
        if !(now.signal.is_finite() && now.noise.is_finite()) {
            return None;
        }
        self.steps = (self.steps + 1.0).min(STEPS);
        let mixed = |before: f64, now: f64| before + (now - before) / self.steps;
        let means = self.means.map_or(now, |before| Means {
            signal: mixed(before.signal, now.signal),
            noise: mixed(before.noise, now.noise),
        });
        self.means = Some(means);
        (means.signal > 0.0 && means.noise > 0.0).then(|| means.noise / means.signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gradients of tokens that are random about a known mean, in as many dimensions as it takes to be nearly certain.
    #[test]
    fn the_scale_is_that_of_the_distribution() {
        let (dimensions, signal, deviation) = (4000, 0.5, 6.0_f64);
        let mut random = fastrand::Rng::with_seed(7);
        // The sum of twelve even numbers is nearly normal.
        let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let mut scale = NoiseScale::default();
        let mut found = None;
        for _ in 0..60 {
            let mut square = |tokens: f64| {
                (0..dimensions).map(|_| (signal + deviation / tokens.sqrt() * normal()).powi(2)).sum::<f64>()
            };
            let [small, large] = [8.0, 64.0].map(|tokens| Measured { square: square(tokens), tokens });
            found = scale.add(small, large);
        }
        let (found, expected) = (found.unwrap(), deviation.powi(2) / signal.powi(2));
        assert!((found / expected - 1.0).abs() < 0.1, "{found} {expected}");
    }

    #[test]
    fn without_a_signal_there_is_no_scale() {
        let measured = |square, tokens| Measured { square, tokens };
        assert_eq!(NoiseScale::default().add(measured(8.0, 1.0), measured(1.0, 8.0)), None);
        assert_eq!(NoiseScale::default().add(measured(f64::NAN, 1.0), measured(1.0, 8.0)), None);
        assert_eq!(NoiseScale::default().add(measured(2.0, 1.0), measured(1.5, 2.0)), Some(1.0));
    }
}
