//! Jobs that end while their runs are uploaded.

use std::{
    net::TcpListener,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{KEY, Machine, SECRET, SHORT, Server, URL, server::set_up};
use crate::binary::{command, text};

#[test]
fn a_store_that_never_answers_is_left_after_a_while() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let machine = Machine::new();
    let mut training = command(machine.0.path());
    training.args(["train", "--backend", "cpu", "--steps", "2", "--run", "run", "--upload", URL]).args(SHORT);
    set_up(&mut training, &format!("http://{}", silent.local_addr().unwrap()), KEY, SECRET);
    let began = Instant::now();
    let output = training.output().unwrap();
    assert!(output.status.success() && began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let said = text(&output.stderr);
    assert!(said.contains("no answer in time") && said.contains("upload run s3://bucket/runs/mine"), "{said}");
}

#[test]
fn what_a_signal_ends_is_uploaded_first() {
    for processes in [&[][..], &["--dp", "2", "--processes"]] {
        let (server, machine) = (Server::start(), Machine::new());
        let words = ["train", "--backend", "cpu", "--steps", "1000000", "--run", "run", "--upload", URL];
        let mut training = machine.command(&server, &words);
        // Nothing is sent after the beginning and before the end.
        training.args(SHORT).args(["--upload-every", "10m"]).args(processes);
        let mut training = training.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let spans = || machine.0.path().join("run/rank-00000/spans.arrows").metadata().map_or(0, |file| file.len());
        let began = Instant::now();
        while spans() < 20_000 {
            assert!(began.elapsed() < Duration::from_secs(60) && training.try_wait().unwrap().is_none());
            thread::sleep(Duration::from_millis(50));
        }
        let uploaded = || server.state().objects.get("runs/mine/rank-00000/spans.arrows").map_or(0, Vec::len) as u64;
        let before = (spans(), uploaded());
        assert!(before.1 < before.0);
        assert!(Command::new("kill").arg(training.id().to_string()).status().unwrap().success());
        let output = training.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && uploaded() >= before.0, "{before:?} {} {said}", uploaded());
        // Rank 0 may hear first that another rank is gone.
        assert!(said.contains("SIGTERM: the rest is uploaded") || !processes.is_empty(), "{said}");
        assert!(said.contains("uploaded  s3://bucket"), "{said}");
    }
}
