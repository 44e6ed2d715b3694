//! Clients that are no browsers: whatever they do, the server takes little memory and serves the page meanwhile.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::Duration,
};

use super::{Serving, UI};
use crate::binary::text;

/// What the server may have in memory at any moment, its program and libraries included.
const MOST_BYTES: u64 = 48 << 20;

impl Serving {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// A request for the trace, as a browser asks.
    fn request(&self) -> String {
        format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{UI}\r\n", self.path, self.port)
    }

    /// Forgets how much memory it had so far: making the trace takes some, too.
    fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    /// The most memory that it has had since then.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Fetches the trace as a browser does, and looks at what the server has taken.
    fn check(&mut self, during: &str) {
        let path = self.path.clone();
        let (head, body) = self.ask("GET", &path, UI);
        assert!(head.contains(&format!("Content-Length: {}", body.len())) && body.len() > 100_000, "{during}: {head}");
        assert!(self.child.try_wait().unwrap().is_none(), "{during}: it ended");
        let peak = self.peak();
        println!("{during}: {} MB", peak >> 20);
        assert!(peak < MOST_BYTES, "{during}: {peak} bytes");
    }
}

/// Sends bytes again and again until so many are sent or nobody takes them any more; says how many were.
fn flood(stream: &mut TcpStream, bytes: &[u8], most: usize) -> usize {
    let mut sent = 0;
    while sent < most && stream.write_all(bytes).is_ok() {
        sent += bytes.len();
    }
    sent
}

/// The first line of what was answered, if anything was.
fn answered(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // An end that comes as a reset is an end.
    drop(stream.read_to_end(&mut answer));
    text(&answer).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn nobody_can_end_it_or_fill_its_memory() {
    let mut serving = Serving::start(&["--linger", "1000"]);
    serving.forget_peak();
    serving.check("a page");

    let mut long_body = serving.connect();
    long_body.write_all(b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n").unwrap();
    assert!(answered(&mut long_body).contains("403"), "it is refused before any of it is read");
    serving.check("a body of 100 GB");

    let mut chunked = serving.connect();
    chunked.write_all(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    let sent = flood(&mut chunked, &[b"10000\r\n".as_slice(), &[b'x'; 1 << 16], b"\r\n"].concat(), 200 << 20);
    assert!(sent < 200 << 20, "nobody reads a body: {sent}");
    serving.check("chunks without end");

    let mut header = serving.connect();
    header.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
    let sent = flood(&mut header, &[b'x'; 1 << 16], 200 << 20);
    assert!(sent < 200 << 20, "nobody reads a header of 200 MB: {sent}");
    serving.check("a header of 200 MB");

    let mut headers = serving.connect();
    drop(headers.write_all("a: b\r\n".repeat(1000).replacen("a: b", "GET / HTTP/1.1", 1).as_bytes()));
    assert!(answered(&mut headers).contains("431"), "thousands of headers");

    let mut line = serving.connect();
    let sent = flood(&mut line, &[b'A'; 1 << 16], 200 << 20);
    assert!(sent < 200 << 20, "nobody waits for a line to end: {sent}");
    serving.check("a line without end");

    let mut pipelined = serving.connect();
    let request = serving.request();
    let sent = flood(&mut pipelined, request.repeat(100).as_bytes(), 100 << 20);
    assert!(sent < 100 << 20, "one request is answered: {sent}");
    serving.check("requests without end");
}

#[test]
fn nobody_can_keep_the_page_from_being_served() {
    let mut serving = Serving::start(&["--linger", "1000"]);
    serving.forget_peak();
    let saying = |serving: &Serving, said: &str| {
        let mut stream = serving.connect();
        stream.write_all(said.as_bytes()).unwrap();
        stream
    };
    let request = serving.request();
    let mut held: Vec<TcpStream> = (0..20).map(|_| saying(&serving, &request)).collect();
    serving.check("twenty who do not read");
    held.extend((0..100).map(|_| serving.connect()));
    serving.check("a hundred who say nothing");
    held.extend((0..100).map(|_| saying(&serving, &request[..request.len() / 2])));
    serving.check("a hundred who never finish");
    for stream in held.iter().take(50) {
        drop(stream.shutdown(Shutdown::Write));
    }
    // Bytes that trickle in keep nobody's place.
    let trickling = thread::spawn(move || {
        for byte in "X: y\r\n".repeat(20).bytes() {
            held.iter_mut().for_each(|stream| drop(stream.write_all(&[byte])));
            thread::sleep(Duration::from_millis(5));
        }
    });
    serving.check("bytes that trickle");
    trickling.join().unwrap();
    serving.check("afterwards");
}
