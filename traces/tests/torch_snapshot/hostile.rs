use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use proptest::{prelude::*, test_runner::Config};
use stepscope_traces::{ImportError, MemoryEvent, SnapshotError, State, TraceError};

use crate::{
    fuzz::fuzz,
    pickle_writer::{Frames, ImportedRank, Python, Snapshot, import},
    reads::Reads,
};

const FORWARD: Frames = &[("at::native::silu", "??"), ("forward", "model.py")];
const BACKWARD: Frames = &[("torch::autograd::Engine::evaluate_function()", "??")];

/// Where a block is that was there before the history.
const FROM_BEFORE: u64 = 1 << 20;

fn snapshot(devices: usize) -> Snapshot {
    let mut s = Snapshot::new();
    s.segment(
        0,
        2 << 20,
        &[(2, 16, "active_allocated", FORWARD), (FROM_BEFORE as i64, 5, "active_allocated", FORWARD)],
    );
    for device in 0..devices {
        if device > 0 {
            s.next_device();
        }
        s.event("segment_alloc", 0, 2 << 20, FORWARD);
        s.alloc(1, 8, FORWARD);
        s.alloc(2, 16, FORWARD);
        s.free(1, 8, BACKWARD);
        s.annotate("START", "ProfilerStep#7");
        s.alloc(3, 8, FORWARD);
        s.annotate("END", "ProfilerStep#7");
    }
    s
}

#[track_caller]
fn refused(bytes: &[u8], words: &str) {
    let message = match import(bytes) {
        Ok(_) => panic!("read as a snapshot"),
        Err(error) => error.to_string(),
    };
    assert!(message.contains(words), "{message}");
}

/// A pickle of these instructions.
fn pickle(instructions: &[u8]) -> Vec<u8> {
    [&[0x80, 4], instructions].concat()
}

/// The first part of the second is what the first has.
fn is_beginning(of_part: &[MemoryEvent], of_all: &[MemoryEvent]) {
    let facts = |events: &[MemoryEvent]| -> Vec<_> {
        events.iter().map(|event| (event.time_ns, event.op, event.address, event.bytes)).collect()
    };
    let all = facts(of_all);
    assert_eq!(facts(of_part), all[..of_part.len()]);
}

#[test]
fn a_file_that_is_cut_off_anywhere_says_what_is_there_and_that_it_is_not_all() {
    for devices in [1, 2] {
        let whole = snapshot(devices).pickle();
        let memory = |bytes: &[u8]| {
            let ranks = import(bytes).map(|imported| imported.ranks);
            ranks.map(|ranks| ranks.into_iter().map(|rank| (rank.state, rank.loss, rank.data)).collect::<Vec<_>>())
        };
        let everything = memory(&whole).unwrap();
        // A block that was there before the history, and never came back, is known only from the whole.
        let history = |rank: usize| -> Vec<_> {
            let from_before = |event: &MemoryEvent| event.address != FROM_BEFORE;
            everything[rank].2.memory.rows().filter(from_before).collect()
        };
        let mut most = 0;
        for length in 0..whole.len() {
            match memory(&whole[..length]) {
                Ok(ranks) => {
                    for (number, (state, loss, data)) in ranks.iter().enumerate() {
                        assert_eq!(*state, State::Interrupted);
                        assert!(loss.unreadable_bytes > 0);
                        let events: Vec<_> = data.memory.rows().filter(|event| event.address != FROM_BEFORE).collect();
                        is_beginning(&events, &history(number));
                    }
                    let events = ranks.iter().map(|(_, _, data)| data.memory.len()).sum::<usize>();
                    assert!(events >= most, "more of a file is more events");
                    most = events;
                }
                Err(error) => assert_eq!(most, 0, "{error}"),
            }
        }
        assert_eq!(most, everything.iter().map(|(_, _, data)| data.memory.len()).sum::<usize>());
    }
}

