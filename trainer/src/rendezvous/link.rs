//! A rank's connection to the hub: what it hears of the others, and they of it.

use std::{
    collections::HashMap,
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use stepscope_traces::{Group, GroupInfo, Rank, SpanKind};

use super::{
    frame,
    gate::HELLO_WITHIN,
    handshake::{self, Mistrust},
    hub::{BEAT_EVERY, LAST_EXCHANGE, PURPOSE},
    listening,
    message::{FromHub, Health, Hello, MOST, Settings, ToHub},
    patience::Patience,
    progress::{Channel, Operation, Progress},
    rank_assignment::RankAssignment,
    secret::Secret,
    until::Until,
    watchdog::blame,
};
use crate::{
    comm::{Reason, Trouble},
    error::TrainError,
    lock::{lock, wait_for},
};

/// How long to wait before trying to reach the hub again.
const RETRY: Duration = Duration::from_millis(50);
/// How long one try may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How much longer than the hub to wait for its verdict on who is missing.
const VERDICT_WITHIN: Duration = Duration::from_secs(5);
/// How long the hub may take to say how everyone is.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// How long it may take until it is heard that a rank is gone.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// How long the hub may take to read the last words.
const GOODBYE_WITHIN: Duration = Duration::from_secs(2);
/// How often to look whether something takes too long, at most.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// A part of an exchange is small.
const MOST_OF_A_BLOB: usize = 16 << 10;

/// A rank's connection to the hub.
pub(crate) struct Link {
    /// Which rank this is.
    pub(crate) rank: Rank,
    /// Why the ranks cannot go on, if they cannot.
    pub(crate) trouble: Trouble,
    /// How far this rank is.
    pub(crate) progress: Progress,
    /// How long to wait for others.
    pub(crate) patience: Patience,
    assignment: RankAssignment,
    groups: HashMap<Group, Vec<Rank>>,
    writer: Mutex<TcpStream>,
    inbox: Mutex<Inbox>,
    changed: Condvar,
}

struct Inbox {
    offers: HashMap<String, Vec<Vec<u8>>>,
    health: Option<Vec<Health>>,
    /// When the hub was last heard of.
    heard: Instant,
    closing: bool,
    /// Nothing more will be heard.
    ended: bool,
}

impl Link {
    /// Joins the others: comes back when all of them are there.
    pub(crate) fn join(
        assignment: &RankAssignment,
        settings: &Settings,
        groups: Vec<GroupInfo>,
        patience: Patience,
    ) -> Result<Arc<Link>, TrainError> {
        let stream = reach(assignment, settings, patience)?;
        let cannot = |error: io::Error| TrainError::NotJoined(format!("cannot talk to rank 0: {error}"));
        let reader = stream.try_clone().map_err(cannot)?;
        let (offers, heard) = (HashMap::new(), Instant::now());
        let link = Arc::new(Link {
            rank: assignment.rank,
            trouble: Trouble::default(),
            progress: Progress::default(),
            patience,
            assignment: assignment.clone(),
            groups: groups.into_iter().map(|group| (group.group, group.ranks)).collect(),
            writer: Mutex::new(stream),
            inbox: Mutex::new(Inbox { offers, health: None, heard, closing: false, ended: false }),
            changed: Condvar::new(),
        });
        let [hearing, living] = [link.clone(), link.clone()];
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.into()).spawn(body).map(drop).map_err(cannot)
        };
        spawn("link", Box::new(move || hearing.hear(&reader)))?;
        spawn("pulse", Box::new(move || living.live()))?;
        Ok(link)
    }

    /// This rank's number on its machine, if the launcher set one.
    pub(crate) fn local_rank(&self) -> Option<u32> {
        self.assignment.local_rank
    }

    /// What only the ranks of the job know.
    pub(crate) fn secret(&self) -> &Secret {
        &self.assignment.secret
    }

    /// Listens for other ranks, and says at which address they may find this one: the one at which the hub knows it. Where
    /// that is known on this machine alone, they may come from anywhere.
    pub(crate) fn listen(&self) -> io::Result<(TcpListener, SocketAddr)> {
        let mut address = lock(&self.writer).local_addr()?;
        address.set_port(0);
        let is_unknown = address.ip().is_loopback() && !listening::is_loopback(&self.assignment.address);
        let listener = if is_unknown { listening::anywhere(0)? } else { TcpListener::bind(address)? };
        address.set_port(listener.local_addr()?.port());
        Ok((listener, address))
    }

    /// Where this rank finds one that says this address. The machine of rank 0 may have talked to itself, and so not know
    /// what others call it.
    pub(crate) fn find(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let stream = lock(&self.writer);
        let (here, hub) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        let unknown = address.ip().is_loopback() && !here.is_loopback();
        Ok(SocketAddr::new(if unknown { hub } else { address.ip() }, address.port()))
    }

    /// Everyone's blob of this name, by rank. All ranks take part in each exchange once, in any order.
    pub(crate) fn exchange(&self, name: &str, blob: Vec<u8>) -> Result<Vec<Vec<u8>>, TrainError> {
        if blob.len() > MOST_OF_A_BLOB {
            return Err(TrainError::NotJoined(format!("{name} is too large to exchange: {} bytes", blob.len())));
        }
        let operation = Operation { channel: Channel::Exchange(name.into()), number: 0, kind: SpanKind::Communication };
        self.progress.during(&operation, || {
            self.say(&ToHub::Offer { name: name.into(), blob });
            self.trouble.wait(&self.inbox, &self.changed, |inbox| inbox.offers.remove(name))
        })
    }

    /// Comes back when every rank has nothing more to do.
    pub(crate) fn part(&self) -> Result<(), TrainError> {
        self.exchange(LAST_EXCHANGE, Vec::new()).map(drop)
    }

    /// Tells everyone that the ranks cannot go on.
    pub(crate) fn tell(&self, reason: Reason) {
        if self.trouble.tell(reason.clone()) {
            // Where it is goes along.
            self.say(&ToHub::Beat(self.progress.report()));
            self.say(&ToHub::Trouble(reason));
        }
        self.changed.notify_all();
    }

    /// Tells everyone that this rank has failed.
    pub(crate) fn fail(&self, error: &TrainError) {
        self.tell(Reason::of(self.rank, error));
    }

    /// Why a device failed: when a rank goes, the devices of others fail with it, and often sooner than it is heard of.
    pub(crate) fn cause_of(&self, error: TrainError) -> TrainError {
        if !matches!(error, TrainError::Device { .. } | TrainError::FailedBefore) {
            return error;
        }
        let heard = |_: &mut Inbox| self.trouble.check().err();
        wait_for(&self.inbox, &self.changed, HEARD_WITHIN, heard).unwrap_or(error)
    }

    /// Tells everyone that this rank will not come to anything again.
    pub(crate) fn leave(&self, why: String) {
        self.tell(Reason::Gone { rank: self.rank, why });
    }

    /// Hangs up, once the hub has read everything.
    pub(crate) fn close(&self) {
        lock(&self.inbox).closing = true;
        self.changed.notify_all();
        drop(lock(&self.writer).shutdown(Shutdown::Write));
        wait_for(&self.inbox, &self.changed, GOODBYE_WITHIN, |inbox| inbox.ended.then_some(()));
        drop(lock(&self.writer).shutdown(Shutdown::Both));
    }

    /// If the hub is gone, the thread that listens to it notices.
    fn say(&self, message: &ToHub) {
        drop(frame::send(&lock(&self.writer), message));
    }

    /// Hears what the hub says, until it says no more.
    fn hear(&self, stream: &TcpStream) {
        let mut reader = io::BufReader::new(stream);
        while let Ok(message) = frame::receive(&mut reader, MOST) {
            let mut inbox = lock(&self.inbox);
            inbox.heard = Instant::now();
            match message {
                FromHub::Offers { name, blobs } => drop(inbox.offers.insert(name, blobs)),
                FromHub::Health(health) => inbox.health = Some(health),
                FromHub::Trouble(reason) => drop(self.trouble.tell(reason)),
                FromHub::Beat | FromHub::Welcome | FromHub::Refused(_) => {}
            }
            drop(inbox);
            self.changed.notify_all();
        }
        let mut inbox = lock(&self.inbox);
        inbox.ended = true;
        if !inbox.closing {
            self.trouble.tell(Reason::Gone { rank: Rank(0), why: "its connection closed".into() });
        }
        drop(inbox);
        self.changed.notify_all();
    }

    /// Says that this rank lives, and watches that nothing takes too long.
    fn live(&self) {
        let mut beat = Instant::now() - BEAT_EVERY;
        let every = WATCH_EVERY.min(self.patience.collective / 4);
        let over = |inbox: &mut Inbox| (inbox.closing || inbox.ended).then_some(());
        loop {
            if beat.elapsed() >= BEAT_EVERY {
                beat = Instant::now();
                self.say(&ToHub::Beat(self.progress.report()));
            }
            if wait_for(&self.inbox, &self.changed, every, over).is_some() || self.trouble.check().is_err() {
                return;
            }
            if lock(&self.inbox).heard.elapsed() > self.patience.silence {
                let why = format!("no answer for {} s", self.patience.silence.as_secs_f64());
                self.tell(Reason::Gone { rank: Rank(0), why });
            }
            if let Some(stuck) = self.progress.stuck(self.patience.collective) {
                self.accuse(&stuck);
            }
        }
    }

    /// Finds out who does not come to an operation, and ends the job.
    fn accuse(&self, stuck: &Operation) {
        lock(&self.inbox).health = None;
        self.say(&ToHub::AskHealth);
        let health = wait_for(&self.inbox, &self.changed, ANSWER_WITHIN, |inbox| inbox.health.take());
        // It may have come meanwhile.
        if self.progress.stuck(self.patience.collective).as_ref() != Some(stuck) {
            return;
        }
        let bound = self.patience.collective;
        let reason = match health {
            Some(health) => blame(self.rank, stuck, &health, &self.groups, bound),
            None => {
                let why = format!("does not answer, and {stuck} has not finished for {} s", bound.as_secs_f64());
                Reason::Late { rank: Rank(0), why }
            }
        };
        self.tell(reason);
    }
}

