//! Torn, damaged and hostile profiles: what can be read is, the rest is counted.

use stepscope_traces::{Run, State, Window};

use crate::{
    error_of,
    fuzz::fuzz,
    reads::Reads,
    run_of,
    writer::{Message, PlaneWriter, Stat, environment, space},
};

fn gpu(number: u32) -> PlaneWriter {
    let mut plane = PlaneWriter::new(&format!("/device:GPU:{number}"));
    let events = (0..8)
        .map(|index| {
            let stats = [
                ("correlation_id", Stat::Number(index)),
                ("hlo_op", Stat::Reference("fusion.1")),
                ("name", Stat::Text("jit(f)/add")),
            ];
            plane.event(["add", "mul"][index as usize % 2], (index * 5_000, 4_000), &stats)
        })
        .collect();
    plane.line(7, "Stream #7(Compute)", 100, events);
    plane
}

fn profile() -> Vec<u8> {
    let mut host = PlaneWriter::new("/host:CPU");
    let events =
        (0..8).map(|index| host.event("cuLaunchKernel", (index * 900, 5), &[("correlation_id", Stat::Number(index))]));
    let events = events.collect();
    host.line(3, "main", 100, events);
    space(vec![gpu(0), gpu(1), host, environment(1_000_000)])
}

#[test]
fn fuzzed_profiles() {
    let reads = Reads::named("host.xplane.pb");
    fuzz!(vec![profile()], |bytes: &[u8]| reads.read(bytes));
}

#[test]
fn a_torn_profile_is_read_as_far_as_it_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("host.xplane.pb");
    let whole = profile();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        if let Ok(run) = Run::of_source(&path) {
            run.ranks.iter().for_each(|rank| drop(rank.read(Window::ALL).unwrap()));
        }
    }
    let (_directory, run) = run_of(&whole[..whole.len() - 30]);
    assert_eq!((run.ranks.len(), run.ranks[0].state), (2, State::Interrupted));
    assert_eq!(run.ranks[0].info.reason.as_deref(), Some("it is truncated"));
    assert!(!run.ranks[0].read(Window::ALL).unwrap().1.is_none());
}

/// An event that cannot be read, or of which nobody says what it is, costs itself.
#[test]
fn damaged_events_are_counted() {
    let mut plane = PlaneWriter::new("/device:GPU:0");
    let fine = plane.event("k", (0, 5_000), &[]);
    let unknown = Message::default().number(1, 99).number(2, 5).number(3, 5);
    let endless = plane.event("k", (u64::MAX >> 1, u64::MAX >> 1), &[]);
    let backwards = plane.event("k", (5, u64::MAX), &[]);
    let garbage = Message(vec![0xff; 9]);
    plane.line(1, "Stream #1", u64::MAX >> 1, vec![fine.clone()]);
    plane.line(1, "Stream #1", 5, vec![fine, unknown, endless, backwards, garbage]);
    let (_directory, run) = run_of(&space(vec![plane]));
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert_eq!((data.spans.len(), loss.unreadable_events), (2, 4));
}

/// However many planes, lines and events a file claims, what is kept is bounded by what is there.
#[test]
fn nothing_is_kept_of_what_says_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("host.xplane.pb");
    let line = Message::default().text(2, "Stream #1").0;
    let empty_events = [line, [0x22, 0].repeat(1 << 20)].concat();
    let plane = Message::default().text(2, "/device:GPU:0").bytes(3, &empty_events);
    let error = error_of(&Message::default().message(1, plane).0, &path);
    assert!(error.contains("1 device did nothing"), "{error}");
    let planes = (0..2_000).map(gpu).collect();
    let (_directory, run) = run_of(&space(planes));
    assert_eq!(run.ranks.len(), 64);
    assert_eq!(run.ranks[0].read(Window::ALL).unwrap().1.dropped_events, 1_936);
}
