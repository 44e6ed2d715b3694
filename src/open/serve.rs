//! Serves one file to one site, on this machine only.
//!
//! Anybody on this machine can connect, and every page that its browsers show: what clients may take is bounded
//! (`crate::http`).

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};

use super::{
    answer::{Address, Trace},
    site::Site,
};
use crate::http::{Bounds, Connections, GOODBYE, Listener};

/// How often it is looked at whether it is time to end.
const OFTEN: Duration = Duration::from_millis(100);

/// Serves one file.
pub(super) struct Server {
    listener: Listener,
    address: Address,
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All of the file was fetched, and after that nobody came for a while.
    Fetched,
    /// Somebody asked to.
    Stopped {
        /// Whether all of the file had been fetched before that.
        was_fetched: bool,
    },
}

impl Server {
    /// Takes a port of this machine, for a trace of this name.
    pub(super) fn bind(port: u16, name: &str, site: Site) -> Result<Server> {
        Server::within(Bounds::USUAL, port, name, site)
    }

    fn within(bounds: Bounds, port: u16, name: &str, site: Site) -> Result<Server> {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), bounds).map_err(|error| {
            anyhow!("cannot serve on port {port}: {error}; stop what uses it, such as another `stepscope open` or trace_processor")
        })?;
        let address = Address::new(listener.address().port(), name, site);
        Ok(Server { listener, address })
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port
    }

    /// What shows the trace when it is opened.
    pub(super) fn link(&self) -> String {
        self.address.link()
    }

    /// Serves the file until all of it has been fetched and nobody has come for it again for a while, or until it is
    /// stopped. Whoever goes away before the end may come again.
    pub(super) fn serve(self, file: File, linger: Duration, stopped: &AtomicBool) -> Result<Ended> {
        let Server { listener, address } = self;
        let serving = listener.start(Trace { address, file: Arc::new(file) }).context("cannot serve")?;
        let ended = wait(serving.connections(), linger, stopped);
        serving.end();
        Ok(ended)
    }
}

/// Waits until it is time to end. Clients that were sent nothing of the file are not waited for.
fn wait(connections: &Connections, linger: Duration, stopped: &AtomicBool) -> Ended {
    loop {
        if stopped.load(Ordering::Relaxed) {
            // Whoever has just taken the last of it is about to say so.
            let asked = Instant::now();
            while connections.are_leaving() && asked.elapsed() < GOODBYE {
                thread::sleep(OFTEN / 10);
            }
            return Ended::Stopped { was_fetched: connections.fetched().is_some() };
        }
        if !connections.are_busy() && connections.fetched().is_some_and(|fetched| fetched.elapsed() >= linger) {
            return Ended::Fetched;
        }
        thread::sleep(OFTEN);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
        thread::JoinHandle,
    };

    use super::*;

    /// Small bounds, so that a test need not wait for them.
    const SMALL: Bounds = Bounds {
        connections: 3,
        head_bytes: 4 << 10,
        head_time: Duration::from_millis(400),
        stalled: Duration::from_millis(400),
    };
    /// More than the system takes off our hands.
    const LENGTH: usize = 32 << 20;

    struct Served {
        port: u16,
        request: String,
        stopped: Arc<AtomicBool>,
        serving: JoinHandle<Ended>,
    }

    impl Served {
        fn start() -> Served {
            let site = Site::parse("https://ui.perfetto.dev").unwrap();
            let server = Server::within(SMALL, 0, "run", site).unwrap();
            let (port, link) = (server.port(), server.link());
            let path = link.split_once(&format!("127.0.0.1:{port}")).unwrap().1;
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: https://ui.perfetto.dev\r\n\r\n");
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&vec![7; LENGTH]).unwrap();
            let stopped = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&stopped);
            let serving = thread::spawn(move || server.serve(file, Duration::from_secs(1000), &flag).unwrap());
            Served { port, request, stopped, serving }
        }

        fn connect(&self) -> TcpStream {
            TcpStream::connect(("127.0.0.1", self.port)).unwrap()
        }

        fn ask(&self) -> TcpStream {
            let mut stream = self.connect();
            stream.write_all(self.request.as_bytes()).unwrap();
            stream
        }

        /// Fetches the file; its length.
        fn fetch(&self) -> usize {
            let mut answer = Vec::new();
            self.ask().read_to_end(&mut answer).unwrap();
            answer.iter().filter(|byte| **byte == 7).count()
        }

        fn stop(self) -> Ended {
            self.stopped.store(true, Ordering::Relaxed);
            self.serving.join().unwrap()
        }
    }

    /// Longer than a machine that is busy with something else needs for anything here.
    const NEVER: Duration = Duration::from_secs(60);

    /// Waits until the other side has closed a connection, and takes nothing of what is on its way.
    fn until_closed(stream: &TcpStream) {
        const ESTABLISHED: &str = "01";
        // Behind what is on its way the client does not hear of it: the server's side of the connection tells.
        let [server, client] = [stream.peer_addr(), stream.local_addr()]
            .map(|address| format!("0100007F:{:04X}", address.unwrap().port()));
        let began = Instant::now();
        let is_open = || {
            let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let mut states = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            states.any(|cells| cells.get(1..4) == Some(&[server.as_str(), client.as_str(), ESTABLISHED]))
        };
        while is_open() {
            assert!(began.elapsed() < NEVER, "it was never dropped");
            thread::sleep(OFTEN / 10);
        }
    }

    /// How long it takes until nothing more comes, and how much came.
    fn until_end(mut stream: TcpStream) -> (Duration, usize) {
        let (began, mut rest) = (Instant::now(), Vec::new());
        drop(stream.read_to_end(&mut rest));
        (began.elapsed(), rest.len())
    }

    #[test]
    fn whoever_says_nothing_is_dropped() {
        let served = Served::start();
        let silent = served.connect();
        let mut slow = served.connect();
        for byte in b"GET / HTTP" {
            // The server may be gone before the last one.
            drop(slow.write_all(&[*byte]));
            thread::sleep(SMALL.head_time / 8);
        }
        for stream in [silent, slow] {
            let (time, said) = until_end(stream);
            assert!(time < NEVER && said == 0, "{time:?} {said}");
        }
        assert_eq!(served.fetch(), LENGTH);
        assert_eq!(served.stop(), Ended::Stopped { was_fetched: true });
    }

    #[test]
    fn whoever_takes_nothing_is_dropped_and_has_not_fetched_it() {
        let served = Served::start();
        let idle = served.ask();
        until_closed(&idle);
        assert!(until_end(idle).1 < LENGTH, "the rest is not sent any more");
        assert_eq!(served.stop(), Ended::Stopped { was_fetched: false });
    }

    #[test]
    fn there_is_always_room_for_one_more() {
        let served = Served::start();
        let silent: Vec<TcpStream> = (0..20).map(|_| served.connect()).collect();
        assert_eq!(served.fetch(), LENGTH, "others say nothing");
        let idle: Vec<TcpStream> = (0..20).map(|_| served.ask()).collect();
        assert_eq!(served.fetch(), LENGTH, "others take nothing");
        drop((silent, idle));
        assert_eq!(served.stop(), Ended::Stopped { was_fetched: true });
    }

    #[test]
    fn whoever_goes_away_early_has_not_fetched_it() {
        let served = Served::start();
        let mut stream = served.ask();
        stream.read_exact(&mut [0; 1000]).unwrap();
        drop(stream);
        assert_eq!(served.stop(), Ended::Stopped { was_fetched: false });
    }
}
