use std::{fs, path::PathBuf, process::Command, thread, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use stepscope_traces::{Run, SpanKind, State, Window};

use crate::{
    disks::STEPS,
    fault::{Fault, Skip},
    recorded::recorded,
    scene::{Ended, STATUS, Scene, computed},
};

/// Ranks that begin at once.
const MANY: u64 = 1000;

/// What a job does in its middle.
struct Deed {
    name: &'static str,
    /// What `job.c` calls it.
    word: &'static str,
    /// What the system must let it do, if that is not a matter of course.
    privilege: Option<&'static str>,
    /// Whether all of its steps are recorded.
    is_whole: bool,
}

const DEEDS: [Deed; 8] = [
    Deed {
        name: "the job goes into another root (chroot)",
        word: "chroot",
        privilege: Some("chroot"),
        is_whole: false,
    },
    Deed {
        name: "the job goes into other namespaces, and back (setns)",
        word: "setns",
        privilege: Some("setns"),
        is_whole: true,
    },
    Deed { name: "the job changes its name, and more (prctl)", word: "prctl", privilege: None, is_whole: true },
    Deed { name: "the job forbids itself to open files (seccomp)", word: "sandbox", privilege: None, is_whole: false },
    Deed { name: "the job uses all descriptors (EMFILE)", word: "use-descriptors", privilege: None, is_whole: false },
    Deed { name: "the job closes all descriptors", word: "close-descriptors", privilege: None, is_whole: false },
    Deed { name: "300 children that live for a moment", word: "fork-bomb", privilege: None, is_whole: true },
    Deed {
        name: "the job uses all descriptors before CUDA begins",
        word: "use-descriptors-first",
        privilege: None,
        is_whole: false,
    },
];

pub(crate) fn faults() -> Vec<Fault> {
    let mut faults: Vec<Fault> =
        DEEDS.iter().map(|deed| Fault::new("recorder", deed.name, |scene| done(deed, scene))).collect();
    faults.extend([
        Fault::new("recorder", "the job becomes another program (exec)", becomes_another),
        Fault::new("recorder", "1,000 ranks begin at once in one run", many_ranks),
        Fault::new("recorder", "the job is killed (SIGKILL)", |scene| killed(scene, Signal::SIGKILL)),
        Fault::new("recorder", "the job crashes (SIGSEGV)", |scene| killed(scene, Signal::SIGSEGV)),
        Fault::new("recorder", "the job stands still (SIGSTOP)", stopped),
        Fault::new("record", "`record` is killed (SIGKILL)", orphaned),
        Fault::new("record", "`record` stands still (SIGSTOP)", record_stopped),
        Fault::new("recorder", "no memory left in a cgroup", out_of_memory),
    ]);
    faults
}

/// What is recorded of a job that ended well, in a few words.
fn words(scene: &Scene, ended: &Ended) -> String {
    match recorded(&scene.run()) {
        Some(found) => {
            assert!(found.steps >= ended.seen && found.unreadable_bytes == 0, "{found:?}, seen {}", ended.seen);
            let state = if found.state == State::Complete { "complete" } else { "interrupted" };
            format!("status {STATUS}; {state}, {} of {STEPS} steps, {} of them seen before", found.steps, ended.seen)
        }
        None => format!("status {STATUS}; {}", ended.line_with("this process is not recorded: ")),
    }
}

fn done(deed: &Deed, scene: &Scene) -> Result<String, Skip> {
    if let Some(privilege) = deed.privilege {
        // It may where it may without us.
        let alone = Command::new(scene.kit.job()).args(["2", deed.word]).current_dir(scene.path()).output().unwrap();
        if alone.status.code() == Some(77) {
            return Err(Skip("privileges", format!("{privilege} is not allowed")));
        }
        drop(fs::remove_dir(scene.path().join("elsewhere")));
    }
    let line = format!("ulimit -n 256; exec \"$JOB\" {STEPS} {}", deed.word);
    let ended = scene.run_to_end(scene.record_line(&line));
    ended.assert_unchanged(STEPS);
    let words = words(scene, &ended);
    assert!(!deed.is_whole || words.contains(&format!("complete, {STEPS} of")), "{words}: {}", ended.stderr);
    Ok(words)
}

/// The new program is a rank of its own; the old one's recording has what was flushed.
fn becomes_another(scene: &Scene) -> Result<String, Skip> {
    let ended = scene.run_to_end(scene.record(&[&STEPS.to_string(), "exec"]));
    ended.assert_unchanged(40);
    let run = Run::open(&scene.run()).unwrap();
    let steps: Vec<String> = run
        .ranks
        .iter()
        .map(|rank| {
            let (data, loss) = rank.read(Window::ALL).unwrap();
            assert!(loss.is_none());
            data.spans.rows().filter(|span| span.kind == SpanKind::Step).count().to_string()
        })
        .collect();
    assert_eq!(steps.last().map(String::as_str), Some("40"), "{steps:?}");
    Ok(format!("status {STATUS}; steps of ranks: {}", steps.join(", ")))
}

fn many_ranks(scene: &Scene) -> Result<String, Skip> {
    let ended = scene.end_unread(scene.start(scene.record(&[&MANY.to_string(), "ranks"])));
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(STATUS), "ranks 1000\n"), "{}", ended.stderr);
    let run = Run::open(&scene.run()).unwrap();
    let numbers: Vec<u64> = run.ranks.iter().map(|rank| rank.info.rank.0.into()).collect();
    assert!(numbers.iter().copied().eq(0..MANY), "{} ranks: {}", numbers.len(), ended.stderr);
    // Whoever does not come to the end of its recording within seconds, among a thousand, is interrupted: nothing waits longer.
    let whole = run.ranks.iter().filter(|rank| {
        let (data, loss) = rank.read(Window::ALL).unwrap();
        assert!(loss.is_none(), "{loss:?}");
        data.spans.rows().any(|span| span.kind == SpanKind::Step)
    });
    let (whole, interrupted) =
        (whole.count() as u64, run.ranks.iter().filter(|rank| rank.info.written.is_none()).count() as u64);
    assert!(whole + interrupted >= MANY, "{whole} ranks have a step, and {interrupted} were interrupted");
    Ok(format!("status {STATUS}; {MANY} ranks, {whole} with their step, {interrupted} interrupted"))
}

