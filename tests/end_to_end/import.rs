use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json as value};

use crate::binary::{failure, json, stepscope, text};

/// Cuttings of real traces and of a real snapshot.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/tests/fixtures").join(name)
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn analyzed(sources: &[&str], directory: &Path) -> Value {
    json(&[&["analyze", "--format", "json"], sources].concat(), directory)
}

const FIGURES: [&str; 8] = [
    "span_ns",
    "compute_ns",
    "communication_ns",
    "overlapped_communication_ns",
    "exposed_communication_ns",
    "copy_ns",
    "exposed_copy_ns",
    "idle_ns",
];

fn same_figures(found: &Value, known: &Value) {
    for figure in FIGURES {
        assert_eq!(found[figure], known[figure], "{figure}");
    }
}

fn sum(bytes: &Value) -> u64 {
    bytes.as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum()
}

#[test]
fn traces_have_the_figures_of_another_program() {
    let here = tempfile::tempdir().unwrap();
    let answers: Value = serde_json::from_slice(&fs::read(fixture("kineto/answers.json")).unwrap()).unwrap();
    for (name, ranks) in [("ddp", &[0, 1][..]), ("gpipe", &[1])] {
        let analysis = analyzed(&[path(&fixture("kineto").join(name))], here.path());
        let run = &analysis["run"];
        assert_eq!((&run["source"], &run["state"]), (&value!("kineto"), &value!("complete")));
        assert_eq!((&run["name"], &run["world_size"], &analysis["mfu"]), (&value!(name), &value!(4), &Value::Null));
        assert_eq!(run["device"]["name"], "NVIDIA H200");
        assert_eq!(analysis["ranks"].as_array().unwrap().len(), ranks.len());
        for (index, rank) in ranks.iter().enumerate() {
            let known = &answers[format!("{name}/rank{rank}")];
            let found = &analysis["ranks"][index];
            assert_eq!(found["rank"], value!(rank));
            same_figures(found, known);
            let kernels = ["kernels", "communications"].map(|kind| known[kind].as_u64().unwrap());
            assert_eq!(found["kernel_count"], value!(kernels[0] + kernels[1]), "those that communicate included");
            let steps = analysis["steps"].as_array().unwrap().iter().filter(|step| step["rank"] == value!(rank));
            let steps: Vec<&Value> = steps.collect();
            assert_eq!(steps.len(), known["steps"].as_array().unwrap().len());
            for (found, known) in steps.iter().zip(known["steps"].as_array().unwrap()) {
                assert_eq!((&found["step"], &found["start_ns"]), (&known["step"], &known["start_ns"]));
                same_figures(found, known);
            }
            let memory = &analysis["memory"][index];
            assert_eq!((&memory["peak_bytes"], &memory["inferred"]), (&known["memory"]["peak_bytes"], &value!(true)));
            assert_eq!(value!(sum(&memory["at_end"])), known["memory"]["end_bytes"]);
        }
    }
}

#[test]
fn a_snapshot_has_what_the_program_told() {
    let here = tempfile::tempdir().unwrap();
    let truth: Value = serde_json::from_slice(&fs::read(fixture("ddp-rank0.truth.json")).unwrap()).unwrap();
    let analysis = analyzed(&[path(&fixture("ddp-rank0.pickle"))], here.path());
    assert_eq!(analysis["run"]["source"], "torch-snapshot");
    let memory = &analysis["memory"][0];
    assert_eq!((&memory["peak_bytes"], &memory["inferred"]), (&truth["peak_bytes"], &value!(true)));
    assert_eq!(sum(&memory["at_peak"]), memory["peak_bytes"].as_u64().unwrap());
    assert_eq!(value!(sum(&memory["at_end"])), truth["allocated_now"]);
    let shown = text(&stepscope(&["analyze", path(&fixture("ddp-rank0.pickle"))], here.path()).stdout);
    assert!(shown.starts_with("ddp-rank0  complete  1 rank · PyTorch memory snapshot\nmemory    peak "), "{shown}");
    assert!(shown.contains("(inferred)") && shown.contains("categories inferred"), "{shown}");
    assert!(!shown.contains("MFU") && !shown.contains("Where"), "{shown}");
}

