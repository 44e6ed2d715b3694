use std::{fs, path::Path};

use serde_json::Value;
use stepscope_traces::{
    FIRST_NAME, MemoryCategory, MemoryEvent, MemoryOperation, NameId, Nanos, Rank, RankInfo, RankWriter, RunInfo,
    RunSource, Span, SpanKind, Step,
    synthetic::{Pipeline, Recipe, Schedule},
};

use crate::binary::{failure, json, stepscope, text};

/// Trains a few small steps into `run`.
fn train(directory: &Path, arguments: &[&str]) {
    let small = ["train", "--steps", "4", "--seq-len", "16", "--micro-batch", "1", "--run", "run"];
    let output = stepscope(&[&small, arguments].concat(), directory);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A run of four ranks in two stages in `runs/one`.
fn synthetic(directory: &Path) {
    let pipeline =
        Pipeline { stages: 2, schedule: Schedule::OneForwardOneBackward, chunks: 1, transfer: Nanos(10_000) };
    let recipe = Recipe { replicas: 2, micro_batches: 4, pipeline: Some(pipeline), ..Recipe::default() };
    recipe.write(&directory.join("runs/one")).unwrap();
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn has(value: &Value, keys: &str) {
    for key in keys.split_whitespace() {
        assert!(value.get(key).is_some(), "{key} is missing from {value}");
    }
}

const PARTITION: &str = "span_ns compute_ns communication_ns overlapped_communication_ns exposed_communication_ns \
                         copy_ns exposed_copy_ns idle_ns overlap";

/// The parts of a window are the window.
fn adds_up(figures: &Value) {
    has(figures, PARTITION);
    let parts = ["compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"];
    let sum: i64 = parts.iter().map(|part| number(&figures[*part])).sum();
    assert_eq!(sum, number(&figures["span_ns"]), "{figures}");
    let communication = number(&figures["overlapped_communication_ns"]) + number(&figures["exposed_communication_ns"]);
    assert_eq!(communication, number(&figures["communication_ns"]), "{figures}");
}

#[test]
fn json_is_what_the_contract_says() {
    let trainings: [(&[&str], usize); 3] =
        [(&["--micro-batches", "2"], 1), (&["--dp", "2"], 2), (&["--pp", "2", "--micro-batches", "4"], 2)];
    for (arguments, ranks) in trainings {
        let directory = tempfile::tempdir().unwrap();
        train(directory.path(), arguments);
        let analysis = json(&["analyze", "run", "--format", "json"], directory.path());
        assert_eq!(analysis["schema"], 1);
        has(&analysis, "run data_loss clock ranks steps memory mfu pipeline collectives stragglers kernels");
        has(&analysis["run"], "name source state world_size model layout device");
        assert_eq!((&analysis["run"]["source"], &analysis["run"]["state"]), (&"stepscope".into(), &"complete".into()));
        has(&analysis["run"]["layout"], "dp tp pp zero schedule micro_batches");
        has(&analysis["run"]["device"], "name peak_flops memory_bytes");
        has(&analysis["data_loss"], "dropped_events unreadable_bytes");
        has(&analysis["clock"], "aligned_by residual_ns");
        assert_eq!(analysis["ranks"].as_array().unwrap().len(), ranks);
        for rank in analysis["ranks"].as_array().unwrap() {
            has(rank, "rank kernel_count");
            adds_up(rank);
        }
        assert_eq!(analysis["steps"].as_array().unwrap().len(), 4 * ranks);
        for step in analysis["steps"].as_array().unwrap() {
            has(step, "step rank start_ns duration_ns loss tokens tokens_per_second mfu hfu");
            adds_up(step);
        }
        for memory in analysis["memory"].as_array().unwrap() {
            has(memory, "rank peak_bytes peak_time_ns peak_step at_peak at_end reserved_peak_bytes ledger inferred");
            let at_peak = memory["at_peak"].as_object().unwrap().values();
            assert_eq!(at_peak.map(number).sum::<i64>(), number(&memory["peak_bytes"]));
        }
        has(&analysis["mfu"], "convention flops_per_token peak_flops value hfu by_convention");
        for collective in analysis["collectives"].as_array().unwrap() {
            has(collective, "operation group_size count bytes busy_ns exposed_ns algorithm_bandwidth bus_bandwidth");
        }
        for straggler in analysis["stragglers"].as_array().unwrap() {
            has(straggler, "rank wait_ns caused_wait_ns");
        }
        for kernel in analysis["kernels"].as_array().unwrap() {
            has(kernel, "name count total_ns mean_ns share");
        }
        let pipeline = &analysis["pipeline"];
        assert_eq!(pipeline.is_null(), !arguments.contains(&"--pp"));
        if !pipeline.is_null() {
            has(pipeline, "stages micro_batches schedule bubble ideal_bubble inferred per_stage");
            pipeline["per_stage"].as_array().unwrap().iter().for_each(|stage| has(stage, "stage rank bubble"));
        }
    }
}

#[test]
fn text_fits_and_needs_no_colour() {
    let directory = tempfile::tempdir().unwrap();
    synthetic(directory.path());
    let output = stepscope(&["analyze"], directory.path());
    let shown = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert!(shown.starts_with("synthetic  complete  4 ranks · dp 2 · tp 1 · pp 2"), "{shown}");
    for line in shown.lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    for part in ["; step 0 is warm-up", "MFU unknown: ", "Findings", "ideal 20.0%, ", "Kernels by family"] {
        assert!(shown.contains(part), "{part} is missing from {shown}");
    }
    // What matters is seen without scrolling.
    assert!(shown.lines().take(20).any(|line| line == "Findings"), "{shown}");
}

#[test]
fn steps_and_ranks_are_chosen() {
    let directory = tempfile::tempdir().unwrap();
    synthetic(directory.path());
    let arguments = ["analyze", "--format", "json", "--steps", "1..3", "--ranks", "0,2-3,0"];
    let analysis = json(&arguments, directory.path());
    let shown = |key: &str, of: &str| -> Vec<i64> {
        analysis[key].as_array().unwrap().iter().map(|figures| number(&figures[of])).collect()
    };
    assert_eq!(shown("ranks", "rank"), [0, 2, 3]);
    assert_eq!(shown("counted", "windows"), [2, 2, 2]);
    let window = serde_json::json!({ "steps": [1, 2], "warm_up": [], "cut_off": [], "whole": false });
    assert_eq!(analysis["window"], window);
    let steps = shown("steps", "step");
    assert!(steps.contains(&0) && steps.contains(&3), "every step is listed: {steps:?}");
}

#[test]
fn the_peak_can_be_said() {
    let directory = tempfile::tempdir().unwrap();
    train(directory.path(), &["--micro-batches", "1"]);
    let mfu = |arguments: &[&str]| {
        let analysis = json(&[&["analyze", "run", "--format", "json"], arguments].concat(), directory.path());
        analysis["mfu"].clone()
    };
    let (one, two) = (mfu(&["--peak-tflops", "1"]), mfu(&["--peak-tflops", "2", "--mfu-convention", "6n"]));
    assert_eq!((&one["peak_flops"], &one["convention"]), (&1e12.into(), &"model".into()));
    assert_eq!((&two["peak_flops"], &two["convention"]), (&2e12.into(), &"6n".into()));
    let twice = one["by_convention"]["6n"].as_f64().unwrap() / two["value"].as_f64().unwrap();
    assert!((twice - 2.0).abs() < 1e-9, "{twice}");
}

#[test]
fn html_is_one_file_with_plots() {
    let directory = tempfile::tempdir().unwrap();
    train(directory.path(), &["--pp", "2", "--micro-batches", "4"]);
    let output = stepscope(&["analyze", "run", "--format", "html", "-o", "report.html"], directory.path());
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let page = fs::read_to_string(directory.path().join("report.html")).unwrap();
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    for part in [
        "name=\"viewport\"",
        "prefers-color-scheme: dark",
        "aria-label=\"Time of each step\"",
        "aria-label=\"Timeline by rank and stream\"",
        "aria-label=\"Pipeline in step ",
        "<button>kernel</button>",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    for part in ["http://", "https://", " src=", "<link", "@import", "\"NaN"] {
        assert!(!page.contains(part), "{part} is in it");
    }
    assert_eq!(text(&stepscope(&["analyze", "run", "--format", "html"], directory.path()).stdout), page);
}

/// Names that would be markup, in a run that has hardly anything else.
#[test]
fn names_of_others_stay_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let name = "</script><script>alert(1)</script>|\u{1b}[31m".to_owned() + &"x".repeat(300);
    RunInfo::of_this_process(&name).create(&path).unwrap();
    let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
    writer.push_name(FIRST_NAME, &name).unwrap();
    let kernel = Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(1_000), Nanos(250));
    writer.push_span(&Span { step: Some(Step(0)), ..kernel }).unwrap();
    writer.finish().unwrap();
    let written = |format: &str| text(&stepscope(&["analyze", "run", "--format", format], directory.path()).stdout);
    let (plain, page, markdown) = (written("text"), written("html"), written("markdown"));
    assert!(plain.lines().all(|line| line.chars().count() <= 100 && !line.contains('\u{1b}')), "{plain}");
    assert!(plain.contains("250 ns in step 0"), "{plain}");
    assert!(page.contains("alert(1)") && !page.contains("<script>alert") && !page.contains('\u{1b}'));
    assert!(markdown.contains("\\|") && !markdown.contains("<script>"), "{markdown}");
}

/// A snapshot of blocks that lines of a program asked for: when, what for, how large.
fn asked_for(directory: &Path, blocks: &[(i64, MemoryCategory, u64)]) {
    let path = directory.join("run");
    RunInfo { source: RunSource::TorchSnapshot, ..RunInfo::of_this_process("run") }.create(&path).unwrap();
    let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
    for (number, (time, category, bytes)) in (0..).zip(blocks) {
        let name = NameId(FIRST_NAME.0 + number);
        writer.push_name(name, &format!("torch/nn/functional.py:1 linear\nmodel.py:{number} forward")).unwrap();
        let event = MemoryEvent::new(Nanos(*time), MemoryOperation::Alloc, number.into(), Some(*bytes));
        writer.push_memory(&MemoryEvent { category: Some(*category), site: Some(name), ..event }).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn callers_that_are_left_out_are_counted_and_every_category_has_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut blocks: Vec<_> =
        (0..20).map(|at| (at, MemoryCategory::Activations, 1_000_000 * (100 - at as u64))).collect();
    blocks.push((20, MemoryCategory::Inputs, 2_000_000));
    blocks.push((21, MemoryCategory::Inputs, 1_000_000));
    asked_for(directory.path(), &blocks);
    let shown = text(&stepscope(&["analyze", "run"], directory.path()).stdout);
    let (_, table) = shown.split_once("Who asked for the memory at the peak of rank 0\n").unwrap();
    let lines: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 1 + 12 + 1 + 1, "{table}");
    assert!(lines[13].contains("inputs") && lines[13].contains("model.py:20 forward"), "{table}");
    // 88 to 81 MB, and the smaller batch.
    let sum = (81..=88).sum::<u64>() + 1;
    let words = [format!("{sum}.0 MB"), "(9 other callers)".into()];
    assert!(words.iter().all(|words| lines[14].contains(words)), "{table}");
}

#[test]
fn what_is_known_of_one_moment_is_no_peak() {
    let directory = tempfile::tempdir().unwrap();
    asked_for(directory.path(), &[(5, MemoryCategory::Parameters, 3_000_000), (5, MemoryCategory::Inputs, 1_000_000)]);
    let written = |format: &str| text(&stepscope(&["analyze", "run", "--format", format], directory.path()).stdout);
    let (plain, page) = (written("text"), written("html"));
    assert!(plain.contains("memory    4.0 MB at the end on rank 0: parameters 75.0%"), "{plain}");
    assert!(plain.contains("torch.cuda.memory._record_memory_history()"), "{plain}");
    assert!(plain.contains("Memory at the end of rank 0") && !plain.contains("at the peak"), "{plain}");
    assert!(page.contains("Calls that led to the memory at the end of rank 0") && !page.contains("over time"));
}

#[test]
fn markdown_has_tables_and_folds_the_long_ones() {
    let directory = tempfile::tempdir().unwrap();
    synthetic(directory.path());
    let shown = text(&stepscope(&["analyze", "--format", "markdown"], directory.path()).stdout);
    assert!(shown.starts_with("## synthetic\n\n**complete** · 4 ranks"), "{shown}");
    assert!(shown.contains("### Findings") && shown.contains("\n### Time per step"), "{shown}");
    assert_eq!(shown.matches("<details>").count(), shown.matches("</details>").count());
    assert!(shown.contains("<summary>Time by layer"), "{shown}");
    // A row has as many cells as its header.
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    for pair in shown.lines().collect::<Vec<_>>().windows(2) {
        if pair.iter().all(|line| line.starts_with('|')) {
            assert_eq!(cells(pair[0]), cells(pair[1]), "{pair:?}");
        }
    }
}

#[test]
fn loss_is_never_hidden() {
    let directory = tempfile::tempdir().unwrap();
    synthetic(directory.path());
    let file = directory.path().join("runs/one/rank-00002/spans.arrows");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    for (format, lost) in [("text", "\nlost      "), ("markdown", "**Lost:** "), ("html", "<strong>Lost:</strong> ")] {
        let shown = text(&stepscope(&["analyze", "--format", format], directory.path()).stdout);
        assert!(shown.contains(lost) && shown.contains(" bytes unreadable ("), "{shown}");
    }
}

#[test]
fn what_cannot_be_analyzed_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    synthetic(here);
    RunInfo::of_this_process("empty").create(&here.join("empty")).unwrap();
    for (arguments, why) in [
        ("--steps 5..3", "5..3 contains no step"),
        ("--steps some", "`some` is not a step"),
        ("--steps 100..", "none of the selected steps was recorded"),
        ("--ranks 4", "there is no rank 4 among the 4 recorded"),
        ("--ranks 0-4000000000", "there is no rank 4 among the 4 recorded"),
        ("--ranks 0;1", "`0;1` is not a rank"),
        ("--peak-tflops 0", "0 TFLOP/s is not a possible peak"),
        ("--peak-tflops NaN", "NaN TFLOP/s is not a possible peak"),
        ("--peak-tflops -1", "-1 TFLOP/s is not a possible peak"),
        ("--peak-tflops inf", "inf TFLOP/s is not a possible peak"),
        ("--peak-tflops 1e300", "1e300 TFLOP/s is not a possible peak"),
        ("--peak-tflops 1e-300", "1e-300 TFLOP/s is not a possible peak"),
        ("--mfu-convention mine", "invalid value 'mine'"),
        ("--format pdf", "invalid value 'pdf'"),
        ("nowhere", "nowhere does not exist"),
        ("empty", "nothing was recorded"),
        ("-o nowhere/report.txt", "cannot write nowhere/report.txt"),
        ("-o runs", "cannot write runs: it is a directory"),
    ] {
        let arguments: Vec<&str> = ["analyze"].into_iter().chain(arguments.split_whitespace()).collect();
        let said = failure(&arguments, here);
        assert!(said.starts_with("error: ") && said.contains(why), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    let said = failure(&["analyze", "runs"], here);
    assert!(said.ends_with("hint: the newest run in it is runs/one\n"), "{said}");
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    synthetic(here);
    let files = || {
        let mut names: Vec<_> = fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    failure(&["analyze", "-o", "report.txt", "--steps", "100.."], here);
    assert_eq!(files(), ["runs"]);
    fs::write(here.join("report.txt"), "before").unwrap();
    failure(&["analyze", "-o", "report.txt", "--steps", "100.."], here);
    assert_eq!(fs::read_to_string(here.join("report.txt")).unwrap(), "before");
    let output = stepscope(&["analyze", "-o", "report.txt"], here);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    assert_eq!(fs::read(here.join("report.txt")).unwrap(), stepscope(&["analyze"], here).stdout);
    assert_eq!(files(), ["report.txt", "runs"]);
    // What is no plain file stays what it is.
    assert!(stepscope(&["analyze", "-o", "/dev/null"], here).status.success());
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}