/// The process of rank 0.
fn rank(scene: &Scene) -> Pid {
    Pid::from_raw(Run::open(&scene.run()).unwrap().ranks[0].info.pid.try_into().unwrap())
}

fn killed(scene: &Scene, signal: Signal) -> Result<String, Skip> {
    let child = scene.start(scene.record(&["100000"]));
    scene.until_steps(1 + scene.moment(100));
    kill(rank(scene), signal).unwrap();
    let ended = scene.end(child);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(128 + signal as i32), ""), "{}", ended.stderr);
    let found = recorded(&scene.run()).unwrap();
    assert!(found.steps >= ended.seen && found.unreadable_bytes == 0, "{found:?}, seen {}", ended.seen);
    assert_eq!(found.state, State::Interrupted);
    Ok(format!(
        "status {}; interrupted, {} steps, {} of them seen before",
        128 + signal as i32,
        found.steps,
        ended.seen
    ))
}

fn stopped(scene: &Scene) -> Result<String, Skip> {
    let child = scene.start(scene.record(&[&STEPS.to_string()]));
    scene.until_steps(1 + scene.moment(50));
    let rank = rank(scene);
    kill(rank, Signal::SIGSTOP).unwrap();
    thread::sleep(Duration::from_secs(1));
    kill(rank, Signal::SIGCONT).unwrap();
    let ended = scene.end(child);
    ended.assert_unchanged(STEPS);
    let words = words(scene, &ended);
    let (data, _) = Run::open(&scene.run()).unwrap().ranks[0].read(Window::ALL).unwrap();
    let stood = data.spans.rows().find(|span| data.names.get(span.name) == Some(stepscope_traces::STOOD_STILL));
    assert!(
        words.contains("complete") && stood.is_some_and(|span| span.duration_ns.0 > 900_000_000),
        "{words}, {stood:?}"
    );
    Ok(words + "; it says that it stood still")
}

fn orphaned(scene: &Scene) -> Result<String, Skip> {
    let mut child = scene.start(scene.record(&[&STEPS.to_string()]));
    scene.until_steps(1 + scene.moment(50));
    child.kill().unwrap();
    child.wait().unwrap();
    scene.until("the job prints what it computed", || scene.said("stdout") == computed(STEPS));
    scene
        .until("the recording is over", || recorded(&scene.run()).is_some_and(|found| found.state != State::Recording));
    let found = recorded(&scene.run()).unwrap();
    assert_eq!((found.state, found.steps), (State::Complete, STEPS));
    Ok(format!("the job goes on; complete, {STEPS} steps"))
}

fn record_stopped(scene: &Scene) -> Result<String, Skip> {
    let child = scene.start(scene.record(&[&STEPS.to_string()]));
    scene.until_steps(1 + scene.moment(50));
    let record = Pid::from_raw(child.id().cast_signed());
    kill(record, Signal::SIGSTOP).unwrap();
    scene
        .until("the recording is over", || recorded(&scene.run()).is_some_and(|found| found.state != State::Recording));
    kill(record, Signal::SIGCONT).unwrap();
    let ended = scene.end(child);
    ended.assert_unchanged(STEPS);
    Ok(words(scene, &ended))
}

/// A memory cgroup of one's own, of either version; it goes with this.
struct Cgroup(PathBuf);

impl Cgroup {
    fn limited(bytes: u64) -> Option<Cgroup> {
        let name = format!("stepscope-faults-{}", std::process::id());
        for (root, limit) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")] {
            let path = PathBuf::from(root).join(&name);
            if fs::create_dir(&path).is_ok() {
                let cgroup = Cgroup(path);
                // Without this one, it is no memory cgroup.
                if cgroup.0.join(limit).exists() && fs::write(cgroup.0.join(limit), bytes.to_string()).is_ok() {
                    return Some(cgroup);
                }
            }
        }
        None
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.0));
    }
}

fn out_of_memory(scene: &Scene) -> Result<String, Skip> {
    let Some(cgroup) = Cgroup::limited(64 << 20) else {
        return Err(Skip("privileges", "no memory cgroup can be made".into()));
    };
    let processes = cgroup.0.join("cgroup.procs");
    let line = format!("echo $$ > {} && exec \"$JOB\" {STEPS} use-memory", processes.display());
    let ended = scene.run_to_end(scene.record_line(&line));
    assert_eq!(ended.status.code(), Some(137), "{}", ended.stderr);
    let found = recorded(&scene.run()).unwrap();
    assert!(found.state == State::Interrupted && found.steps >= ended.seen && found.steps > 0, "{found:?}");
    Ok(format!(
        "status 137, as without; interrupted, {} of {} steps, {} of them seen before",
        found.steps,
        STEPS / 2,
        ended.seen
    ))
}