/// A connection to the hub on which everyone is known to be there.
fn reach(assignment: &RankAssignment, settings: &Settings, patience: Patience) -> Result<TcpStream, TrainError> {
    let RankAssignment { rank, world, address, port, secret, .. } = assignment;
    let hello = Hello { rank: *rank, world: *world, settings: settings.clone() };
    let deadline = Instant::now() + patience.join;
    // Who was there and could not be trusted says more than that nobody is there any more.
    let mut mistrust = None;
    loop {
        let greeted = connect(address, *port).and_then(|stream| {
            introduce(&stream, secret, PURPOSE)?;
            greet(stream, &hello, patience.join + VERDICT_WITHIN)
        });
        let why = match greeted {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(refused)) => return Err(TrainError::NotJoined(refused)),
            Err(error) => error,
        };
        mistrust = mistrust.max(why.get_ref().and_then(|inner| inner.downcast_ref::<Mistrust>()).copied());
        if Instant::now() > deadline {
            let seconds = patience.join.as_secs_f64();
            if mistrust == Some(Mistrust::Secret) {
                return Err(TrainError::OtherSecret { address: address.clone(), port: *port });
            }
            let why = mistrust.map_or_else(|| why.to_string(), |mistrust| mistrust.to_string());
            return Err(TrainError::NotJoined(format!(
                "cannot reach rank 0 of {world} at {address}, port {port}, within {seconds} s: {why}"
            )));
        }
        thread::sleep(RETRY);
    }
}

fn connect(address: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in (address, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Shows whoever listens that this is a rank of the job, once it has shown the same.
pub(crate) fn introduce(stream: &TcpStream, secret: &Secret, purpose: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut until = Until { stream, deadline: Instant::now() + HELLO_WITHIN };
    handshake::introduce(&mut until, secret, purpose)?;
    until.end()
}

/// Says who this is, and waits for everyone: the connection, or why it is refused.
fn greet(stream: TcpStream, hello: &Hello, within: Duration) -> io::Result<Result<TcpStream, String>> {
    stream.set_write_timeout(Some(CONNECT_WITHIN))?;
    frame::send(&stream, hello)?;
    stream.set_read_timeout(Some(within))?;
    match frame::receive(&mut &stream, MOST)? {
        FromHub::Refused(why) => return Ok(Err(why)),
        FromHub::Welcome => {}
        _ => return Err(io::Error::other("it is not stepscope's rank 0")),
    }
    stream.set_read_timeout(None)?;
    Ok(Ok(stream))
}
