//! Connections between all ranks, and what has come on them.
//!
//! A thread for each connection reads whatever comes, so that writing never waits for what another rank is doing: only
//! for its machine and the network.

use std::{
    collections::HashMap,
    io::{self, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use stepscope_traces::Rank;

use crate::{
    comm::{Reason, terms::Terms, trouble::LOOK_EVERY},
    error::TrainError,
    lock::lock,
    rendezvous::{Channel, Gate, Link, introduce, random_letters, receive, send},
};

/// How long one try to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How often a rank that cannot write looks whether it still has to.
const WRITE_LOOK: Duration = Duration::from_millis(100);
/// How long to wait for a rank's own words after its connection closed.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The longest head of a message, in bytes.
const MOST_OF_A_HEAD: u32 = 4096;
/// The longest body.
const MOST_OF_A_BODY: u64 = 1 << 36;
/// What is taken for a body before any of it is there.
const READ_AHEAD: u64 = 1 << 20;

/// What a message is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) channel: Channel,
    pub(crate) number: u64,
    /// Which message of an operation that takes several.
    pub(crate) round: u8,
    pub(crate) from: Rank,
}

/// What a message brings.
pub(crate) struct Letter {
    pub(crate) terms: Option<Terms>,
    pub(crate) bytes: Vec<u8>,
}

/// What stands before a message's bytes.
#[derive(Serialize, Deserialize)]
enum Head {
    Letter {
        address: Address,
        terms: Option<Terms>,
        length: u64,
    },
    /// That nothing more comes.
    Goodbye,
}

/// How to reach a rank.
#[derive(Clone, Serialize, Deserialize)]
struct Door {
    address: SocketAddr,
    /// Tells ranks from strangers that find the port, also where the job has no secret.
    purpose: String,
}

impl Door {
    /// A connection to the rank.
    fn enter(&self, link: &Link) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&link.find(self.address)?, CONNECT_WITHIN)?;
        introduce(&stream, link.secret(), &self.purpose)?;
        send(&stream, &Knock { rank: link.rank })?;
        Ok(stream)
    }
}

/// The first words on a connection: who it is from.
#[derive(Serialize, Deserialize)]
struct Knock {
    rank: Rank,
}

/// The connections of a rank.
pub(crate) struct Peers {
    post: Arc<PostOffice>,
    streams: Vec<Option<Mutex<TcpStream>>>,
}

struct PostOffice {
    link: Arc<Link>,
    mail: Mutex<HashMap<Address, Letter>>,
    came: Condvar,
}

impl Peers {
    /// Connects every rank with every other.
    pub(crate) fn connect(link: &Arc<Link>) -> Result<Peers, TrainError> {
        let cannot = |error: io::Error| TrainError::NotJoined(format!("cannot connect to the other ranks: {error}"));
        let (listener, address) = link.listen().map_err(cannot)?;
        let door = Door { address, purpose: random_letters()? };
        let gate = Gate::open(vec![listener], link.secret().clone(), door.purpose.clone()).map_err(cannot)?;
        let doors = link.exchange("addresses", serde_json::to_vec(&door).map_err(|error| cannot(error.into()))?)?;
        let mut streams: Vec<Option<TcpStream>> = doors.iter().map(|_| None).collect();
        let (mine, deadline) = (link.rank.0 as usize, Instant::now() + link.patience.join);
        for (rank, door) in doors.iter().enumerate().take(mine) {
            let door: Door = serde_json::from_slice(door).map_err(|error| cannot(error.into()))?;
            streams[rank] = Some(loop {
                link.trouble.check()?;
                match door.enter(link) {
                    Ok(stream) => break stream,
                    Err(error) if Instant::now() > deadline => return Err(cannot(error)),
                    // Strangers may stand before it.
                    Err(_) => thread::sleep(LOOK_EVERY),
                }
            });
        }
        while let Some(missing) = (mine + 1..streams.len()).find(|rank| streams[*rank].is_none()) {
            link.trouble.check()?;
            if Instant::now() > deadline {
                let seconds = link.patience.join.as_secs_f64();
                let why = format!("rank {missing} did not connect to rank {mine} within {seconds} s");
                return Err(TrainError::NotJoined(why));
            }
            let Some((stream, Knock { rank })) = gate.next() else { continue };
            // A rank connects once, to those before it.
            if let Some(place @ None) = streams.get_mut(rank.0 as usize).filter(|_| rank > link.rank) {
                *place = Some(stream);
            }
        }
        Peers::start(link, streams).map_err(cannot)
    }

