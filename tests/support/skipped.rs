//! Says that a test did nothing, for want of something. `.ci/run` counts these lines. Test crates take this file in by its path.

use std::{env, fmt::Display, io::Write, thread};

/// What a test may need that a machine may lack. `STEPSCOPE_REQUIRE=gpu,nccl` makes tests fail that lack one of those.
const NEEDS: [&str; 13] = [
    "gpu",
    "nccl",
    "cuda-libraries",
    "perfetto",
    "browser",
    "python",
    "torch",
    "tools",
    "files",
    "privileges",
    "network",
    "slurm",
    "prometheus",
];

/// Says so where nobody can miss it: what a test that passes prints is not shown, unless it goes around the harness.
///
/// # Panics
/// When what it needs is required.
pub(crate) fn skipped(need: &str, why: &dyn Display) {
    assert!(NEEDS.contains(&need), "nothing is known as {need}");
    let required = env::var("STEPSCOPE_REQUIRE").unwrap_or_default();
    for word in required.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        assert!(NEEDS.contains(&word), "STEPSCOPE_REQUIRE has {word}; it may have {}", NEEDS.join(", "));
        assert!(word != need, "{need} is required: {why}");
    }
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("SKIPPED {test}: {why}\n");
    // In one piece; a closed stderr leaves nobody to tell.
    drop(std::io::stderr().write_all(line.as_bytes()));
}
