//! Where clients come in.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{Answers, Bounds, Connections};

/// How long nobody is accepted where the system has nothing left for one more.
const PAUSE: Duration = Duration::from_millis(50);

/// A port that is taken, and not yet served.
pub(crate) struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    bounds: Bounds,
}

impl Listener {
    /// Takes a port.
    pub(crate) fn bind(address: SocketAddr, bounds: Bounds) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        Ok(Listener { address: listener.local_addr()?, listener, bounds })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to serve.
    pub(crate) fn start(self, answers: impl Answers) -> io::Result<Serving> {
        let connections = Arc::new(Connections::new(self.bounds.connections));
        let (closed, address) = (Arc::new(AtomicBool::new(false)), self.address);
        let accepting = thread::Builder::new().spawn({
            let (connections, closed) = (Arc::clone(&connections), Arc::clone(&closed));
            move || self.accept(Arc::new(answers), &connections, &closed)
        })?;
        Ok(Serving { connections, closed, address, accepting })
    }

    fn accept(self, answers: Arc<impl Answers>, connections: &Arc<Connections>, closed: &AtomicBool) {
        let bounds = self.bounds;
        while !closed.load(Ordering::Relaxed) {
            let Ok((stream, _)) = self.listener.accept() else {
                thread::sleep(PAUSE);
                continue;
            };
            let answers = Arc::clone(&answers);
            connections.add(stream, move |connection| connection.serve(&*answers, &bounds));
        }
    }
}

/// What is being served.
pub(crate) struct Serving {
    connections: Arc<Connections>,
    closed: Arc<AtomicBool>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Serving {
    /// Who is there.
    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Serves no more.
    pub(crate) fn end(self) {
        self.closed.store(true, Ordering::Relaxed);
        // It waits for somebody to come.
        let here = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        if TcpStream::connect((here, self.address.port())).is_ok() {
            drop(self.accepting.join());
        }
        self.connections.end();
    }
}
