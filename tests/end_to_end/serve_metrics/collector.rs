//! Takes what is pushed to it, and refuses some of it first.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

pub(super) struct Collector {
    pub(super) port: u16,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Collector {
    /// Answers with these, and the last of them from then on.
    pub(super) fn start(statuses: &'static [u16]) -> Collector {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (bodies, ended) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(AtomicBool::new(false)));
        let (taken, is_over) = (Arc::clone(&bodies), Arc::clone(&ended));
        let thread = thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let status = statuses.get(number).or(statuses.last()).unwrap();
                taken.lock().unwrap().extend(take(stream.unwrap(), *status));
            }
        });
        Collector { port, bodies, ended, thread }
    }

    /// The bodies of all requests.
    pub(super) fn end(self) -> Vec<Vec<u8>> {
        self.ended.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        self.thread.join().unwrap();
        std::mem::take(&mut *self.bodies.lock().unwrap())
    }
}

/// One request for metrics, whole.
fn take(stream: TcpStream, status: u16) -> Option<Vec<u8>> {
    let mut reader = BufReader::new(&stream);
    let head: Vec<String> = reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    assert!(head[0].starts_with("POST /v1/metrics HTTP/1.1"), "{head:?}");
    let header = |name: &str| {
        let lines = head.iter().filter_map(|line| line.split_once(": "));
        lines.filter(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    };
    assert_eq!(header("content-type"), Some("application/json"));
    let mut body = vec![0; header("content-length")?.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let after = if status == 429 { "Retry-After: 1\r\n" } else { "" };
    (&stream)
        .write_all(
            format!("HTTP/1.1 {status} x\r\n{after}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}").as_bytes(),
        )
        .unwrap();
    Some(body)
}
