//! The dashboard, one frame at a time.

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    pty::{OpenptyResult, Winsize, openpty},
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tempfile::TempDir;

use crate::binary::{command, failure, stepscope, text};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples");

fn frame(arguments: &[&str], directory: &Path) -> String {
    let output = stepscope(&[&["live", "--once"], arguments].concat(), directory);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_frame_is_as_large_as_asked_and_has_no_colours_in_a_file() {
    let overview = frame(&["dp2-bucketed", "--size", "100x30"], Path::new(SAMPLES));
    assert_eq!(overview.lines().count(), 30);
    assert!(overview.lines().all(|line| line.chars().count() <= 100), "{overview}");
    assert!(!overview.contains('\u{1b}'), "{overview}");
    for word in ["complete", "2 ranks", "compute", "exposed comm", "tokens/s", "MFU", "Findings"] {
        assert!(overview.contains(word), "{word} is not in\n{overview}");
    }
    let memory = frame(&["dp2-bucketed", "--view", "memory"], Path::new(SAMPLES));
    assert_eq!(memory.lines().count(), 40);
    for word in ["optimizer state", "predicted", "peak", "Largest blocks"] {
        assert!(memory.contains(word), "{word} is not in\n{memory}");
    }
}

#[test]
fn a_frame_has_the_figures_of_the_report() {
    let report = text(&stepscope(&["analyze", "single"], Path::new(SAMPLES)).stdout);
    let median = report.lines().find(|line| line.starts_with("step ")).unwrap();
    let median: Vec<&str> = median.split_whitespace().skip(1).take(2).collect();
    assert!(frame(&["single"], Path::new(SAMPLES)).contains(&median.join(" ")));
}

#[test]
fn what_cannot_be_shown_is_said() {
    let empty = TempDir::new().unwrap();
    let said = failure(&["live", "--once"], empty.path());
    assert!(said.contains("cannot find a run under runs/") && said.contains("hint: "), "{said}");
    let said = failure(&["live", "."], empty.path());
    assert!(said.contains("needs a terminal") && said.contains("--once"), "{said}");
    let said = failure(&["train", "--live"], empty.path());
    assert!(said.contains("needs a terminal"), "{said}");
    assert!(!empty.path().join("runs").exists());
    let output = stepscope(&["live", "--once", "--size", "0x7"], empty.path());
    assert_eq!(output.status.code(), Some(2));
}

/// A dashboard on a terminal of its own, and what it has drawn last.
fn opened() -> (Child, File) {
    let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
    // It would hold its own terminal open.
    fcntl(&master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    let mut live = command(Path::new(SAMPLES));
    live.args(["live", "single"]).stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
    let live = live.spawn().unwrap();
    // It is up when it has drawn something.
    let mut terminal = File::from(master);
    read_until(&mut terminal, "complete");
    (live, terminal)
}

/// Reads what is drawn until there is something in it.
fn read_until(terminal: &mut File, words: &str) {
    let mut drawn = Vec::new();
    while !String::from_utf8_lossy(&drawn).contains(words) {
        let mut part = [0; 4096];
        let bytes = terminal.read(&mut part).unwrap();
        drawn.extend(&part[..bytes]);
    }
}

const LEFT_SCREEN: &str = "\u{1b}[?1049l";

#[test]
fn a_dashboard_stops_and_goes_on() {
    let (mut live, mut terminal) = opened();
    terminal.write_all(b"\x1a").unwrap();
    read_until(&mut terminal, LEFT_SCREEN);
    let pid = Pid::from_raw(live.id().cast_signed());
    let is_stopped = || matches!(waitpid(pid, Some(WaitPidFlag::WUNTRACED)), Ok(WaitStatus::Stopped(..)));
    assert!(is_stopped());
    kill(pid, Signal::SIGCONT).unwrap();
    read_until(&mut terminal, "complete");
    terminal.write_all(b"q").unwrap();
    read_until(&mut terminal, LEFT_SCREEN);
    assert!(live.wait().unwrap().success());
}

#[test]
fn a_dashboard_whose_terminal_is_gone_ends() {
    let (mut live, terminal) = opened();
    drop(terminal);
    let begin = Instant::now();
    let ended = loop {
        match live.try_wait().unwrap() {
            None if begin.elapsed() < Duration::from_secs(30) => thread::sleep(Duration::from_millis(50)),
            ended => break ended,
        }
    };
    if ended.is_none() {
        live.kill().unwrap();
    }
    assert!(ended.is_some(), "it still waits for keys");
}
