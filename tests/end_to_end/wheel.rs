//! The wheel, in an environment of its own. `STEPSCOPE_WHEEL` names it; `.ci/wheel` builds it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{
    binary::text,
    carried_library::{Interface, unpacked_by},
    skipped::skipped,
};

/// What it may take.
const MOST_BYTES: u64 = 15_000_000;
/// The oldest glibc that it runs with, which its name says.
const GLIBC: (u32, u32) = (2, 28);

/// A program that a user might have.
const PROGRAM: &str = "import stepscope\n\
    with stepscope.step(0):\n    total = sum(range(1000))\n\
    print('the sum is', total)\n";

fn done(output: Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_clean_environment_trains_analyzes_and_records() {
    let Some(wheel) = env::var_os("STEPSCOPE_WHEEL").map(PathBuf::from) else {
        return skipped("files", &"STEPSCOPE_WHEEL names no wheel; `.ci/wheel` builds one");
    };
    assert!(fs::metadata(&wheel).unwrap().len() <= MOST_BYTES, "it is too large");
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let environment = here.join("environment");
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        // Nothing of this checkout, and nothing of other environments.
        command.current_dir(here).args(arguments).env("XDG_CACHE_HOME", here.join("cache"));
        done(command.env_remove("PYTHONPATH").output().unwrap())
    };
    run(Path::new("python3"), &["-m", "venv", environment.to_str().unwrap()]);
    let (python, stepscope) = (environment.join("bin/python"), environment.join("bin/stepscope"));
    run(&python, &["-m", "pip", "install", "--quiet", "--no-index", wheel.to_str().unwrap()]);
    run(&stepscope, &["train", "--backend", "cpu", "--steps", "3", "--run", "trained"]);
    assert!(run(&stepscope, &["analyze", "trained"]).contains("MFU"));
    fs::write(here.join("program.py"), PROGRAM).unwrap();
    let recorded = run(&stepscope, &["record", "--run", "recorded", "--", python.to_str().unwrap(), "program.py"]);
    assert_eq!(recorded, "the sum is 499500\n");
    let analysis = "import stepscope; print(stepscope.analyze('trained').run.state)";
    assert_eq!(run(&python, &["-c", analysis]), "complete\n");
    let library = Interface::of(&unpacked_by(&stepscope, here));
    library.is_modest();
    assert!(library.glibc <= GLIBC, "it needs glibc {:?}", library.glibc);
    assert!(Interface::of(&stepscope).glibc <= GLIBC, "the command needs a newer glibc");
}
