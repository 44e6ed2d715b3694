//! A real Slurm cluster on this machine: four nodes, none of which is a host's name.

mod cluster;

use std::{fs, path::Path, process::Stdio};

use serde_json::Value;

use self::cluster::Cluster;
use crate::binary::{json, stepscope, text};

fn rank_info(run: &Path, rank: u32) -> Value {
    serde_json::from_slice(&fs::read(run.join(format!("rank-{rank:05}/rank.json"))).unwrap()).unwrap()
}

/// Everything that needs a cluster, on one: it takes seconds to start.
#[test]
fn jobs_of_slurm_are_recorded() {
    let Some(cluster) = Cluster::start() else { return };
    trains_on_all_nodes(&cluster);
    summarizes_on_all_nodes(&cluster);
    records_all_tasks_into_one_run(&cluster);
    leaves_what_was_recorded_when_it_is_cancelled(&cluster);
    leaves_what_was_recorded_when_its_time_is_over(&cluster);
    continues_a_run_when_it_is_queued_again(&cluster);
}

/// A training of which a step takes next to no time.
const SMALL: [&str; 9] = ["train", "--backend", "cpu", "--seq-len", "8", "--micro-batch", "1", "--micro-batches", "1"];

/// Ranks find each other by a node's address, and share a secret that nobody gave them.
fn trains_on_all_nodes(cluster: &Cluster) {
    let train = [&SMALL[..], &["--dp", "4", "--steps", "4", "--run", "runs/trained"]].concat();
    let output = cluster.srun(&["--nodes", "4", "--ntasks", "4"], &train).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    let analysis = json(&["analyze", "runs/trained", "--format", "json"], cluster.path());
    assert_eq!((&analysis["run"]["state"], &analysis["run"]["world_size"]), (&"complete".into(), &4.into()));
    assert_eq!(analysis["steps"].as_array().unwrap().len(), 16);
    // Each says where it runs, as Slurm's topology plugin knows it.
    for rank in 0..4 {
        let said = rank_info(&cluster.path().join("runs/trained"), rank)["topology"].clone();
        let leaf = if rank < 2 { "leaf0" } else { "leaf1" };
        let expected = serde_json::json!({ "node": rank, "local_rank": 0, "switches": ["spine", leaf] });
        assert_eq!(said, expected);
    }
    let places = analysis["places"].as_array().unwrap().iter().filter(|place| place["kind"] == "switch");
    let places: Vec<String> = places.map(|place| format!("{}: {}", place["name"], place["ranks"])).collect();
    assert_eq!(places, ["\"spine\": [0,1,2,3]", "\"leaf0\": [0,1]", "\"leaf1\": [2,3]"]);
    let key = cluster.path().join("cache/stepscope/keys/jobs");
    assert_eq!(fs::metadata(key).unwrap().len(), 32);
    // Without the key of the others a rank is a stranger.
    let apart =
        "XDG_CACHE_HOME=$PWD/cache-$SLURM_PROCID exec \"$0\" train --backend cpu --dp 2 --timeout 5 --run runs/apart";
    let output =
        cluster.command("srun").args(["--ntasks", "2", "sh", "-c", apart, env!("CARGO_BIN_EXE_stepscope")]).output();
    let said = text(&output.unwrap().stderr);
    assert!(said.contains("another secret") && said.contains("hint: start all ranks with the same random"), "{said}");
}

