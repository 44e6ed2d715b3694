//! A plane of a profile: its name, what is said of it, and its lines of events.

use hashbrown::HashMap;
use prost::Message;

use super::{
    message::{XEvent, XEventMetadata, XStat, XStatMetadata, XStatValue},
    wire::{FieldValue, WireFields},
};
use crate::{ids::Nanos, loss::Loss};

macro_rules! stats {
    ($($name:ident = $($word:literal)|+,)*) => {
        /// What a stat says, as far as we read it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum StatName {
            $($name,)*
        }

        impl StatName {
            fn named(word: &str) -> Option<StatName> {
                match word {
                    $($($word)|+ => Some(StatName::$name),)*
                    _ => None,
                }
            }
        }
    };
}

stats! {
    Correlation = "correlation_id",
    HloOp = "hlo_op",
    HloModule = "hlo_module",
    HloCategory = "hlo_category",
    HloProto = "Hlo Proto" | "hlo_proto",
    Program = "program_id",
    OpName = "name",
    FrameworkOp = "tf_op",
    Source = "source",
    Copied = "memcpy_details",
    Filled = "Memset_details" | "memset_details",
    Allocated = "memalloc_details" | "MemFree_details" | "MemoryResidency_details",
    StepNumber = "step_num",
    StepTitle = "step_name",
    Flops = "flops",
    BytesAccessed = "bytes_accessed",
    ProfileStart = "profile_start_time",
    DeviceType = "device_type_string",
    Vendor = "device_vendor",
    Memory = "memory_size",
    ComputeMajor = "compute_cap_major",
    ComputeMinor = "compute_cap_minor",
    Cores = "core_count",
    PeakTeraflops = "peak_teraflops_per_second",
}

/// A plane: what one device did, or the threads of the host.
pub(super) struct Plane<'a> {
    pub(super) name: String,
    /// What the names of stats mean, by their numbers.
    meanings: HashMap<i64, StatName>,
    /// The names themselves, which stats may refer to as values.
    texts: HashMap<u64, String>,
    /// What events of a kind have in common, by the number of the kind.
    pub(super) kinds: HashMap<i64, XEventMetadata>,
    stats: Vec<XStat>,
    lines: Vec<&'a [u8]>,
    /// What of it cannot be read.
    pub(super) loss: Loss,
}

/// A line of a plane: a stream, a thread, or something that was derived from those.
pub(super) struct Line<'a> {
    pub(super) id: i64,
    pub(super) name: String,
    timestamp_ns: i64,
    bytes: &'a [u8],
}

/// An event with its times.
pub(super) struct TimedEvent<'a> {
    pub(super) start: Nanos,
    pub(super) duration: Nanos,
    pub(super) kind: &'a XEventMetadata,
    stats: Vec<XStat>,
    plane: &'a Plane<'a>,
}

