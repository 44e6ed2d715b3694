//! Ranks that meet, exchange, and fall silent.

use std::{
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use stepscope_traces::Rank;

use super::{
    frame,
    message::{FromHub, Hello, MOST, PROTOCOL, Settings},
    *,
};
use crate::error::TrainError;

fn assignment(rank: u32, world: u32, port: u16) -> RankAssignment {
    RankAssignment { rank: Rank(rank), world, local_rank: None, address: "127.0.0.1".into(), port }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

fn join(assignment: &RankAssignment, patience: Patience) -> Result<Arc<Link>, TrainError> {
    Link::join(assignment, &Settings::new(), Vec::new(), patience)
}

/// A connection that says a hello, and nothing more.
fn mute(assignment: &RankAssignment, protocol: u32) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(5);
    let stream = loop {
        match TcpStream::connect(("127.0.0.1", assignment.port)) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    let hello = Hello { protocol, rank: assignment.rank, world: assignment.world, settings: Settings::new() };
    frame::send(&stream, &hello).unwrap();
    stream
}

#[test]
fn exchanges_may_cross() {
    let port = free_port();
    let patience = Patience::default();
    let rank = |rank: u32| {
        let assignment = assignment(rank, 3, port);
        let hub = (rank == 0).then(|| Hub::start(&assignment, &Settings::new(), patience).unwrap());
        let link = join(&assignment, patience).unwrap();
        let exchange = |name: &str| link.exchange(name, format!("{name} {rank}").into_bytes()).unwrap();
        let (one, other) = thread::scope(|scope| {
            let first = scope.spawn(|| exchange(if rank == 1 { "b" } else { "a" }));
            let second = exchange(if rank == 1 { "a" } else { "b" });
            (first.join().unwrap(), second)
        });
        let (a, b) = if rank == 1 { (other, one) } else { (one, other) };
        assert_eq!(a, ["a 0", "a 1", "a 2"].map(|text| text.as_bytes().to_vec()));
        assert_eq!(b, ["b 0", "b 1", "b 2"].map(|text| text.as_bytes().to_vec()));
        assert!(link.exchange("too much", vec![0; 1 << 20]).is_err());
        link.part().unwrap();
        link.close();
        assert!(link.trouble.check().is_ok());
        hub.into_iter().for_each(Hub::close);
    };
    thread::scope(|scope| (0..3).for_each(|number| drop(scope.spawn(move || rank(number)))));
}

#[test]
fn a_rank_that_says_nothing_is_gone() {
    let (hub_at, patience) =
        (assignment(0, 2, free_port()), Patience { silence: Duration::from_secs(2), ..Patience::default() });
    let hub = Hub::start(&hub_at, &Settings::new(), patience).unwrap();
    let silent = mute(&assignment(1, 2, hub_at.port), PROTOCOL);
    let link = join(&hub_at, patience).unwrap();
    let error = link.exchange("anything", Vec::new()).unwrap_err().to_string();
    assert_eq!(error, "rank 1 is gone: no answer for 2 s");
    drop(silent);
    link.close();
    hub.close();
}

#[test]
fn those_who_cannot_be_ranks_of_the_job_are_refused() {
    for (other, protocol, expected) in [
        (assignment(0, 2, 0), PROTOCOL, "two processes claim to be rank 0"),
        (assignment(1, 3, 0), PROTOCOL, "rank 1 of 3 does not belong to a job of 2"),
        (assignment(7, 2, 0), PROTOCOL, "rank 7 of 2 does not belong to a job of 2"),
        (assignment(1, 2, 0), 99, "rank 1 uses protocol version 99, but rank 0 uses 2"),
    ] {
        let hub_at = assignment(0, 2, free_port());
        let hub = Hub::start(&hub_at, &Settings::new(), Patience::default()).unwrap();
        let first = mute(&hub_at, PROTOCOL);
        // So that it is in before the other one.
        thread::sleep(Duration::from_millis(100));
        let second = mute(&RankAssignment { port: hub_at.port, ..other }, protocol);
        for stream in [first, second] {
            match frame::receive(&mut &stream, MOST).unwrap() {
                FromHub::Refused(why) => assert_eq!(why, expected),
                _ => panic!("it is not refused: {expected}"),
            }
        }
        hub.close();
    }
}
