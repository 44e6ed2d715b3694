//! Moments that stand out, and stretches of time that have a track of their own.

use std::collections::BTreeMap;

use super::{
    event::Event,
    labels::Label,
    schema::{DebugAnnotation, EventType, TrackEvent, Value},
    sequence::Content,
    slices::{MOST_LANES, Slices, Thread},
    text::clean,
    timing::shifted,
    writing::Writing,
};
use crate::{ids::NameId, names::Names};

/// Where the tracks of these are among those of a process: marks above everything, stretches below the annotations.
const MARKS: i32 = 1;
const STRETCHES: i32 = 48;

/// A moment that stands out, in the clock that all ranks share.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// When it is.
    pub time_ns: i64,
    /// What it is.
    pub name: String,
    /// What else is known of it.
    pub arguments: Vec<(String, Fact)>,
}

/// Something that is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A count.
    Count(u64),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

/// Stretches of time on a track of their own, which do not overlap, in the clock that all ranks share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretches {
    /// What the track is called.
    pub name: &'static str,
    /// From when to when each is, and what, in order.
    pub stretches: Vec<(i64, i64, String)>,
}

/// Writes marks, on a track of a process.
pub(super) fn write_marks(marks: &[Mark], track: &str, process: i32, shift: i64, into: &mut Writing<'_>) {
    let mut marks: Vec<&Mark> = marks.iter().collect();
    marks.sort_by_key(|mark| mark.time_ns);
    if marks.is_empty() {
        return;
    }
    let thread = into.thread(process, process + MARKS, track.into());
    let mut sequence = into.sequence(thread, Content::Few);
    for mark in marks {
        let argument = |(name, fact): &(String, Fact)| DebugAnnotation {
            name_iid: None,
            name: Some(clean(name).into_owned()),
            value: Some(match fact {
                Fact::Count(count) => Value::Unsigned(*count),
                Fact::Number(number) => Value::Double(*number),
                Fact::Text(text) => Value::Text(clean(text).into_owned()),
            }),
        };
        let event = TrackEvent {
            r#type: Some(EventType::Instant as i32),
            name: Some(clean(&mark.name).into_owned()),
            debug_annotations: mark.arguments.iter().map(argument).collect(),
            ..Default::default()
        };
        sequence.push(&mut into.packets, shifted(mark.time_ns, shift), &event);
        into.written.marks += 1;
    }
}

/// Writes stretches, each kind on a track of a process.
pub(super) fn write_stretches(kinds: &[Stretches], process: i32, shift: i64, into: &mut Writing<'_>) {
    for (place, Stretches { name, stretches }) in (0..).zip(kinds) {
        let first = process + STRETCHES + place * MOST_LANES as i32;
        let mut slices = Slices::new(Thread { process, first, name: (*name).into() }, false);
        let mut event = Event::default();
        let (mut names, mut ids): (Names, BTreeMap<&str, NameId>) = Default::default();
        for (start, end, what) in stretches {
            let next = NameId(ids.len() as u32);
            let id = *ids.entry(what).or_insert_with(|| {
                names.extend([(next, what.as_str())]);
                next
            });
            event.begin(None);
            let times = (shifted(*start, shift), shifted(*end, shift));
            slices.push(into, times, &mut event, (Label::Recorded(id), &names));
            into.written.stretches += 1;
        }
        slices.finish(into);
        into.written.clipped += slices.clipped;
    }
}
