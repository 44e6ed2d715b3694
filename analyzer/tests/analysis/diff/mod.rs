/// Runs of data-parallel ranks with one thing about them that can be changed.
mod pairs;

/// What is known to be the cause has the change.
mod causes;

/// Noise is no change, and a change is found in noise.
mod chance;

/// Whatever two runs are, their comparison adds up.
mod sums;
