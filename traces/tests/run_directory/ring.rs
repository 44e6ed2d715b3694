//! Where only the last minutes are kept, in segments of which the oldest go.

use std::{fs, os::unix::fs::MetadataExt, path::Path, thread, time::Duration};

use stepscope_traces::{
    FIRST_NAME, Incident, IncidentKind, KeptIncident, MemoryEvent, MemoryOperation, NameId, Nanos, Rank, RankData,
    RankInfo, RankWriter, RingBounds, Run, RunInfo, Span, SpanKind, State, Window, now,
};
use tempfile::TempDir;

const NAME: NameId = NameId(FIRST_NAME.0 + 7);

fn run(bounds: RingBounds) -> (TempDir, RankWriter) {
    let directory = tempfile::tempdir().unwrap();
    let info = RunInfo { black_box: Some(bounds), ..RunInfo::of_this_process("test") };
    info.create(directory.path()).unwrap();
    let mut writer = RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(0))).unwrap();
    writer.push_name(NAME, "kernel").unwrap();
    (directory, writer)
}

fn bounds(max_bytes: u64) -> RingBounds {
    RingBounds { keep_seconds: 3600.0, max_bytes }
}

/// A span whose bytes say which one it is; its times do not compress.
fn span(number: u64) -> Span {
    let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let start = Nanos(number as i64 * 20_000_000 + noise as i64);
    Span { bytes: Some(number), ..Span::new(SpanKind::Kernel, NAME, start, Nanos(1 + (noise as i64 & 0xfff))) }
}

fn write(writer: &mut RankWriter, spans: std::ops::Range<u64>) {
    for number in spans {
        writer.push_span(&span(number)).unwrap();
        if number % 1000 == 999 {
            writer.flush().unwrap();
        }
    }
}

fn memory(writer: &mut RankWriter, op: MemoryOperation, address: u64) {
    writer.push_memory(&MemoryEvent::new(now(), op, address, Some(64))).unwrap();
}

fn numbers(data: &RankData) -> Vec<u64> {
    data.spans.bytes.iter().flatten().collect()
}

fn read(path: &Path) -> (RankData, Run) {
    let run = Run::open(path).unwrap();
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert!(loss.is_none(), "{loss:?}");
    (data, run)
}

/// What a directory takes on the disk.
fn size(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|entry| if entry.is_dir() { size(&entry) } else { entry.metadata().unwrap().size() }).sum()
}

#[test]
fn what_fits_is_kept_whole_and_the_oldest_goes() {
    let (directory, mut writer) = run(bounds(4 << 20));
    for round in 0..20 {
        write(&mut writer, round * 50_000..(round + 1) * 50_000);
        assert!(size(directory.path()) <= 4 << 20, "round {round}");
    }
    let (while_it_goes_on, run) = read(directory.path());
    assert_eq!(run.state(), State::Recording);
    writer.finish().unwrap();
    let (data, run) = read(directory.path());
    let numbers = numbers(&data);
    assert!(
        numbers.iter().is_sorted_by(|one, next| **one + 1 == **next),
        "none is missing between those that are there"
    );
    assert_eq!((numbers.last(), run.state()), (Some(&999_999), State::Complete));
    assert!(numbers.len() > 100_000 && numbers.len() < 999_999, "{}", numbers.len());
    assert_eq!(while_it_goes_on.spans.len(), data.spans.len());
    // Half is for the last minutes; a segment may be missing of that.
    let size = size(directory.path());
    assert!(size > (2 << 20) * 9 / 10, "{size}");
    assert_eq!(data.names.get(NAME), Some("kernel"));
    assert_eq!(run.ranks[0].survey().unwrap().spans.rows, numbers.len() as u64);
}

#[test]
fn what_is_too_old_goes_though_there_is_room() {
    let (directory, mut writer) = run(RingBounds { keep_seconds: 0.5, max_bytes: 1 << 30 });
    for round in 0..30 {
        write(&mut writer, round * 1000..(round + 1) * 1000);
        thread::sleep(Duration::from_millis(50));
    }
    writer.finish().unwrap();
    let numbers = numbers(&read(directory.path()).0);
    // Half a second is ten rounds, and more if the machine is slow.
    assert!(numbers[0] >= 10_000, "{}", numbers[0]);
    assert!(numbers.len() >= 2000 && *numbers.last().unwrap() == 29_999, "{}", numbers.len());
}

#[test]
fn memory_that_was_allocated_before_is_known() {
    let (directory, mut writer) = run(bounds(4 << 20));
    memory(&mut writer, MemoryOperation::Reserve, 1000);
    memory(&mut writer, MemoryOperation::Alloc, 1);
    memory(&mut writer, MemoryOperation::Alloc, 2);
    write(&mut writer, 0..300_000);
    memory(&mut writer, MemoryOperation::Free, 1);
    memory(&mut writer, MemoryOperation::Alloc, 3);
    let live = |path: &Path| {
        let mut live = Vec::new();
        for event in read(path).0.memory.rows() {
            match event.op {
                MemoryOperation::Alloc | MemoryOperation::Reserve => live.push(event.address),
                _ => live.retain(|address| *address != event.address),
            }
        }
        live
    };
    writer.flush().unwrap();
    assert_eq!(live(directory.path()), [1000, 2, 3]);
    write(&mut writer, 300_000..600_000);
    writer.finish().unwrap();
    assert_eq!(live(directory.path()), [1000, 2, 3], "each once, though each segment says so");
}

