//! Says where cargo builds the library that programs load, for `src/record/library.rs` to carry it.

use std::{env, path::PathBuf};

fn main() {
    // From `target/release/build/stepscope-…/out` to `target/release/deps`.
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let library = out.ancestors().nth(3).map(|profile| profile.join("deps/libstepscope_inject.so")).unwrap_or_default();
    let escaped = library.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    println!("cargo::rustc-env=STEPSCOPE_INJECT_FILE={escaped}");
    println!("cargo::rerun-if-changed=build.rs");
}
