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
/// A slow process runs for a fifth of the time.
const RUNS: Duration = Duration::from_millis(4);
const STANDS: Duration = Duration::from_millis(16);

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
        "30",
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

fn slow_place(analysis: &Value) -> &Value {
    let findings = analysis["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["kind"] == "slow-rank").unwrap_or_else(|| panic!("{findings:#?}"))
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

#[test]
fn a_node_whose_processes_are_slow_is_named() {
    let analysis = trained(&[2, 3]);
    assert_they_add_up(&analysis);
    let found = slow_place(&analysis);
    assert_eq!(found["evidence"]["ranks"], json!([2, 3]), "{found:#}");
    assert!(found["summary"].as_str().unwrap().contains(", node 1 are stragglers"), "{found:#}");
}

#[test]
fn a_local_rank_that_is_slow_on_all_nodes_is_named() {
    let analysis = trained(&[1, 3]);
    let found = slow_place(&analysis);
    assert_eq!(found["evidence"]["ranks"], json!([1, 3]), "{found:#}");
    assert!(found["summary"].as_str().unwrap().contains("on local rank 1 of all hosts"), "{found:#}");
    assert!(found["advice"].as_str().unwrap().contains("NUMA node"), "{found:#}");
}
