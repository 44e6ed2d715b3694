//! Walks through the JSON of a trace while it comes in, around what cannot be read.
//!
//! A trace is one object: some fields, `traceEvents`, and maybe more fields; or a list of the events alone. Nothing of it is
//! kept here but the value that is being read, and that is bounded, so memory does not grow with the file. An event that cannot
//! be read costs itself: reading goes on behind the place of the error, which strings without line breaks keep close to the
//! damage.

use std::{
    io,
    ops::{ControlFlow, Range},
};

use memchr::{memchr, memchr_iter, memmem};
use serde_json::{Deserializer, value::RawValue};

use super::{
    event::Event,
    plain::{SeenEvents, plain_event},
    skip::skipped,
};
use crate::loss::Loss;

/// No value of a trace is longer. Those of Kineto have kilobytes.
const LONGEST_VALUE: usize = 16 << 20;
/// How much text is checked in one go at most, and behind damage.
const LONGEST_STRETCH: usize = 64 << 10;
const SHORTEST_STRETCH: usize = 1 << 10;
/// Shorter stretches of events are not handed on.
const SHORTEST_SHARE: usize = 256 << 10;
/// How many numbers of an event may be none: each has it read once more.
const MOST_PATCHES: usize = 16;
/// After this many unreadable places the rest is skipped: the file is no trace, or nothing is left of it.
const MOST_DAMAGE: u64 = 1 << 20;
/// What the C++ of some versions writes where a division has no result, though JSON has no such numbers.
const NO_NUMBERS: [&[u8]; 8] = [b"-Infinity", b"Infinity", b"-nan(ind)", b"-nan", b"nan", b"-inf", b"inf", b"NaN"];

/// Where the bytes come from.
pub(super) trait Supply {
    /// Appends some; says whether there were any.
    fn append_next(&mut self, to: &mut Vec<u8>) -> io::Result<bool>;

    /// Goes on behind a stretch of events, without reading it, and says where in the file it is. It begins with those bytes
    /// that were appended and are still unread.
    fn pass_over(&mut self, _unread: usize) -> Option<Range<u64>> {
        None
    }
}

/// Events that stand one behind the other.
pub(super) enum EventStretch {
    /// Their text.
    Text(Vec<u8>),
    /// Where they are in the file.
    InFile(Range<u64>),
}

/// Who is told what is there.
pub(super) trait Visit {
    /// A field besides the events.
    fn field(&mut self, key: &str, value: &RawValue);

    /// The events begin; whether they are wanted.
    fn begin(&mut self) -> ControlFlow<()>;

    /// An event that may be of use; whether more of them are wanted.
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()>;

    /// An event that is of no use.
    fn skip(&mut self) {}

    /// Whether it wants whole stretches of events rather than each.
    fn wants_stretches(&self) -> bool {
        false
    }

    /// A stretch of events that stand one behind the other; whether more of them are wanted.
    fn stretch(&mut self, _events: EventStretch) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// How a walk ended.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// What could not be read.
    pub(super) loss: Loss,
    /// Why the bytes ended early, if they did.
    pub(super) cut: Option<io::Error>,
    /// What it is instead, if it is no object with events.
    pub(super) instead: Option<Instead>,
    /// Whether it is a list of events alone.
    pub(super) is_list: bool,
    /// Whether the end of the object, or of the list, was seen.
    pub(super) is_whole: bool,
}

/// What something is that is no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instead {
    /// There are no bytes.
    Nothing,
    /// A JSON object without events.
    Object,
    /// No JSON at all.
    Bytes,
}

/// Walks through a trace.
pub(super) fn walk(supply: impl Supply, visit: &mut impl Visit) -> Walked {
    let (buffer, walked) = (Vec::new(), Walked::default());
    let mut walk = Walk { supply, buffer, at: 0, ended: false, stretch: LONGEST_STRETCH, walked };
    walk.document(visit);
    walk.walked
}

/// Reads a stretch of events; says whether all of them could be read.
pub(super) fn walk_stretch(events: &[u8], visit: &mut impl Visit) -> bool {
    let Ok(text) = std::str::from_utf8(events) else { return false };
    let (read, goes_on) = run_of_events(text, visit);
    goes_on.is_continue() && text[read..].trim_ascii().trim_start_matches(',').is_empty()
}

