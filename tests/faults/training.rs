use std::fs;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use stepscope_traces::{Run, State};

use crate::{
    fault::{Fault, Skip},
    recorded::recorded,
    scene::{Ended, Scene},
};

/// A training whose steps take milliseconds.
const SHORT: [&str; 7] =
    ["train", "--backend=cpu", "--seq-len=16", "--micro-batch=1", "--micro-batches=1", "--run=run", "--processes"];

pub(crate) fn faults() -> Vec<Fault> {
    vec![
        Fault::new("trainer", "its data is cut short (SIGBUS, if it were mapped)", data_cut_short),
        Fault::new("trainer", "a checkpoint is cut short", checkpoint_cut_short),
        Fault::new("trainer", "EIO when its data is read", data_unreadable),
        Fault::new("trainer", "disk full for checkpoints", |scene| checkpoints(scene, "write:ENOSPC:checkpoints:2")),
        Fault::new("trainer", "disk full for one rank's recording", recording_full),
        Fault::new("trainer", "a rank is killed (SIGKILL)", rank_killed),
        Fault::new("trainer", "a rank stands still for a second (SIGSTOP)", rank_stopped),
        Fault::new("trainer", "the launcher is killed (SIGKILL)", launcher_killed),
    ]
}

fn train(scene: &Scene, words: &[&str]) -> std::process::Command {
    scene.stepscope(&[&SHORT[..], words].concat())
}

fn fails_with(ended: &Ended, words: &str) -> String {
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    let line = ended.line_with("error: ");
    assert!(line.contains(words), "{line}");
    line.to_owned()
}

fn data_cut_short(scene: &Scene) -> Result<String, Skip> {
    let data = scene.path().join("data");
    fs::write(&data, "all work and no play\n".repeat(100_000)).unwrap();
    let child = scene.start(train(scene, &["--dp=2", "--steps=100000", "--data=data"]));
    scene.until_steps(1 + scene.moment(5));
    fs::OpenOptions::new().write(true).open(&data).unwrap().set_len(10).unwrap();
    let said = fails_with(&scene.end(child), "has become shorter");
    assert_eq!(recorded(&scene.run()).unwrap().state, State::Interrupted);
    Ok(format!("status 2, interrupted; {said}"))
}

fn checkpoint_cut_short(scene: &Scene) -> Result<String, Skip> {
    let ended = scene.run_to_end(train(scene, &["--steps=2", "--save-every=1"]));
    assert!(ended.status.success(), "{}", ended.stderr);
    let file = scene.run().join("checkpoints/step-000001/stage-0-tensor-0.safetensors");
    let length = fs::metadata(&file).unwrap().len();
    for cut in [0, 7, 8, 100, scene.moment(length / 2), length - 1] {
        fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(cut).unwrap();
        let mut resumed = scene.stepscope(&[
            "train",
            "--backend=cpu",
            "--seq-len=16",
            "--micro-batch=1",
            "--micro-batches=1",
            "--run=on",
        ]);
        resumed.args(["--steps=3", "--resume=run/checkpoints/step-000001"]);
        fails_with(&scene.run_to_end(resumed), "cannot read ");
        assert!(!scene.path().join("on").exists(), "nothing is begun");
    }
    Ok("status 2, in six places: it cannot be read".into())
}

fn data_unreadable(scene: &Scene) -> Result<String, Skip> {
    fs::write(scene.path().join("mydata"), "all work and no play\n".repeat(1000)).unwrap();
    let rules = format!("read:EIO:mydata:{}", scene.moment(40));
    let command = train(scene, &["--dp=2", "--steps=100000", "--data=mydata"]);
    let said = fails_with(&scene.run_to_end(scene.with_rules(command, &rules)), "Input/output error");
    Ok(format!("status 2; {said}"))
}

fn checkpoints(scene: &Scene, rules: &str) -> Result<String, Skip> {
    let command = train(scene, &["--dp=2", "--steps=3", "--save-every=1"]);
    let said = fails_with(&scene.run_to_end(scene.with_rules(command, rules)), "No space left");
    let left: Vec<_> = fs::read_dir(scene.run().join("checkpoints"))
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(left.is_empty(), "half a checkpoint is left: {left:?}");
    Ok(format!("status 2, no half checkpoint; {said}"))
}

fn recording_full(scene: &Scene) -> Result<String, Skip> {
    let rules = format!("write:ENOSPC:rank-00001/spans:{}", 1 + scene.moment(1));
    let command = train(scene, &["--dp=2", "--steps=60"]);
    let ended = scene.run_to_end(scene.with_rules(command, &rules));
    assert!(ended.status.success() && ended.stdout.contains("60"), "{}", ended.stderr);
    let run = Run::open(&scene.run()).unwrap();
    let [whole, early] = run.ranks.as_slice() else { panic!("{} ranks", run.ranks.len()) };
    assert_eq!((recorded(&scene.run()).unwrap().steps, &whole.info.reason), (60, &None));
    let reason = early.info.reason.as_deref().unwrap_or_default();
    assert!(reason.contains("No space left"), "{reason}");
    Ok(format!("status 0; rank 0: 60 steps; rank 1: {reason}"))
}

fn rank_killed(scene: &Scene) -> Result<String, Skip> {
    let child = scene.start(train(scene, &["--dp=2", "--steps=100000"]));
    scene.until_steps(1 + scene.moment(5));
    let run = Run::open(&scene.run()).unwrap();
    kill(Pid::from_raw(run.ranks[1].info.pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
    let ended = scene.end(child);
    let said = fails_with(&ended, "rank 1 is gone: ");
    let found = recorded(&scene.run()).unwrap();
    assert!(found.state == State::Interrupted && found.steps >= ended.seen, "{found:?}");
    Ok(format!("status 2; {said}; {} steps, {} of them seen before", found.steps, ended.seen))
}

fn rank_stopped(scene: &Scene) -> Result<String, Skip> {
    let child = scene.start(train(scene, &["--dp=2", "--steps=60"]));
    scene.until_steps(1 + scene.moment(5));
    let rank = Pid::from_raw(Run::open(&scene.run()).unwrap().ranks[1].info.pid.try_into().unwrap());
    kill(rank, Signal::SIGSTOP).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    kill(rank, Signal::SIGCONT).unwrap();
    let ended = scene.end(child);
    assert!(ended.status.success(), "{}", ended.stderr);
    let found = recorded(&scene.run()).unwrap();
    assert_eq!((found.state, found.steps), (State::Complete, 60));
    Ok("status 0; complete, 60 steps".into())
}

fn launcher_killed(scene: &Scene) -> Result<String, Skip> {
    let mut child = scene.start(train(scene, &["--dp=2", "--steps=100000"]));
    scene.until_steps(1 + scene.moment(5));
    let pids: Vec<u32> = Run::open(&scene.run()).unwrap().ranks.iter().map(|rank| rank.info.pid).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    scene.until("ranks end with it", || {
        // Whoever has ended and was not waited for is a zombie.
        let state = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        pids.iter()
            .all(|pid| matches!(state(pid).rsplit(") ").next().and_then(|rest| rest.chars().next()), None | Some('Z')))
    });
    assert_eq!(recorded(&scene.run()).unwrap().state, State::Interrupted);
    Ok("its ranks end; interrupted".into())
}
