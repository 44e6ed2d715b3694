//! The crates that are compiled into the injected library: what Cargo would build, and what was reviewed.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// The crate of the library, as it is built for the binary that carries it.
const LIBRARY: &str = "stepscope-inject";
/// How our crates are called.
const OURS: &str = "stepscope";

/// Crates, each with its version.
type Crates = BTreeSet<String>;

/// Crates that nobody has reviewed, and reviews of crates that are not there.
pub(crate) fn wrong(root: &Path) -> Vec<String> {
    let review = fs::read_to_string(root.join("collector/inject/CRATES.md")).unwrap();
    compared(&built(&tree(root)), &reviewed(&review))
}

/// Everything that the binary is made of, each line with how deep it is. Nothing is downloaded.
fn tree(root: &Path) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["tree", "--offline", "--locked", "--package", OURS, "--no-dedupe"]);
    command.args(["--edges", "normal,no-proc-macro", "--target", "x86_64-unknown-linux-gnu"]);
    let output = command.args(["--prefix", "depth", "--format", " {p}"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The crates below the library, with versions.
fn built(tree: &str) -> Crates {
    let mut crates = Crates::new();
    let mut below: Option<u32> = None;
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        let (Some(depth), Some(name), Some(version)) = (words.next(), words.next(), words.next()) else { continue };
        let depth: u32 = depth.parse().unwrap();
        below = below.filter(|library| depth > *library);
        if name == LIBRARY {
            below = Some(depth);
        } else if below.is_some() && !name.starts_with(OURS) {
            crates.insert(format!("{name} {}", version.trim_start_matches('v')));
        }
    }
    crates
}

/// The first column of the table.
fn reviewed(review: &str) -> Crates {
    let rows = review.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| crate "));
    rows.filter_map(|row| row.split('|').nth(1)).map(|cell| cell.trim().to_owned()).collect()
}

fn compared(built: &Crates, reviewed: &Crates) -> Vec<String> {
    let unknown = built.difference(reviewed).map(|name| format!("{name} was not reviewed"));
    unknown.chain(reviewed.difference(built).map(|name| format!("{name} is not in the library"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_nobody_reviewed_is_found() {
        let tree = "0 stepscope v1 (/here)\n1 clap v4.0.0\n1 stepscope-inject v1 (/here)\n2 libc v0.2.1\n\
                    2 stepscope-traces v1 (/here)\n3 zstd v0.14.0\n1 toml v1.0.0\n";
        let review = "# What is in it\n\n| crate | for |\n|---|---|\n| libc 0.2.0 | C |\n| zstd 0.14.0 | tables |\n";
        let wrong = compared(&built(tree), &reviewed(review));
        assert_eq!(wrong, ["libc 0.2.1 was not reviewed", "libc 0.2.0 is not in the library"]);
    }
}
