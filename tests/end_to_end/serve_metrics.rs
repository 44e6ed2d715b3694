//! Metrics of runs, as those see them who take them.

mod collector;
mod prometheus;
mod strict;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use self::{collector::Collector, prometheus::Prometheus, strict::Exposition};
use crate::{
    binary::{command, failure, json, stepscope, text},
    skipped::skipped,
};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples");

/// The command, while it serves.
struct Serving {
    child: Child,
    port: u16,
}

impl Serving {
    fn start(run: &str, options: &[&str], directory: &Path) -> Serving {
        let mut command = command(directory);
        command.args(["serve-metrics", run, "--listen", "0"]).args(options);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut link = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut link).unwrap();
        let port = link.trim().strip_prefix("http://127.0.0.1:").and_then(|rest| rest.strip_suffix("/metrics"));
        Serving { child, port: port.unwrap_or_else(|| panic!("{link}")).parse().unwrap() }
    }

    /// What it answers to a request for a path.
    fn ask(&self, path: &str, host: &str) -> String {
        ask(self.port, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    /// The text of the metrics, once there are some, for those who know OpenMetrics.
    fn metrics(&self) -> String {
        prometheus::until("there are metrics", || {
            let answer =
                self.ask("/metrics", &format!("127.0.0.1:{}\r\nAccept: application/openmetrics-text", self.port));
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            body.contains("stepscope_step_seconds ").then(|| body.to_owned())
        })
    }

    /// Ends it as a person does: its status, and what it said.
    fn end(mut self) -> (Option<i32>, String) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT).unwrap();
        let (mut said, status) = (String::new(), self.child.wait().unwrap());
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), said)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn once(run: &str, options: &[&str]) -> String {
    let output = stepscope(&[&["serve-metrics", run, "--once"], options].concat(), Path::new(SAMPLES));
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// What metrics have to say of a run that has ended, by what `analyze` says of it.
fn expected(analysis: &Value) -> BTreeMap<String, f64> {
    let number = |value: &Value| value.as_f64();
    let time = &analysis["step_time"];
    let mut expected = BTreeMap::new();
    let mut say = |name: &str, value: Option<f64>| {
        expected.extend(value.map(|value| (name.to_owned(), value)));
    };
    say("stepscope_step_seconds", number(&time["median_ns"]).map(|ns| ns / 1e9));
    say("stepscope_tokens_per_second", number(&time["tokens_per_second"]));
    say("stepscope_mfu_ratio", number(&analysis["mfu"]["value"]));
    say("stepscope_hfu_ratio", number(&analysis["mfu"]["hfu"]));
    say("stepscope_bubble_ratio", number(&analysis["pipeline"]["bubble"]));
    say("stepscope_ideal_bubble_ratio", number(&analysis["pipeline"]["ideal_bubble"]));
    say("stepscope_ranks", number(&analysis["run"]["world_size"]));
    let mut losses = analysis["steps"].as_array().unwrap().iter().filter_map(|step| number(&step["loss"]));
    say("stepscope_loss", losses.next_back());
    let counted = analysis["counted"].as_array().unwrap();
    let sum = |key: &str| counted.iter().filter_map(|rank| rank[key].as_f64()).sum::<f64>();
    for (part, key) in [
        ("compute", "compute_ns"),
        ("exposed_communication", "exposed_communication_ns"),
        ("exposed_copy", "exposed_copy_ns"),
        ("idle", "idle_ns"),
    ] {
        say(&format!("stepscope_time_ratio{{part=\"{part}\"}}"), Some(sum(key) / sum("span_ns")));
        for rank in counted {
            let name = format!("stepscope_rank_time_ratio{{rank=\"{}\",part=\"{part}\"}}", rank["rank"]);
            say(&name, Some(number(&rank[key]).unwrap() / number(&rank["span_ns"]).unwrap()));
        }
    }
    let mut axes: BTreeMap<String, f64> = BTreeMap::new();
    for share in counted.iter().flat_map(|rank| rank["axes"].as_array().unwrap()) {
        *axes.entry(share["axis"].as_str().unwrap_or("unknown").to_owned()).or_default() +=
            number(&share["exposed_ns"]).unwrap();
    }
    for (axis, exposed) in axes {
        say(&format!("stepscope_exposed_communication_ratio{{axis=\"{axis}\"}}"), Some(exposed / sum("span_ns")));
    }
    let steps = number(&time["count"]).unwrap();
    for rank in analysis["stragglers"].as_array().unwrap() {
        for (name, key) in [("wait", "wait_ns"), ("caused_wait", "caused_wait_ns")] {
            let name = format!("stepscope_rank_{name}_seconds{{rank=\"{}\"}}", rank["rank"]);
            say(&name, number(&rank[key]).map(|ns| ns / steps / 1e9));
        }
    }
    let memory = analysis["memory"].as_array().unwrap();
    let fullest = memory.iter().max_by_key(|rank| (rank["peak_bytes"].as_u64(), -rank["rank"].as_i64().unwrap()));
    for (category, bytes) in fullest.iter().flat_map(|rank| rank["at_peak"].as_object().unwrap()) {
        say(&format!("stepscope_memory_peak_bytes{{category=\"{category}\"}}"), number(bytes));
    }
    let device = number(&analysis["run"]["device"]["memory_bytes"]);
    for rank in memory {
        let label = format!("{{rank=\"{}\"}}", rank["rank"]);
        let peak = number(&rank["peak_bytes"]);
        let own = number(&rank["ledger"]["device_used_bytes"]).or(number(&rank["reserved_peak_bytes"])).or(peak);
        let own = own.filter(|_| analysis["run"]["ranks_on_a_device"].is_null());
        let sampled = analysis["devices"].as_array().unwrap().iter().find(|device| device["rank"] == rank["rank"]);
        let sampled = sampled.and_then(|device| number(&device["counters"]["gpu.memory_used"]["most"]));
        let used = own.into_iter().chain(sampled).reduce(f64::max);
        say(&format!("stepscope_rank_memory_peak_bytes{label}"), peak);
        say(
            &format!("stepscope_rank_memory_headroom_bytes{label}"),
            device.zip(used).map(|(device, used)| (device - used).max(0.0)),
        );
    }
    expected
}

#[track_caller]
fn check_values(values: &BTreeMap<String, f64>, analysis: &Value) {
    let expected = expected(analysis);
    assert!(expected.len() > 12, "{expected:?}");
    for (name, expected) in expected {
        let value = values.get(&name).unwrap_or_else(|| panic!("{name} is not in {values:#?}"));
        assert!((value - expected).abs() <= 1e-9 * expected.abs(), "{name}: {value} and not {expected}");
    }
}

#[test]
fn metrics_are_the_figures_of_the_report() {
    for run in ["dp2-bucketed", "pp2-1f1b", "tp2", "single", "pytorch"] {
        let exposition = Exposition::parse(&once(run, &[]));
        check_values(&exposition.values, &json(&["analyze", run, "--format", "json"], Path::new(SAMPLES)));
        assert_eq!(exposition.values["stepscope_run_state{state=\"complete\"}"], 1.0);
        assert_eq!(exposition.values["stepscope_incidents_total{kind=\"hang\"}"], 0.0);
    }
}

#[test]
fn ranks_of_large_jobs_are_left_out() {
    let (all, none) = (once("dp2-bucketed", &["--rank-metrics", "2"]), once("dp2-bucketed", &["--rank-metrics", "1"]));
    assert!(all.contains("stepscope_rank_step_seconds{rank=\"1\"}") && !none.contains("rank=\""), "{none}");
    assert!(none.contains("stepscope_time_ratio{part=\"idle\"}"), "{none}");
}

#[test]
fn another_parser_reads_metrics() {
    let serving = Serving::start("pp2-1f1b", &[], Path::new(SAMPLES));
    parsed_by("prometheus_client.openmetrics.parser", &serving.metrics());
    parsed_by("prometheus_client.parser", &once("pp2-1f1b", &[]));
}

/// Has a parser of Python read metrics.
fn parsed_by(parser: &str, told: &str) {
    let script = format!(
        "import sys\nfrom {parser} import text_string_to_metric_families as parse\n\
         print(sum(len(family.samples) for family in parse(sys.stdin.read())))"
    );
    let mut python = Command::new("python3");
    python.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match python.spawn() {
        Ok(child) => child,
        Err(error) => return skipped("python", &error),
    };
    // One that has ended reads nothing.
    drop(child.stdin.take().unwrap().write_all(told.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    if said.contains("ModuleNotFoundError") {
        return skipped("python", &"there is no prometheus_client");
    }
    assert_eq!(text(&output.stdout).trim().parse(), Ok(Exposition::parse(told).values.len()), "{said}");
}

#[test]
fn what_is_asked_for_otherwise_is_refused() {
    let serving = Serving::start("single", &[], Path::new(SAMPLES));
    serving.metrics();
    let here = format!("localhost:{}", serving.port);
    let status = |answer: &str| answer.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(status(&serving.ask("/metrics?name[]=up", &here)), "200");
    assert_eq!(status(&serving.ask("/", &here)), "404");
    assert_eq!(status(&serving.ask("/metrics", "evil.example")), "403", "a name of somebody else's that leads here");
    assert_eq!(status(&ask(serving.port, &format!("POST /metrics HTTP/1.1\r\nHost: {here}\r\n\r\n"))), "405");
    assert_eq!(status(&ask(serving.port, "\0\0\0\0\r\n\r\n")), "400");
    for (takes, form) in [
        ("text/plain", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text; version=1.0.0"),
    ] {
        let head = ask(serving.port, &format!("HEAD /metrics HTTP/1.1\r\nHost: {here}\r\nAccept: {takes}\r\n\r\n"));
        assert!(head.contains(&format!("Content-Type: {form}")) && head.ends_with("\r\n\r\n"), "{head}");
    }
    let taken = failure(&["serve-metrics", "single", "--listen", &serving.port.to_string()], Path::new(SAMPLES));
    assert!(taken.contains("cannot serve on 127.0.0.1:"), "{taken}");
    assert_eq!(serving.end(), (Some(0), String::new()));
    let missing = failure(&["serve-metrics", "nothing", "--once"], Path::new(SAMPLES));
    assert!(missing.contains("nothing does not exist"), "{missing}");
}

/// A run that is made after somebody has begun to wait for it, grows, and ends.
#[test]
fn a_run_is_followed_from_before_its_beginning_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start("run", &[], directory.path());
    let collector = Collector::start(&[503, 429, 200]);
    let target = format!("http://127.0.0.1:{}", collector.port);
    let mut pushing = command(directory.path());
    pushing.args(["serve-metrics", "run", "--push", &target, "--push-every", "1"]).stderr(Stdio::null());
    let mut pushing = pushing.spawn().unwrap();
    let train = ["train", "--backend", "cpu", "--dp", "2", "--steps", "100000", "--run", "run"];
    let mut training =
        command(directory.path()).args(train).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let live = Exposition::parse(&serving.metrics());
    assert_eq!(live.values["stepscope_run_state{state=\"recording\"}"], 1.0);
    kill(Pid::from_raw(training.id().cast_signed()), Signal::SIGTERM).unwrap();
    training.wait().unwrap();
    let values = prometheus::until("the run has ended", || {
        let values = Exposition::parse(&serving.metrics()).values;
        let is_whole = values["stepscope_run_state{state=\"interrupted\"}"] == 1.0
            && !values.contains_key("stepscope_newest_activity_timestamp_seconds");
        is_whole.then_some(values)
    });
    check_values(&values, &json(&["analyze", "run", "--format", "json"], directory.path()));
    assert_eq!(values["stepscope_incidents_total{kind=\"killed\"}"], 1.0);
    let (status, said) = serving.end();
    assert!(status == Some(0) && said.contains("waiting   for run"), "{said}");
    // What was refused at first is pushed later, and the last before the end.
    kill(Pid::from_raw(pushing.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(pushing.wait().unwrap().success());
    check_pushed(&collector.end(), &values);
}

#[test]
fn a_run_that_takes_the_place_of_another_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("run");
    symlink(Path::new(SAMPLES).join("dp2-naive"), &place).unwrap();
    let serving = Serving::start("run", &[], directory.path());
    let serves = |name: &str| serving.metrics().contains(&format!("name=\"{name}\""));
    let name = |sample: &str| json(&["inspect", sample, "--format", "json"], Path::new(SAMPLES))["run"]["name"].clone();
    let names = ["dp2-naive", "single"].map(name);
    assert!(names[0] != names[1] && serves(names[0].as_str().unwrap()));
    fs::remove_file(&place).unwrap();
    symlink(Path::new(SAMPLES).join("single"), &place).unwrap();
    prometheus::until("the other one is served", || serves(names[1].as_str().unwrap()).then_some(()));
}

/// Every request is one of OTLP, and the last has the newest values.
fn check_pushed(requests: &[Vec<u8>], values: &BTreeMap<String, f64>) {
    assert!(requests.len() >= 3);
    let last: Value = serde_json::from_slice(requests.last().unwrap()).unwrap();
    let metrics = last["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let metric = |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap();
    let step = metric("stepscope_step_seconds");
    let value = step["gauge"]["dataPoints"][0]["asDouble"].as_f64().unwrap();
    assert_eq!((value, &step["unit"]), (values["stepscope_step_seconds"], &"s".into()));
    let killed = metric("stepscope_incidents")["sum"]["dataPoints"].as_array().unwrap();
    let of_kind = |point: &&Value| point["attributes"][0]["value"]["stringValue"] == "killed";
    assert_eq!(killed.iter().find(of_kind).unwrap()["asDouble"], 1.0);
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("request.json"), requests.last().unwrap()).unwrap();
    // The protocol's own schema refuses keys that it does not know.
    let parser = "from google.protobuf import json_format\n\
                  from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest as Request\n\
                  request = json_format.Parse(open('request.json').read(), Request())\n\
                  print(len(request.resource_metrics[0].scope_metrics[0].metrics))";
    let output = Command::new("python3").args(["-c", parser]).current_dir(directory.path()).output();
    match output {
        Ok(output) if output.status.success() => {
            assert_eq!(text(&output.stdout).trim(), metrics.len().to_string());
        }
        Ok(output) => {
            let said = text(&output.stderr);
            assert!(said.contains("ModuleNotFoundError"), "{said}");
            skipped("python", &"there is no opentelemetry-proto");
        }
        Err(error) => skipped("python", &error),
    }
}

#[test]
fn a_real_prometheus_has_the_figures_of_the_report() {
    let serving = Serving::start("pp2-1f1b", &[], Path::new(SAMPLES));
    let Some(prometheus) = Prometheus::start(serving.port) else { return };
    let told = Exposition::parse(&serving.metrics());
    let values = prometheus.values("stepscope_step_seconds");
    check_values(&values, &json(&["analyze", "pp2-1f1b", "--format", "json"], Path::new(SAMPLES)));
    for (name, value) in &told.values {
        assert_eq!(values.get(name), Some(value), "{name}");
    }
    let shares = prometheus.query("sum(stepscope_time_ratio)");
    let sum: f64 = shares[0]["value"][1].as_str().unwrap().parse().unwrap();
    assert!((sum - 1.0).abs() < 1e-12, "{shares}");
}

/// The dashboard in the book asks for what there is.
#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/src/grafana/stepscope.json");
    let dashboard: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let source = ["job_metrics.rs", "rank_metrics.rs"].map(|file| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/serve_metrics").join(file);
        fs::read_to_string(path).unwrap()
    });
    let source = source.concat();
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let names = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for name in names.filter(|name| name.starts_with("stepscope_")) {
                let bare = name.trim_end_matches("_total").trim_end_matches("_info");
                assert!(source.contains(&format!("\"{bare}\"")), "{name} of {}", panel["title"]);
                asked += 1;
            }
        }
    }
    assert!(asked > 15, "{asked}");
}
