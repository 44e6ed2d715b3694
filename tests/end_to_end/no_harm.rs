use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
};

use crate::{
    binary::{command, failure, stepscope, text},
    carried_library::unpacked_by,
};

/// Files and folders below a directory, and what files say.
fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            found.push((name.clone() + "/", Vec::new()));
            found.extend(contents(&path).into_iter().map(|(below, text)| (format!("{name}/{below}"), text)));
        } else {
            found.push((name, fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_directory_with_something_in_it_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("python")).unwrap();
    fs::write(directory.path().join("python/a"), "x").unwrap();
    let victim = tempfile::NamedTempFile::new().unwrap();
    fs::write(&victim, "theirs").unwrap();
    symlink(victim.path(), directory.path().join("python/sitecustomize.py")).unwrap();
    let before = contents(directory.path());
    for command in [
        &["record", "--run", ".", "--", "true"][..],
        &["record", "--run", ".", "--", "no-such-command"],
        &["train", "--run", ".", "--steps", "1"],
        &["train", "--run", "python", "--steps", "1"],
    ] {
        let said = failure(command, directory.path());
        assert!(
            said.contains("is not empty") && said.contains("hint: name a directory that is new or empty"),
            "{said}"
        );
        assert_eq!(contents(directory.path()), before);
    }
    assert_eq!(fs::read(&victim).unwrap(), b"theirs");
}

#[test]
fn an_empty_directory_that_was_there_stays() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("mine")).unwrap();
    for line in [&["record", "--run", "mine", "--", "true"][..], &["record", "--run", "mine", "--", "no-such-command"]]
    {
        drop(stepscope(line, directory.path()));
        assert_eq!(contents(directory.path()), [("mine/".to_owned(), Vec::new())], "{line:?}");
    }
}

#[test]
fn checkpoints_replace_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let theirs = directory.path().join("work/checkpoints/step-000001");
    fs::create_dir_all(&theirs).unwrap();
    fs::write(theirs.join("weights"), "weeks of work").unwrap();
    let line = ["train", "--no-record", "--run", "work", "--steps", "1", "--save-every", "1", "--backend", "cpu"];
    let said = failure(&line, directory.path());
    assert!(said.contains("cannot write checkpoints into work/checkpoints: it is not empty"), "{said}");
    assert_eq!(fs::read(theirs.join("weights")).unwrap(), b"weeks of work");
}

#[test]
fn a_sweep_writes_over_no_file() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("sweep.toml"), "steps = 1\n[[run]]\nname = \"notes\"\n").unwrap();
    fs::write(directory.path().join("notes.toml"), "theirs").unwrap();
    let said = failure(&["train", "--sweep", "sweep.toml", "--run", "."], directory.path());
    assert!(said.contains("already exists: ./notes.toml"), "{said}");
    assert_eq!(fs::read(directory.path().join("notes.toml")).unwrap(), b"theirs");
}

#[test]
fn the_status_is_the_commands_whatever_becomes_of_the_run() {
    for (line, status) in [
        ("rm -rf run; exit 7", 7),
        ("rm -rf run; exit 0", 0),
        ("echo '{' > run/run.json; exit 3", 3),
        ("rm run/run.json; mkfifo run/run.json; exit 4", 4),
        ("mkdir run/rank-00000; echo '[' > run/rank-00000/rank.json; exit 5", 5),
        ("rm -rf run; echo a file > run; exit 6", 6),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let output = stepscope(&["record", "--run", "run", "--", "sh", "-c", line], directory.path());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{line}: {said}");
        assert!(said.contains("error: ") || said.contains("recorded  "), "{line}: {said}");
    }
}

#[test]
fn whoever_ignores_the_end_of_children_is_told_of_ours() {
    let directory = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_stepscope");
    let run = |line: &str| {
        let line = format!("trap '' CHLD; exec {binary} {line}");
        // Other shells do not ignore it when they are told to.
        let output = Command::new("bash").args(["-c", &line]).current_dir(directory.path()).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, _, said) = run("record --run run -- sh -c 'exit 5'");
    assert_eq!(status, Some(5), "{said}");
    let (status, ignored, said) = run("record --run run -- grep SigIgn /proc/self/status");
    let ignored = u64::from_str_radix(ignored.split_whitespace().last().unwrap(), 16).unwrap();
    assert_eq!((status, ignored & 1 << 16), (Some(0), 1 << 16), "the command begins as we did: {said}");
    let (status, _, said) = run("train --backend cpu --dp 2 --processes --steps 1 --seq-len 16 --no-record");
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn files_that_a_command_puts_into_its_run_are_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let line = "mv run/run.json ours; echo theirs > run/run.json";
    drop(stepscope(&["record", "--run", "run", "--", "sh", "-c", line], directory.path()));
    assert_eq!(fs::read(directory.path().join("run/run.json")).unwrap(), b"theirs\n");
}

