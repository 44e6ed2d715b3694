//! What the binary is built with: its version, and the library that programs load.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    name_build();
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

/// Says what `stepscope --version` says of a build. A tarball, or a machine without git, has no commit.
fn name_build() {
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let set = |name: &str, value: &str| println!("cargo::rustc-env=STEPSCOPE_{name}={value}");
    for (name, variable) in [("BUILD_PROFILE", "PROFILE"), ("BUILD_TARGET", "TARGET")] {
        set(name, &env::var(variable).unwrap_or_default());
    }
    set("BUILD_DATE", &build_date());
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    set("BUILD_COMMIT", &commit(&root).map_or_else(String::new, |commit| format!(" ({commit})")));
}

/// The date of this build, or that of a reproducible one.
fn build_date() -> String {
    let epoch = env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let time = epoch.and_then(|seconds| chrono::DateTime::from_timestamp(seconds, 0)).unwrap_or_else(chrono::Utc::now);
    time.format("%Y-%m-%d").to_string()
}

/// The commit that is checked out here; none if `root` is not the top of a repository.
fn commit(root: &Path) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // The files that change with the commit. One that is missing would make every build run this again.
    let head = git(root, &["symbolic-ref", "--quiet", "HEAD"]).unwrap_or_default();
    for name in ["HEAD", head.as_str(), "packed-refs"].into_iter().filter(|name| !name.is_empty()) {
        let file = root.join(git(root, &["rev-parse", "--git-path", name])?);
        if file.exists() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