/// The flame graph adds up to the peak, and so does the tree; the page asks nothing of anybody.
#[test]
fn a_page_of_a_snapshot_has_the_calls_that_led_to_its_peak() {
    let here = tempfile::tempdir().unwrap();
    let snapshot = fixture("ddp-rank0.pickle");
    let peak = analyzed(&[path(&snapshot)], here.path())["memory"][0]["peak_bytes"].as_u64().unwrap();
    let page = text(&stepscope(&["analyze", path(&snapshot), "--format", "html"], here.path()).stdout);
    assert!(page.contains("aria-label=\"Memory over time on rank 0 by who asked for it\""));
    let (_, graph) = page.split_once("aria-label=\"Calls that led to the memory at the peak of rank 0\"").unwrap();
    let (graph, after) = graph.split_once("</figure>").unwrap();
    let attribute = |part: &str, name: &str| -> f64 {
        let (_, value) = part.split_once(&format!(" {name}=\"")).unwrap();
        value.split_once('"').unwrap().0.parse().unwrap()
    };
    let boxes: Vec<&str> = graph.split("<svg").skip(1).collect();
    assert!(boxes[0].contains(&format!("all of it, {}", stepscope_plan::text::bytes(peak))), "{}", boxes[0]);
    let of_row = |row: f64| boxes.iter().filter(move |part| attribute(part, "y") == row);
    let width = |row: f64| of_row(row).map(|part| attribute(part, "width")).sum::<f64>();
    let full = attribute(boxes[0], "width");
    // Every category has calls, or says that nobody knows who asked.
    for row in [22.0, 44.0] {
        assert!((width(row) - full).abs() < 0.1, "{} of {full} in row {row}", width(row));
    }
    assert!(of_row(66.0).count() > 0 && graph.contains(" forward"), "{graph}");
    let (_, tree) = after.split_once("<div class=\"calls\">").unwrap();
    assert_eq!(after.matches("<details").count(), after.matches("</details>").count());
    assert!(tree.contains("<details open><summary><i style="), "{tree}");
    for part in ["http://", "https://", " src=", "<link", "@import", "\"NaN"] {
        assert!(!page.contains(part), "{part} is in it");
    }
}

#[test]
fn what_is_imported_says_the_same() {
    let here = tempfile::tempdir().unwrap();
    let (traces, snapshot) = (fixture("kineto/ddp"), fixture("ddp-rank0.pickle"));
    let (traces, snapshot) = (path(&traces), path(&snapshot));
    for (index, sources) in [&[traces][..], &[snapshot], &[traces, snapshot]].into_iter().enumerate() {
        let run = format!("runs/{index}");
        let output = stepscope(&[&["import", "--run", &run], sources].concat(), here.path());
        let said = text(&output.stderr);
        assert!(output.status.success() && output.stdout.is_empty(), "{said}");
        assert!(said.starts_with("imported  ") && said.contains(&format!(" analyze {run}\n")), "{said}");
        assert_eq!(analyzed(sources, here.path()), analyzed(&[&run], here.path()));
        let again = failure(&["import", &run, "--run", "other"], here.path());
        assert!(again.contains("is already a run directory"), "{again}");
        let again = failure(&[&["import", "--run", &run], sources].concat(), here.path());
        assert!(again.contains("already contains a recording"), "{again}");
    }
}

#[test]
fn what_cannot_be_finished_leaves_nothing() {
    let here = tempfile::tempdir().unwrap();
    // Files may not be longer than a few kilobytes.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    for (run, is_there) in [("new", false), ("empty", true)] {
        if is_there {
            fs::create_dir(here.path().join(run)).unwrap();
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_stepscope"), "import"]);
        let output = shell.arg(fixture("kineto/ddp")).args(["--run", run]).current_dir(here.path()).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("File too large"), "{said}");
        let left = fs::read_dir(here.path().join(run)).map(|entries| entries.count()).ok();
        assert_eq!(left, is_there.then_some(0), "{said}");
    }
}