/// Reads events as long as nothing is in the way; says how long they are, and whether more are wanted.
fn run_of_events(text: &str, visit: &mut impl Visit) -> (usize, ControlFlow<()>) {
    let (mut rest, mut read) = (text, 0);
    let (mut event, mut seen) = (Event::default(), SeenEvents::default());
    loop {
        rest = rest.trim_ascii_start();
        rest = rest.strip_prefix(',').map_or(rest, str::trim_ascii_start);
        let mut goes_on = ControlFlow::Continue(());
        let bytes = match skipped(rest) {
            Some(bytes) => {
                visit.skip();
                bytes
            }
            None => {
                let plain = plain_event(rest, &mut event, &mut seen);
                let Some(bytes) = plain.or_else(|| parsed_event(rest, &mut event)) else {
                    return (read, goes_on);
                };
                if !event.is_one() {
                    return (read, goes_on);
                }
                goes_on = visit.event(&event);
                bytes
            }
        };
        rest = &rest[bytes..];
        read = text.len() - rest.len();
        if goes_on.is_break() {
            return (read, goes_on);
        }
    }
}

/// How Kineto ends an event that another one follows, and how that begins.
const END: &[u8] = b"\n  },";
const BETWEEN: &[u8] = b"\n  },\n  {";

/// Where the last event ends that another one follows.
pub(super) fn end_of_events(bytes: &[u8]) -> Option<usize> {
    Some(memmem::rfind(bytes, BETWEEN)? + END.len())
}

/// Where the first event ends that another one follows.
pub(super) fn next_end_of_event(bytes: &[u8]) -> Option<usize> {
    Some(memmem::find(bytes, BETWEEN)? + END.len())
}

struct Walk<S> {
    supply: S,
    /// What was not read yet begins at `at`.
    buffer: Vec<u8>,
    at: usize,
    ended: bool,
    /// How much text is checked in one go: nothing where the last event could not be read, so that text which is nothing
    /// but damage is not checked again and again.
    stretch: usize,
    walked: Walked,
}

/// What stood where a field was expected.
#[derive(PartialEq)]
enum FieldOutcome {
    /// One that was read.
    Read,
    /// The beginning of the events.
    Events,
    /// Nothing that makes sense.
    Damage,
}

impl<S: Supply> Walk<S> {
    fn document(&mut self, visit: &mut impl Visit) {
        self.skip_byte_order_mark();
        match self.next_byte() {
            Some(b'{') => self.at += 1,
            Some(b'[') => return self.list(visit),
            first => {
                self.walked.instead = Some(first.map_or(Instead::Nothing, |_| Instead::Bytes));
                return;
            }
        }
        let (mut seen_events, mut damaged) = (false, false);
        while !self.walked.is_whole && !damaged {
            let mut found = match self.next_byte() {
                Some(b'"') => self.field(visit),
                Some(b',') => {
                    self.at += 1;
                    FieldOutcome::Read
                }
                Some(b'}') => {
                    self.walked.is_whole = true;
                    FieldOutcome::Read
                }
                _ => FieldOutcome::Damage,
            };
            damaged = found == FieldOutcome::Damage;
            if damaged && !seen_events && self.find_events() {
                found = FieldOutcome::Events;
                damaged = false;
            }
            if found == FieldOutcome::Events {
                seen_events = true;
                if visit.begin().is_break() {
                    return;
                }
                if self.events(visit).is_break() {
                    return;
                }
            }
        }
        if !seen_events {
            self.walked.instead = Some(if damaged { Instead::Bytes } else { Instead::Object });
        } else if damaged {
            self.lose_rest();
        }
    }

    /// Reads a list of events alone.
    fn list(&mut self, visit: &mut impl Visit) {
        self.at += 1;
        self.walked.is_list = true;
        if visit.begin().is_continue() && self.events(visit).is_continue() {
            self.walked.is_whole = self.at > 0 && self.buffer[self.at - 1] == b']';
        }
    }

    /// Reads one field, unless it is that of the events.
    fn field(&mut self, visit: &mut impl Visit) -> FieldOutcome {
        let mut key = String::new();
        if !self.value(|text: &RawValue| key = serde_json::from_str(text.get()).unwrap_or_default()) {
            return FieldOutcome::Damage;
        }
        if self.next_byte() != Some(b':') {
            return FieldOutcome::Damage;
        }
        self.at += 1;
        match self.next_byte() {
            Some(b'[') if key == "traceEvents" => {
                self.at += 1;
                FieldOutcome::Events
            }
            Some(_) if self.value(|value| visit.field(&key, value)) => FieldOutcome::Read,
            _ => FieldOutcome::Damage,
        }
    }

