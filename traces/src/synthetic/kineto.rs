//! Long traces of PyTorch's profiler, made by repeating a real one in time.
//!
//! What has to differ from one repetition to the next does: times, what ties launches to their work, and the numbers of
//! steps. The rest is as Kineto wrote it, so that reading takes as long as for a real trace of that length.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use memchr::memmem;

/// Numbers that differ between repetitions, by what stands before them.
const NUMBERS: [(&str, NumberKind); 6] = [
    ("\"ts\": ", NumberKind::Time),
    ("\"correlation\": ", NumberKind::Identity),
    ("\"External id\": ", NumberKind::Identity),
    ("\"id\": ", NumberKind::Identity),
    ("\"Ev Idx\": ", NumberKind::Identity),
    ("\"ProfilerStep#", NumberKind::Step),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum NumberKind {
    /// Microseconds. What follows the point stays.
    Time,
    Identity,
    Step,
}

/// Writes a trace as long as `times` of the given one, which is Kineto's own text and not packed. The events of each
/// repetition follow those of the one before. An error where this is no such text.
pub fn repeat_kineto(trace: &str, times: u32, mut into: impl Write) -> io::Result<()> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "this is no trace as Kineto writes it");
    let begin = trace.find("\"traceEvents\": [").ok_or_else(wrong)? + "\"traceEvents\": [".len();
    let end = begin + trace[begin..].rfind("\n  ]").ok_or_else(wrong)?;
    let events = &trace[begin..end];
    let numbers = numbers(events);
    let of =
        |wanted: NumberKind| numbers.values().filter(move |(number, ..)| *number == wanted).map(|(_, value, _)| *value);
    // A little apart, so that no two repetitions touch.
    let period = extent(of(NumberKind::Time)) + extent(of(NumberKind::Time)) / 100 + 1000;
    let (identities, steps) = (extent(of(NumberKind::Identity)) + 1, extent(of(NumberKind::Step)) + 1);
    into.write_all(&trace.as_bytes()[..begin])?;
    for repetition in 0..i64::from(times) {
        if repetition > 0 {
            into.write_all(b",")?;
        }
        let mut written = 0;
        for (place, (number, value, digits)) in &numbers {
            let step = match number {
                NumberKind::Time => period,
                NumberKind::Identity => identities,
                NumberKind::Step => steps,
            };
            into.write_all(&events.as_bytes()[written..*place])?;
            write!(into, "{}", value + repetition * step)?;
            written = place + digits;
        }
        into.write_all(&events.as_bytes()[written..])?;
    }
    into.write_all(&trace.as_bytes()[end..])?;
    into.flush()
}

/// Where each number stands, what it is and how many digits it has.
fn numbers(events: &str) -> BTreeMap<usize, (NumberKind, i64, usize)> {
    let mut numbers = BTreeMap::new();
    for (before, number) in NUMBERS {
        for place in memmem::find_iter(events.as_bytes(), before).map(|place| place + before.len()) {
            let digits = events[place..].bytes().take_while(u8::is_ascii_digit).count();
            if let Ok(value) = events[place..place + digits].parse() {
                numbers.insert(place, (number, value, digits));
            }
        }
    }
    numbers
}

fn extent(values: impl Iterator<Item = i64> + Clone) -> i64 {
    values.clone().max().unwrap_or(0) - values.min().unwrap_or(0)
}