#[test]
fn the_python_module_is_in_a_folder_of_the_users_own() {
    let directory = tempfile::tempdir().unwrap();
    let temporary = directory.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    // A colon would split the variable, and a folder of somebody else's is not trusted.
    for cache in ["cache", "with:colon", "/proc", "a-file"] {
        fs::write(directory.path().join("a-file"), "").unwrap();
        let output = command(directory.path())
            .args(["record", "--run", "run", "--", "sh", "-c", "echo \"$PYTHONPATH\"; ls run"])
            .env("XDG_CACHE_HOME", directory.path().join(cache))
            .env("TMPDIR", &temporary)
            .env("PYTHONPATH", "/theirs")
            .output()
            .unwrap();
        let (said, heard) = (text(&output.stdout), text(&output.stderr));
        let (path, run) = said.split_once('\n').unwrap();
        assert_eq!(run, "run.json\n", "nothing of Python's is in the run");
        let folders: Vec<&str> = path.split(':').collect();
        assert_eq!((folders.len(), folders[1]), (2, "/theirs"), "{path}: {heard}");
        let folder = Path::new(folders[0]);
        assert!(folder.join("sitecustomize.py").is_file(), "{path}");
        assert_eq!(folder.starts_with(directory.path().join(cache)), cache == "cache", "{path}");
        let there = folder.metadata().unwrap();
        assert_eq!(
            (there.permissions().mode() & 0o777, there.uid()),
            (0o700, directory.path().metadata().unwrap().uid())
        );
    }
}

#[test]
fn without_a_folder_for_it_the_rest_is_recorded() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(directory.path().join("a-file"), "").unwrap();
    let file = directory.path().join("a-file");
    let output = command(directory.path())
        .args(["record", "--run", "run", "--", "sh", "-c", "echo \"-$PYTHONPATH-\"; exit 5"])
        .env("XDG_CACHE_HOME", &file)
        .env("TMPDIR", &file)
        // Else there would be no folder for the library, and so no recording.
        .env("STEPSCOPE_INJECT", unpacked_by(Path::new(env!("CARGO_BIN_EXE_stepscope")), elsewhere.path()))
        .env_remove("PYTHONPATH")
        .output()
        .unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(5), "--\n"));
    assert!(text(&output.stderr).contains("without PyTorch memory and steps: "), "{}", text(&output.stderr));
}

#[test]
fn runs_that_begin_at_once_have_directories_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("begun")).unwrap();
    // Each waits for all to have begun.
    let line = "touch begun/$$; while [ $(ls begun | wc -l) -lt 6 ]; do sleep 0.01; done; exit 9";
    let start = |_| {
        let mut record = command(directory.path());
        record.args(["record", "--", "sh", "-c", line]).stdout(std::process::Stdio::null());
        record.stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..6).map(start).collect();
    let statuses: Vec<_> = children.into_iter().map(|mut child| child.wait().unwrap().code()).collect();
    assert_eq!(statuses, [Some(9); 6]);
    let left = contents(directory.path()).into_iter().filter(|(name, _)| !name.starts_with("begun/"));
    assert!(left.clone().all(|(name, _)| name == "runs/"), "{:?}", left.collect::<Vec<_>>());
}

#[test]
fn a_pipe_in_place_of_a_checkpoint_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let trained = ["train", "--run", "run", "--steps", "1", "--save-every", "1", "--backend", "cpu"];
    assert!(stepscope(&trained, directory.path()).status.success());
    let checkpoint = directory.path().join("run/checkpoints/step-000001");
    for file in fs::read_dir(&checkpoint).unwrap().map(|entry| entry.unwrap().path()) {
        let whole = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        let said =
            failure(&["train", "--resume", "run", "--run", "on", "--steps", "2", "--backend", "cpu"], directory.path());
        assert!(said.contains("it is not a regular file"), "{said}");
        assert!(!directory.path().join("on").exists());
        fs::remove_file(&file).unwrap();
        fs::write(&file, whole).unwrap();
    }
}
