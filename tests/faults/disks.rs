use std::fs;

use stepscope_traces::State;

use crate::{
    fault::{Fault, Skip},
    recorded::{Recorded, recorded},
    scene::{Ended, Scene},
};

/// Steps of a job, which takes a second.
pub(crate) const STEPS: u64 = 400;

/// What is left of a recording.
#[derive(Clone, Copy)]
enum Left {
    /// All of it, in good order.
    Whole,
    /// All steps; it may not have been told that this is all.
    AllSteps,
    /// What came before the fault, with this reason; one line says that the program goes on.
    Beginning(&'static str),
    /// Nothing, and one line says why.
    Nothing(&'static str),
    /// What was flushed before a call that never returns.
    Flushed,
    /// Whatever was flushed.
    Anything,
}

/// Calls that fail: `@` stands for the moment from which on they do, of one file, and `@@` of all files.
struct Failing {
    name: &'static str,
    rules: &'static str,
    left: Left,
}

const FAILING: [Failing; 18] = [
    Failing { name: "disk full", rules: "write:ENOSPC:rank-00000/:@@", left: Left::Beginning("No space left") },
    Failing {
        name: "disk full from the start",
        rules: "write:ENOSPC:rank-00000/:0",
        left: Left::Nothing("No space left"),
    },
    Failing {
        name: "disk full while names are written",
        rules: "write:ENOSPC:strings.arrows:2",
        left: Left::Beginning("No space left"),
    },
    Failing { name: "quota exceeded", rules: "write:EDQUOT:rank-00000/:@@", left: Left::Beginning("uota exceeded") },
    Failing {
        name: "EIO on writes",
        rules: "write:EIO:rank-00000/spans:@",
        left: Left::Beginning("Input/output error"),
    },
    Failing {
        name: "EIO on writes, and on taking back half of one",
        rules: "write:ENOSPC:rank-00000/spans:@ truncate:EIO:rank-00000/:0",
        left: Left::Beginning("No space left"),
    },
    Failing { name: "EIO on rank.json", rules: "write:EIO:rank.json:2", left: Left::AllSteps },
    Failing { name: "EIO on renames", rules: "rename:EIO:rank.json:1", left: Left::AllSteps },
    Failing {
        name: "stale handle on writes (ESTALE)",
        rules: "write:ESTALE:rank-00000/:@@",
        left: Left::Beginning("Stale file handle"),
    },
    Failing { name: "stale handle when looked at", rules: "stat:ESTALE:rank-00000/spans:@", left: Left::Beginning("") },
    Failing {
        name: "remounted read-only",
        rules: "write:EROFS:run/:@@ open:EROFS:run/:60 rename:EROFS:run/:9",
        left: Left::Beginning("Read-only file system"),
    },
    Failing { name: "writes that are late (200 ms)", rules: "write:200:rank-00000/:0", left: Left::Whole },
    Failing {
        name: "opens, looks and renames that are late (100 ms)",
        rules: "open:100:run/:0 stat:100:run/:0 rename:100:run/:0",
        left: Left::Whole,
    },
    Failing { name: "a write that never returns", rules: "write:3600000:rank-00000/spans:@", left: Left::Flushed },
    Failing { name: "writes that are interrupted (EINTR)", rules: "write:EINTR:rank-00000/:@@:5", left: Left::Whole },
    Failing { name: "no locks", rules: "lock:ENOLCK:rank-00000/:0", left: Left::Whole },
    Failing {
        name: "no folder may be made",
        rules: "mkdir:EACCES:rank-00000:0",
        left: Left::Nothing("Permission denied"),
    },
    Failing {
        name: "no file may be opened (ENFILE)",
        rules: "open:ENFILE:rank-00000/:0",
        left: Left::Nothing("Too many open files"),
    },
];

pub(crate) fn faults() -> Vec<Fault> {
    let mut faults: Vec<Fault> = FAILING
        .iter()
        .map(|failing| {
            Fault::new("recorder", failing.name, |scene| {
                let moments = [("@@", 10), ("@", 5)].map(|(place, usual)| (place, scene.moment(usual).to_string()));
                let rules = moments
                    .iter()
                    .fold(failing.rules.to_owned(), |rules, (place, moment)| rules.replace(place, moment));
                let job = scene.record(&[&STEPS.to_string()]);
                let ended = scene.run_to_end(scene.with_rules(job, &rules));
                ended.assert_unchanged(STEPS);
                // At other moments, a fault may come before the recording or after it.
                let is_late = scene.round > 0 && !ended.stderr.contains("stopped early: ");
                let is_over = matches!(failing.left, Left::Beginning(_)) && is_late;
                let left = if is_over { Left::Anything } else { failing.left };
                Ok(left_of(scene, &ended, left))
            })
        })
        .collect();
    faults.extend([
        Fault::new("recorder", "a limit on the size of files", limited),
        Fault::new("recorder", "a disk of 100 kB", small_disk),
        Fault::new("recorder", "the run is removed", |scene| {
            changed(scene, "stopped early: ", |scene| fs::remove_dir_all(scene.run()).unwrap())
        }),
        Fault::new("recorder", "the run is moved", |scene| {
            changed(scene, "stopped early: ", |scene| fs::rename(scene.run(), scene.path().join("moved")).unwrap())
        }),
        Fault::new("recorder", "a file of the run is cut short", cut_short),
    ]);
    faults
}

/// What is left of a recording of all steps, which must be this.
fn left_of(scene: &Scene, ended: &Ended, left: Left) -> String {
    let found = recorded(&scene.run());
    if let Left::Nothing(why) = left {
        let line = ended.line_with("this process is not recorded: ");
        assert!(line.contains(why) && found.is_none(), "{line}, {found:?}");
        return format!("not recorded: {why}");
    }
    let Some(Recorded { state, steps, unreadable_bytes, reason }) = found else {
        assert!(matches!(left, Left::Flushed | Left::Anything) && ended.seen == 0, "nothing is left: {}", ended.stderr);
        return "not recorded".into();
    };
    assert!(steps >= ended.seen, "{steps} of {} steps that were in the files are left", ended.seen);
    match left {
        Left::Whole => assert_eq!((state, steps, unreadable_bytes), (State::Complete, STEPS, 0), "{}", ended.stderr),
        Left::AllSteps => assert_eq!((steps, unreadable_bytes), (STEPS, 0), "{}", ended.stderr),
        Left::Beginning(why) => {
            let line = ended.line_with("recording of rank 0 stopped early: ");
            assert!(line.contains(why) && line.ends_with("; the program continues"), "{line}");
            assert_eq!(state, State::Interrupted);
            assert!(reason.as_ref().is_none_or(|reason| reason.contains(why)), "{reason:?}");
        }
        Left::Flushed | Left::Nothing(_) => assert_eq!(state, State::Interrupted),
        Left::Anything => {}
    }
    let state = if state == State::Complete { "complete" } else { "interrupted" };
    let unreadable =
        if unreadable_bytes > 0 { format!(", {unreadable_bytes} bytes unreadable") } else { String::new() };
    format!("{state}, {steps} of {STEPS} steps, {} of them seen before{unreadable}", ended.seen)
}

/// A real limit of the system, which sends signals.
fn limited(scene: &Scene) -> Result<String, Skip> {
    let blocks = 20 + scene.moment(10);
    let line = format!("ulimit -f {blocks}; exec \"$JOB\" {STEPS}");
    let ended = scene.run_to_end(scene.record_line(&line));
    ended.assert_unchanged(STEPS);
    Ok(left_of(scene, &ended, Left::Beginning("File too large")))
}

/// A real disk that is full: a file system in memory, which needs a namespace.
fn small_disk(scene: &Scene) -> Result<String, Skip> {
    let inner = "mkdir disk && mount -t tmpfs -o size=100k none disk && cd disk && \
        \"$STEPSCOPE\" record --budget none --run run -- \"$JOB\" 1500; status=$?; cp -r run ..; exit $status";
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", inner]).current_dir(scene.path());
    command.env("STEPSCOPE", env!("CARGO_BIN_EXE_stepscope")).env("JOB", scene.kit.job());
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    if !can_mount() {
        return Err(Skip("privileges", "there are no namespaces for users".into()));
    }
    let ended = scene.run_to_end(command);
    ended.assert_unchanged(1500);
    let line = ended.line_with("recording of rank 0 stopped early: ");
    assert!(line.contains("No space left"), "{line}");
    let found = recorded(&scene.run()).unwrap();
    assert!(found.state == State::Interrupted && found.steps > 0 && found.unreadable_bytes == 0, "{found:?}");
    Ok(format!("interrupted, {} of 1500 steps", found.steps))
}

/// Whether file systems can be mounted in a namespace of one's own.
pub(crate) fn can_mount() -> bool {
    let mut mount = std::process::Command::new("unshare");
    mount.args(["--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]);
    mount.output().is_ok_and(|output| output.status.success())
}

/// Somebody changes the run while it is recorded.
fn changed(scene: &Scene, said: &str, change: impl Fn(&Scene)) -> Result<String, Skip> {
    let child = scene.start(scene.record(&[&STEPS.to_string()]));
    scene.until_steps(1 + scene.moment(30));
    change(scene);
    let ended = scene.end(child);
    ended.assert_unchanged(STEPS);
    Ok(ended.line_with(said).to_owned())
}

/// Somebody cuts off what was recorded: the rest is written behind a hole, which readers count.
fn cut_short(scene: &Scene) -> Result<String, Skip> {
    let child = scene.start(scene.record(&[&STEPS.to_string()]));
    scene.until_steps(1 + scene.moment(30));
    let spans = scene.run().join("rank-00000/spans.arrows");
    let file = fs::OpenOptions::new().write(true).open(spans).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    // The reader of steps takes it that none is missing.
    let ended = scene.end_unread(child);
    ended.assert_unchanged(STEPS);
    let inspected = scene.end_unread(scene.start(scene.stepscope(&["inspect", "run"])));
    assert!(inspected.status.success(), "{}", inspected.stderr);
    Ok(inspected
        .stdout
        .lines()
        .find(|line| line.contains("unreadable") || line.contains("lost"))
        .unwrap_or("nothing is missed")
        .trim()
        .into())
}
