//! `stepscope open`, as a browser meets it.

mod attacks;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Stdio},
};

use super::{SAMPLES, official, structure::Structure};
use crate::binary::{command, text};

/// A command that serves, and where it does.
struct Serving {
    child: Child,
    port: u16,
    path: String,
}

impl Serving {
    fn start(arguments: &[&str]) -> Serving {
        let mut open = command(Path::new(SAMPLES));
        let linger = if arguments.contains(&"--linger") { [].as_slice() } else { &["--linger", "1"] };
        open.args(["open", "single", "--port", "0", "--no-browser"]).args(linger).args(arguments);
        let mut child = open.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut link = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut link).unwrap();
        let (_, address) = link.trim().split_once("/#!/?url=http://127.0.0.1:").unwrap_or_else(|| panic!("{link}"));
        let (port, path) = address.split_once('/').unwrap();
        Serving { child, port: port.parse().unwrap(), path: format!("/{path}") }
    }

    /// The head and the body of an answer.
    fn ask(&self, method: &str, path: &str, headers: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let host = if headers.contains("Host:") { "" } else { &format!("Host: 127.0.0.1:{}\r\n", self.port) };
        write!(stream, "{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        (text(&answer[..end]), answer[end + 4..].to_vec())
    }
}

/// A command that still runs when a test fails is nobody's any more.
impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Serving {
    /// What it said to people, when it has ended.
    fn said(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

const UI: &str = "Origin: https://ui.perfetto.dev\r\n";

#[test]
fn a_trace_is_served_to_one_site_until_it_was_fetched() {
    let mut serving = Serving::start(&["--linger", "5"]);
    let path = serving.path.clone();
    let status = |(head, body): (String, Vec<u8>)| {
        assert!(body.len() < 100 && text(&body).ends_with('\n'), "it says why, and gives nothing away");
        assert!(!head.contains("Access-Control-Allow-Origin"), "{head}");
        head.lines().next().unwrap().to_owned()
    };
    for (method, path, headers, refused) in [
        ("GET", path.as_str(), "", "403"),
        ("GET", &path, "Origin: https://example.com\r\n", "403"),
        ("GET", &path, "Origin: https://ui.perfetto.dev.example.com\r\n", "403"),
        ("GET", &path, &format!("Host: rebound.example.com:{}\r\n{UI}", serving.port), "403"),
        ("GET", "/", UI, "404"),
        ("GET", "/../../etc/passwd", UI, "404"),
        ("POST", &path, UI, "405"),
    ] {
        let status = status(serving.ask(method, path, headers));
        assert!(status.contains(refused), "{method} {path} {headers}: {status}");
    }
    let (head, body) = serving.ask("OPTIONS", &path, UI);
    let allowed = "Access-Control-Allow-Origin: https://ui.perfetto.dev";
    assert!(head.contains("204") && head.contains(allowed) && body.is_empty(), "{head}");
    let (head, body) = serving.ask("HEAD", &path, UI);
    assert!(head.contains("200") && body.is_empty(), "{head}");
    assert!(serving.child.try_wait().unwrap().is_none(), "nobody has fetched it yet");

    let (head, body) = serving.ask("GET", &path, UI);
    assert!(serving.ask("GET", &path, UI).1 == body, "a page may be loaded again");
    assert!(head.contains("200") && head.contains(allowed), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(!Structure::of(&official::packets_of(&body)).slices.is_empty());
    assert!(serving.child.wait().unwrap().success(), "it ends when it has been fetched");
    assert!(serving.said().ends_with("fetched   the whole trace; the page keeps it\n"));
    assert!(TcpStream::connect(("127.0.0.1", serving.port)).is_err(), "and nobody listens any more");
}

#[test]
fn a_fetch_that_breaks_off_is_none() {
    let mut serving = Serving::start(&[]);
    for bytes in [0, 1, 10_000] {
        let mut stream = TcpStream::connect(("127.0.0.1", serving.port)).unwrap();
        let (port, path) = (serving.port, &serving.path);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{UI}\r\n").unwrap();
        stream.read_exact(&mut vec![0; bytes]).unwrap();
    }
    // One that reads nothing and stays is in nobody's way.
    let mut idle = TcpStream::connect(("127.0.0.1", serving.port)).unwrap();
    let (port, path) = (serving.port, serving.path.clone());
    write!(idle, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{UI}\r\n").unwrap();
    let (head, body) = serving.ask("GET", &path, UI);
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    drop(idle);
    assert!(serving.child.wait().unwrap().success());
}

#[test]
fn ctrl_c_ends_it_with_a_word() {
    let mut serving = Serving::start(&["--linger", "1000"]);
    let stop = |serving: &mut Serving| {
        let id = nix::unistd::Pid::from_raw(serving.child.id() as i32);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
        assert!(serving.child.wait().unwrap().success());
        serving.said()
    };
    let said = stop(&mut serving);
    assert!(said.ends_with("stopped   before the whole trace was fetched\n"), "{said}");
    let mut serving = Serving::start(&["--linger", "1000"]);
    let path = serving.path.clone();
    serving.ask("GET", &path, UI);
    let said = stop(&mut serving);
    assert!(said.ends_with("stopped   after the whole trace was fetched; the page keeps it\n"), "{said}");
}

#[test]
fn only_this_machine_is_served_and_others_may_have_their_own_ui() {
    let mut serving = Serving::start(&["--ui", "http://localhost:10000", "--steps", "2"]);
    let addresses = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let listening = format!(":{:04X} 00000000:0000 0A", serving.port);
    let local: Vec<&str> = addresses.lines().filter(|line| line.contains(&listening)).collect();
    assert!(local.len() == 1 && local[0].contains("0100007F"), "{local:?}");
    let path = serving.path.clone();
    assert!(serving.ask("GET", &path, UI).0.contains("403"));
    let (head, body) = serving.ask("GET", &path, "Origin: http://localhost:10000\r\n");
    assert!(head.contains("Access-Control-Allow-Origin: http://localhost:10000") && !body.is_empty(), "{head}");
    assert!(serving.child.wait().unwrap().success());
}

#[test]
fn a_port_that_is_taken_is_told_before_any_work() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = command(Path::new(SAMPLES)).args(["open", "single", "--port", &port]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(&format!("port {port}")), "{}", text(&output.stderr));
}