#[test]
fn dumps_of_a_job_that_hangs_say_who_did_not_come() {
    let here = tempfile::tempdir().unwrap();
    for (name, cause, ranks, operation) in [
        ("loader", "absent", value!([2]), ("mesh_tp", 6)),
        ("loader-json", "absent", value!([2]), ("mesh_tp", 6)),
        ("size", "mismatch", value!([1, 3]), ("mesh_dp", 21)),
    ] {
        let analysis = analyzed(&[path(&fixture("flight_recorder").join(name))], here.path());
        let hang = &analysis["hang"];
        assert_eq!((&analysis["run"]["source"], &hang["cause"]), (&value!("flight-recorder"), &value!(cause)));
        assert_eq!((&hang["ranks"], &analysis["findings"][0]["kind"]), (&ranks, &value!("hang")), "{name}");
        let told = (hang["operation"]["group"].as_str().unwrap(), hang["operation"]["sequence"].as_u64().unwrap());
        assert_eq!(told, operation, "{name}");
    }
    let report = text(&stepscope(&["analyze", path(&fixture("flight_recorder/loader"))], here.path()).stdout);
    assert!(report.contains("rank 2 did not come to all_reduce #6 of mesh_tp (ranks 2-3): 3 ranks wait"), "{report}");
    let dumps = fixture("flight_recorder/loader");
    let page = text(&stepscope(&["analyze", path(&dumps), "--format", "html"], here.path()).stdout);
    assert!(page.contains("<h2>Hang</h2>") && !page.contains("<h2>Time</h2>"), "it has no times");
    // A dump that is cut off may lack what its rank waits in.
    let cut = here.path().join("cut");
    fs::create_dir(&cut).unwrap();
    for rank in 0..4 {
        let whole = fs::read(fixture(&format!("flight_recorder/loader/nccl_trace_rank_{rank}"))).unwrap();
        let kept = if rank == 0 { 3000 } else { whole.len() };
        fs::write(cut.join(format!("nccl_trace_rank_{rank}")), &whole[..kept]).unwrap();
    }
    let kinds = &analyzed(&[path(&cut)], here.path())["findings"];
    assert_eq!((kinds.as_array().unwrap().len(), &kinds[0]["kind"]), (1, &value!("cut-off")));
}

#[test]
fn a_snapshot_gives_its_rank_its_memory() {
    let here = tempfile::tempdir().unwrap();
    for file in ["rank0.json.gz", "rank1.json.gz"] {
        fs::copy(fixture("kineto/ddp").join(file), here.path().join(file)).unwrap();
    }
    fs::copy(fixture("ddp-rank0.pickle"), here.path().join("rank0.pickle")).unwrap();
    fs::write(here.path().join("model.pickle"), b"\x80\x04ctorch._utils\n_rebuild_tensor_v2\n.").unwrap();
    let joined = analyzed(&["."], here.path());
    let [traces, snapshot] =
        [&["rank0.json.gz", "rank1.json.gz"][..], &["rank0.pickle"]].map(|sources| analyzed(sources, here.path()));
    assert_eq!((&joined["ranks"], &joined["steps"]), (&traces["ranks"], &traces["steps"]));
    assert_eq!(joined["memory"][1], traces["memory"][1]);
    for figure in ["peak_bytes", "peak_time_ns", "at_peak", "at_end", "reserved_peak_bytes"] {
        assert_eq!(joined["memory"][0][figure], snapshot["memory"][0][figure], "{figure}");
    }
    // A file that does not say whose memory it is may be anybody's.
    fs::rename(here.path().join("rank0.pickle"), here.path().join("memory.pickle")).unwrap();
    let said = failure(&["analyze", "."], here.path());
    assert!(said.contains("does not say which rank it is from") && said.contains("hint: put the rank"), "{said}");
    assert_eq!(analyzed(&["rank1.json.gz", "memory.pickle"], here.path())["memory"][0]["rank"], 1);
}

#[test]
fn text_says_what_is_inferred_and_fits() {
    let here = tempfile::tempdir().unwrap();
    let shown = |sources: &[&Path]| {
        let sources = sources.iter().map(|source| path(source));
        let arguments: Vec<&str> = std::iter::once("analyze").chain(sources).collect();
        let shown = text(&stepscope(&arguments, here.path()).stdout);
        shown.lines().for_each(|line| assert!(line.chars().count() <= 100, "{line}"));
        shown
    };
    let (traces, snapshot) = (fixture("kineto/ddp"), fixture("ddp-rank0.pickle"));
    let apart = shown(&[&traces]);
    assert!(
        apart.starts_with("ddp  complete  2 of 4 ranks · dp 4 · tp 1 · pp 1 · zero 0 (inferred) · PyTorch profiler\n"),
        "{apart}"
    );
    for part in [
        "MFU unknown: set --model, --seq-len and --tokens-per-step",
        "add a memory snapshot of this rank",
        "Time by phase (partly inferred; sum of 2 ranks)",
    ] {
        assert!(apart.contains(part), "{part} is missing from {apart}");
    }
    // What nobody knows is not there to be read.
    for part in ["Memory at the peak", "Time by layer", "predicted", "of peak"] {
        assert!(!apart.contains(part), "{part} is in {apart}");
    }
    let joined = shown(&[&traces, &snapshot]);
    assert!(joined.contains("Memory at the peak of rank 0 (categories inferred)\n"), "{joined}");
}

