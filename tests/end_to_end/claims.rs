//! Files that claim what was never recorded: every command says what there is or refuses it, in little memory.

/// Runs whose spans and memory say anything.
mod recorded;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::text;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples/pp2-1f1b");
/// The address space that a command has, in KiB. Threads, their stacks and the program take 1 GB of it already.
const MOST_KIB: u32 = 3 << 20;
const VIEWS: [&str; 8] = ["overview", "memory", "timeline", "communication", "pipeline", "kernels", "devices", "ranks"];

/// Runs a command that may have little memory.
fn bounded(arguments: &[&str], directory: &Path) -> Output {
    let script = format!("ulimit -v {MOST_KIB}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_stepscope")]).args(arguments).current_dir(directory);
    shell.output().unwrap()
}

/// A command may succeed or refuse; what ends by a signal, or panics, has done neither.
#[track_caller]
fn ends_well(what: &str, arguments: &[&str], directory: &Path) {
    let Output { status, stderr, .. } = bounded(arguments, directory);
    assert!(matches!(status.code(), Some(0 | 2)), "{what}: {arguments:?}: {status}: {}", text(&stderr));
}

/// Every way to look at a run ends well; `sample` is another run.
#[track_caller]
fn can_be_looked_at(what: &str, run: &str, sample: &str, directory: &Path) {
    for format in ["text", "json", "markdown", "html"] {
        ends_well(what, &["analyze", run, "--format", format], directory);
    }
    for view in VIEWS {
        ends_well(what, &["live", run, "--once", "--view", view], directory);
    }
    ends_well(what, &["live", run, "--once", "--view", "pipeline", "--size", "200x200"], directory);
    for [one, other] in [[run, sample], [sample, run], [run, run]] {
        ends_well(what, &["diff", one, other], directory);
    }
    ends_well(what, &["diff", run, sample, "--format", "html"], directory);
    ends_well(what, &["inspect", run], directory);
    ends_well(what, &["export", run, "-o", "trace"], directory);
}

/// A copy of a sample, of which `run.json` and each `rank.json` are changed.
fn copy_of_sample(directory: &Path, change: impl Fn(&mut Value, &mut Value)) {
    let to = directory.join("run");
    let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    fs::create_dir(&to).unwrap();
    let mut run = read(&Path::new(SAMPLE).join("run.json"));
    for rank in ["rank-00000", "rank-00001"] {
        let from = Path::new(SAMPLE).join(rank);
        fs::create_dir(to.join(rank)).unwrap();
        for table in ["spans", "memory", "counters", "strings"] {
            let file = format!("{table}.arrows");
            fs::copy(from.join(&file), to.join(rank).join(&file)).unwrap();
        }
        let mut info = read(&from.join("rank.json"));
        change(&mut run, &mut info);
        fs::write(to.join(rank).join("rank.json"), info.to_string()).unwrap();
    }
    fs::write(to.join("run.json"), run.to_string()).unwrap();
}

/// Looks in every way at a copy of the sample that claims something.
#[track_caller]
fn claim(what: &str, change: impl Fn(&mut Value, &mut Value)) {
    let directory = TempDir::new().unwrap();
    copy_of_sample(directory.path(), change);
    can_be_looked_at(what, "run", SAMPLE, directory.path());
}

fn layout(what: &str, sizes: Value) {
    claim(what, |run, _| {
        sizes.as_object().unwrap().iter().for_each(|(key, value)| run["layout"][key] = value.clone());
    });
}

const MOST: u64 = 1 << 24;

#[test]
fn a_layout_may_claim_any_pipeline() {
    thread::scope(|scope| {
        scope.spawn(|| layout("many micro-batches", json!({ "micro_batches": MOST })));
        scope.spawn(|| {
            layout("many stages and micro-batches", json!({ "pp": 1_000_000, "micro_batches": 1_000_000 }));
            layout("all forwards first", json!({ "schedule": "gpipe", "micro_batches": MOST }));
        });
    });
    let interleaved = json!({ "schedule": "interleaved", "pp": 2, "chunks": MOST, "micro_batches": MOST });
    layout("many chunks", interleaved);
    layout("many of everything", json!({ "pp": MOST, "chunks": MOST, "micro_batches": MOST, "dp": 1, "tp": 1 }));
}

