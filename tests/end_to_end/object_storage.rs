mod endings;
mod others;
mod server;
mod signature;
mod unusual;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use self::server::{KEY, SECRET, Server};
use crate::binary::{command, text};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples/dp2-naive");
const URL: &str = "s3://bucket/runs/mine";
/// Steps that take a few milliseconds.
const SHORT: [&str; 6] = ["--seq-len", "8", "--micro-batch", "1", "--micro-batches", "1"];

/// A machine: a directory to work in, with a cache of its own.
struct Machine(TempDir);

impl Machine {
    fn new() -> Machine {
        Machine(tempfile::tempdir().unwrap())
    }

    /// A command here that uses a store with these credentials.
    fn command_as(&self, server: &Server, key: &str, secret: &str, arguments: &[&str]) -> Command {
        let mut command = command(self.0.path());
        command.env("XDG_CACHE_HOME", self.0.path().join("cache")).args(arguments);
        server.apply(&mut command, key, secret);
        command
    }

    fn command(&self, server: &Server, arguments: &[&str]) -> Command {
        self.command_as(server, KEY, SECRET, arguments)
    }

    fn run(&self, server: &Server, arguments: &[&str]) -> Output {
        self.command(server, arguments).output().unwrap()
    }

    /// What a command says that has to succeed.
    fn stdout(&self, server: &Server, arguments: &[&str]) -> Vec<u8> {
        succeeded(self.run(server, arguments))
    }

    fn json(&self, server: &Server, arguments: &[&str]) -> Value {
        serde_json::from_slice(&self.stdout(server, &[arguments, &["--format", "json"]].concat())).unwrap()
    }
}

fn succeeded(output: Output) -> Vec<u8> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    output.stdout
}

fn failed(output: &Output) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty() && !said.contains(SECRET) && said.contains("\nhint: "), "{said}");
    said
}

/// A store that has the sample.
fn with_sample() -> Server {
    let server = Server::start();
    succeeded(Machine::new().run(&server, &["upload", SAMPLE, URL]));
    server.state().requests.clear();
    server
}

/// Requests for the content of objects since the last look.
fn fetched(server: &Server) -> Vec<String> {
    let requests = std::mem::take(&mut server.state().requests);
    requests.into_iter().filter(|(method, key)| method == "GET" && !key.is_empty()).map(|(_, key)| key).collect()
}

#[test]
fn a_run_in_object_storage_reads_as_the_one_on_disk() {
    let (server, machine) = (with_sample(), Machine::new());
    let local = machine.stdout(&server, &["analyze", SAMPLE, "--format", "json"]);
    let first = machine.run(&server, &["analyze", URL, "--format", "json"]);
    assert!(text(&first.stderr).starts_with("fetched   s3://bucket/runs/mine: 11 objects"), "{}", text(&first.stderr));
    assert_eq!(succeeded(first), local);
    assert_eq!(fetched(&server).len(), 11);
    let second = machine.run(&server, &["analyze", URL, "--format", "json"]);
    assert_eq!((text(&second.stderr), succeeded(second)), (String::new(), local));
    assert_eq!(fetched(&server), [""; 0], "it is here already");
    // Another version of an object takes the place of the one that is here.
    let key = "runs/mine/rank-00001/rank.json";
    let changed = text(&server.state().objects[key]).replace("\"h200\"", "\"another\"");
    server.state().objects.insert(key.into(), changed.into_bytes());
    let inspected = machine.json(&server, &["inspect", URL]);
    assert_eq!(inspected["ranks"][1]["host"], "another");
    assert_eq!(fetched(&server), [key]);
}

#[test]
fn every_reader_takes_a_url() {
    let (server, machine) = (with_sample(), Machine::new());
    for output in ["local.pftrace", "fetched.pftrace"] {
        let source = if output.starts_with("local") { SAMPLE } else { URL };
        machine.stdout(&server, &["export", source, "-o", output]);
    }
    let exported = |name: &str| fs::read(machine.0.path().join(name)).unwrap();
    assert_eq!(exported("fetched.pftrace"), exported("local.pftrace"));
    let diff = machine.json(&server, &["diff", URL, SAMPLE]);
    assert_eq!(diff["step_time"]["change_ns"], 0);
    machine.json(&server, &["incidents", URL]);
    // All but the first line, which says where the run is.
    let frame = |source: &str| {
        let frame = text(&machine.stdout(&server, &["live", source, "--once"]));
        frame.split_once('\n').unwrap().1.to_owned()
    };
    assert_eq!(frame(URL), frame(SAMPLE));
    machine.stdout(&server, &["import", URL, "--run", "imported"]);
    assert_eq!(machine.json(&server, &["analyze", "imported"]), machine.json(&server, &["analyze", SAMPLE]));
    let again = machine.run(&server, &["import", URL, "--run", "imported"]);
    assert!(failed(&again).contains("imported"), "what is there stays");
}