    fn start(link: &Arc<Link>, streams: Vec<Option<TcpStream>>) -> io::Result<Peers> {
        let post = Arc::new(PostOffice { link: link.clone(), mail: Mutex::default(), came: Condvar::new() });
        for (rank, stream) in streams.iter().enumerate() {
            let Some(stream) = stream else { continue };
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(WRITE_LOOK))?;
            let (post, reader, from) = (post.clone(), stream.try_clone()?, Rank(rank as u32));
            let thread = thread::Builder::new().name(format!("from rank {rank}"));
            // It ends when the other rank does.
            drop(thread.spawn(move || post.listen(from, &reader))?);
        }
        Ok(Peers { post, streams: streams.into_iter().map(|stream| stream.map(Mutex::new)).collect() })
    }

    pub(crate) fn rank(&self) -> Rank {
        self.post.link.rank
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.post.link
    }

    /// Sends a message.
    pub(crate) fn post(&self, to: Rank, address: &Address, letter: &Letter) -> Result<(), TrainError> {
        let length = letter.bytes.len() as u64;
        let head = Head::Letter { address: address.clone(), terms: letter.terms.clone(), length };
        let Some(stream) = self.streams.get(to.0 as usize).and_then(Option::as_ref) else {
            return Err(TrainError::NotJoined(format!("there is no connection to rank {to}")));
        };
        self.write(&lock(stream), to, &head, &letter.bytes)
    }

    fn write(&self, stream: &TcpStream, to: Rank, head: &Head, body: &[u8]) -> Result<(), TrainError> {
        let trouble = &self.post.link.trouble;
        let head = serde_json::to_vec(head).map_err(|error| TrainError::Disagreement(error.to_string()))?;
        let length = (head.len() as u32).to_le_bytes();
        let beginning = [&length[..], &head].concat();
        for mut left in [&beginning[..], body] {
            while !left.is_empty() {
                match { stream }.write(left) {
                    Ok(0) => return Err(self.post.lost(to)),
                    Ok(written) => left = &left[written..],
                    Err(error) if is_later(&error) => trouble.check()?,
                    Err(_) => return Err(self.post.lost(to)),
                }
            }
        }
        Ok(())
    }

    /// Waits for a message.
    pub(crate) fn collect(&self, address: &Address) -> Result<Letter, TrainError> {
        self.post.link.trouble.wait(&self.post.mail, &self.post.came, |mail| mail.remove(address))
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let may_go = self.post.link.trouble.check().is_ok();
        for (rank, stream) in self.streams.iter().enumerate() {
            let Some(stream) = stream.as_ref().map(lock) else { continue };
            if may_go {
                // A rank that is gone needs no goodbye.
                drop(self.write(&stream, Rank(rank as u32), &Head::Goodbye, &[]));
                drop(stream.shutdown(Shutdown::Write));
            } else {
                drop(stream.shutdown(Shutdown::Both));
            }
        }
    }
}

impl PostOffice {
    /// Reads what a rank sends, until it says goodbye or is gone.
    fn listen(&self, from: Rank, stream: &TcpStream) {
        let mut reader = BufReader::with_capacity(1 << 16, stream);
        loop {
            match receive(&mut reader, MOST_OF_A_HEAD) {
                Ok(Head::Letter { address, terms, length }) if address.from == from && length <= MOST_OF_A_BODY => {
                    let mut bytes = Vec::with_capacity(length.min(READ_AHEAD) as usize);
                    match reader.by_ref().take(length).read_to_end(&mut bytes) {
                        Ok(read) if read as u64 == length => {}
                        _ => break,
                    }
                    lock(&self.mail).insert(address, Letter { terms, bytes });
                    self.came.notify_all();
                }
                Ok(Head::Goodbye) => return,
                _ => break,
            }
        }
        drop(self.lost(from));
        self.came.notify_all();
    }

    /// A connection closed. Why is known best to the rank itself, which may just have said it.
    fn lost(&self, rank: Rank) -> TrainError {
        let deadline = Instant::now() + LAST_WORDS;
        while Instant::now() < deadline {
            if let Err(error) = self.link.trouble.check() {
                return error;
            }
            thread::sleep(LOOK_EVERY);
        }
        let reason = Reason::Gone { rank, why: "its connection closed".into() };
        self.link.tell(reason.clone());
        self.link.trouble.check().err().unwrap_or_else(|| reason.into())
    }
}

fn is_later(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
