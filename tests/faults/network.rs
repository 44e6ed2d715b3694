use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use stepscope_traces::State;

use crate::{
    fault::{Fault, Skip},
    recorded::recorded,
    scene::Scene,
};

pub(crate) fn faults() -> Vec<Fault> {
    vec![
        Fault::new("trainer", "its port is scanned, and talked to in other words", scanned_training),
        Fault::new("open", "few descriptors, and its port is scanned", scanned_page),
    ]
}

/// What strangers say: nothing, garbage, another protocol, a part of ours, and more than anybody reads.
const WORDS: [&[u8]; 5] = [b"", b"\0\xff\xfe", b"GET / HTTP/1.1\r\n\r\n", b"stepscope  3", &[0x55; 100_000]];

/// Connects to a port again and again until told to stop; some stay.
fn scan(port: u16, over: &AtomicBool, connections: &AtomicU64) {
    let mut staying = Vec::new();
    for turn in 0.. {
        if over.load(Relaxed) {
            return;
        }
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        connections.fetch_add(1, Relaxed);
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        drop(stream.write_all(WORDS[turn % WORDS.len()]));
        if turn % 3 == 0 && staying.len() < 100 {
            staying.push(stream);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Does something while a port is scanned; what that says, and how often somebody was let in.
fn while_scanned<T>(port: u16, work: impl FnOnce() -> T) -> (T, u64) {
    let (over, connections) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = thread::scope(|scope| {
        scope.spawn(|| scan(port, &over, &connections));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Relaxed);
        done
    });
    (done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), connections.load(Relaxed))
}

fn scanned_training(scene: &Scene) -> Result<String, Skip> {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let train = "\"$0\" train --backend=cpu --dp=2 --steps=60 --seq-len=16 --micro-batch=1 --micro-batches=1 --run=run";
    let line = format!("(sleep 0.5; RANK=1 exec {train}) & RANK=0 {train}; status=$?; wait; exit $status");
    let mut shell = Command::new("sh");
    shell.args(["-c", &line, env!("CARGO_BIN_EXE_stepscope")]).current_dir(scene.path());
    shell.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    shell.env("WORLD_SIZE", "2").env("STEPSCOPE_SECRET", "what only its ranks know");
    let (ended, connections) = while_scanned(port, || scene.run_to_end(shell));
    assert!(ended.status.success(), "{}", ended.stderr);
    let found = recorded(&scene.run()).unwrap();
    assert_eq!((found.state, found.steps), (State::Complete, 60));
    assert!(connections > 0, "nobody came");
    Ok(format!("status 0; complete, 60 steps; {connections} strangers"))
}

fn scanned_page(scene: &Scene) -> Result<String, Skip> {
    let mut shell = Command::new("sh");
    let line = "ulimit -n 24; exec \"$0\" open \"$1\" --port 0 --no-browser --linger 0";
    shell.args(["-c", line, env!("CARGO_BIN_EXE_stepscope")]).arg(scene.kit.trained()).current_dir(scene.path());
    shell.stdin(Stdio::null());
    let child = scene.start(shell);
    scene.until("it serves", || scene.said("stdout").contains("127.0.0.1:"));
    let link = scene.said("stdout");
    let (_, address) = link.trim().split_once("127.0.0.1:").unwrap();
    let (port, path) = address.split_once('/').unwrap();
    let port: u16 = port.parse().unwrap();
    let fetch = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        let origin = "Origin: https://ui.perfetto.dev";
        write!(stream, "GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{origin}\r\n\r\n").ok()?;
        let mut answer = Vec::new();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.read_to_end(&mut answer).ok()?;
        answer.starts_with(b"HTTP/1.1 200").then_some(answer.len())
    };
    // A new connection takes the place of an old one, so whoever comes again is served.
    let (bytes, connections) = while_scanned(port, || {
        (0..50)
            .find_map(|_| {
                fetch().or_else(|| {
                    thread::sleep(Duration::from_millis(200));
                    None
                })
            })
            .expect("it is never served")
    });
    let ended = scene.end(child);
    assert!(ended.status.success(), "{}", ended.stderr);
    Ok(format!("status 0; the page got its {bytes} bytes among {connections} strangers"))
}
