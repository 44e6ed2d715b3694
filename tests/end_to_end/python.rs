//! The Python package, and the module that watches PyTorch, by their own tests.

use std::{path::Path, process::Command};

use crate::{binary::text, skipped::skipped};

/// Whether Python can do something.
fn python_can(what: &str) -> bool {
    let tried = Command::new("python3").args(["-c", what]).output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
fn the_python_package_does_what_its_tests_say() {
    if !python_can("import ctypes, sys; assert sys.version_info >= (3, 8)") {
        return skipped("python", &"there is no python3");
    }
    for (tests, modules) in [("tables", ["pyarrow", "pandas"]), ("summaries on an engine", ["distributed", "ray"])] {
        let missing: Vec<&str> =
            modules.into_iter().filter(|module| !python_can(&format!("import {module}"))).collect();
        if !missing.is_empty() {
            // The others are run all the same.
            skipped("python", &format!("tests of {tests}, since Python has no {}", missing.join(" and ")));
        }
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/python");
    let mut command = Command::new("python3");
    command.args(["-m", "unittest", "discover", "--start-directory"]).arg(package.join("tests"));
    command.env("STEPSCOPE_BIN", env!("CARGO_BIN_EXE_stepscope")).env("PYTHONPATH", &package);
    // Nothing of the tests is left in the package, or in the cache of whoever runs them.
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    for variable in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK"] {
        command.env_remove(variable);
    }
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("Ran 0 tests"), "{said}");
}

#[test]
fn the_module_that_watches_pytorch_does_what_its_tests_say() {
    if !python_can("import torch; assert torch.__version__ >= '2.1'") {
        return skipped("torch", &"python3 has no PyTorch");
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("collector/python/tests");
    let mut command = Command::new("python3");
    command.args(["-B", "-m", "unittest", "discover", "--start-directory"]).arg(tests);
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("Ran 0 tests"), "{said}");
}
