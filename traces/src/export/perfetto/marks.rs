//! Moments that stand out, and stretches of time that have a track of their own.

use std::collections::BTreeMap;

use super::{
    event::{END, Event},
    labels::Label,
    schema::{DebugAnnotation, EventType, TrackEvent, Value},
    sequence::Content,
    slices::Slices,
    text::clean,
    timing::shifted,
    tracks::TrackPlace,
    writing::Writing,
};
use crate::{ids::NameId, names::Names};

/// Where the tracks of these are among those of a rank: marks above everything, stretches below the annotations.
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

/// Stretches of time on a track of their own, in the clock that all ranks share.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretches {
    /// What the track is called.
    pub name: &'static str,
    /// In the order of their beginnings, and the longest first where several begin at once.
    pub stretches: Vec<NamedStretch>,
}

/// A stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedStretch {
    /// When it begins.
    pub start_ns: i64,
    /// When it ends.
    pub end_ns: i64,
    /// What it is.
    pub name: String,
    /// What else is known of it.
    pub arguments: Vec<(String, Fact)>,
}

/// Writes marks, on a track of a rank or of all.
pub(super) fn write_marks(marks: &[Mark], track: &str, parent: u64, shift: i64, into: &mut Writing<'_>) {
    let mut marks: Vec<&Mark> = marks.iter().collect();
    marks.sort_by_key(|mark| mark.time_ns);
    if marks.is_empty() {
        return;
    }
    let track = into.track(&TrackPlace { parent, order: MARKS, name: track.into() });
    let mut sequence = into.sequence(track, Content::Few);
    for mark in marks {
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

fn argument((name, fact): &(String, Fact)) -> DebugAnnotation {
    DebugAnnotation {
        name_iid: None,
        name: Some(clean(name).into_owned()),
        value: Some(match fact {
            Fact::Count(count) => Value::Unsigned(*count),
            Fact::Number(number) => Value::Double(*number),
            Fact::Text(text) => Value::Text(clean(text).into_owned()),
        }),
    }
}

/// Writes stretches, each kind on a track of a rank or of all.
pub(super) fn write_stretches(kinds: &[Stretches], parent: u64, shift: i64, into: &mut Writing<'_>) {
    for (place, Stretches { name, stretches }) in (0..).zip(kinds) {
        let mut slices = Slices::new(TrackPlace { parent, order: STRETCHES + place, name: (*name).into() }, true);
        let mut event = Event::default();
        let (mut names, mut ids): (Names, BTreeMap<&str, NameId>) = Default::default();
        for NamedStretch { start_ns, end_ns, name, arguments } in stretches {
            let next = NameId(ids.len() as u32);
            let id = *ids.entry(name).or_insert_with(|| {
                names.extend([(next, name.as_str())]);
                next
            });
            event.begin(None);
            arguments.iter().for_each(|fact| event.named_argument(&argument(fact)));
            let times = (shifted(*start_ns, shift), shifted(*end_ns, shift));
            slices.push(into, times, &mut event, (Label::Recorded(id), &names));
            into.written.stretches += 1;
        }
        slices.finish(into);
        into.written.clipped += slices.clipped;
    }
}

/// Writes stretches that do not overlap on the row of a group itself, which is seen before anything below it is.
pub(super) fn write_on_group(stretches: &[NamedStretch], group: u64, shift: i64, into: &mut Writing<'_>) {
    if stretches.is_empty() {
        return;
    }
    let mut sequence = into.sequence(group, Content::Few);
    for NamedStretch { start_ns, end_ns, name, arguments } in stretches {
        let begins = TrackEvent {
            r#type: Some(EventType::SliceBegin as i32),
            name: Some(clean(name).into_owned()),
            debug_annotations: arguments.iter().map(argument).collect(),
            ..Default::default()
        };
        sequence.push(&mut into.packets, shifted(*start_ns, shift), &begins);
        sequence.push_encoded(&mut into.packets, shifted(*end_ns, shift), &END);
        into.written.stretches += 1;
    }
}
