//! Long traces are read by several threads, which must not show.

use stepscope_traces::synthetic::repeat_kineto;

use crate::{read_bytes, text};

/// Everything that is read of a trace.
pub(crate) fn told(bytes: &[u8]) -> String {
    let (data, loss) = read_bytes(bytes);
    let names: Vec<_> = data.names.iter().collect();
    let (spans, memory): (Vec<_>, Vec<_>) = (data.spans.rows().collect(), data.memory.rows().collect());
    format!("{loss:?}\n{names:?}\n{spans:?}\n{memory:?}")
}

/// A cutting, repeated until it is some megabytes long.
fn long(name: &str) -> String {
    let cutting = text(name);
    let mut long = Vec::new();
    repeat_kineto(&cutting, (4_000_000 / cutting.len() + 1) as u32, &mut long).unwrap();
    String::from_utf8(long).unwrap()
}

/// The same trace, laid out so that nobody can cut it without reading it.
fn in_one_piece(trace: &str) -> String {
    trace.replace("\n  },\n  {", "\n  }, {")
}

#[test]
fn several_readers_tell_what_one_tells() {
    for name in ["shapes/rank0.json.gz", "ddp/rank0.json.gz", "gpipe/rank1.json.gz"] {
        let trace = long(name);
        assert!(told(trace.as_bytes()) == told(in_one_piece(&trace).as_bytes()), "{name}");
    }
}

#[test]
fn damage_is_read_around_as_one_reader_does() {
    let trace = long("shapes/rank0.json.gz");
    for part in [3, 5, 8] {
        let mut damaged = trace.clone().into_bytes();
        let place = damaged.len() / 10 * part;
        damaged[place..place + 40].fill(b'?');
        let (_, loss) = read_bytes(&damaged);
        assert!((1..=2).contains(&loss.unreadable_events), "{loss:?}");
    }
}