#[test]
fn a_layout_may_claim_any_grid_and_any_model() {
    layout("a large grid", json!({ "dp": MOST, "tp": MOST, "pp": 16 }));
    layout("long sequences", json!({ "sequence_length": MOST, "micro_batch": 1 << 16, "micro_batches": 1 }));
    claim("a large model", |run, _| {
        let sizes = json!({ "layers": 1 << 14, "hidden": 1 << 14, "ffn": 1 << 14, "vocabulary": 1 << 28 });
        sizes.as_object().unwrap().iter().for_each(|(key, value)| run["model"][key] = value.clone());
        run["layout"]["pp"] = (1 << 14).into();
    });
}

#[test]
fn a_run_may_claim_any_ranks_and_groups() {
    for size in [0_u64, 1, u64::from(u32::MAX)] {
        claim("a world", |run, _| run["world_size"] = size.into());
    }
    claim("groups", |run, _| {
        let ranks: Vec<u32> = (0..100_000).map(|rank| u32::MAX - rank).collect();
        let group = |number: u32, ranks: &[u32]| json!({ "group": number, "axis": "data", "ranks": ranks });
        run["groups"] = json!([group(0, &ranks), group(1, &[]), group(u32::MAX, &[0, 0, 0]), group(2, &[7])]);
    });
}

#[test]
fn a_rank_may_claim_anything_of_itself() {
    claim("a device", |_, rank| rank["device"] = json!({ "name": "x", "memory_bytes": 0, "peak_flops": 0 }));
    claim("a fast device", |_, rank| rank["device"]["peak_flops"] = json!(1e308));
    claim("a place", |run, rank| {
        rank["stage"] = i16::MAX.into();
        rank["rank"] = u32::MAX.into();
        rank["groups"] = json!([{ "group": 0, "index": u32::MAX, "size": u32::MAX }]);
        run["groups"] = json!([]);
        rank["written"] = json!({ "spans": u64::MAX, "memory": u64::MAX, "counters": 0, "strings": u64::MAX });
    });
    claim("a clock", |_, rank| {
        let at = |rank_ns: i64, wall_ns: i64| json!({ "rank_ns": rank_ns, "wall_ns": wall_ns });
        rank["clock"]["snapshots"] = json!([at(i64::MIN, i64::MAX), at(i64::MAX, i64::MIN), at(0, 0), at(0, i64::MAX)]);
    });
    claim("who is on its device", |_, rank| rank["collector"]["ranks_on_device"] = u32::MAX.to_string().into());
}

#[test]
fn figures_of_a_device_that_cannot_be_are_left_out() {
    let directory = TempDir::new().unwrap();
    copy_of_sample(directory.path(), |run, rank| {
        rank["device"]["peak_flops"] = 0.into();
        run["world_size"] = 0.into();
    });
    let said = text(&bounded(&["analyze", "run"], directory.path()).stdout);
    assert!(said.contains("MFU unknown") && !said.contains("inf"), "{said}");
    let with_peak = bounded(&["analyze", "run", "--peak-tflops", "494.7"], directory.path());
    assert!(!text(&with_peak.stdout).contains("inf"), "{}", text(&with_peak.stdout));
}

#[test]
fn what_the_ideal_schedule_is_left_out_for_is_said() {
    let directory = TempDir::new().unwrap();
    copy_of_sample(directory.path(), |run, _| run["layout"]["micro_batches"] = MOST.into());
    let frame = bounded(&["live", "run", "--once", "--view", "pipeline"], directory.path());
    let said = text(&frame.stdout);
    assert!(said.contains("not drawn: the run claims 67108864 passes per step, but 32 are recorded"), "{said}");
    let analysis = bounded(&["analyze", "run", "--format", "json"], directory.path());
    let analysis: Value = serde_json::from_slice(&analysis.stdout).unwrap();
    assert_eq!(analysis["pipeline"]["balanced_bubble"], Value::Null);
    assert!(analysis["pipeline"]["bubble"].as_f64().is_some(), "what was recorded is said");
}

