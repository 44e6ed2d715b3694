use std::{
    fs,
    os::unix::fs::{FileExt, symlink},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use crate::{
    disks::can_mount,
    fault::{Fault, Skip},
    scene::{Ended, Scene},
};

/// Calls that fail under a command that reads `trained`, and what it says: its status, and words on stdout or stderr.
struct Failing {
    name: &'static str,
    command: &'static [&'static str],
    rules: &'static str,
    status: i32,
    says: &'static str,
}

const FAILING: [Failing; 14] = [
    Failing {
        name: "EIO in one rank",
        command: &["analyze", "trained"],
        rules: "read:EIO:rank-00001/spans:0",
        status: 2,
        says: "Input/output error",
    },
    Failing {
        name: "EIO in the middle of a file",
        command: &["analyze", "trained"],
        rules: "read:EIO:rank-00001/spans:2",
        status: 2,
        says: "Input/output error",
    },
    Failing {
        name: "EIO in rank.json",
        command: &["inspect", "trained"],
        rules: "read:EIO:rank-00001/rank.json:0",
        status: 0,
        says: "Input/output error",
    },
    Failing {
        name: "EIO in run.json",
        command: &["inspect", "trained"],
        rules: "read:EIO:run.json:0",
        status: 2,
        says: "Input/output error",
    },
    Failing {
        name: "stale handle on reads",
        command: &["analyze", "trained"],
        rules: "read:ESTALE:rank-00000/memory:0",
        status: 2,
        says: "Stale file handle",
    },
    Failing {
        name: "stale handle on opening",
        command: &["analyze", "trained"],
        rules: "open:ESTALE:rank-00001/spans:0",
        status: 2,
        says: "Stale file handle",
    },
    Failing {
        name: "a folder that cannot be listed",
        command: &["analyze", "trained"],
        rules: "list:EIO:trained:0",
        status: 2,
        says: "Input/output error",
    },
    Failing {
        name: "no descriptor left (EMFILE)",
        command: &["analyze", "trained"],
        rules: "open:EMFILE:rank-0000:3",
        status: 2,
        says: "Too many open files",
    },
    Failing {
        name: "reads that are interrupted (EINTR)",
        command: &["analyze", "trained"],
        rules: "read:EINTR:rank-0000:0:9",
        status: 0,
        says: "complete",
    },
    Failing {
        name: "reads that are late (50 ms)",
        command: &["analyze", "trained"],
        rules: "read:50:rank-0000:0",
        status: 0,
        says: "complete",
    },
    Failing {
        name: "no locks",
        command: &["inspect", "trained"],
        rules: "lock:ENOLCK:rank-0000:0",
        status: 0,
        says: "complete",
    },
    Failing {
        name: "EIO while a report is written",
        command: &["analyze", "trained", "--format", "html", "-o", "made/out"],
        rules: "write:EIO:/made/:0",
        status: 2,
        says: "Input/output error",
    },
    Failing {
        name: "disk full while a trace is written",
        command: &["export", "trained", "-o", "made/out"],
        rules: "write:ENOSPC:/made/:1",
        status: 2,
        says: "No space left",
    },
    Failing {
        name: "EIO in a frame of the dashboard",
        command: &["live", "--once", "trained"],
        rules: "read:EIO:rank-00001/spans:0",
        status: 2,
        says: "Input/output error",
    },
];

pub(crate) fn faults() -> Vec<Fault> {
    let mut faults: Vec<Fault> = FAILING
        .iter()
        .map(|failing| Fault::new(failing.command[0], failing.name, |scene| fails(failing, scene)))
        .collect();
    faults.extend([
        Fault::new("import", "disk full while a run is imported", half_imported),
        Fault::new("analyze", "a full disk behind stdout", full_stdout),
        Fault::new("analyze", "8 descriptors", few_descriptors),
        Fault::new("analyze", "files that grow and shrink while they are read", changing),
        Fault::new("analyze", "a read-only file system", read_only),
    ]);
    faults
}

/// Puts sources where the words of a command look for them, and a folder for what it makes.
fn link(scene: &Scene) {
    symlink(scene.kit.trained(), scene.path().join("trained")).unwrap();
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/tests/fixtures/kineto/ddp");
    symlink(traces, scene.path().join("traces")).unwrap();
    fs::create_dir(scene.path().join("made")).unwrap();
}