impl<'a> Plane<'a> {
    /// Reads all but its lines.
    pub(super) fn of(message: &'a [u8]) -> Plane<'a> {
        let mut plane = Plane {
            name: String::new(),
            meanings: HashMap::new(),
            texts: HashMap::new(),
            kinds: HashMap::new(),
            stats: Vec::new(),
            lines: Vec::new(),
            loss: Loss::default(),
        };
        // What stats mean stands behind what they are said of.
        let mut fields = WireFields::of(message);
        for (number, value) in fields.by_ref() {
            match (number, value) {
                (2, FieldValue::Bytes(name)) => plane.name = String::from_utf8_lossy(name).into_owned(),
                (3, FieldValue::Bytes(line)) => plane.lines.push(line),
                (5, FieldValue::Bytes(entry)) => plane.take_stat_kind(entry),
                _ => {}
            }
        }
        plane.loss.unreadable_bytes += fields.lost;
        for (number, value) in WireFields::of(message) {
            match (number, value) {
                (4, FieldValue::Bytes(entry)) => plane.take_event_kind(entry),
                (6, FieldValue::Bytes(stat)) => match XStat::decode(stat) {
                    Ok(stat) => {
                        plane.stats.extend(Some(stat).filter(|stat| plane.meanings.contains_key(&stat.metadata_id)))
                    }
                    Err(_) => plane.loss.unreadable_events += 1,
                },
                _ => {}
            }
        }
        plane
    }

    fn take_stat_kind(&mut self, entry: &[u8]) {
        let (id, value) = map_entry(entry);
        match XStatMetadata::decode(value) {
            Ok(XStatMetadata { name }) => {
                self.meanings.extend(StatName::named(&name).map(|meaning| (id, meaning)));
                self.texts.insert(id.cast_unsigned(), name);
            }
            Err(_) => self.loss.unreadable_events += 1,
        }
    }

    fn take_event_kind(&mut self, entry: &[u8]) {
        let (id, value) = map_entry(entry);
        match XEventMetadata::decode(value) {
            Ok(mut kind) => {
                kind.stats.retain(|stat| self.meanings.contains_key(&stat.metadata_id));
                kind.stats.shrink_to_fit();
                self.kinds.insert(id, kind);
            }
            Err(_) => self.loss.unreadable_events += 1,
        }
    }

    /// Its lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line<'a>> {
        self.lines.iter().map(|bytes| {
            let mut line = Line { id: 0, name: String::new(), timestamp_ns: 0, bytes };
            for (number, value) in WireFields::of(bytes) {
                match (number, value) {
                    (1, FieldValue::Number(id)) => line.id = id.cast_signed(),
                    (2, FieldValue::Bytes(name)) => line.name = String::from_utf8_lossy(name).into_owned(),
                    (3, FieldValue::Number(time)) => line.timestamp_ns = time.cast_signed(),
                    _ => {}
                }
            }
            line
        })
    }

    /// Shows the events of a line. Times count from `base`; what cannot be read is counted.
    pub(super) fn events(&self, line: &Line<'_>, base: i64, loss: &mut Loss, mut show: impl FnMut(TimedEvent<'_>)) {
        // Newer profiles count from the beginning of the profile, older ones from 1970.
        let from = if line.timestamp_ns < base { line.timestamp_ns.checked_add(base) } else { Some(line.timestamp_ns) };
        let mut fields = WireFields::of(line.bytes);
        for (number, value) in fields.by_ref() {
            let (4, FieldValue::Bytes(event)) = (number, value) else { continue };
            let Ok(event) = XEvent::decode(event) else {
                loss.unreadable_events += 1;
                continue;
            };
            if event.occurrences.is_some() {
                continue;
            }
            let times = from.and_then(|from| times(from, event.offset_ps.unwrap_or(0), event.duration_ps));
            match times.zip(self.kinds.get(&event.metadata_id)) {
                Some(((start, duration), kind)) => {
                    show(TimedEvent { start, duration, kind, stats: event.stats, plane: self });
                }
                None => loss.unreadable_events += 1,
            }
        }
        loss.unreadable_bytes += fields.lost;
    }

    /// What is said of the plane itself.
    pub(super) fn text(&self, name: StatName) -> Option<String> {
        self.stat(&self.stats, name).and_then(|stat| self.text_of(stat)).filter(|text| !text.is_empty())
    }

    /// A number that is said of the plane itself.
    pub(super) fn number(&self, name: StatName) -> Option<f64> {
        match self.stat(&self.stats, name)?.value.as_ref()? {
            XStatValue::Double(number) => Some(*number),
            XStatValue::Unsigned(number) => Some(*number as f64),
            XStatValue::Signed(number) => Some(*number as f64),
            XStatValue::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// A whole number that is said of the plane itself.
    pub(super) fn whole(&self, name: StatName) -> Option<u64> {
        self.whole_of(self.stat(&self.stats, name)?)
    }

    fn stat<'s>(&self, stats: &'s [XStat], name: StatName) -> Option<&'s XStat> {
        stats.iter().find(|stat| self.meanings.get(&stat.metadata_id) == Some(&name))
    }

    fn text_of(&self, stat: &XStat) -> Option<String> {
        match stat.value.as_ref()? {
            XStatValue::Text(text) => Some(text.clone()),
            XStatValue::Reference(id) => self.texts.get(id).cloned(),
            XStatValue::Unsigned(number) => Some(number.to_string()),
            XStatValue::Signed(number) => Some(number.to_string()),
            XStatValue::Double(_) | XStatValue::Bytes(_) => None,
        }
    }

    fn whole_of(&self, stat: &XStat) -> Option<u64> {
        match stat.value.as_ref()? {
            XStatValue::Unsigned(number) => Some(*number),
            XStatValue::Signed(number) => u64::try_from(*number).ok(),
            XStatValue::Double(number) if (0.0..1e18).contains(number) => Some(*number as u64),
            XStatValue::Text(text) => text.parse().ok(),
            XStatValue::Reference(id) => self.texts.get(id)?.parse().ok(),
            XStatValue::Double(_) | XStatValue::Bytes(_) => None,
        }
    }

    /// The bytes that are said of a kind of events under this name.
    pub(super) fn bytes_of_kind<'k>(&self, kind: &'k XEventMetadata, name: StatName) -> Option<&'k [u8]> {
        match self.stat(&kind.stats, name)?.value.as_ref()? {
            XStatValue::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl TimedEvent<'_> {
    /// What is said of the event, else of its kind.
    fn stat(&self, name: StatName) -> Option<&XStat> {
        self.plane.stat(&self.stats, name).or_else(|| self.plane.stat(&self.kind.stats, name))
    }

    pub(super) fn has(&self, name: StatName) -> bool {
        self.stat(name).is_some()
    }

    pub(super) fn text(&self, name: StatName) -> Option<String> {
        self.stat(name).and_then(|stat| self.plane.text_of(stat)).filter(|text| !text.is_empty())
    }

    pub(super) fn whole(&self, name: StatName) -> Option<u64> {
        self.plane.whole_of(self.stat(name)?)
    }
}