#[test]
fn a_real_file_that_is_cut_off_says_what_is_there() {
    let whole = include_bytes!("../fixtures/ddp-rank0.pickle");
    let all: Vec<_> = import(whole).unwrap().ranks[0].data.memory.rows().collect();
    let mut read = 0;
    for length in (0..whole.len()).step_by(641) {
        match import(&whole[..length]) {
            Ok(imported) => {
                let rank = &imported.ranks[0];
                assert!(rank.loss.unreadable_bytes > 0 && rank.state == State::Interrupted);
                is_beginning(&rank.data.memory.rows().collect::<Vec<_>>(), &all);
                read += 1;
            }
            Err(TraceError::Import(
                ImportError::NotATrace { .. } | ImportError::Snapshot(SnapshotError::CutShort { .. }),
            )) => {
                assert_eq!(read, 0)
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(read > 50);
}

#[test]
fn a_packed_file_that_is_cut_off_says_what_is_there() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(include_bytes!("../fixtures/ddp-rank0.pickle")).unwrap();
    let packed = packed.finish().unwrap();
    let read = |bytes: &[u8]| {
        let imported = import(bytes).unwrap();
        (imported.ranks[0].state, imported.ranks[0].loss.unreadable_bytes > 0)
    };
    assert_eq!(read(&packed), (State::Complete, false));
    assert_eq!(read(&packed[..packed.len() - 8]), (State::Interrupted, true), "without its checksum");
    assert_eq!(read(&packed[..packed.len() - 800]), (State::Interrupted, true));
    refused(&packed[..packed.len() / 20], "truncated before its event history");
}

#[test]
fn nothing_is_ever_run() {
    let system = "it asks to run os.system; stepscope never runs code from a file";
    refused(&pickle(b"cos\nsystem\n(X\x04\x00\x00\x00true\x85R."), system);
    refused(&pickle(b"\x8c\x02os\x94\x8c\x06system\x94\x93\x8c\x04true\x85R."), system);
    refused(&pickle(b"(X\x04\x00\x00\x00trueios\nsystem\n."), system);
    for (instructions, words) in [
        (b"N)R.".as_slice(), "REDUCE"),
        (b"N)\x81.", "NEWOBJ"),
        (b"N)}\x92.", "NEWOBJ_EX"),
        (b"N}b.", "BUILD"),
        (b"(No.", "OBJ"),
        (b"\x82\x01.", "EXT"),
        (b"Pid\n.", "PERSID"),
        (b"NQ.", "PERSID"),
        (b"\x97.", "NEXT_BUFFER"),
        (b"I1\n.", "instruction 0x49"),
    ] {
        refused(&pickle(instructions), words);
    }
    // A checkpoint, as torch.save wrote them once, and a name that would paint the terminal.
    refused(&pickle(b"ctorch._utils\n_rebuild_tensor_v2\n(."), "torch._utils._rebuild_tensor_v2");
    refused(&pickle(b"c\x1b[31m\nred\n."), r"\x1b[31m.red");
}

#[test]
fn a_payload_within_a_snapshot_is_not_run_either() {
    let mut bytes = snapshot(1).pickle();
    bytes.pop();
    bytes.extend(*b"cos\nsystem\n(X\x04\x00\x00\x00true\x85R.");
    refused(&bytes, "it asks to run os.system");
}

#[test]
fn what_is_something_else_is_called_by_its_name() {
    for (bytes, words) in [
        (b"".as_slice(), "it is empty"),
        (b"some words", "text, not JSON"),
        (b"\x80\x09K\x01.", "binary data of a kind that stepscope does not know"),
        (b"\x80\x04N.", "a pickle of None"),
        (b"\x80\x04K\x01.", "a pickle of a number"),
        (b"\x80\x04](K\x01K\x02K\x03e.", "a pickle of a list of 3 items"),
        (b"\x80\x04K\x01\x85.", "a pickle of a tuple"),
        (b"\x80\x04}.", "a pickle of an empty dict"),
        (b"\x80\x04}\x8c\x05model\x8c\x01x\x73.", "a pickle of a dict with the keys \"model\""),
        (b"\x80\x04}\x8c\x03\x1b[mN\x73.", "\"\\u{1b}[m\""),
    ] {
        refused(bytes, words);
    }
    let other = Python::Dict(vec![("segments", Python::Integer(1)), ("device_traces", Python::List(Vec::new()))]);
    refused(&other.pickle(), "a dict with the keys \"segments\", \"device_traces\"");
}

#[test]
fn fuzzed_snapshots() {
    let reads = Reads::named("rank0.pickle");
    fuzz!(vec![snapshot(2).pickle()], |bytes: &[u8]| reads.read(bytes));
}

#[test]
fn depth_costs_nothing() {
    let depth = 200_000;
    refused(&pickle(&[vec![b']'; depth], vec![b'a'; depth - 1], vec![b'.']].concat()), "a list of 1 items");
    refused(&pickle(&[b"](".repeat(depth), b"e".repeat(depth), b".".to_vec()].concat()), "a list of 1 items");
    refused(&pickle(&[b"}(N".repeat(depth), b"u".repeat(depth), b".".to_vec()].concat()), "a key without a value");
    refused(&pickle(&[vec![b'N'], vec![0x85; depth], vec![b'.']].concat()), "a tuple");
}

#[test]
fn more_values_than_bytes_can_hold_are_refused() {
    for instructions in [b"]".as_slice(), b"}", b"N", b"(", b"2", b"\x94", b"]\x94"] {
        refused(&pickle(&[b"N".as_slice(), &instructions.repeat(2_000_000)].concat()), "too many values");
    }
}

#[test]
fn what_holds_itself_is_no_trouble() {
    refused(&pickle(b"]\x94h\x00a."), "a list of 1 items");
    refused(&pickle(b"}\x94h\x00h\x00s."), "a pickle of a dict");
    // Its own history and its own segments, and a list of events that holds itself.
    refused(&pickle(b"}\x94(\x8c\x08segmentsh\x00\x8c\x0ddevice_tracesh\x00u."), "a dict with the keys");
    let own = pickle(b"}(\x8c\x08segments]\x94h\x00a\x8c\x0ddevice_traces]\x94h\x01au.");
    assert!(import(&own).unwrap().ranks.iter().all(|rank| rank.data.memory.is_empty()));
}

/// Each list holds the one before it twice: thirty of them would be a billion values, written out.
#[test]
fn what_is_shared_is_not_written_out() {
    let mut instructions = b"]\x94".to_vec();
    (0..100_u8).for_each(|level| instructions.extend([b']', b'(', b'h', level, b'h', level, b'e', 0x94]));
    instructions.push(b'.');
    refused(&pickle(&instructions), "a list of 2 items");
    // One history for many devices, one list of blocks for many segments.
    let mut event = Vec::new();
    event.extend(*b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x01u");
    let mut shared = b"}(\x8c\x08segments]\x8c\x0ddevice_traces](]\x94(".to_vec();
    shared.extend(event.repeat(50));
    shared.push(b'e');
    shared.extend(b"h\x00".repeat(3000));
    shared.extend(*b"eu.");
    let imported = import(&pickle(&shared)).unwrap();
    assert_eq!(imported.ranks.len(), 1);
    let mut crowd = b"}(\x8c\x08segments]\x8c\x0ddevice_traces](".to_vec();
    crowd.extend(b"]".repeat(5000));
    crowd.extend(*b"eu.");
    refused(&pickle(&crowd), "5000 devices");
}

#[test]
fn a_length_is_believed_as_far_as_bytes_follow() {
    let huge = u64::MAX.to_le_bytes();
    for code in [0x8d_u8, 0x8e, 0x96, 0x95] {
        refused(&pickle(&[[code].as_slice(), &huge, b"NNN"].concat()), "truncated before its event history");
    }
    for code in [b'X', b'B', 0x8b] {
        refused(&pickle(&[[code].as_slice(), &[0xff; 4], b"abc"].concat()), "truncated before its event history");
    }
    for code in [b'r', b'j'] {
        refused(&pickle(&[b"N", [code].as_slice(), &[0xff; 4], b"."].concat()), "at byte");
    }
}

#[test]
fn what_is_at_no_time_that_can_be_told_is_lost_and_the_rest_keeps_its_times() {
    let mut s = snapshot(1);
    let all = import(&s.pickle()).unwrap().ranks.remove(0);
    s.time_us = Some(i64::MAX / 2);
    s.alloc(9, 8, FORWARD);
    s.annotate("START", "late");
    let late = import(&s.pickle()).unwrap().ranks.remove(0);
    assert_eq!((all.loss.unreadable_events, late.loss.unreadable_events), (0, 2));
    let times = |rank: &ImportedRank| rank.data.memory.rows().map(|event| event.time_ns).collect::<Vec<_>>();
    assert_eq!(times(&late), times(&all));
}

#[test]
fn numbers_may_be_anything() {
    for number in [i64::MIN, -1, 0, i64::MAX] {
        let mut s = Snapshot::new();
        for action in ["segment_map", "alloc", "free_requested", "free_completed", "segment_unmap", "oom", "news"] {
            s.event(action, number, i64::MAX, FORWARD);
            s.event(action, i64::MAX, number, FORWARD);
        }
        s.segment(number, i64::MAX, &[(number, i64::MAX - 12, "active_allocated", &[])]);
        import(&s.pickle()).unwrap();
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn random_bytes_are_no_snapshot(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(import(&bytes).is_err());
        prop_assert!(import(&pickle(&bytes)).is_err());
    }

    /// Instructions that are known, in any order, get further than bytes at random.
    #[test]
    fn random_instructions_are_no_snapshot(choices in prop::collection::vec(0..24_usize, 0..300)) {
        const KNOWN: [&[u8]; 24] = [
            b"(", b"0", b"1", b"2", b"N", b"]", b"}", b")", b"a", b"e", b"s", b"u", b"t", b"\x85", b"\x87", b"\x94",
            b"h\x00", b"h\x01", b"q\x00", b"K\x07", b"\x8c\x06action", b"\x8c\x04size", b"\x8c\x05alloc", b"\x8a\x01\xff",
        ];
        let instructions: Vec<u8> = choices.iter().flat_map(|choice| KNOWN[*choice]).copied().collect();
        prop_assert!(import(&pickle(&instructions)).is_err());
        prop_assert!(import(&pickle(&[instructions, b".".to_vec()].concat())).is_err());
    }

    #[test]
    fn damage_is_read_or_refused(position in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = snapshot(2).pickle();
        let position = position.index(bytes.len());
        bytes[position] = byte;
        drop(import(&bytes));
    }
}