    /// Reads one value of the object itself; says whether it could be.
    fn value(&mut self, mut take: impl FnMut(&RawValue)) -> bool {
        loop {
            let unread = &self.buffer[self.at..];
            let mut values = Deserializer::from_slice(unread).into_iter::<&RawValue>();
            let read = match values.next() {
                // A number at the end of the buffer may go on behind it.
                Some(Ok(value)) if values.byte_offset() < unread.len() || self.ended => {
                    take(value);
                    Some(values.byte_offset())
                }
                Some(Err(error)) if !is_cut(&error, unread) => return false,
                _ => None,
            };
            match read {
                Some(bytes) => {
                    self.at += bytes;
                    return true;
                }
                None if self.is_too_long() || !self.fill() => return false,
                None => {}
            }
        }
    }

    /// Reads events to the end of their array, or of the bytes.
    fn events(&mut self, visit: &mut impl Visit) -> ControlFlow<()> {
        loop {
            self.stretches(visit)?;
            self.whole_events(visit)?;
            match self.next_byte() {
                Some(_) if self.walked.loss.unreadable_events >= MOST_DAMAGE => self.lose_rest(),
                Some(b'{') => self.event(visit)?,
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return ControlFlow::Continue(());
                }
                Some(_) => {
                    self.walked.loss.unreadable_events += 1;
                    self.lose_to_object(0);
                }
                None => return ControlFlow::Continue(()),
            }
        }
    }

    /// Hands on whole stretches of events as long as there are long ones.
    fn stretches(&mut self, visit: &mut impl Visit) -> ControlFlow<()> {
        while visit.wants_stretches() {
            let unread = &self.buffer[self.at..];
            if let Some(place) = self.supply.pass_over(unread.len()) {
                self.buffer.clear();
                self.at = 0;
                visit.stretch(EventStretch::InFile(place))?;
                continue;
            }
            let end = if unread.ends_with(END) { Some(unread.len()) } else { end_of_events(unread) };
            match end.filter(|end| *end >= SHORTEST_SHARE) {
                Some(end) => {
                    let rest = self.buffer.split_off(self.at + end);
                    let mut stretch = std::mem::replace(&mut self.buffer, rest);
                    stretch.drain(..std::mem::take(&mut self.at));
                    visit.stretch(EventStretch::Text(stretch))?;
                }
                None if self.buffer.len() - self.at < SHORTEST_SHARE && self.fill() => {}
                None => break,
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads events as long as nothing is in the way: damage, the end of the buffer, or the end of the events. Text is
    /// checked for being some in one go, which takes a tenth of the time that it takes for each name.
    fn whole_events(&mut self, visit: &mut impl Visit) -> ControlFlow<()> {
        loop {
            let bytes = &self.buffer[self.at..self.buffer.len().min(self.at + self.stretch)];
            let text = match std::str::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
            };
            let (read, goes_on) = run_of_events(text, visit);
            self.at += read;
            goes_on?;
            if read == 0 {
                return ControlFlow::Continue(());
            }
            self.stretch = (2 * self.stretch).min(LONGEST_STRETCH);
        }
    }

    /// Reads the event that begins here, or goes to where the next one may begin.
    fn event(&mut self, visit: &mut impl Visit) -> ControlFlow<()> {
        let mut patches = 0;
        loop {
            let unread = &self.buffer[self.at..];
            let mut events = Deserializer::from_slice(unread).into_iter::<Event<'_>>();
            let failed_at = match events.next() {
                Some(Ok(event)) if event.is_one() => {
                    let goes_on = visit.event(&event);
                    self.at += events.byte_offset();
                    self.stretch = self.stretch.max(SHORTEST_STRETCH);
                    return goes_on;
                }
                Some(Ok(_)) => events.byte_offset(),
                Some(Err(error)) if is_cut(&error, unread) && !self.is_too_long() && !self.ended => {
                    self.fill();
                    continue;
                }
                Some(Err(error)) => {
                    let place = place_of(&error, unread);
                    if patches < MOST_PATCHES && self.patch(place) {
                        patches += 1;
                        continue;
                    }
                    place
                }
                None => 1,
            };
            self.walked.loss.unreadable_events += 1;
            self.lose_to_object(failed_at.max(1));
            return ControlFlow::Continue(());
        }
    }

    /// Puts an empty text in the place of what stands for no number; says whether there was such a thing.
    fn patch(&mut self, place: usize) -> bool {
        let unread = &mut self.buffer[self.at..];
        // The error is at the first letter, or at the one that makes it no other word.
        for from in (place.saturating_sub(4)..=place.min(unread.len())).rev() {
            let found = NO_NUMBERS.iter().find(|word| unread[from..].starts_with(word));
            let is_value = from > 0 && matches!(unread[from - 1], b':' | b',' | b'[' | b' ' | b'\n' | b'\t');
            if let Some(word) = found.filter(|_| is_value) {
                unread[from..from + word.len()].fill(b' ');
                unread[from..from + 2].fill(b'"');
                return true;
            }
        }
        false
    }

    /// Looks for the beginning of the events behind damage.
    fn find_events(&mut self) -> bool {
        const KEY: &[u8] = b"\"traceEvents\"";
        loop {
            match memmem::find(&self.buffer[self.at..], KEY) {
                Some(place) => {
                    self.lose(place + KEY.len());
                    if self.next_byte() != Some(b':') {
                        continue;
                    }
                    self.at += 1;
                    if self.next_byte() == Some(b'[') {
                        self.at += 1;
                        return true;
                    }
                }
                None => {
                    let read = self.buffer.len() - self.at;
                    self.lose(read.saturating_sub(KEY.len()));
                    if !self.fill() {
                        return false;
                    }
                }
            }
        }
    }

    /// Goes to the next place where an object may begin, at least some bytes on.
    fn lose_to_object(&mut self, least: usize) {
        self.stretch = 0;
        self.lose(least);
        loop {
            match memchr(b'{', &self.buffer[self.at..]) {
                Some(place) => return self.lose(place),
                None => {
                    self.lose(self.buffer.len() - self.at);
                    if !self.fill() {
                        return;
                    }
                }
            }
        }
    }

    fn lose_rest(&mut self) {
        loop {
            self.lose(self.buffer.len() - self.at);
            if !self.fill() {
                return;
            }
        }
    }

    fn lose(&mut self, bytes: usize) {
        self.at += bytes;
        self.walked.loss.unreadable_bytes += bytes as u64;
    }

    /// The next byte that is no space.
    fn next_byte(&mut self) -> Option<u8> {
        loop {
            let unread = &self.buffer[self.at..];
            match unread.iter().position(|byte| !byte.is_ascii_whitespace()) {
                Some(spaces) => {
                    self.at += spaces;
                    return Some(self.buffer[self.at]);
                }
                None => {
                    self.at = self.buffer.len();
                    if !self.fill() {
                        return None;
                    }
                }
            }
        }
    }

    fn skip_byte_order_mark(&mut self) {
        while self.buffer.len() < 8 && self.fill() {}
        if self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
    }

    /// Whether the value that begins here is longer than any can be.
    fn is_too_long(&self) -> bool {
        self.buffer.len() - self.at >= LONGEST_VALUE
    }

    /// Makes the unread part longer, and twice as long at least, so that what is read again stays within bounds; says
    /// whether anything came.
    fn fill(&mut self) -> bool {
        if self.ended {
            return false;
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        let before = self.buffer.len();
        while !self.ended && self.buffer.len() <= 2 * before {
            match self.supply.append_next(&mut self.buffer) {
                Ok(true) => {}
                Ok(false) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    self.walked.cut = Some(error);
                }
            }
        }
        self.buffer.len() > before
    }
}

/// Reads the event at the beginning of a text, and says how long it is.
fn parsed_event<'a>(text: &'a str, event: &mut Event<'a>) -> Option<usize> {
    let mut events = Deserializer::from_str(text).into_iter::<Event<'_>>();
    *event = events.next().filter(|_| text.starts_with('{'))?.ok()?;
    Some(events.byte_offset())
}

/// Whether a value may be no error but go on behind the end of the text: numbers that are skipped do not say so.
fn is_cut(error: &serde_json::Error, text: &[u8]) -> bool {
    error.is_eof() || place_of(error, text) + 1 >= text.len()
}

/// How many bytes of a text come before an error.
pub(super) fn place_of(error: &serde_json::Error, text: &[u8]) -> usize {
    let line = match error.line() {
        0 | 1 => 0,
        line => memchr_iter(b'\n', text).nth(line - 2).map_or(text.len(), |end| end + 1),
    };
    (line + error.column()).saturating_sub(1).min(text.len())
}

#[cfg(test)]
mod tests;
