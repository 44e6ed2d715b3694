//! Where ranks meet: rank 0 listens, hears of everyone, and tells everyone what all have to know.

use std::{
    collections::HashMap,
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use stepscope_traces::Rank;

use super::{
    frame,
    message::{FromHub, Health, Hello, MOST, MOST_OF_A_STRANGER, PROTOCOL, Settings, ToHub, differences},
    patience::Patience,
    progress::Report,
    rank_assignment::RankAssignment,
};
use crate::{
    comm::Reason,
    error::TrainError,
    lock::{lock, wait_for},
};

/// How often every rank says that it lives, and the hub that it does.
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// The exchange after which ranks may go.
pub(crate) const LAST_EXCHANGE: &str = "goodbyes";

/// How often the hub checks for joining ranks.
const ACCEPT_EVERY: Duration = Duration::from_millis(10);
/// How long a connection may take to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// Connections that have not said yet who they are; more are dropped.
const MOST_STRANGERS: usize = 64;
/// A rank that takes no words for so long is as good as gone.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// How long the hub stays for those who have not read the last words.
const LINGER: Duration = Duration::from_secs(3);

/// Rank 0's hub, with its threads.
pub(crate) struct Hub {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    world: u32,
    settings: Settings,
    patience: Patience,
    strangers: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    members: Vec<Option<Member>>,
    offers: HashMap<String, Vec<Option<Vec<u8>>>>,
    phase: Phase,
}

#[derive(PartialEq, Eq)]
enum Phase {
    Joining,
    /// There will be no job, and why: for those who come later.
    Refused(String),
    Together,
    /// Ranks may leave now.
    Over,
}

struct Member {
    stream: TcpStream,
    heard: Instant,
    report: Report,
    is_here: bool,
}

impl Hub {
    /// Listens where the place says.
    pub(crate) fn start(
        assignment: &RankAssignment,
        settings: &Settings,
        patience: Patience,
    ) -> Result<Hub, TrainError> {
        let RankAssignment { address, port, world, .. } = assignment;
        let cannot = |error: io::Error| {
            TrainError::NotJoined(format!("rank 0 cannot listen at {address}, port {port}: {error}"))
        };
        let listener = assignment.listen(*port).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let state =
            State { members: (0..*world).map(|_| None).collect(), offers: HashMap::new(), phase: Phase::Joining };
        let shared = Arc::new(Shared {
            world: *world,
            settings: settings.clone(),
            patience,
            strangers: AtomicUsize::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mut threads = Vec::new();
        let [joining, watching] = [shared.clone(), shared.clone()];
        threads.push(spawn("hub join", move || joining.join(&listener)).map_err(cannot)?);
        threads.push(spawn("hub watch", move || watching.watch()).map_err(cannot)?);
        Ok(Hub { shared, threads })
    }

    /// Ends, once everyone has heard the last words or had the time to.
    pub(crate) fn close(self) {
        let is_over = |state: &mut State| {
            state.phase = Phase::Over;
            state.members.iter().flatten().all(|member| !member.is_here).then_some(())
        };
        wait_for(&self.shared.state, &self.shared.changed, LINGER, is_over);
        for member in lock(&self.shared.state).members.iter().flatten() {
            drop(member.stream.shutdown(Shutdown::Both));
        }
        self.shared.changed.notify_all();
        for thread in self.threads {
            drop(thread.join());
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(body)
}

impl Shared {
    /// Takes connections until everyone is here, or it is over.
    fn join(self: &Arc<Shared>, listener: &TcpListener) {
        let deadline = Instant::now() + self.patience.join;
        while matches!(lock(&self.state).phase, Phase::Joining | Phase::Refused(_)) {
            if Instant::now() > deadline {
                self.refuse_all(&self.missing());
            }
            match listener.accept() {
                Ok((stream, _)) => self.welcome_stranger(stream),
                Err(_) => thread::sleep(ACCEPT_EVERY),
            }
        }
    }

    /// Hears, on a thread of its own, who a connection is from.
    fn welcome_stranger(self: &Arc<Shared>, stream: TcpStream) {
        if self.strangers.fetch_add(1, Ordering::Relaxed) >= MOST_STRANGERS {
            self.strangers.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let shared = self.clone();
        let thread = spawn("hub member", move || {
            let hello = hear_hello(&stream);
            shared.strangers.fetch_sub(1, Ordering::Relaxed);
            // Whoever says anything else is no rank.
            if let Ok(hello) = hello
                && let Some(rank) = shared.admit(&hello, &stream)
            {
                shared.listen(rank, &stream);
            }
        });
        if thread.is_err() {
            self.strangers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes a rank in, or says to everyone why not.
    fn admit(&self, hello: &Hello, stream: &TcpStream) -> Option<Rank> {
        let Hello { protocol, rank, world, settings } = hello;
        let mut state = lock(&self.state);
        let slot = state.members.get(rank.0 as usize);
        let why = if let Phase::Refused(why) = &state.phase {
            Some(why.clone())
        } else if *protocol != PROTOCOL {
            Some(format!("rank {rank} uses protocol version {protocol}, but rank 0 uses {PROTOCOL}"))
        } else if *world != self.world || slot.is_none() {
            Some(format!("rank {rank} of {world} does not belong to a job of {}", self.world))
        } else if slot.is_some_and(Option::is_some) {
            Some(format!("two processes claim to be rank {rank}"))
        } else {
            differences(*rank, settings, &self.settings)
        };
        if let Some(why) = why {
            drop(state);
            drop(frame::send(stream, &FromHub::Refused(why.clone())));
            self.refuse_all(&why);
            return None;
        }
        let writer = stream.try_clone().ok()?;
        let member = Member { stream: writer, heard: Instant::now(), report: Report::default(), is_here: true };
        state.members[rank.0 as usize] = Some(member);
        if state.phase == Phase::Joining && state.members.iter().all(Option::is_some) {
            state.phase = Phase::Together;
            // Until now they had nothing to say.
            state.members.iter_mut().flatten().for_each(|member| member.heard = Instant::now());
            state.tell(&FromHub::Welcome);
        }
        Some(*rank)
    }

    /// Who is not here.
    fn missing(&self) -> String {
        let state = lock(&self.state);
        let missing = state.members.iter().enumerate().filter(|(_, member)| member.is_none());
        let missing: Vec<String> = missing.map(|(rank, _)| rank.to_string()).collect();
        let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
        let seconds = self.patience.join.as_secs_f64();
        format!("{ranks} {} of {} did not join within {seconds} s", missing.join(", "), self.world)
    }

    /// There will be no job.
    fn refuse_all(&self, why: &str) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Joining {
            state.phase = Phase::Refused(why.to_owned());
            state.tell(&FromHub::Refused(why.to_owned()));
        }
    }

    /// Hears what a rank says, until it says no more.
    fn listen(&self, rank: Rank, stream: &TcpStream) {
        let mut reader = io::BufReader::new(stream);
        while let Ok(message) = frame::receive(&mut reader, MOST) {
            self.hear(rank, message);
        }
        // So that it knows that everything it said was read.
        drop(stream.shutdown(Shutdown::Both));
        let mut state = lock(&self.state);
        let report = state.members[rank.0 as usize].as_mut().map(|member| {
            member.is_here = false;
            member.report.clone()
        });
        let joining = state.phase == Phase::Joining;
        state.lose(rank, with_whereabouts("its connection closed", &report.unwrap_or_default()));
        drop(state);
        if joining {
            self.refuse_all(&format!("rank {rank} is gone: it left before all ranks had joined"));
        }
        self.changed.notify_all();
    }

    fn hear(&self, rank: Rank, message: ToHub) {
        let mut state = lock(&self.state);
        if let Some(member) = &mut state.members[rank.0 as usize] {
            member.heard = Instant::now();
        }
        match message {
            ToHub::Beat(report) => {
                if let Some(member) = &mut state.members[rank.0 as usize] {
                    member.report = report;
                }
            }
            ToHub::AskHealth => {
                let health = state.members.iter().map(|member| member.as_ref().map_or_else(Health::default, health));
                let answer = FromHub::Health(health.collect());
                state.tell_one(rank, &answer);
            }
            ToHub::Trouble(reason) => state.trouble(reason),
            ToHub::Offer { name, blob } => {
                let world = self.world as usize;
                let offers = state.offers.entry(name.clone()).or_insert_with(|| vec![None; world]);
                offers[rank.0 as usize] = Some(blob);
                if let Some(blobs) = offers.iter().cloned().collect::<Option<Vec<_>>>() {
                    state.offers.remove(&name);
                    if name == LAST_EXCHANGE {
                        state.phase = Phase::Over;
                    }
                    state.tell(&FromHub::Offers { name, blobs });
                }
            }
        }
    }

    /// Says that the hub lives, and notices who no longer does.
    fn watch(&self) {
        loop {
            let ended = |state: &mut State| {
                let left = state.members.iter().flatten().all(|member| !member.is_here);
                (state.phase == Phase::Over && left).then_some(())
            };
            if wait_for(&self.state, &self.changed, BEAT_EVERY, ended).is_some() {
                return;
            }
            let mut state = lock(&self.state);
            if state.phase != Phase::Together {
                continue;
            }
            state.tell(&FromHub::Beat);
            let silent = |member: &Member| member.is_here && member.heard.elapsed() > self.patience.silence;
            let silent = state.members.iter().position(|member| member.as_ref().is_some_and(silent));
            if let Some(rank) = silent {
                let why = format!("no answer for {} s", self.patience.silence.as_secs_f64());
                let report = state.members[rank].as_ref().map(|member| member.report.clone()).unwrap_or_default();
                state.lose(Rank(rank as u32), with_whereabouts(&why, &report));
            }
        }
    }
}

impl State {
    /// A rank is gone; unless it may go, everyone hears of it.
    fn lose(&mut self, rank: Rank, why: String) {
        if self.phase == Phase::Together {
            self.trouble(Reason::Gone { rank, why });
        }
    }

    /// Only the first reason matters; who goes after it goes because of it.
    fn trouble(&mut self, reason: Reason) {
        if self.phase == Phase::Together {
            self.phase = Phase::Over;
            self.tell(&FromHub::Trouble(reason));
        }
    }

    fn tell(&mut self, message: &FromHub) {
        (0..self.members.len()).for_each(|rank| self.tell_one(Rank(rank as u32), message));
    }

    /// If a rank cannot be told, the thread that reads from it notices that it is gone.
    fn tell_one(&mut self, rank: Rank, message: &FromHub) {
        if let Some(member) = self.members[rank.0 as usize].as_ref().filter(|member| member.is_here)
            && frame::send(&member.stream, message).is_err()
        {
            drop(member.stream.shutdown(Shutdown::Both));
        }
    }
}

/// A first message, within bounds of time and size.
fn hear_hello(stream: &TcpStream) -> io::Result<Hello> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_WITHIN))?;
    stream.set_read_timeout(Some(HELLO_WITHIN))?;
    let hello = frame::receive(&mut { stream }, MOST_OF_A_STRANGER)?;
    stream.set_read_timeout(None)?;
    Ok(hello)
}

fn health(member: &Member) -> Health {
    Health { report: member.report.clone(), silent_ms: member.heard.elapsed().as_millis() as u64 }
}

fn with_whereabouts(why: &str, report: &Report) -> String {
    report.whereabouts().map_or_else(|| why.to_owned(), |whereabouts| format!("{why}; {whereabouts}"))
}