/// Each task takes its share of the ranks; what they make is what one process makes.
fn summarizes_on_all_nodes(cluster: &Cluster) {
    let summaries = || {
        let path = |rank: u32| cluster.path().join(format!("runs/trained/rank-{rank:05}/summary.bin"));
        (0..4).map(|rank| fs::read(path(rank)).unwrap()).collect::<Vec<_>>()
    };
    let alone = stepscope(&["summarize", "runs/trained"], cluster.path());
    assert!(alone.status.success(), "{}", text(&alone.stderr));
    let expected = summaries();
    let forget = || {
        for rank in 0..4 {
            fs::remove_file(cluster.path().join(format!("runs/trained/rank-{rank:05}/summary.bin"))).unwrap();
        }
    };
    forget();
    let output = cluster.srun(&["--nodes", "3", "--ntasks", "3"], &["summarize", "runs/trained"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    // Four ranks for three tasks.
    assert_eq!(
        ["1 rank: ", "2 ranks: "].map(|made| said.matches(&format!("summarized  {made}")).count()),
        [2, 1],
        "{said}"
    );
    assert_eq!(summaries(), expected);
    // A job array names its parts.
    let array = format!(
        "#!/bin/sh\nexec {} summarize runs/trained --share $SLURM_ARRAY_TASK_ID/2\n",
        env!("CARGO_BIN_EXE_stepscope")
    );
    fs::write(cluster.path().join("array.sh"), array).unwrap();
    forget();
    let options = ["--wait", "--array=0-1", "--ntasks=1", "--output=array-%a.out"];
    let array = cluster.command("sbatch").args(options).arg("array.sh").output().unwrap();
    assert!(array.status.success(), "{}", text(&array.stderr));
    assert_eq!(summaries(), expected);
}

/// A recorder for each task, instead of one before `srun`.
fn records_all_tasks_into_one_run(cluster: &Cluster) {
    let record = ["record", "--run", "runs/recorded", "--", "sh", "-c", "echo \"$SLURM_PROCID $STEPSCOPE_INJECTION\""];
    let output = cluster.srun(&["--nodes", "2", "--ntasks", "4"], &record).output().unwrap();
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{told}");
    let run = cluster.path().join("runs/recorded").canonicalize().unwrap();
    let mut tasks: Vec<&str> = said.lines().collect();
    tasks.sort_unstable();
    assert_eq!(tasks.len(), 4, "{said}");
    for (task, line) in tasks.iter().enumerate() {
        assert!(line.starts_with(&format!("{task} ")) && line.contains(run.to_str().unwrap()), "{line}");
    }
    assert_eq!(told.matches("recorded  nothing").count(), 1, "one speaks for all: {told}");
    let again = cluster.srun(&["--ntasks", "2"], &record).output().unwrap();
    let refused = text(&again.stderr);
    assert!(!again.status.success() && refused.contains("already contains a recording"), "{refused}");
    let unnamed = cluster.srun(&["--ntasks", "2"], &["record", "--", "true"]).output().unwrap();
    assert!(unnamed.status.success(), "{}", text(&unnamed.stderr));
    let runs = fs::read_dir(cluster.path().join("runs")).unwrap();
    let names: Vec<String> = runs.map(|run| run.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(
        names.iter().filter(|name| name.starts_with("slurm-") && name.ends_with(".0-true")).count(),
        1,
        "{names:?}"
    );
}

/// SIGTERM, and SIGKILL for whoever does not mind it.
fn leaves_what_was_recorded_when_it_is_cancelled(cluster: &Cluster) {
    leaves_what_was_recorded(cluster, "cancelled", &SMALL, &["--job-name", "long"], || {
        assert!(cluster.command("scancel").args(["--name", "long"]).status().unwrap().success());
    });
}

/// The same from Slurm itself, after a minute: there are no shorter limits.
fn leaves_what_was_recorded_when_its_time_is_over(cluster: &Cluster) {
    leaves_what_was_recorded(cluster, "limited", &["train", "--backend", "cpu"], &["--time", "1"], || ());
}

/// A job of two ranks that records until it is ended.
fn leaves_what_was_recorded(cluster: &Cluster, name: &str, train: &[&str], options: &[&str], end: impl FnOnce()) {
    let place = &format!("runs/{name}");
    let train = [train, &["--dp", "2", "--steps", "1000000", "--run", place]].concat();
    let mut job = cluster.srun(&[options, &["--ntasks", "2"]].concat(), &train);
    // Nobody takes what it says.
    let mut job = job.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let run = cluster.path().join(place);
    let bytes = |rank: u32| fs::metadata(run.join(format!("rank-{rank:05}/spans.arrows"))).map_or(0, |file| file.len());
    cluster.until("the job records", || (0..2).all(|rank| bytes(rank) > 50_000));
    end();
    let mut ended = None;
    cluster.until("the job has ended", || {
        ended = job.try_wait().unwrap();
        ended.is_some()
    });
    assert!(!ended.unwrap().success());
    cluster.until("its ranks are gone", || {
        (0..2).all(|rank| !Path::new(&format!("/proc/{}", rank_info(&run, rank)["pid"])).exists())
    });
    let analysis = json(&["analyze", place, "--format", "json"], cluster.path());
    assert_eq!(analysis["run"]["state"], "interrupted");
    assert_eq!(analysis["data_loss"]["unreadable_bytes"], 0);
    assert!(analysis["steps"].as_array().unwrap().len() > 4);
}

/// A chain of two jobs, of which the second is queued again while it runs: three segments of one run.
fn continues_a_run_when_it_is_queued_again(cluster: &Cluster) {
    let batch = |steps: &str| {
        let train = format!(
            "#!/bin/sh\nexec srun {} {} --dp 2 --continue --run runs/looped --steps {steps} --save-every 5\n",
            env!("CARGO_BIN_EXE_stepscope"),
            SMALL.join(" ")
        );
        fs::write(cluster.path().join("train.sh"), train).unwrap();
        let options =
            ["--parsable", "--ntasks=2", "--nodes=2", "--requeue", "--open-mode=append", "--output=train.out"];
        let submitted = cluster.command("sbatch").args(options).arg("train.sh").output().unwrap();
        assert!(submitted.status.success(), "{}", text(&submitted.stderr));
        text(&submitted.stdout).trim().to_owned()
    };
    let run = cluster.path().join("runs/looped");
    let complete = |segment: u32| {
        let info = fs::read_to_string(run.join(format!("segments/{segment}/rank-00001/rank.json")));
        info.is_ok_and(|info| info.contains("\"complete\""))
    };
    batch("10");
    cluster.until("the first job has ended", || complete(1));
    let job = batch("1000000");
    cluster.until("the second one has saved", || run.join("segments/2/checkpoints/step-000015").exists());
    assert!(cluster.command("scontrol").args(["requeue", &job]).status().unwrap().success());
    cluster.until("it goes on", || run.join("segments/3/checkpoints").exists());
    assert!(cluster.command("scancel").arg(&job).status().unwrap().success());
    cluster.until("it has ended", || cluster.command("squeue").arg("-h").output().unwrap().stdout.is_empty());
    let said = fs::read_to_string(cluster.path().join("train.out")).unwrap();
    let analysis = json(&["analyze", "runs/looped", "--format", "json"], cluster.path());
    let segments = analysis["run"]["segments"].as_array().unwrap();
    let states: Vec<&str> = segments.iter().map(|segment| segment["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["complete", "interrupted", "interrupted"], "{said}");
    assert_eq!(segments[2]["is_analyzed"], true);
    let first =
        |segment: &str| json(&["analyze", segment, "--format", "json"], cluster.path())["steps"][0]["step"].clone();
    assert_eq!(first("runs/looped/segments/2"), 10, "{said}");
    let (went_on, newest) = (first("runs/looped/segments/3").as_u64().unwrap(), analysis["steps"][0]["step"].as_u64());
    assert!(went_on >= 15 && went_on % 5 == 0 && newest == Some(went_on), "{went_on}: {said}");
    let report = text(&stepscope(&["analyze", "runs/looped"], cluster.path()).stdout);
    assert!(report.contains("segments  3 of 3, which continue one another; 2 before it is interrupted"), "{report}");
}
