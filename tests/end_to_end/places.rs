//! Real trainings of which some processes are slowed down, and whether the place that these have in common is found.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::binary::{command, json};

const RANKS: u32 = 4;
/// A slow process runs for a tenth of the time.
const RUNS: Duration = Duration::from_millis(4);
const STANDS: Duration = Duration::from_millis(36);

/// A rank of two nodes with two ranks each, below a switch of its own each, as torchrun and Slurm would say it.
fn start(rank: u32, port: u16, directory: &Path) -> Child {
    let node = rank / 2;
    let mut process = command(directory);
    process.args([
        "train",
        "--backend",
        "cpu",
        "--dp",
        "4",
        "--steps",
        "20",
        "--micro-batches",
        "1",
        "--seq-len",
        "64",
    ]);
    process.args(["--run", "run"]).stdout(Stdio::null()).stderr(Stdio::null());
    process.envs(
        [("RANK", rank), ("WORLD_SIZE", RANKS), ("LOCAL_RANK", rank % 2), ("GROUP_RANK", node)]
            .map(|(name, value)| (name, value.to_string())),
    );
    process.envs([
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_string()),
        ("STEPSCOPE_SECRET", "a".repeat(64)),
    ]);
    process.env_remove("SLURM_NODEID").env("SLURM_TOPOLOGY_ADDR", format!("spine.leaf{node}.n{node}"));
    process.env("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node");
    process.spawn().unwrap()
}

/// What a training says of which some ranks are slow.
fn trained(slow: &[usize]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut ranks: Vec<Child> = (0..RANKS).map(|rank| start(rank, port, directory.path())).collect();
    let pids: Vec<Pid> = slow.iter().map(|rank| Pid::from_raw(ranks[*rank].id().cast_signed())).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // They are not waited for while this goes on, so nobody else has their numbers.
            let signal = |signal| pids.iter().for_each(|pid| _ = kill(*pid, signal));
            while !is_over.load(Relaxed) {
                signal(Signal::SIGSTOP);
                thread::sleep(STANDS);
                signal(Signal::SIGCONT);
                thread::sleep(RUNS);
            }
        });
        let fast = (0..ranks.len()).find(|rank| !slow.contains(rank)).unwrap();
        let ended = ranks[fast].wait().unwrap();
        is_over.store(true, Relaxed);
        assert!(ended.success());
    });
    ranks.iter_mut().for_each(|rank| assert!(rank.wait().unwrap().success()));
    json(&["analyze", "run", "--format", "json"], directory.path())
}

/// For how much waiting each place of a kind is to blame, by what it is called.
fn blame(analysis: &Value, kind: &str, level: Option<u64>) -> Vec<(String, i64)> {
    let places = analysis["places"].as_array().unwrap().iter();
    let places = places.filter(|place| place["kind"] == kind && place["level"] == json!(level));
    places.map(|place| (place["name"].to_string(), place["caused_wait_ns"].as_i64().unwrap())).collect()
}

/// Places of one kind add up to what ranks say.
fn assert_they_add_up(analysis: &Value) {
    let sum = |rows: &[&Value], key: &str| rows.iter().map(|row| row[key].as_i64().unwrap()).sum::<i64>();
    let all = |key: &str| analysis[key].as_array().unwrap().iter().collect::<Vec<&Value>>();
    for (kind, level, count) in
        [("gpu_index", None, 2), ("host", None, 2), ("switch", Some(0), 1), ("switch", Some(1), 2)]
    {
        let places: Vec<&Value> =
            all("places").into_iter().filter(|place| place["kind"] == kind && place["level"] == json!(level)).collect();
        assert_eq!(places.len(), count, "{kind}");
        for key in ["wait_ns", "caused_wait_ns"] {
            assert_eq!(sum(&places, key), sum(&all("stragglers"), key), "{kind} {key}");
        }
        for key in ["span_ns", "compute_ns", "idle_ns", "windows"] {
            assert_eq!(sum(&places, key), sum(&all("counted"), key), "{kind} {key}");
        }
    }
}

/// Which place a finding names is decided by shares of the waiting, which other programs on this machine change: the
/// analyzer's own tests have that. Who is to blame for most of it, they do not change.
#[test]
fn a_node_whose_processes_are_slow_is_to_blame() {
    let analysis = trained(&[2, 3]);
    assert_they_add_up(&analysis);
    for (kind, level) in [("host", None), ("switch", Some(1))] {
        let [(first, quick), (second, slow)] = &blame(&analysis, kind, level)[..] else { panic!("{kind}") };
        assert!(*slow > 2 * quick, "{kind}: {quick} by {first}, {slow} by {second}");
    }
    assert!(analysis["findings"].as_array().unwrap().iter().any(|finding| finding["kind"] == "slow-rank"));
}

#[test]
fn a_local_rank_that_is_slow_on_all_nodes_is_to_blame() {
    let analysis = trained(&[1, 3]);
    let [(first, quick), (second, slow)] = &blame(&analysis, "gpu_index", None)[..] else { panic!() };
    assert!(*slow > 2 * quick, "{quick} by {first}, {slow} by {second}");
    let [(_, one), (_, other)] = &blame(&analysis, "host", None)[..] else { panic!() };
    assert!(one + other == quick + slow, "each has one of the slow ones");
}
