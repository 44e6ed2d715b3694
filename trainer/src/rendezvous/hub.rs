//! Where ranks meet: rank 0 listens, hears of everyone, and tells everyone what all have to know.

use std::{
    collections::HashMap,
    io,
    net::{Shutdown, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use stepscope_traces::Rank;

use super::{
    frame,
    gate::{Gate, warn},
    listening,
    message::{FromHub, Health, Hello, MOST, Settings, ToHub, differences},
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

/// What connections to it are for.
pub(super) const PURPOSE: &str = "hub";
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
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    members: Vec<Option<Member>>,
    offers: HashMap<String, Vec<Option<Vec<u8>>>>,
    phase: Phase,
    /// Why somebody who knows the secret is no rank of the job, if that came up.
    misfit: Option<String>,
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
        let RankAssignment { address, port, world, secret, .. } = assignment;
        let cannot = |error: io::Error| {
            TrainError::NotJoined(format!("rank 0 cannot listen at {address}, port {port}: {error}"))
        };
        let listeners = listening::at_host(address, *port).map_err(cannot)?;
        let gate = Gate::open(listeners, secret.clone(), PURPOSE.into()).map_err(cannot)?;
        let members = (0..*world).map(|_| None).collect();
        let state = State { members, offers: HashMap::new(), phase: Phase::Joining, misfit: None };
        let shared = Arc::new(Shared {
            world: *world,
            settings: settings.clone(),
            patience,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mut threads = Vec::new();
        let [joining, watching] = [shared.clone(), shared.clone()];
        threads.push(spawn("hub join", move || joining.join(&gate)).map_err(cannot)?);
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
    /// Takes ranks in until everyone is here, or it is over.
    fn join(self: &Arc<Shared>, gate: &Gate<Hello>) {
        let deadline = Instant::now() + self.patience.join;
        while matches!(lock(&self.state).phase, Phase::Joining | Phase::Refused(_)) {
            if Instant::now() > deadline {
                self.refuse_all(&self.missing());
            }
            let Some((stream, hello)) = gate.next() else { continue };
            let shared = self.clone();
            let member = move || {
                if let Some(rank) = shared.admit(&hello, &stream) {
                    shared.listen(rank, &stream);
                }
            };
            // Where there is no thread the rank tries again.
            drop(spawn("hub member", member));
        }
    }

    /// Takes a rank in, or says why not: to everyone, if it is a rank of the job that was started in another way.
    fn admit(&self, hello: &Hello, stream: &TcpStream) -> Option<Rank> {
        let Hello { rank, settings, .. } = hello;
        let writer = stream.try_clone().ok()?;
        stream.set_write_timeout(Some(WRITE_WITHIN)).ok()?;
        let mut state = lock(&self.state);
        let refuse = |why: &str| drop(frame::send(stream, &FromHub::Refused(why.to_owned())));
        if let Phase::Refused(why) = &state.phase {
            refuse(why);
            return None;
        }
        if let Some(why) = self.misfit(hello, &state) {
            refuse(&why);
            if state.misfit.is_none() {
                warn(&format!("a process was refused: {why}"));
            }
            state.misfit = Some(why);
            return None;
        }
        if let Some(why) = differences(*rank, settings, &self.settings) {
            drop(state);
            refuse(&why);
            self.refuse_all(&why);
            return None;
        }
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

    /// Why whoever says this is no rank of the job.
    fn misfit(&self, Hello { rank, world, .. }: &Hello, state: &State) -> Option<String> {
        match state.members.get(rank.0 as usize) {
            Some(Some(_)) => Some(format!("two processes claim to be rank {rank}")),
            Some(None) if *world == self.world => None,
            _ => Some(format!("rank {rank} of {world} does not belong to a job of {}", self.world)),
        }
    }

    /// Who is not here.
    fn missing(&self) -> String {
        let state = lock(&self.state);
        let missing = state.members.iter().enumerate().filter(|(_, member)| member.is_none());
        let missing: Vec<String> = missing.map(|(rank, _)| rank.to_string()).collect();
        let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
        let seconds = self.patience.join.as_secs_f64();
        let misfit = state.misfit.as_ref().map_or_else(String::new, |why| format!("; {why}"));
        format!("{ranks} {} of {} did not join within {seconds} s{misfit}", missing.join(", "), self.world)
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

fn health(member: &Member) -> Health {
    Health { report: member.report.clone(), silent_ms: member.heard.elapsed().as_millis() as u64 }
}

fn with_whereabouts(why: &str, report: &Report) -> String {
    report.whereabouts().map_or_else(|| why.to_owned(), |whereabouts| format!("{why}; {whereabouts}"))
}