#[test]
fn whoever_follows_sees_each_row_once_and_misses_only_what_went() {
    let (directory, mut writer) = run(bounds(4 << 20));
    let run = Run::open(directory.path()).unwrap();
    let (mut follower, mut seen) = (run.ranks[0].follow().unwrap(), RankData::default());
    let (mut slow, mut seen_by_slow) = (run.ranks[0].follow().unwrap(), RankData::default());
    memory(&mut writer, MemoryOperation::Alloc, 1);
    for round in 0..100 {
        write(&mut writer, round * 5000..(round + 1) * 5000);
        follower.poll(&mut seen).unwrap();
        if round < 3 {
            slow.poll_some(&mut seen_by_slow, 4096, true).unwrap();
        }
    }
    writer.finish().unwrap();
    for (follower, seen) in [(&mut follower, &mut seen), (&mut slow, &mut seen_by_slow)] {
        follower.poll(seen).unwrap();
        follower.finish(seen);
        let run = Run::open(directory.path()).unwrap();
        let loss = follower.loss(&run.ranks[0].info, run.ranks[0].state);
        assert!(loss.is_none(), "{loss:?}");
    }
    assert_eq!(numbers(&seen), (0..500_000).collect::<Vec<_>>());
    let slow = numbers(&seen_by_slow);
    assert!(slow.iter().is_sorted() && slow.len() < 500_000 && *slow.last().unwrap() == 499_999);
    assert_eq!((seen.memory.len(), seen_by_slow.memory.len()), (1, 1));
}

#[test]
fn damage_in_a_segment_is_counted_and_costs_what_it_hit() {
    let (directory, mut writer) = run(bounds(4 << 20));
    write(&mut writer, 0..200_000);
    writer.finish().unwrap();
    let before = numbers(&read(directory.path()).0).len();
    let ring = directory.path().join("rank-00000/ring");
    let mut segments: Vec<_> = fs::read_dir(&ring).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    assert!(segments.len() > 4, "{}", segments.len());
    let file = segments[2].join("spans.arrows");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    // The last one is torn.
    let file = segments.last().unwrap().join("spans.arrows");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 100]).unwrap();
    let run = Run::open(directory.path()).unwrap();
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    assert_eq!(data.spans.len() as u64 + loss.unreadable_events, before as u64, "{loss:?}");
    assert!(loss.unreadable_events >= 1000 && loss.unreadable_bytes > 100, "{loss:?}");
}

#[test]
fn what_an_incident_keeps_stays_when_the_ring_lets_go_of_it() {
    let (directory, mut writer) = run(bounds(8 << 20));
    memory(&mut writer, MemoryOperation::Alloc, 1);
    write(&mut writer, 0..60_000);
    let incident = Incident {
        kind: IncidentKind::SlowStep,
        time_ns: Nanos(1),
        step: None,
        ranks: vec![Rank(0)],
        summary: "a step was slow".into(),
        evidence: Vec::new(),
        steps: None,
        ended_job: false,
        explained: false,
        stacks: Vec::new(),
    };
    let kept = KeptIncident::create(directory.path(), incident).unwrap();
    let (rank, none) = (directory.path().join("rank-00000"), directory.path().join("rank-00007"));
    let ranks = [(Rank(7), none.as_path()), (Rank(0), rank.as_path())];
    kept.keep(directory.path(), &ranks, Duration::from_secs(60), 1 << 20).unwrap();
    write(&mut writer, 60_000..70_000);
    kept.keep(directory.path(), &ranks, Duration::from_secs(60), 1 << 20).unwrap();
    write(&mut writer, 70_000..1_000_000);
    writer.finish().unwrap();
    assert!(numbers(&read(directory.path()).0)[0] > 70_000, "the ring has let go of it");
    let (data, run) = read(&kept.path);
    let numbers = numbers(&data);
    assert!(numbers.iter().is_sorted_by(|one, next| **one + 1 == **next), "none is missing");
    // What was written to when it was kept goes on for a while.
    assert!(numbers.contains(&30_000) && numbers.contains(&69_999) && *numbers.last().unwrap() < 200_000);
    assert_eq!((run.state(), data.memory.len(), data.names.get(NAME)), (State::Complete, 1, Some("kernel")));
    assert_eq!(KeptIncident::all_of(directory.path()), std::slice::from_ref(&kept));
    assert!(size(directory.path()) <= 8 << 20);
    KeptIncident::let_go_of_oldest(directory.path(), 8 << 20);
    assert!(kept.has_recording(), "there is room for it");
    KeptIncident::let_go_of_oldest(directory.path(), 1000);
    assert_eq!((KeptIncident::all_of(directory.path()), kept.has_recording()), (vec![kept], false));
}
