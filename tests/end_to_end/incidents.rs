use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::binary::{command, failure, json, stepscope, text};

/// Steps that take a few milliseconds.
const SHORT: [&str; 6] = ["--seq-len", "8", "--micro-batch", "1", "--micro-batches", "1"];

/// A job with a black box, which is killed when this goes.
struct Training {
    directory: tempfile::TempDir,
    child: Child,
}

impl Training {
    fn start(arguments: &[&str]) -> Training {
        let directory = tempfile::tempdir().unwrap();
        let mut command = command(directory.path());
        command.args(["train", "--backend", "cpu", "--black-box", "--run", "run"]).args(SHORT).args(arguments);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Training { directory, child }
    }

    /// Two ranks, each a process, that train until something happens to them.
    fn of_two_ranks(arguments: &[&str]) -> Training {
        let training = Training::start(&[&["--dp", "2", "--processes", "--steps", "1000000"], arguments].concat());
        (0..2).for_each(|rank| training.wait_for_steps(rank));
        training
    }

    fn rank_file(&self, rank: u32) -> Option<Value> {
        let file = self.directory.path().join(format!("run/rank-{rank:05}/rank.json"));
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    fn pid(&self, rank: u32) -> Pid {
        Pid::from_raw(self.rank_file(rank).unwrap()["pid"].as_i64().unwrap() as i32)
    }

    /// Waits until a rank has made enough steps to know what is usual.
    fn wait_for_steps(&self, rank: u32) {
        wait_until("there are steps", || {
            let analyze = ["analyze", "run", "--ranks", &rank.to_string(), "--format", "json"];
            let analysis: Value =
                serde_json::from_slice(&stepscope(&analyze, self.directory.path()).stdout).unwrap_or_default();
            analysis["steps"].as_array().is_some_and(|steps| steps.len() >= 40)
        });
    }

    fn signal(&self, rank: u32, signal: Signal) {
        kill(self.pid(rank), signal).unwrap();
    }

    fn incidents(&self) -> Vec<Value> {
        json(&["incidents", "run", "--format", "json"], self.directory.path())["incidents"].as_array().unwrap().clone()
    }

    /// The incidents that are no slow steps: a busy machine has those of its own.
    fn others(&self) -> Vec<Value> {
        self.incidents().into_iter().filter(|incident| incident["kind"] != "slow-step").collect()
    }

    fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        // Whatever is left of it. Launchers end with their ranks.
        for rank in 0..2 {
            if self.rank_file(rank).is_some() {
                let _ = kill(self.pid(rank), Signal::SIGKILL);
            }
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}, after two minutes");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits for an incident of a kind.
fn wait_for(training: &Training, kind: &str) -> Value {
    let mut found = None;
    wait_until(kind, || {
        found = training.incidents().into_iter().rfind(|incident| incident["kind"] == kind);
        found.as_ref().is_some_and(|incident| incident["explained"] == true)
    });
    found.unwrap()
}

fn says(incident: &Value, words: &str) -> bool {
    let evidence = incident["evidence"].as_array().unwrap().iter().filter_map(Value::as_str);
    evidence.chain(incident["summary"].as_str()).any(|text| text.contains(words))
}

#[test]
fn a_rank_that_was_stopped_for_a_while_is_at_fault_for_a_slow_step() {
    let training = Training::of_two_ranks(&[]);
    training.signal(1, Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(5));
    training.signal(1, Signal::SIGCONT);
    let mut slow = Value::Null;
    wait_until("a slow step of rank 1", || {
        slow = training.incidents().into_iter().rfind(|incident| says(incident, "did not run")).unwrap_or_default();
        slow["explained"] == true
    });
    assert_eq!((&slow["kind"], &slow["ranks"]), (&"slow-step".into(), &serde_json::json!([1])), "{slow:#}");
    // What was recorded around it is a run, in which the step is.
    let around = slow["path"].as_str().unwrap();
    let analysis = json(&["analyze", around, "--format", "json"], training.directory.path());
    let (step, steps) = (slow["step"].as_i64().unwrap(), analysis["steps"].as_array().unwrap());
    let of_rank = steps.iter().filter(|step| step["rank"] == 1);
    let longest = of_rank.max_by_key(|step| step["duration_ns"].as_i64()).unwrap();
    assert_eq!(analysis["data_loss"]["unreadable_bytes"], 0);
    // Ranks are a little apart: one that is stopped after it has sent what others need is waited for in their next step.
    assert!(longest["step"].as_i64().is_some_and(|longest| longest.abs_diff(step) <= 1), "{longest:#}\n{slow:#}");
    assert!(longest["duration_ns"].as_i64().unwrap() > 4_000_000_000, "{longest:#}");
}

#[test]
fn a_rank_that_is_killed_is_named_and_not_those_that_fail_after_it() {
    let mut training = Training::of_two_ranks(&[]);
    training.signal(1, Signal::SIGKILL);
    assert_eq!(training.wait(), Some(2), "as without a black box");
    let incidents = training.others();
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert_eq!((&incidents[0]["kind"], &incidents[0]["ranks"]), (&"killed".into(), &serde_json::json!([1])));
    assert!(says(&incidents[0], "exited with status 2"), "{incidents:#?}");
}

#[test]
fn a_job_that_is_asked_to_end_says_so() {
    let mut training = Training::start(&["--steps", "1000000"]);
    training.wait_for_steps(0);
    kill(Pid::from_raw(training.child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(training.wait(), Some(128 + Signal::SIGTERM as i32));
    let incidents = training.others();
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert!(incidents[0]["kind"] == "terminated" && says(&incidents[0], "killed by SIGTERM"), "{incidents:#?}");
}

#[test]
fn a_job_that_hangs_because_a_rank_is_stopped_says_which_and_that_it_went_on() {
    let training = Training::of_two_ranks(&["--hang-after", "5"]);
    training.signal(1, Signal::SIGSTOP);
    let hang = wait_for(&training, "hang");
    assert_eq!(hang["ranks"], serde_json::json!([1]), "{hang:#}");
    assert!(says(&hang, "rank 1 is stopped") && says(&hang, "kill -CONT"), "{hang:#}");
    // Whoever is not stopped says what it waits in, for whom, and where its threads are.
    assert!(says(&hang, "rank 0 waits in ") && says(&hang, " (ranks 0-1)"), "{hang:#}");
    assert!(says(&hang, "nothing is known of rank 1: 1 rank waits in "), "{hang:#}");
    let stacks = hang["stacks"].as_array().unwrap();
    assert!(stacks.len() == 1 && stacks[0]["rank"] == 0, "{hang:#}");
    let threads = stacks[0]["native"].as_array().unwrap();
    assert!(threads.iter().any(|thread| thread["name"] == "communication"), "{hang:#}");
    training.signal(1, Signal::SIGCONT);
    wait_until("it goes on", || training.incidents().iter().any(|incident| says(incident, "went on")));
    // What it waited in then is none of what it does now.
    wait_until("that is over", || training.rank_file(0).is_some_and(|rank| rank["collector"]["in_flight"].is_null()));
}

#[test]
fn a_loss_that_is_no_number_is_told_once_with_its_step() {
    let mut training = Training::start(&["--steps", "60", "--learning-rate", "1e30"]);
    assert_eq!(training.wait(), Some(2), "it ends by itself");
    let incidents = training.others();
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert_eq!(incidents[0]["kind"], "loss-not-finite");
    assert!(incidents[0]["step"].as_i64().is_some_and(|step| (1..60).contains(&step)), "{incidents:#?}");
    assert!(says(&incidents[0], "exited with status 2"), "{incidents:#?}");
}

#[test]
fn what_is_killed_with_all_who_watch_it_is_readable_and_says_that_nothing_is_known() {
    let mut training = Training::start(&["--steps", "1000000"]);
    training.wait_for_steps(0);
    let rank = training.pid(0);
    kill(Pid::from_raw(training.child.id() as i32), Signal::SIGKILL).unwrap();
    kill(rank, Signal::SIGKILL).unwrap();
    training.wait();
    wait_until("the run is over", || {
        json(&["inspect", "run", "--format", "json"], training.directory.path())["state"] == "interrupted"
    });
    let incidents = training.others();
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert_eq!((&incidents[0]["kind"], &incidents[0]["path"]), (&"killed".into(), &Value::Null));
    let analysis = json(&["analyze", "run", "--format", "json"], training.directory.path());
    assert!(analysis["steps"].as_array().unwrap().len() > 20);
}

#[test]
fn a_run_without_incidents_says_so_and_what_cannot_be_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let train = stepscope(&[&["train", "--run", "run", "--steps", "2"], &SHORT[..]].concat(), directory.path());
    assert!(train.status.success(), "{}", text(&train.stderr));
    let said = stepscope(&["incidents"], directory.path());
    assert!(!said.status.success(), "there is none under runs/");
    let said = text(&stepscope(&["incidents", "run"], directory.path()).stdout);
    assert_eq!(said, "run  complete\n  no incidents\n");
    for (arguments, why) in [
        (&["--black-box", "--max-size", "1MB"][..], "--max-size must be at least 16 MB"),
        (&["--black-box", "--keep", "1"], "--keep must be at least 10 s"),
        (&["--black-box", "--no-record"], "--black-box cannot be used with --no-record"),
        (&["--keep", "20m"], "--black-box"),
        (&["--hang-after", "1m"], "--hang-after needs --black-box"),
        (&["--black-box", "--hang-after", "0"], "--hang-after must be at least 2 s"),
    ] {
        let said = failure(&[&["train", "--steps", "1"], arguments].concat(), directory.path());
        assert!(said.contains(why), "{said}");
    }
}
