use stepscope_analyzer::Diff;

use super::pairs::{Job, diff};

const PAIRS: u64 = 100;

/// Thirty steps and one that warms up, each a hundredth faster or slower than it should be.
fn noisy(seed: u64) -> Job {
    Job { steps: 31, noise: 0.01, seed, ..Job::default() }
}

/// Whether anything at all is more than chance.
fn finds_something(diff: &Diff) -> bool {
    let causes = diff.step_time.iter().flat_map(|time| &time.causes).any(|cause| cause.significant);
    causes
        || diff.metrics.iter().any(|metric| metric.significant)
        || diff.kernels.iter().any(|kernel| kernel.significant)
}

#[test]
fn reruns_do_not_differ_and_two_percent_are_found() {
    let (mut silent, mut found) = (0, 0);
    for pair in 0..PAIRS {
        let (base, again) = (noisy(3 * pair), noisy(3 * pair + 1));
        silent += u64::from(!finds_something(&diff(&base, &again)));
        // All that a step is made of takes 2% longer: its kernels, where communication is as it was, a little more.
        let slower = Job { slow_rank: Some((0, SLOWER)), ranks: 1, ..noisy(3 * pair + 2) };
        let diff = diff(&Job { ranks: 1, ..base }, &slower);
        let step = diff.metrics.iter().find(|metric| metric.metric == "step_time").unwrap();
        found += u64::from(step.significant && step.change.unwrap() > 0.0);
    }
    println!("nothing significant in {silent} of {PAIRS} reruns; a slowdown of 2% found in {found} of {PAIRS}");
    assert!(silent >= 95, "something in {} of {PAIRS} reruns", PAIRS - silent);
    assert!(found >= 95, "found in {found} of {PAIRS}");
}

/// Kernels of 1,650 µs in a step of 1,985 µs have to take so many times as long for the step to take 2% longer.
const SLOWER: f64 = 1.0 + 0.02 * 1985.0 / 1650.0;