#[test]
fn settings_may_claim_anything() {
    let directory = TempDir::new().unwrap();
    let here = directory.path();
    for plan in [
        "--gpus 4194304",
        "--gpus 18446744073709551615",
        "--gpus 8 --gpus-per-node 18446744073709551615",
        "--gpus 8 --gpus-per-node 0",
        "--gpus 4194304 --gpus-per-node 4194304 --seq-len 1",
        "--gpus 8 --seq-len 18446744073709551615",
        "--gpus 8 --global-batch 18446744073709551615",
        "--gpus 8 --efficiency NaN --link-bandwidth inf --usable-memory 1e300",
        "--gpus 8 --tokens 18446744073709551615 --limit 18446744073709551615",
    ] {
        let arguments: Vec<&str> =
            ["plan", "--model", "llama-405b", "--gpu", "h100"].into_iter().chain(plan.split(' ')).collect();
        ends_well("plan", &arguments, here);
    }
    for train in [
        "--dp 16777216",
        "--pp 4 --micro-batches 16777216",
        "--dp 4294967296",
        "--tp 4 --pp 4 --dp 1048576",
        "--processes --dp 16777216",
        "--seq-len 16777216 --micro-batch 16777216",
        "--micro-batches 65536 --micro-batch 65536 --seq-len 65536",
    ] {
        let arguments: Vec<&str> =
            ["train", "--backend", "cpu", "--no-record"].into_iter().chain(train.split(' ')).collect();
        let said = bounded(&arguments, here);
        assert_eq!(said.status.code(), Some(2), "{train}: {}", text(&said.stderr));
    }
    for config in ["dp = 16777216\n", "micro-batches = 99999999999999999999\n", "seq-len = 18446744073709551615\n"] {
        fs::write(here.join("settings.toml"), config).unwrap();
        let said = bounded(&["train", "--backend", "cpu", "--config", "settings.toml"], here);
        assert_eq!(said.status.code(), Some(2), "{config}: {}", text(&said.stderr));
    }
}

#[test]
fn a_checkpoint_may_claim_anything() {
    let directory = TempDir::new().unwrap();
    let here = directory.path();
    let small = ["train", "--backend", "cpu", "--model", "tiny", "--micro-batch", "1", "--seq-len", "32"];
    let trained = bounded(&[&small[..], &["--steps", "1", "--save-every", "1", "--run", "run"]].concat(), here);
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    let found = walk(here).into_iter().find(|path| path.ends_with("checkpoint.json")).unwrap();
    let checkpoint = found.parent().unwrap().to_owned();
    let whole = fs::read_to_string(&found).unwrap();
    let tensors = walk(&checkpoint).into_iter().find(|path| path.extension().is_some_and(|it| it == "safetensors"));
    let tensors = tensors.unwrap();
    let bytes = fs::read(&tensors).unwrap();
    let resume = |what: &str| {
        let resume = [&small[..], &["--steps", "2", "--no-record", "--resume", checkpoint.to_str().unwrap()]].concat();
        let said = bounded(&resume, here);
        assert_eq!(said.status.code(), Some(2), "{what}: {}", text(&said.stderr));
    };
    for (key, value) in [("step", u64::MAX), ("tp", MOST), ("pp", MOST), ("chunks", MOST), ("global_batch", u64::MAX)] {
        let mut description: Value = serde_json::from_str(&whole).unwrap();
        description[key] = value.into();
        fs::write(&found, description.to_string()).unwrap();
        resume(key);
    }
    fs::write(&found, &whole).unwrap();
    // The header of a safetensors file begins with its length.
    for length in [u64::MAX, 1 << 40, bytes.len() as u64, 0] {
        let mut damaged = bytes.clone();
        damaged[..8].copy_from_slice(&length.to_le_bytes());
        fs::write(&tensors, damaged).unwrap();
        resume("a header");
    }
}

/// Every file under a directory.
fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