#[test]
fn only_ranks_that_are_read_are_fetched() {
    let (server, machine) = (with_sample(), Machine::new());
    let arguments = |source| ["analyze", source, "--format", "json", "--ranks", "0"];
    let local = machine.stdout(&server, &arguments(SAMPLE));
    assert_eq!(machine.stdout(&server, &arguments(URL)), local);
    let fetched = fetched(&server);
    assert_eq!(fetched.iter().filter(|key| key.contains("rank-00000/")).count(), 5);
    let of_other: Vec<&String> = fetched.iter().filter(|key| key.contains("rank-00001/")).collect();
    assert_eq!(of_other, ["runs/mine/rank-00001/rank.json"]);
}

/// A copy of a sample, as of a program that was recorded: only its ranks say how many there are, and in which groups.
fn recorded_program(machine: &Machine) -> String {
    let run = machine.0.path().join("recorded");
    let copied = Command::new("cp").args(["-r", SAMPLE]).arg(&run).status().unwrap();
    assert!(copied.success());
    let change = |file: &str, change: &dyn Fn(&mut Value)| {
        let path = run.join(file);
        let mut json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut json);
        fs::write(&path, json.to_string()).unwrap();
    };
    change("run.json", &|run| {
        run["world_size"] = Value::Null;
        run["layout"] = Value::Null;
        run["groups"] = Value::Array(Vec::new());
    });
    for rank in ["rank-00000", "rank-00001"] {
        change(&format!("{rank}/rank.json"), &|rank| rank["collector"]["rank_from"] = "RANK".into());
    }
    run.display().to_string()
}

#[test]
fn ranks_of_a_recorded_program_are_told_from_all_of_them() {
    let (server, machine) = (Server::start(), Machine::new());
    let run = recorded_program(&machine);
    succeeded(machine.run(&server, &["summarize", &run]));
    succeeded(machine.run(&server, &["upload", &run, URL]));
    for ranks in ["0", "1", "0,1"] {
        let analyzed = |source| machine.stdout(&server, &["analyze", source, "--format", "json", "--ranks", ranks]);
        assert_eq!(text(&analyzed(URL)), text(&analyzed(&run)), "{ranks}");
    }
}