/// When an event begins and how long it takes. Both ends are rounded down, so that what does not overlap in picoseconds does
/// not in nanoseconds, and what touches still does.
fn times(from_ns: i64, offset_ps: i64, duration_ps: i64) -> Option<(Nanos, Nanos)> {
    if duration_ps < 0 {
        return None;
    }
    let start = i128::from(from_ns) * 1000 + i128::from(offset_ps);
    let end = start + i128::from(duration_ps);
    let start = i64::try_from(start.div_euclid(1000)).ok()?;
    let duration = i64::try_from(end.div_euclid(1000) - i128::from(start)).ok()?;
    let (start, duration) = (Nanos(start), Nanos(duration));
    start.has_end(duration).then_some((start, duration))
}

/// The number and the value of an entry of a map.
fn map_entry(entry: &[u8]) -> (i64, &[u8]) {
    let (mut id, mut value) = (0, &[][..]);
    for (number, field) in WireFields::of(entry) {
        match (number, field) {
            (1, FieldValue::Number(key)) => id = key.cast_signed(),
            (2, FieldValue::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    (id, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_in_picoseconds_touches_in_nanoseconds() {
        assert_eq!(times(10, 1999, 2), Some((Nanos(11), Nanos(1))));
        assert_eq!(times(10, 2001, 999), Some((Nanos(12), Nanos(1))));
        assert_eq!(times(10, 0, 999), Some((Nanos(10), Nanos(0))));
        assert_eq!(times(0, -1, 1), Some((Nanos(-1), Nanos(1))));
        assert_eq!(times(0, 5, -1), None);
        assert_eq!(times(i64::MAX, 0, 0), None);
        assert_eq!(times(0, i64::MAX, i64::MAX).map(|(start, _)| start), Some(Nanos(i64::MAX / 1000)));
    }
}