/// A trace with some events, of kernels that last a microsecond each.
fn trace(events: &[&str]) -> String {
    let events = events.join(",\n");
    format!("{{\"schemaVersion\": 1, \"deviceProperties\": [], \"traceEvents\": [\n{events}\n]}}")
}

fn kernel(name: &str, time: u32) -> String {
    format!(r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "ts": {time}.5, "dur": 1.0, "args": {{"stream": 7}}}}"#)
}

#[test]
fn names_of_others_never_reach_the_terminal_raw() {
    let here = tempfile::tempdir().unwrap();
    let name = r"\u001b[31m\u001b]0;title\u0007\u009b2J<script>\u0000";
    let file = "\u{1b}[32mname.json";
    fs::write(here.path().join(file), trace(&[&kernel(name, 1), &kernel("plain", 2)])).unwrap();
    for arguments in
        [&["analyze"][..], &["analyze", "--format", "markdown"], &["analyze", "--format", "html"], &["inspect"]]
    {
        let output = stepscope(&[arguments, &[file]].concat(), here.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        let raw = shown.chars().find(|letter| letter.is_control() && *letter != '\n');
        assert_eq!(raw, None, "{arguments:?}");
        assert!(!(arguments.contains(&"html") && shown.contains("<script>\u{fffd}")), "{shown}");
    }
    fs::write(here.path().join(file), "nothing").unwrap();
    let said = failure(&["analyze", file], here.path());
    assert!(!said.contains('\u{1b}') && said.contains("text, not JSON"), "{said:?}");
}

#[test]
fn a_trace_that_is_cut_off_is_read_and_says_so() {
    let here = tempfile::tempdir().unwrap();
    let bytes = fs::read(fixture("kineto/ddp/rank0.json.gz")).unwrap();
    fs::write(here.path().join("cut.json.gz"), &bytes[..bytes.len() / 2]).unwrap();
    let analysis = analyzed(&["cut.json.gz"], here.path());
    assert_eq!(analysis["run"]["state"], "interrupted");
    assert!(analysis["data_loss"]["unreadable_bytes"].as_u64().unwrap() > 0);
    // Kernels are missing anywhere, and nothing else is to be said of why it idles.
    let kinds: Vec<&str> =
        analysis["findings"].as_array().unwrap().iter().map(|f| f["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["cut-off"]);
    let shown = text(&stepscope(&["analyze", "cut.json.gz"], here.path()).stdout);
    assert!(shown.starts_with("cut  interrupted  ") && shown.contains("\nlost      "), "{shown}");
    assert!(shown.contains("the trace of rank 0: it cannot be fully decompressed: it breaks off after "), "{shown}");
    let shown = text(&stepscope(&["inspect", "cut.json.gz"], here.path()).stdout);
    assert!(shown.contains("rank 0: it cannot be fully decompressed"), "{shown}");
    let output = stepscope(&["import", "cut.json.gz", "--run", "run"], here.path());
    assert!(text(&output.stderr).contains("\nlost      "), "{}", text(&output.stderr));
    assert_eq!(analyzed(&["run"], here.path())["run"]["state"], "interrupted");
}

#[test]
fn files_made_to_hurt_are_refused() {
    let here = tempfile::tempdir().unwrap();
    let random: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(100_000).collect();
    let deep = [b"[".repeat(200_000), b"]".repeat(200_000)].concat();
    let deep_dict = [b"\x80\x04".to_vec(), b"}(N".repeat(200_000), b"u".repeat(200_000), b".".to_vec()].concat();
    let (same, other) = (trace(&[&kernel("k", 1)]), trace(&[&kernel("k", 2)]));
    for (name, bytes, why) in [
        ("random", random, "is nothing that stepscope reads: it is "),
        ("deep", deep, "it is a JSON array"),
        ("dict", deep_dict, "cannot read dict as a PyTorch memory snapshot: "),
        ("system", b"\x80\x04cos\nsystem\n(X\x04\x00\x00\x00true\x85R.".to_vec(), "it asks to run os.system"),
        ("list", b"\x80\x04](K\x01e.".to_vec(), "it is a pickle of a list of 1 items"),
        ("nothing", Vec::new(), "it is empty"),
        ("a/rank0.json", same.into_bytes(), ""),
        ("a/also-rank0.json", other.into_bytes(), ""),
    ] {
        let file = here.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
        for command in ["analyze", "inspect"].into_iter().filter(|_| !why.is_empty()) {
            let said = failure(&[command, name], here.path());
            assert!(said.starts_with("error: ") && said.contains(why), "{said}");
            assert!(said.contains("\nhint: ") == (name != "dict"), "{said}");
        }
    }
    let said = failure(&["import", "a", "--run", "run"], here.path());
    assert!(said.contains("are both from rank 0") && said.contains("hint: name one file per rank"), "{said}");
    assert!(!here.path().join("run").exists());
    let said = failure(&["analyze", "a/rank0.json", "nowhere"], here.path());
    assert!(said.starts_with("error: nowhere does not exist"), "{said}");
    let nested = format!(
        r#"{{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1, "args": {}1{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    fs::write(here.path().join("nested.json"), trace(&[&nested, &kernel("k", 2)])).unwrap();
    let analysis = analyzed(&["nested.json"], here.path());
    assert_eq!(analysis["ranks"][0]["kernel_count"], 1);
    assert_ne!(analysis["data_loss"]["unreadable_bytes"], 0);
}

/// Two stages that hand over two micro-batches, and two replicas that do not.
#[test]
fn stages_of_a_pipeline_are_inferred() {
    let here = tempfile::tempdir().unwrap();
    // What each rank does: a name for what is launched, when, and how long.
    let rank = |number: u32, work: &[(&str, u32, u32)]| {
        let mut events = vec![
            r#"{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "tid": 1, "ts": 0, "dur": 1000}"#
                .to_owned(),
        ];
        for (index, (name, start, duration)) in work.iter().enumerate() {
            let is_message = name.starts_with("nccl");
            if !is_message {
                events.push(format!(r#"{{"ph": "X", "cat": "user_annotation", "name": "{name}", "tid": 1, "ts": {start}, "dur": {duration}}}"#));
            }
            let id = number * 100 + index as u32;
            let call = r#""cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "dur": 0.1"#;
            events.push(format!(r#"{{"ph": "X", {call}, "ts": {start}.1, "args": {{"correlation": {id}}}}}"#));
            let kernel = if is_message { name } else { "matmul" };
            events.push(format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "{kernel}", "ts": {start}.3, "dur": {}, "args": {{"stream": 7, "correlation": {id}}}}}"#,
                f64::from(*duration) - 0.5
            ));
        }
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let told = format!(r#"{{"distributedInfo": {{"rank": {number}, "world_size": 2}}, "#);
        fs::write(here.path().join(format!("rank{number}.json")), trace(&events).replacen('{', &told, 1)).unwrap();
    };
    let talk = "ncclDevKernel_SendRecv";
    rank(
        1,
        &[("Forward 0", 0, 10), (talk, 10, 5), ("Forward 1", 15, 10), ("Backward 0", 60, 20), ("Backward 1", 80, 20)],
    );
    rank(
        0,
        &[(talk, 0, 15), ("Forward 0", 15, 10), ("Backward 0", 25, 20), ("Forward 1", 45, 10), ("Backward 1", 55, 20)],
    );
    let pipeline = analyzed(&["."], here.path())["pipeline"].clone();
    let said = ["stages", "micro_batches", "schedule", "inferred"].map(|key| pipeline[key].clone());
    assert_eq!(said, [value!(2), value!(2), value!("1f1b"), value!(true)]);
    let stages: Vec<_> =
        pipeline["per_stage"].as_array().unwrap().iter().map(|stage| (&stage["rank"], &stage["stage"])).collect();
    assert_eq!(stages, [(&value!(0), &value!(1)), (&value!(1), &value!(0))], "in the order in which they begin");
    let shown = text(&stepscope(&["analyze", "."], here.path()).stdout);
    assert!(shown.contains("(inferred), ideal 33.3%"), "{shown}");
    // One rank alone is no pipeline, and replicas begin together.
    assert_eq!(analyzed(&["rank0.json"], here.path())["pipeline"], Value::Null);
    rank(
        0,
        &[("Forward 0", 1, 10), (talk, 11, 4), ("Forward 1", 15, 10), ("Backward 0", 60, 20), ("Backward 1", 80, 20)],
    );
    assert_eq!(analyzed(&["."], here.path())["pipeline"], Value::Null);
}
