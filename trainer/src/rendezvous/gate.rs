//! Where others come in: those who know the secret of the job, however many strangers stand before it.

use std::{
    collections::{BTreeSet, VecDeque},
    io::{self, Write},
    net::{IpAddr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;

use super::{
    frame,
    handshake::{self, Mistrust},
    secret::Secret,
    until::Until,
};
use crate::lock::lock;

/// How long a connection may take to say who it is.
pub(super) const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// Connections that have not said yet who they are. The next one takes the place of the one that came first.
const MOST_STRANGERS: usize = 64;
/// The longest first message, in bytes: its sender may be anyone where a job has no secret.
const MOST_OF_A_STRANGER: u32 = 64 << 10;
/// How often to look for new connections.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Lets those in who know the secret, each with its first message.
pub(crate) struct Gate<T> {
    listeners: Vec<TcpListener>,
    secret: Secret,
    purpose: String,
    strangers: Arc<Mutex<Strangers>>,
    enter: Sender<(TcpStream, T)>,
    entered: Receiver<(TcpStream, T)>,
}

#[derive(Default)]
struct Strangers {
    came: u64,
    /// Numbered as they came.
    waiting: VecDeque<(u64, TcpStream)>,
    /// Threads that listen to them, or to those whose place was taken.
    threads: usize,
    /// What was said of those who were turned away: each reason once.
    told: BTreeSet<Mistrust>,
}

impl<T: DeserializeOwned + Send + 'static> Gate<T> {
    /// Opens it. Both sides have to name the same purpose.
    pub(crate) fn open(listeners: Vec<TcpListener>, secret: Secret, purpose: String) -> io::Result<Gate<T>> {
        listeners.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        let (enter, entered) = mpsc::channel();
        Ok(Gate { listeners, secret, purpose, strangers: Arc::default(), enter, entered })
    }

    /// The next one that may come in, if there is one soon.
    pub(crate) fn next(&self) -> Option<(TcpStream, T)> {
        let room = lock(&self.strangers).threads < 2 * MOST_STRANGERS;
        let came = self.listeners.iter().filter(|_| room).filter_map(|listener| listener.accept().ok());
        let came = came.map(|(stream, from)| self.ask(stream, from.ip())).count();
        let patience = if came > 0 { Duration::ZERO } else { LOOK_EVERY };
        self.entered.recv_timeout(patience).ok()
    }

    /// Hears, on a thread of its own, who a connection is from.
    fn ask(&self, stream: TcpStream, from: IpAddr) {
        let Ok(shared) = stream.try_clone() else { return };
        let mut strangers = lock(&self.strangers);
        strangers.came += 1;
        let number = strangers.came;
        if strangers.waiting.len() >= MOST_STRANGERS
            && let Some((_, oldest)) = strangers.waiting.pop_front()
        {
            drop(oldest.shutdown(Shutdown::Both));
        }
        strangers.waiting.push_back((number, shared));
        strangers.threads += 1;
        drop(strangers);
        let place = Place { number, strangers: self.strangers.clone() };
        let (secret, purpose, enter) = (self.secret.clone(), self.purpose.clone(), self.enter.clone());
        let ask = move || match hear(&stream, &secret, &purpose, || place.give_up()) {
            // The gate may be closed by now.
            Ok(message) => drop(enter.send((stream, message))),
            Err(mistrust) => place.turn_away(from, mistrust),
        };
        // Whoever is turned away may try again.
        drop(thread::Builder::new().name("gate".into()).spawn(ask));
    }
}

/// A first message, within bounds of time and size, of whoever knows the secret, which is told as soon as it is so.
fn hear<T: DeserializeOwned>(
    stream: &TcpStream,
    secret: &Secret,
    purpose: &str,
    is_known: impl FnOnce(),
) -> Result<T, Mistrust> {
    let mut until = Until { stream, deadline: Instant::now() + HELLO_WITHIN };
    stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).map_err(|_| Mistrust::Silent)?;
    handshake::welcome(&mut until, secret, purpose)?;
    is_known();
    let message = frame::receive(&mut until, MOST_OF_A_STRANGER).map_err(|_| Mistrust::Foreign)?;
    until.end().map_err(|_| Mistrust::Silent)?;
    Ok(message)
}

/// A stranger's place before the gate.
struct Place {
    number: u64,
    strangers: Arc<Mutex<Strangers>>,
}

impl Place {
    /// Nobody takes the connection's place from now on: it is no stranger.
    fn give_up(&self) {
        lock(&self.strangers).waiting.retain(|(number, _)| *number != self.number);
    }

    /// Says why, the first time that this is the reason.
    fn turn_away(&self, from: IpAddr, mistrust: Mistrust) {
        if lock(&self.strangers).told.insert(mistrust) {
            warn(&format!("a connection from {from} was dropped: {mistrust}"));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_up();
        lock(&self.strangers).threads -= 1;
    }
}

/// Says something that does not end the job. A closed stderr leaves nobody to tell.
pub(super) fn warn(what: &str) {
    drop(writeln!(io::stderr(), "warning: {what}"));
}
