use std::fs;

use stepscope_traces::{
    FIRST_NAME, Loss, NameId, Nanos, Rank, RankInfo, RankWriter, Run, RunInfo, Span, SpanKind, State, Window,
};

use crate::events::{Rows, WrittenRun, numbers};

#[test]
fn a_file_cut_at_any_byte_is_read_up_to_there() {
    let run = WrittenRun::numbered(3, 4);
    // As a kill leaves it: nobody wrote how many rows there should be.
    let rank_json = run.rank().join("rank.json");
    let interrupted = fs::read_to_string(&rank_json).unwrap().replace("\"complete\"", "\"recording\"");
    let mut rank: serde_json::Value = serde_json::from_str(&interrupted).unwrap();
    rank["written"] = serde_json::Value::Null;
    fs::write(&rank_json, rank.to_string()).unwrap();

    let whole = fs::read(run.spans_file()).unwrap();
    let mut seen = Vec::new();
    for length in 0..=whole.len() {
        fs::write(run.spans_file(), &whole[..length]).unwrap();
        let (data, loss) = run.read();
        let read = numbers(&data);
        assert_eq!(read, (0..read.len() as u64).collect::<Vec<_>>(), "cut at {length}");
        assert!(read.len().is_multiple_of(4), "a batch is read whole or not at all");
        assert!(loss.unreadable_bytes <= length as u64);
        if seen.last() != Some(&read.len()) {
            assert_eq!(loss.unreadable_bytes, 0, "a batch is there as soon as its last byte is");
            seen.push(read.len());
        }
        assert_eq!(loss.unreadable_events, 0, "what a torn tail would have held is not known");
        assert_eq!(Run::open(&run.path).unwrap().state(), State::Interrupted);
    }
    assert_eq!(seen, [0, 4, 8, 12]);
}

#[test]
fn rows_missing_from_a_run_that_ended_well_are_counted() {
    let run = WrittenRun::numbered(3, 4);
    let whole = fs::read(run.spans_file()).unwrap();
    fs::write(run.spans_file(), &whole[..whole.len() / 2]).unwrap();
    let (data, loss) = run.read();
    assert_eq!(data.spans.len() as u64 + loss.unreadable_events, 12);
    assert!(loss.unreadable_events >= 4);

    fs::remove_file(run.spans_file()).unwrap();
    let (data, loss) = run.read();
    assert_eq!((data.spans.len(), loss.unreadable_events), (0, 12));
}

#[test]
fn what_ends_after_the_last_time_there_is_counts_as_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("endless").create(&path).unwrap();
    let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
    let span = |start, duration| Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(start), Nanos(duration));
    for (start, duration) in [(10, 5), (i64::MAX - 5, 10), (i64::MAX, 0), (20, i64::MAX), (30, 5)] {
        writer.push_span(&span(start, duration)).unwrap();
    }
    writer.finish().unwrap();
    let run = Run::open(&path).unwrap();
    let lost = Loss { unreadable_events: 3, ..Loss::default() };
    for window in [Window::ALL, Window { from: Nanos(0), to: Nanos(15) }, Window::NONE] {
        let (data, loss) = run.ranks[0].read(window).unwrap();
        let read: Vec<i64> = data.spans.rows().map(|span| span.start_ns.0).collect();
        let expected: Vec<i64> = [10, 30].into_iter().filter(|start| *start < window.to.0).collect();
        assert_eq!((read, loss), (expected, lost), "{window:?}");
    }
    assert_eq!(run.ranks[0].survey().unwrap().loss, lost, "also without reading them all");
}

#[test]
fn names_that_unpack_without_end_take_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("bomb").create(&path).unwrap();
    let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
    let long = "x".repeat(1 << 20);
    (0..160).for_each(|name| writer.push_name(NameId(FIRST_NAME.0 + name), &long).unwrap());
    writer.finish().unwrap();
    assert!(path.join("rank-00000/strings.arrows").metadata().unwrap().len() < 1 << 20);
    let (data, loss) = Run::open(&path).unwrap().ranks[0].read(Window::ALL).unwrap();
    let read = data.names.iter().filter(|(id, _)| *id >= FIRST_NAME).count() as u64;
    assert!(read > 100 && read <= 128, "{read}");
    assert_eq!(read + loss.unreadable_events, 160);
}

#[test]
fn a_flipped_byte_costs_one_batch() {
    let run = WrittenRun::numbered(5, 100);
    let whole = fs::read(run.spans_file()).unwrap();
    let mut batches_lost = [0; 5];
    for position in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[position] ^= 0x10;
        fs::write(run.spans_file(), damaged).unwrap();
        let (data, loss) = run.read();
        let read = numbers(&data);
        let missing: Vec<u64> = (0..500).filter(|number| !read.contains(number)).collect();
        assert!(read.is_sorted() && read.len() + missing.len() == 500, "flipped at {position}: {read:?}");
        assert_eq!(loss.unreadable_events, missing.len() as u64, "flipped at {position}");
        assert!(loss.unreadable_bytes > 0, "flipped at {position}");
        if let Some(first) = missing.first() {
            assert_eq!(missing, (*first..first + 100).collect::<Vec<_>>(), "flipped at {position}");
            batches_lost[*first as usize / 100] += 1;
        }
    }
    assert!(batches_lost.iter().all(|times| *times > 100), "each batch was hit: {batches_lost:?}");
}

