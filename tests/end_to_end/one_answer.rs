//! Whatever shows a figure of a run shows the one that its JSON has.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stepscope_analyzer::Partition;

use crate::{
    binary::{json, stepscope, text},
    export::structure,
    samples,
};

/// A run, and everything that is said of it.
struct Answers {
    source: PathBuf,
    json: Value,
    /// What `analyze` writes, form by form.
    reports: Vec<(&'static str, String)>,
    /// What the dashboard shows, view by view.
    views: Vec<(&'static str, String)>,
    /// The run compared with itself.
    diff: Value,
}

const VIEWS: [&str; 7] = ["overview", "memory", "communication", "pipeline", "kernels", "devices", "ranks"];

impl Answers {
    fn of(source: &Path) -> Answers {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = source.to_str().unwrap();
        let said = |arguments: &[&str]| {
            let output = stepscope(arguments, here);
            assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
            text(&output.stdout)
        };
        Answers {
            source: source.to_owned(),
            json: json(&["analyze", path, "--format", "json"], here),
            reports: ["text", "markdown", "html"]
                .map(|form| (form, said(&["analyze", path, "--format", form])))
                .to_vec(),
            views: VIEWS
                .map(|view| (view, said(&["live", path, "--once", "--size", "180x60", "--view", view])))
                .to_vec(),
            diff: json(&["diff", path, path, "--format", "json"], here),
        }
    }

    fn name(&self) -> String {
        self.source.display().to_string()
    }

    fn view(&self, name: &str) -> &str {
        &self.views.iter().find(|(view, _)| *view == name).unwrap().1
    }

    /// Every report has this.
    #[track_caller]
    fn reports_say(&self, words: &str) {
        for (form, report) in &self.reports {
            assert!(unbroken(report).contains(words), "{}: no `{words}` in {form}", self.name());
        }
    }

    #[track_caller]
    fn view_says(&self, view: &str, words: &str) {
        let shown = self.view(view);
        assert!(unbroken(shown).contains(words), "{}: no `{words}` in {view}:\n{shown}", self.name());
    }

    fn list(&self, key: &str) -> &[Value] {
        self.json[key].as_array().unwrap()
    }

    /// The steps that count.
    fn counted_steps(&self) -> Vec<&Value> {
        let window = &self.json["window"];
        let is_among = |step: &Value, key: &str| window[key].as_array().unwrap().contains(step);
        let counts = |step: &&Value| {
            let number = &step["step"];
            let between = window["steps"]
                .as_array()
                .is_some_and(|ends| (ends[0].as_i64()..=ends[1].as_i64()).contains(&number.as_i64()));
            between && !is_among(number, "warm_up") && !is_among(number, "cut_off")
        };
        self.list("steps").iter().filter(counts).collect()
    }

    fn metric(&self, name: &str) -> Option<[f64; 2]> {
        let metric = self.diff["metrics"].as_array().unwrap().iter().find(|metric| metric["metric"] == name)?;
        Some(["base", "other"].map(|side| metric[side].as_f64().unwrap()))
    }
}

/// Without line breaks, escapes and the runs of blanks that align things.
fn unbroken(text: &str) -> String {
    text.replace("&amp;", "&").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn sum<'a>(values: impl IntoIterator<Item = &'a Value>, key: &str) -> i64 {
    values.into_iter().map(|value| value[key].as_i64().unwrap()).sum()
}

/// Where the time goes: the steps that count, added up; partitions sum; the headline and the overview say the shares.
fn time_is_the_same(answers: &Answers) {
    let counted = answers.list("counted");
    for time in counted {
        let partition = |key: &str| time[key].as_i64().unwrap();
        let parts = ["compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"].map(partition);
        assert_eq!(parts.iter().sum::<i64>(), partition("span_ns"), "{}", answers.name());
        let steps = answers.counted_steps().into_iter().filter(|step| step["rank"] == time["rank"]);
        let steps: Vec<&Value> = steps.collect();
        let whole = answers.list("ranks").iter().filter(|rank| rank["rank"] == time["rank"]);
        let windows: Vec<&Value> = if answers.json["window"]["whole"] == true { whole.collect() } else { steps };
        for key in ["span_ns", "compute_ns", "communication_ns", "exposed_copy_ns", "idle_ns"] {
            assert_eq!(sum(windows.iter().copied(), key), partition(key), "{key} of {}", answers.name());
        }
    }
    let whole = sum(counted, "span_ns") as f64;
    let share = |key: &str| percent(sum(counted, key) as f64 / whole);
    answers.reports_say(&format!(
        "compute {}, exposed communication {}, exposed copies {}, idle {}",
        share("compute_ns"),
        share("exposed_communication_ns"),
        share("exposed_copy_ns"),
        share("idle_ns")
    ));
    answers.view_says("overview", &format!("compute {}", share("compute_ns")));
    answers.view_says("overview", &format!("idle {}", share("idle_ns")));
}

/// Kernels by family, and by phase.
fn kernels_are_the_same(answers: &Answers) {
    let families = answers.list("families");
    let share = |family: &Value| percent(number(&family["share"]));
    for family in families.iter().take(4) {
        let (name, share) = (family["family"].as_str().unwrap(), share(family));
        for (form, report) in &answers.reports {
            // In a table: its count and its time stand between the two.
            let row = report.lines().find(|line| {
                let cells = unbroken(&line.replace(['|', '<', '>', '/'], " "));
                cells.contains(name) && cells.contains(&share)
            });
            assert!(row.is_some(), "{}: no {name} with {share} in {form}", answers.name());
        }
        answers.view_says("kernels", &format!("{name} {share}"));
    }
    let total: i64 = sum(families, "total_ns");
    assert_eq!(sum(answers.list("kernels"), "total_ns"), total, "{}", answers.name());
    // Phases and idle time are the whole.
    let counted = answers.list("counted");
    let phases = counted.iter().flat_map(|time| time["phases"].as_array().unwrap());
    let parts = ["compute_ns", "exposed_communication_ns", "exposed_copy_ns"];
    let owned: i64 = phases.map(|phase| parts.iter().map(|part| phase[*part].as_i64().unwrap()).sum::<i64>()).sum();
    assert_eq!(owned + sum(counted, "idle_ns"), sum(counted, "span_ns"), "{}", answers.name());
}

/// Speed, MFU and the step's time: of reports, of the overview, and of a comparison.
fn speed_is_the_same(answers: &Answers) {
    if let Some(mfu) = answers.json["mfu"]["value"].as_f64() {
        answers.reports_say(&format!("MFU {}", percent(mfu)));
        answers.view_says("overview", &percent(mfu));
        let [base, other] = answers.metric("mfu").unwrap();
        assert!((base - mfu).abs() < 1e-9 && base == other, "{}: {base}, not {mfu}", answers.name());
    }
    if let Some(tokens) = answers.json["step_time"]["tokens_per_second"].as_f64() {
        let [base, other] = answers.metric("tokens_per_second").unwrap();
        assert!((base / tokens - 1.0).abs() < 1e-9 && base == other, "{}: {base}, not {tokens}", answers.name());
    }
    if let Some(bubble) = answers.json["pipeline"]["bubble"].as_f64() {
        answers.reports_say(&format!("bubble {}", percent(bubble)));
        answers.view_says("pipeline", &percent(bubble));
        let [base, other] = answers.metric("bubble").unwrap();
        assert!((base - bubble).abs() < 1e-9 && base == other, "{}: {base}, not {bubble}", answers.name());
    }
    assert_eq!(answers.diff["step_time"]["change_ns"], 0, "{}", answers.name());
    if let Some(overlap) = answers.metric("overlap") {
        let counted = answers.list("counted");
        let hidden = sum(counted, "overlapped_communication_ns") as f64 / sum(counted, "communication_ns") as f64;
        assert!((overlap[0] - hidden).abs() < 1e-9, "{}: {overlap:?}, not {hidden}", answers.name());
    }
}

/// What memory holds at most, and what devices drew.
fn memory_and_devices_are_the_same(answers: &Answers) {
    let peaks = answers.list("memory").iter().map(|memory| memory["peak_bytes"].as_u64().unwrap());
    if let Some(peak) = peaks.max().filter(|peak| *peak > 0) {
        let units = ["B", "kB", "MB", "GB"].iter().zip([1.0, 1e3, 1e6, 1e9]);
        let (unit, size) = units.rev().find(|(_, size)| peak as f64 / size >= 1.0).unwrap();
        let written = format!("{:.1} {unit}", peak as f64 / size);
        answers.reports_say(&format!("peak {written}"));
        answers.view_says("memory", &written);
        answers.view_says("overview", &written);
    }
    for device in answers.list("devices") {
        if let Some(power) = device["counters"]["gpu.power"]["mean"].as_f64() {
            answers.reports_say(&format!("{power:.0} W"));
            answers.view_says("devices", &format!("{power:.0} W"));
        }
    }
}

/// The rank that others wait for, and how often each operation was done.
fn communication_is_the_same(answers: &Answers) {
    let stragglers = answers.list("stragglers");
    let worst = stragglers.iter().max_by_key(|rank| rank["caused_wait_ns"].as_i64());
    if let Some(worst) = worst.filter(|worst| worst["caused_wait_ns"] != 0) {
        answers.view_says("communication", &format!("rank {} is the worst straggler", worst["rank"]));
        let report = &answers.reports[0].1;
        let table = report.split("Waiting in collectives").nth(1).unwrap();
        let first = table.lines().nth(2).unwrap().split_whitespace().next().unwrap();
        assert_eq!(first, worst["rank"].to_string(), "{}", answers.name());
    }
    for collective in answers.list("collectives") {
        let operation = collective["operation"].as_str().unwrap().replace('_', "-");
        let count = collective["count"].to_string();
        let has = |line: &str| {
            let cells: Vec<String> = line.split_whitespace().map(|cell| cell.replace(',', "")).collect();
            cells.first() == Some(&operation) && cells.contains(&count)
        };
        assert!(answers.reports[0].1.lines().any(has), "{}: {count} {operation}", answers.name());
        assert!(answers.view("communication").lines().any(has), "{}: {count} {operation}", answers.name());
    }
}

/// Perfetto's tracks: MFU and the time of each step that counts, and the bubble of those.
fn tracks_are_the_same(answers: &Answers) {
    let trace = structure(&answers.source, &["."]);
    let counted = answers.counted_steps();
    let mut steps: Vec<&Value> = counted.iter().map(|step| &step["step"]).collect();
    steps.dedup();
    let values = |name: &str| {
        let is_it = |track: &u64| trace.tracks[track].name == name;
        trace.values.iter().filter(|(track, ..)| is_it(track)).map(|(.., value)| *value).collect::<Vec<f64>>()
    };
    let longest = |step: &&Value| {
        let ranks = counted.iter().filter(|other| other["step"] == **step);
        ranks.map(|other| number(&other["duration_ns"])).fold(0.0, f64::max) / 1e6
    };
    assert_eq!(values("step time"), steps.iter().map(longest).collect::<Vec<f64>>(), "{}", answers.name());
    let stages = answers.json["pipeline"]["per_stage"].as_array();
    if let Some(stages) = stages.filter(|_| answers.json["clock"]["aligned_by"] == "anchors") {
        let idle: i64 = ["warm_up_ns", "steady_ns", "cool_down_ns"].map(|part| sum(stages, part)).iter().sum();
        let is_bubble = |track: &u64| trace.tracks[track].name == "bubble";
        let slices = trace.slices.iter().filter(|slice| is_bubble(&slice.track));
        assert_eq!(slices.map(|slice| slice.duration() as i64).sum::<i64>(), idle, "{}", answers.name());
    }
}

fn every_view_agrees(source: &Path) {
    let answers = Answers::of(source);
    time_is_the_same(&answers);
    kernels_are_the_same(&answers);
    speed_is_the_same(&answers);
    memory_and_devices_are_the_same(&answers);
    communication_is_the_same(&answers);
    tracks_are_the_same(&answers);
}

#[test]
fn samples_have_one_answer() {
    for name in samples::NAMES {
        every_view_agrees(&Path::new(samples::SAMPLES).join(name));
    }
}

#[test]
fn traces_of_pytorch_have_one_answer() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/tests/fixtures/kineto");
    every_view_agrees(&fixtures.join("ddp"));
    every_view_agrees(&fixtures.join("gpipe"));
}

#[test]
fn a_run_on_the_cpu_has_one_answer() {
    let directory = tempfile::tempdir().unwrap();
    let line = ["train", "--run", "run", "--backend", "cpu", "--dp", "2", "--pp", "2", "--micro-batches", "4"];
    let output = stepscope(&[&line[..], &["--steps", "6"]].concat(), directory.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    every_view_agrees(&directory.path().join("run"));
}

/// What was wrong, by name: each figure had another value somewhere else.
#[test]
fn figures_that_had_two_answers_have_one() {
    let sample = |name: &str| Answers::of(&Path::new(samples::SAMPLES).join(name));
    let family = |answers: &Answers, name: &str| {
        let found = answers.list("families").iter().find(|family| family["family"] == name).unwrap();
        percent(number(&found["share"]))
    };
    let tp2 = sample("tp2");
    assert_eq!((family(&tp2, "matmul").as_str(), family(&tp2, "copy").as_str()), ("46.3%", "0.8%"));
    let single = sample("single");
    let time: Partition = Partition {
        span_ns: sum(single.list("counted"), "span_ns"),
        idle_ns: sum(single.list("counted"), "idle_ns"),
        ..Partition::default()
    };
    assert_eq!(percent(time.idle_ns as f64 / time.span_ns as f64), "1.9%");
    let zero3 = sample("dp2-zero3");
    let here = Path::new(samples::SAMPLES);
    let chosen = json(&["analyze", "dp2-zero3", "--steps", "1..", "--format", "json"], here);
    for key in ["stragglers", "kernels", "families", "collectives", "findings", "counted", "ranks", "memory"] {
        assert_eq!(chosen[key], zero3.json[key], "the steps that count are those from 1 on: {key}");
    }
    let worst = zero3.list("stragglers").iter().max_by_key(|rank| rank["caused_wait_ns"].as_i64()).unwrap();
    assert_eq!(worst["rank"], 0);
    let diff = json(&["diff", "tp2", "single", "--format", "json"], here);
    let mfu = diff["metrics"].as_array().unwrap().iter().find(|metric| metric["metric"] == "mfu").unwrap();
    assert_eq!((&mfu["base"], &mfu["other"]), (&tp2.json["mfu"]["value"], &single.json["mfu"]["value"]));
}

#[test]
fn all_of_a_recording_can_be_counted() {
    let here = Path::new(samples::SAMPLES);
    let all = json(&["analyze", "tp2", "--steps", "all", "--format", "json"], here);
    assert_eq!((&all["window"]["whole"], &all["window"]["warm_up"]), (&true.into(), &Value::Array(Vec::new())));
    for (whole, counted) in all["ranks"].as_array().unwrap().iter().zip(all["counted"].as_array().unwrap()) {
        for key in ["span_ns", "compute_ns", "exposed_communication_ns", "idle_ns", "kernel_count", "phases", "axes"] {
            assert_eq!(whole[key], counted[key], "{key}");
        }
    }
    let copies = all["families"].as_array().unwrap().iter().find(|family| family["family"] == "copy").unwrap();
    assert_eq!(
        percent(number(&copies["share"])),
        "48.3%",
        "the weights are brought to the device before the first step"
    );
}

#[test]
fn a_comparison_of_whole_recordings_has_their_figures() {
    let here = Path::new(samples::SAMPLES);
    for name in samples::NAMES {
        let all = json(&["analyze", name, "--steps", "all", "--format", "json"], here);
        let diff = json(&["diff", name, name, "--steps", "all", "--format", "json"], here);
        let metric = |name: &str| {
            let found = diff["metrics"].as_array().unwrap().iter().find(|metric| metric["metric"] == name);
            found.and_then(|metric| metric["base"].as_f64())
        };
        let counted = all["counted"].as_array().unwrap();
        let longest = counted.iter().filter_map(|rank| rank["span_ns"].as_f64()).reduce(f64::max).unwrap();
        let bandwidths = all["collectives"].as_array().unwrap().iter().filter_map(|one| one["bus_bandwidth"].as_f64());
        let expected = [
            ("tokens_per_second", all["step_time"]["tokens_per_second"].as_f64()),
            ("time_per_token", all["step_time"]["tokens_per_second"].as_f64().map(|rate| 1e9 / rate)),
            ("mfu", all["mfu"]["value"].as_f64()),
            ("hfu", all["mfu"]["hfu"].as_f64()),
            ("bubble", all["pipeline"]["bubble"].as_f64()),
        ];
        for (name_of, expected) in expected {
            let is_same = |(one, other): (f64, f64)| (one / other - 1.0).abs() < 1e-9;
            assert!(metric(name_of).zip(expected).is_none_or(is_same), "{name}: {name_of}");
            assert_eq!(metric(name_of).is_some(), expected.is_some(), "{name}: {name_of}");
        }
        let communication = sum(counted, "communication_ns");
        let hidden = sum(counted, "overlapped_communication_ns") as f64 / communication as f64;
        assert!(communication == 0 || (metric("overlap").unwrap() - hidden).abs() < 1e-9, "{name}");
        let of_diff = diff["metrics"].as_array().unwrap().iter();
        let of_diff = of_diff.filter(|metric| metric["metric"].as_str().unwrap().starts_with("bus_bandwidth."));
        let mut of_diff: Vec<i64> = of_diff.map(|metric| number(&metric["base"]).round() as i64).collect();
        let mut bandwidths: Vec<i64> = bandwidths.map(|bandwidth| bandwidth.round() as i64).collect();
        of_diff.sort_unstable();
        bandwidths.sort_unstable();
        assert_eq!(of_diff, bandwidths, "{name}");
        let time = &diff["step_time"];
        assert!(time["whole"] == true && number(&time["base_ns"]) <= longest, "{name}: {time}");
    }
}
