//! `stepscope open`, as a browser meets it.

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
        open.args(["open", "single", "--port", "0", "--no-browser"]).args(arguments);
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

const UI: &str = "Origin: https://ui.perfetto.dev\r\n";

#[test]
fn a_trace_is_served_once_to_one_site() {
    let mut serving = Serving::start(&[]);
    let path = serving.path.clone();
    let status = |answer: (String, Vec<u8>)| {
        assert!(answer.1.is_empty(), "nothing is given away");
        answer.0.lines().next().unwrap().to_owned()
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
    assert!(head.contains("200") && head.contains(allowed), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(!Structure::of(&official::packets_of(&body)).slices.is_empty());
    assert!(serving.child.wait().unwrap().success(), "it ends when it has been fetched");
    assert!(TcpStream::connect(("127.0.0.1", serving.port)).is_err(), "and nobody listens any more");
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
