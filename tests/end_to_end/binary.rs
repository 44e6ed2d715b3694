//! The binary, as a shell would run it.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

/// The command, in a directory.
pub(crate) fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    // Nothing of the tests is left in the cache of whoever runs them.
    command.current_dir(directory).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// Runs it to its end.
pub(crate) fn stepscope(arguments: &[&str], directory: &Path) -> Output {
    command(directory).args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What it prints, as JSON.
pub(crate) fn json(arguments: &[&str], directory: &Path) -> Value {
    let output = stepscope(arguments, directory);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What it says when it fails.
pub(crate) fn failure(arguments: &[&str], directory: &Path) -> String {
    let output = stepscope(arguments, directory);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty());
    said
}