#[test]
fn random_damage_is_never_read_as_data() {
    let run = WrittenRun::numbered(20, 50);
    let mut random = fastrand::Rng::with_seed(7);
    let whole = fs::read(run.spans_file()).unwrap();
    let mut most_lost = Loss::default();
    for _ in 0..400 {
        let mut damaged = whole.clone();
        match random.u8(0..4) {
            0 => (0..random.usize(1..40)).for_each(|_| {
                let position = random.usize(..damaged.len());
                damaged[position] = random.u8(..);
            }),
            1 => {
                let (from, length) = (random.usize(..damaged.len()), random.usize(..4000));
                let to = (from + length).min(damaged.len());
                damaged[from..to].fill(if random.bool() { 0xff } else { 0 });
            }
            2 => {
                let (from, length) = (random.usize(..damaged.len()), random.usize(..4000));
                damaged.drain(from..(from + length).min(whole.len()));
            }
            _ => {
                let from = random.usize(..damaged.len());
                damaged.splice(from..from, (0..random.usize(1..3000)).map(|index| index as u8));
            }
        }
        fs::write(run.spans_file(), damaged).unwrap();
        let (data, loss) = run.read();
        let known = run.written.spans.values().flatten();
        let by_number: Vec<_> = known.collect();
        for span in data.spans.rows() {
            let number = span.correlation.unwrap().0 as usize;
            assert_eq!(span, *by_number[number], "what is read is what was written");
        }
        let read = numbers(&data);
        assert!(read.is_sorted_by(|one, two| one < two), "nothing is read twice");
        assert!(data.spans.len() as u64 + loss.unreadable_events >= 1000, "what is missing is counted");
        most_lost.unreadable_events = most_lost.unreadable_events.max(loss.unreadable_events);
    }
    assert!(most_lost.unreadable_events > 0);
}

#[test]
fn a_missing_byte_costs_one_batch_too() {
    let run = WrittenRun::numbered(5, 100);
    let whole = fs::read(run.spans_file()).unwrap();
    for position in (whole.len() / 4..whole.len() / 2).step_by(37) {
        let mut damaged = whole.clone();
        damaged.remove(position);
        fs::write(run.spans_file(), damaged).unwrap();
        let (data, loss) = run.read();
        assert!(data.spans.len() >= 300, "removed at {position}: {}", data.spans.len());
        assert_eq!(data.spans.len() as u64 + loss.unreadable_events, 500);
    }
}

#[test]
fn rows_are_not_read_twice_nor_from_another_table() {
    let run = WrittenRun::numbered(3, 10);
    let whole = fs::read(run.spans_file()).unwrap();
    fs::write(run.spans_file(), [whole.clone(), whole.clone()].concat()).unwrap();
    let (data, loss) = run.read();
    assert_eq!(numbers(&data), (0..30).collect::<Vec<_>>());
    assert!(loss.unreadable_bytes > 0);
    fs::copy(run.spans_file(), run.rank().join("memory.arrows")).unwrap();
    fs::write(run.spans_file(), whole).unwrap();
    let survey = Run::open(&run.path).unwrap().ranks[0].survey().unwrap();
    assert_eq!((survey.spans.rows, survey.memory.rows), (30, 0));
}

#[test]
fn noise_is_read_as_nothing() {
    let run = WrittenRun::numbered(1, 1);
    let mut random = fastrand::Rng::with_seed(11);
    for length in [0, 1, 7, 8, 9, 100, 70_000] {
        let noise: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        // Prefixes of messages without messages.
        let prefixes: Vec<u8> = [0xff, 0xff, 0xff, 0xff, 0x00, 0x40, 0, 0].into_iter().cycle().take(length).collect();
        for bytes in [noise, prefixes] {
            for table in ["spans", "memory", "counters", "strings"] {
                fs::write(run.rank().join(format!("{table}.arrows")), &bytes).unwrap();
            }
            let (data, loss) = run.read();
            assert_eq!(Rows::of(&data), Rows::default());
            assert_eq!(loss.unreadable_bytes, 4 * length as u64);
        }
    }
}

#[test]
fn a_damaged_rank_json_does_not_hide_the_rank() {
    let run = WrittenRun::numbered(2, 10);
    fs::write(run.rank().join("rank.json"), "{\"rank\": 0, \"ho").unwrap();
    let opened = Run::open(&run.path).unwrap();
    assert_eq!(opened.state(), State::Interrupted);
    assert!(opened.ranks[0].info.reason.as_ref().unwrap().contains("rank.json"));
    assert_eq!(run.read().0.spans.len(), 20);
}
