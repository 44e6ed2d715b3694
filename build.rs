//! What the binary is built with: its version, and the library that programs load.

use std::{env, path::PathBuf};

#[path = "build/version.rs"]
mod version;

fn main() {
    version::emit();
    name_library();
    println!("cargo::rerun-if-changed=build.rs");
}

/// Says where cargo builds the library that programs load, for `src/record/library.rs` to carry it.
fn name_library() {
    // From `target/release/build/stepscope-…/out` to `target/release/deps`.
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let library = out.ancestors().nth(3).map(|profile| profile.join("deps/libstepscope_inject.so")).unwrap_or_default();
    let escaped = library.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    println!("cargo::rustc-env=STEPSCOPE_INJECT_FILE={escaped}");
}