fn fails(failing: &Failing, scene: &Scene) -> Result<String, Skip> {
    link(scene);
    let ended = scene.run_to_end(scene.with_rules(scene.stepscope(failing.command), failing.rules));
    let left: Vec<_> =
        fs::read_dir(scene.path().join("made")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?} is left: {}", ended.stderr);
    Ok(says(&ended, failing.status, failing.says))
}

fn says(ended: &Ended, status: i32, words: &str) -> String {
    assert_eq!(ended.status.code(), Some(status), "{}{}", ended.stdout, ended.stderr);
    let all = format!("{}{}", ended.stderr, ended.stdout);
    let is_it = |line: &&str| line.contains(words) && (status == 0 || line.starts_with("error: "));
    let line = all.lines().find(is_it).unwrap_or_else(|| panic!("nobody says {words:?}: {all}"));
    format!("status {status}; {}", line.trim())
}

/// Nothing of it is left.
fn half_imported(scene: &Scene) -> Result<String, Skip> {
    link(scene);
    let rules = format!("write:ENOSPC:/run/:{}", scene.moment(6));
    let import = scene.with_rules(scene.stepscope(&["import", "traces", "--run", "run"]), &rules);
    let said = says(&scene.run_to_end(import), 2, "No space left");
    assert!(!scene.run().exists());
    Ok(format!("{said}; nothing is left"))
}

fn full_stdout(scene: &Scene) -> Result<String, Skip> {
    link(scene);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "exec \"$0\" analyze trained > /dev/full", env!("CARGO_BIN_EXE_stepscope")])
        .current_dir(scene.path());
    Ok(says(&scene.run_to_end(shell), 2, "No space left"))
}

fn few_descriptors(scene: &Scene) -> Result<String, Skip> {
    link(scene);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -n 8; exec \"$0\" analyze trained", env!("CARGO_BIN_EXE_stepscope")])
        .current_dir(scene.path());
    let ended = scene.run_to_end(shell);
    let (status, words) = if ended.status.success() { (0, "complete") } else { (2, "Too many open files") };
    Ok(says(&ended, status, words))
}

/// Copies a run.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &target) } else { _ = fs::copy(entry.path(), &target).unwrap() }
    }
}

/// Whoever reads gets some bytes of before and some of after, or none.
fn changing(scene: &Scene) -> Result<String, Skip> {
    copy(&scene.kit.trained(), &scene.run());
    let over = AtomicBool::new(false);
    let path = scene.run().join("rank-00000/spans.arrows");
    let whole = fs::read(&path).unwrap();
    let (round, over) = (scene.round, &over);
    let statuses = thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(round);
            while !over.load(Relaxed) {
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(random.u64(0..whole.len() as u64)).unwrap();
                file.write_all_at(&whole[..random.usize(0..=whole.len())], 0).unwrap();
            }
        });
        let commands =
            [&["analyze", "run"][..], &["inspect", "run"], &["live", "--once", "run"], &["export", "run", "-o", "out"]];
        let run = |words: &[&str]| {
            let ended = scene.end_unread(scene.start(scene.stepscope(words)));
            let status = ended.status.code().unwrap_or(-1);
            assert!(status == 0 || (status == 2 && ended.stderr.contains("error: ")), "{words:?}: {}", ended.stderr);
            format!("{} {status}", words[0])
        };
        let statuses = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| commands.map(run)));
        over.store(true, Relaxed);
        statuses
    });
    Ok(format!("status of {}", statuses.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).join(", ")))
}

fn read_only(scene: &Scene) -> Result<String, Skip> {
    if !can_mount() {
        return Err(Skip("privileges", "there are no namespaces for users".into()));
    }
    copy(&scene.kit.trained(), &scene.run());
    let line =
        "mount --bind run run && mount -o remount,bind,ro run && ! touch run/x 2>/dev/null && exec \"$0\" analyze run";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", line, env!("CARGO_BIN_EXE_stepscope")]);
    command.current_dir(scene.path());
    Ok(says(&scene.run_to_end(command), 0, "complete"))
}
