//! Ranks that meet, exchange, and fall silent; and strangers among them.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use stepscope_traces::Rank;

use super::{
    frame,
    hub::PURPOSE,
    message::{FromHub, Hello, MOST, Settings},
    *,
};
use crate::error::TrainError;

const SECRET_OF_THE_JOB: &str = "what only its ranks know";

fn assignment(rank: u32, world: u32, port: u16) -> RankAssignment {
    let secret = Secret::of_variable(Some(SECRET_OF_THE_JOB.into())).unwrap();
    RankAssignment { rank: Rank(rank), world, local_rank: None, address: "127.0.0.1".into(), port, secret, slurm: None }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

fn join(assignment: &RankAssignment, patience: Patience) -> Result<Arc<Link>, TrainError> {
    Link::join(assignment, &Settings::new(), Vec::new(), patience)
}

/// A connection to a hub that has begun to listen.
fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).unwrap()
}

/// A connection that says a hello, and nothing more.
fn mute(assignment: &RankAssignment) -> TcpStream {
    let stream = connect(assignment.port);
    introduce(&stream, &assignment.secret, PURPOSE).unwrap();
    let hello = Hello { rank: assignment.rank, world: assignment.world, settings: Settings::new() };
    frame::send(&stream, &hello).unwrap();
    stream
}

/// Two ranks join each other, whatever else is there.
fn they_join(hub: Hub, at: &RankAssignment) {
    let patience = Patience::default();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let link = join(&assignment(1, 2, at.port), patience).unwrap();
            link.part().unwrap();
            link.close();
        });
        let link = join(at, patience).unwrap();
        link.part().unwrap();
        link.close();
        other.join().unwrap();
    });
    hub.close();
}

fn start(at: &RankAssignment) -> Hub {
    Hub::start(at, &Settings::new(), Patience::default()).unwrap()
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
    let silent = mute(&assignment(1, 2, hub_at.port));
    let link = join(&hub_at, patience).unwrap();
    let error = link.exchange("anything", Vec::new()).unwrap_err().to_string();
    assert_eq!(error, "rank 1 is gone: no answer for 2 s");
    drop(silent);
    link.close();
    hub.close();
}

#[test]
fn those_who_cannot_be_ranks_of_the_job_are_refused_and_the_others_join() {
    for (other, expected) in [
        (assignment(1, 3, 0), "rank 1 of 3 does not belong to a job of 2"),
        (assignment(7, 2, 0), "rank 7 of 2 does not belong to a job of 2"),
        (assignment(u32::MAX, 2, 0), "rank 4294967295 of 2 does not belong to a job of 2"),
    ] {
        let hub_at = assignment(0, 2, free_port());
        let hub = start(&hub_at);
        let stream = mute(&RankAssignment { port: hub_at.port, ..other });
        match frame::receive(&mut &stream, MOST).unwrap() {
            FromHub::Refused(why) => assert_eq!(why, expected),
            _ => panic!("it is not refused: {expected}"),
        }
        they_join(hub, &hub_at);
    }
}

#[test]
fn the_second_of_two_that_claim_to_be_a_rank_is_refused() {
    let hub_at = assignment(0, 2, free_port());
    let patience = Patience { join: Duration::from_secs(2), ..Patience::default() };
    let hub = Hub::start(&hub_at, &Settings::new(), patience).unwrap();
    let streams = [mute(&hub_at), mute(&hub_at)];
    let heard = streams.map(|stream| match frame::receive(&mut &stream, MOST).unwrap() {
        FromHub::Refused(why) => why,
        _ => panic!("it is not refused"),
    });
    let [missing, claims] =
        ["rank 1 of 2 did not join within 2 s; ", ""].map(|more| format!("{more}two processes claim to be rank 0"));
    // Either may be the first.
    assert!(heard.contains(&missing) && heard.contains(&claims), "{heard:?}");
    hub.close();
}

#[test]
fn strangers_neither_end_a_job_nor_become_a_rank_of_it() {
    let hub_at = assignment(0, 2, free_port());
    let hub = start(&hub_at);
    let long = [&b"stepscope  3"[..], &[255; 1 << 20]].concat();
    for said in [&b""[..], b"\0", b"GET / HTTP/1.1\r\n\r\n", &[255; 4096], b"stepscope  9", &long] {
        let mut stream = connect(hub_at.port);
        // It may hang up before it has heard all of it.
        drop(stream.write_all(said));
        drop(stream.shutdown(std::net::Shutdown::Write));
        drop(stream.read_to_end(&mut Vec::new()));
    }
    for secret in [None, Some("what others only guess".to_owned())] {
        let impostor = Secret::of_variable(secret).unwrap();
        let refused = introduce(&connect(hub_at.port), &impostor, PURPOSE).unwrap_err();
        assert_eq!(refused.to_string(), "it has another secret: STEPSCOPE_SECRET has to be the same for all ranks");
    }
    they_join(hub, &hub_at);
}

#[test]
fn strangers_that_stay_keep_nobody_out() {
    let hub_at = assignment(0, 2, free_port());
    let hub = start(&hub_at);
    let began = Instant::now();
    let strangers: Vec<TcpStream> = (0..300)
        .map(|number: usize| {
            let mut stream = connect(hub_at.port);
            // Some say a part of what ranks say. Others take their place, and may have done so already.
            drop(stream.write_all(&b"stepscope  3"[..number % 12]));
            stream
        })
        .collect();
    they_join(hub, &hub_at);
    assert!(began.elapsed() < Duration::from_secs(60), "they waited for the strangers");
    drop(strangers);
}

#[test]
fn a_rank_tells_nothing_to_whoever_took_the_place_of_the_hub() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let at = assignment(1, 2, listener.local_addr().unwrap().port());
    let patience = Patience { join: Duration::from_millis(100), ..Patience::default() };
    let impostor = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        // A greeting, and a number; its proof is made up.
        stream.write_all(&[&b"stepscope  3"[..], &[1; 32]].concat()).unwrap();
        let mut said = [0; 12 + 32 + 32];
        stream.read_exact(&mut said).unwrap();
        stream.write_all(&[2; 32]).unwrap();
        let mut more = Vec::new();
        drop(stream.read_to_end(&mut more));
        more
    });
    let error = join(&at, patience).map(drop).unwrap_err().to_string();
    assert!(error.ends_with("has another secret than this rank"), "{error}");
    assert_eq!(impostor.join().unwrap(), b"", "its settings are for ranks of its job");
}