#[test]
fn what_is_wrong_is_said_with_a_hint_and_without_secrets() {
    let (server, machine) = (with_sample(), Machine::new());
    let refused = |key, secret| failed(&machine.command_as(&server, key, secret, &["analyze", URL]).output().unwrap());
    assert!(refused(KEY, "another secret").contains("access was refused (SignatureDoesNotMatch"));
    assert!(refused("AKIAOTHER", SECRET).contains("access was refused (InvalidAccessKeyId"));
    let said = |url: &str| failed(&machine.run(&server, &["analyze", url]));
    assert!(said("s3://other/run").contains("there is no such bucket"));
    assert!(said("s3://bucket/runs/none").contains("nothing is there"));
    assert!(said("s3://bucket/runs").contains("the last of them is s3://bucket/runs/mine"));
    assert!(said("ftp://bucket/run").contains("only s3://, gs://, az:// and file:// are known"));
    assert!(said(&format!("s3://{KEY}:{SECRET}@bucket/run")).contains("credentials belong in the environment"));
    let mut nobody = machine.command(&server, &["analyze", URL]);
    nobody.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    let said = failed(&nobody.env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1").output().unwrap());
    assert!(said.contains("no credentials were found") && said.contains("AWS_ACCESS_KEY_ID"), "{said}");
    let mut unreachable = machine.command(&server, &["analyze", URL]);
    let said = failed(&unreachable.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").output().unwrap());
    assert!(said.contains("cannot be reached"), "{said}");
}

#[test]
fn a_store_that_stumbles_is_asked_again() {
    let (server, machine) = (Server::start(), Machine::new());
    server.state().busy = 3;
    succeeded(machine.run(&server, &["upload", SAMPLE, URL]));
    let local = machine.stdout(&server, &["analyze", SAMPLE, "--format", "json"]);
    {
        let mut state = server.state();
        (state.busy, state.cut) = (3, 3);
    }
    assert_eq!(machine.stdout(&server, &["analyze", URL, "--format", "json"]), local);
    let state = server.state();
    assert_eq!((state.busy, state.cut), (0, 0));
}

#[test]
fn another_run_is_left_alone() {
    let (server, machine) = (with_sample(), Machine::new());
    let before = server.state().objects.clone();
    let other = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples/single");
    let said = failed(&machine.run(&server, &["upload", other, URL]));
    assert!(said.contains("another run is there"), "{said}");
    assert_eq!(server.state().objects, before);
}

/// A program that records the sample and ends with status 7.
fn recording(machine: &Machine, server: &Server) -> Output {
    let script = format!("cp -r {SAMPLE}/rank-* run/ && sleep 2.5; exit 7");
    let words = ["record", "--run", "run", "--upload", URL, "--upload-every", "1", "--", "sh", "-c", &script];
    machine.run(server, &words)
}

#[test]
fn a_recording_is_uploaded_beside_the_job() {
    let (server, machine) = (Server::start(), Machine::new());
    let output = recording(&machine, &server);
    assert_eq!(output.status.code(), Some(7));
    let said = text(&output.stderr);
    assert!(said.contains("uploaded  s3://bucket/runs/mine: "), "{said}");
    let analyzed = |source| machine.stdout(&server, &["analyze", source, "--format", "json"]);
    assert_eq!(analyzed(URL), analyzed("run"));
}

#[test]
fn an_upload_that_breaks_off_is_told_and_can_be_finished() {
    let (server, machine) = (Server::start(), Machine::new());
    // After one list, the description, all tables and what one rank says of itself come through.
    server.state().gone_after = Some(11);
    let output = recording(&machine, &server);
    assert_eq!(output.status.code(), Some(7), "the status is the command's");
    let said = text(&output.stderr);
    assert_eq!(said.matches("recording goes on here").count(), 1, "{said}");
    assert!(said.contains("upload run s3://bucket/runs/mine"), "{said}");
    server.state().gone_after = None;
    assert_eq!(server.state().objects.len(), 10);
    let partial = machine.json(&server, &["analyze", URL]);
    assert_eq!(partial["run"]["state"], "interrupted");
    succeeded(machine.run(&server, &["upload", "run", URL]));
    let analyzed = |source| machine.stdout(&server, &["analyze", source, "--format", "json"]);
    assert_eq!(analyzed(URL), analyzed("run"));
}

/// Waits until a store has something, while a job runs.
fn wait_for(job: &mut Child, what: &str, is_there: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_there() {
        if began.elapsed() > Duration::from_secs(60) || job.try_wait().unwrap().is_some() {
            drop(job.kill());
            panic!("{what} did not come");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_was_uploaded_of_a_killed_training_is_a_run() {
    let (server, machine) = (Server::start(), Machine::new());
    let mut training = machine.command(&server, &["train", "--backend", "cpu", "--steps", "1000000", "--run", "run"]);
    training.args(SHORT).args(["--upload", URL, "--upload-every", "1"]);
    let mut training = training.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let spans = || server.state().objects.get("runs/mine/rank-00000/spans.arrows").map_or(0, Vec::len);
    wait_for(&mut training, "the first rows", || spans() > 0);
    let first = spans();
    wait_for(&mut training, "more rows", || spans() > first);
    let growing = machine.run(&server, &["inspect", URL, "--format", "json"]);
    training.kill().unwrap();
    training.wait().unwrap();
    let growing: Value = serde_json::from_slice(&succeeded(growing)).unwrap();
    assert_eq!((&growing["state"], &growing["path"]), (&"recording".into(), &URL.into()));
    fs::remove_dir_all(machine.0.path().join("run")).unwrap();
    let analysis = machine.json(&server, &["analyze", URL]);
    assert_eq!(analysis["run"]["state"], "interrupted");
    assert!(!analysis["steps"].as_array().unwrap().is_empty(), "{analysis}");
}

#[test]
fn a_training_is_uploaded_to_its_end() {
    let (server, machine) = (Server::start(), Machine::new());
    for arguments in [&["--dp", "2"][..], &["--black-box"]] {
        let run = if arguments[0] == "--dp" { "plain" } else { "boxed" };
        let url = format!("s3://bucket/{run}");
        let words =
            [&["train", "--backend", "cpu", "--steps", "4", "--run", run, "--upload", &url], &SHORT[..], arguments];
        machine.stdout(&server, &words.concat());
        let analyzed = |source| machine.stdout(&server, &["analyze", source, "--format", "json"]);
        assert_eq!(analyzed(&url), analyzed(run), "{run}");
    }
}

#[test]
fn files_have_urls_too() {
    let (server, machine) = (Server::start(), Machine::new());
    let url = format!("file://{}/store/mine", machine.0.path().display());
    succeeded(machine.run(&server, &["upload", SAMPLE, &url]));
    let analyzed = |source| machine.stdout(&server, &["analyze", source, "--format", "json"]);
    assert_eq!(analyzed(&url), analyzed(SAMPLE));
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/samples/README.md");
    let said = machine.run(&server, &["analyze", &format!("file://{}", trace.display())]);
    assert_eq!(said.status.code(), Some(2), "what is no run is refused as it is on disk");
}
