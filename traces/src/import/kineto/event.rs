//! One event of a trace, as far as we want it.
//!
//! Many events of a trace are functions of libraries, and arrows between events. What an event is stands at its beginning,
//! so the rest of those is skipped without being looked at: this is what makes reading fast.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    decimal::nanoseconds,
    operator_arguments::OperatorArguments,
    value::{Text, TraceValue, number, unquoted},
};
use crate::ids::Nanos;

/// The operator that says what is asked of a process group.
pub(super) const COMMUNICATION: &str = "record_param_comms";

/// One event. What of it is missing, or is something else than it should be, is none.
#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    pub(super) mark: Option<TraceEventType>,
    pub(super) category: Option<Category>,
    /// The word for it, if it is none of ours.
    pub(super) other_category: Option<&'a str>,
    /// Its name.
    pub(super) name: Cow<'a, str>,
    /// When it begins, in the trace's own time.
    pub(super) time: Option<Nanos>,
    /// How long it takes; none where that is not said, or is less than nothing.
    pub(super) duration: Option<Nanos>,
    /// As it stands in the trace.
    pub(super) process: Option<&'a str>,
    pub(super) thread: Option<TraceValue<'a>>,
    /// What it says besides.
    pub(super) arguments: Arguments<'a>,
    /// What an operator says besides, if that is read already.
    pub(super) operator_arguments: Option<OperatorArguments<'a>>,
    /// What it says besides, whole: of other operators, of which only what is new in one is looked at, and of beginnings and
    /// ends.
    pub(super) whole_arguments: Option<&'a str>,
}

/// What kind of mark an event leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceEventType {
    /// A stretch of time.
    Complete,
    /// The beginning of one.
    Begin,
    /// The end of the one that began last on its thread.
    End,
    /// A moment.
    Instant,
    /// What a process or a thread is called.
    Metadata,
    /// What we do not look at: arrows, counters, ends of something else.
    Other,
}

/// What an event is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    Kernel,
    Copy,
    Set,
    Launch,
    Overhead,
    Annotation,
    Operator,
    Function,
    Other,
}

/// What an event turns out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A kernel.
    Kernel,
    /// A copy.
    Copy,
    /// A fill.
    Set,
    /// A call of the host that may have launched something.
    Launch,
    /// A range that the program named.
    Annotation,
    /// A call of the host that asks for communication.
    Communication,
    /// An operator of PyTorch.
    Operator,
    /// A module or a function of the program.
    Function,
    /// An allocation or a free.
    Memory,
    /// Something that the profiler itself does.
    Overhead,
    /// What a thread is called.
    ThreadName,
}

impl<'a> Event<'a> {
    /// Makes room for another one.
    pub(super) fn clear(&mut self) {
        (self.mark, self.category, self.other_category) = (None, None, None);
        self.name = Cow::Borrowed("");
        (self.time, self.duration, self.process, self.thread) = (None, None, None, None);
        self.arguments.clear();
        (self.operator_arguments, self.whole_arguments) = (None, None);
    }

    /// What it says besides.
    pub(super) fn arguments(&self) -> &Arguments<'a> {
        &self.arguments
    }

    /// Whether this is an event at all: every one says what mark it leaves.
    pub(super) fn is_one(&self) -> bool {
        self.mark.is_some()
    }

    /// Whether Kineto alone writes such events.
    pub(super) fn is_of_kineto(&self) -> bool {
        self.category.is_some_and(|category| !matches!(category, Category::Overhead | Category::Other))
    }

    /// Whether a process of the host did it: the process of what a device did is the device.
    pub(super) fn is_of_host(&self) -> bool {
        let of_host = [Category::Operator, Category::Annotation, Category::Launch, Category::Function];
        self.category.is_some_and(|category| of_host.contains(&category))
    }

    /// Whether its arguments are kept whole.
    pub(super) fn keeps_arguments(&self) -> bool {
        self.is_operator() || matches!(self.mark, Some(TraceEventType::Begin | TraceEventType::End))
    }

    /// Takes its arguments, if they are some.
    pub(super) fn set_arguments(&mut self, text: &'a str) -> Option<()> {
        let text = unwrapped(text);
        match self.keeps_arguments() {
            true => self.whole_arguments = Some(text),
            false => self.arguments = Arguments::of(text)?,
        }
        Some(())
    }

    /// Whether it is an operator, and not the one that asks for communication.
    pub(super) fn is_operator(&self) -> bool {
        self.category == Some(Category::Operator) && self.name != COMMUNICATION
    }

    /// Whether it is all of a call of an operator, and not where one begins or ends.
    pub(super) fn is_call_of_operator(&self) -> bool {
        self.mark == Some(TraceEventType::Complete) && self.is_operator()
    }

    /// What it is, if we look at such events.
    pub(super) fn meaning(&self) -> Option<Meaning> {
        match (self.mark?, self.category) {
            (TraceEventType::Complete, Some(Category::Kernel)) => Some(Meaning::Kernel),
            (TraceEventType::Complete, Some(Category::Copy)) => Some(Meaning::Copy),
            (TraceEventType::Complete, Some(Category::Set)) => Some(Meaning::Set),
            (TraceEventType::Complete, Some(Category::Launch)) => Some(Meaning::Launch),
            (TraceEventType::Complete, Some(Category::Overhead)) => Some(Meaning::Overhead),
            (TraceEventType::Complete, Some(Category::Annotation)) => Some(Meaning::Annotation),
            (TraceEventType::Complete, Some(Category::Operator)) if self.is_operator() => Some(Meaning::Operator),
            (TraceEventType::Complete, Some(Category::Operator)) => Some(Meaning::Communication),
            (TraceEventType::Complete, Some(Category::Function)) if !is_of_libraries(&self.name) => {
                Some(Meaning::Function)
            }
            (TraceEventType::Instant, _) if self.name == "[memory]" => Some(Meaning::Memory),
            (TraceEventType::Metadata, _) if self.name == "thread_name" => Some(Meaning::ThreadName),
            _ => None,
        }
    }

    /// Takes the word for its category.
    pub(super) fn set_category(&mut self, word: Cow<'a, str>) {
        self.category = Some(Category::of(&word));
        self.other_category = match word {
            Cow::Borrowed(word) if self.category == Some(Category::Other) => Some(word),
            _ => None,
        };
    }

    /// The category of something that took time and is not read, unless that is of no use.
    pub(super) fn not_read(&self) -> Option<&'a str> {
        let took_time = self.mark == Some(TraceEventType::Complete);
        self.other_category.filter(|category| took_time && !OF_NO_USE.contains(category))
    }

    /// The thread it happened on.
    pub(super) fn thread(&self) -> Option<u32> {
        number(self.thread)
    }
}

impl TraceEventType {
    pub(super) fn of(word: &str) -> TraceEventType {
        match word {
            "X" => TraceEventType::Complete,
            "B" => TraceEventType::Begin,
            "E" => TraceEventType::End,
            "i" | "I" => TraceEventType::Instant,
            "M" => TraceEventType::Metadata,
            _ => TraceEventType::Other,
        }
    }
}

/// Categories of what is said elsewhere too.
const OF_NO_USE: [&str; 4] = ["Trace", "collective_comm", "cuda_sync", "gpu_user_annotation"];

impl Category {
    /// How many there are.
    pub(super) const COUNT: usize = Category::Other as usize + 1;

    /// What it is; older versions wrote other words.
    fn of(word: &str) -> Category {
        match word {
            "kernel" | "Kernel" => Category::Kernel,
            "gpu_memcpy" | "Memcpy" => Category::Copy,
            "gpu_memset" | "Memset" => Category::Set,
            "user_annotation" => Category::Annotation,
            "cpu_op" | "Operator" => Category::Operator,
            "python_function" => Category::Function,
            "overhead" => Category::Overhead,
            "Runtime" => Category::Launch,
            _ if word.ends_with("_runtime") || word.ends_with("_driver") => Category::Launch,
            _ => Category::Other,
        }
    }
}

/// Whether a function is one of Python's or PyTorch's own, which nobody looks for.
pub(super) fn is_of_libraries(name: &str) -> bool {
    const BEGINNINGS: [&str; 12] = [
        "<built-in",
        "<frozen",
        "<string>",
        "torch/",
        "threading.py",
        "contextlib.py",
        "functools.py",
        "runpy.py",
        "typing.py",
        "abc.py",
        "selectors.py",
        "importlib",
    ];
    BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || name.contains("/lib/python3") && !name.contains("-packages/")
}

/// The time that a value is, if it is one.
pub(super) fn time_of(value: &str) -> Option<Nanos> {
    nanoseconds(unquoted(value)).map(Nanos)
}

/// The duration that a value is, if it is one.
pub(super) fn duration_of(value: &str) -> Option<Nanos> {
    time_of(value).filter(|duration| duration.0 >= 0)
}

/// The arguments of an event, which Perfetto puts one level deeper when it saves a trace.
fn unwrapped(text: &str) -> &str {
    #[derive(Deserialize)]
    struct Nested<'a> {
        #[serde(borrow)]
        args: &'a RawValue,
    }
    let first = text.strip_prefix('{').unwrap_or_default().trim_ascii_start();
    let nested = first.starts_with("\"args\"").then(|| serde_json::from_str::<Nested<'_>>(text).ok()).flatten();
    nested.map(|nested| nested.args.get()).filter(|inner| inner.starts_with('{')).unwrap_or(text)
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Ph,
    Cat,
    Name,
    Pid,
    Tid,
    Ts,
    Dur,
    Args,
    #[serde(other)]
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Event<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EventVisitor)
    }
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = Event<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event<'de>, A::Error> {
        let mut event = Event::default();
        let mut arguments = None;
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Ph => event.mark = Some(TraceEventType::of(&map.next_value::<Text<'_>>()?.0)),
                Key::Cat => event.set_category(map.next_value::<Text<'_>>()?.0),
                Key::Name => event.name = map.next_value::<Text<'_>>()?.0,
                Key::Pid => event.process = raw(&mut map)?,
                Key::Tid => event.thread = raw(&mut map)?.map(TraceValue::of),
                Key::Ts => event.time = raw(&mut map)?.and_then(time_of),
                Key::Dur => event.duration = raw(&mut map)?.and_then(duration_of),
                Key::Args => arguments = raw(&mut map)?,
                Key::Other => _ = map.next_value::<IgnoredAny>()?,
            }
            let unwanted = match (event.mark, event.category) {
                (Some(TraceEventType::Other), _) => true,
                (Some(TraceEventType::Complete), Some(Category::Function)) => is_of_libraries(&event.name),
                (Some(TraceEventType::Complete), category) => category == Some(Category::Other),
                _ => false,
            };
            if unwanted {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(event);
            }
        }
        if let Some(text) = arguments {
            event.set_arguments(text).ok_or_else(|| A::Error::custom("no arguments"))?;
        }
        Ok(event)
    }
}

/// The text of a value.
fn raw<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<&'de str>, A::Error> {
    Ok(map.next_value::<Option<&'de RawValue>>()?.map(RawValue::get))
}

macro_rules! arguments {
    ($($(#[$doc:meta])* $field:ident = $key:literal,)*) => {
        /// Where among arguments one goes.
        #[derive(Clone, Copy, Debug)]
        #[expect(non_camel_case_types, reason = "each is called as the function that gives its value")]
        pub(super) enum ArgumentPlace {
            $($field,)*
        }

        impl ArgumentPlace {
            const KEYS: &[&str] = &[$($key,)*];

            /// Where the argument of a name goes, if we want it.
            pub(super) fn named(key: &str) -> Option<ArgumentPlace> {
                match key {
                    $($key => Some(ArgumentPlace::$field),)*
                    _ => None,
                }
            }
        }

        impl<'a> Arguments<'a> {
            $($(#[$doc])* #[inline]
            pub(super) fn $field(&self) -> Option<TraceValue<'a>> {
                self.get(ArgumentPlace::$field as usize)
            })*
        }
    };
}

/// What an event says of itself. There is one for millions of events, so making room for those of another one must not touch
/// all of it.
pub(super) struct Arguments<'a> {
    /// A bit for each that is there.
    present: u32,
    values: [TraceValue<'a>; ArgumentPlace::KEYS.len()],
}

const _: () = assert!(ArgumentPlace::KEYS.len() <= u32::BITS as usize);

impl<'a> Arguments<'a> {
    /// Those of a text, if it is an object.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Makes room for others.
    pub(super) fn clear(&mut self) {
        self.present = 0;
    }

    #[inline(always)]
    pub(super) fn set(&mut self, place: ArgumentPlace, value: TraceValue<'a>) {
        self.values[place as usize] = value;
        self.present |= 1 << place as u32;
    }

    fn remove(&mut self, place: ArgumentPlace) {
        self.present &= !(1 << place as u32);
    }

    fn get(&self, place: usize) -> Option<TraceValue<'a>> {
        (self.present >> place & 1 == 1).then_some(self.values[place])
    }
}

impl Default for Arguments<'_> {
    fn default() -> Self {
        Arguments { present: 0, values: [TraceValue::Digits(0); ArgumentPlace::KEYS.len()] }
    }
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = ArgumentPlace::KEYS.iter().enumerate();
        formatter.debug_map().entries(all.filter_map(|(place, key)| Some((key, self.get(place)?)))).finish()
    }
}

arguments! {
    /// What ties a call to what it launched.
    correlation = "correlation",
    /// The stream of an activity.
    stream = "stream",
    /// The device of an activity.
    device = "device",
    /// The bytes that a copy or a fill moved.
    bytes = "bytes",
    /// Which collective.
    collective = "Collective name",
    /// The elements a rank puts in.
    elements_in = "In msg nelems",
    /// The elements a rank gets out.
    elements_out = "Out msg nelems",
    /// Of which type they are.
    element_type = "dtype",
    /// The group that communicates.
    group = "Process Group Name",
    /// Its ranks. Long lists are cut short.
    group_ranks = "Process Group Ranks",
    /// How many they are.
    group_size = "Group size",
    /// What it is for.
    group_purpose = "Process Group Description",
    /// The rank that a message comes from, by its place in the group.
    source = "Src Rank",
    /// The rank that a message goes to.
    destination = "Dst Rank",
    /// The number of a collective in its group.
    sequence = "Seq",
    /// A number that a collective has on all of its ranks, and no other one has.
    common = "Comms Id",
    /// The address of a block of memory.
    address = "Addr",
    /// Its size; less than nothing where it is freed.
    size = "Bytes",
    /// Which device it is on.
    memory_device = "Device Id",
    /// Which kind of device that is.
    memory_device_type = "Device Type",
    /// What is allocated on it from then on.
    allocated = "Total Allocated",
    /// What is taken from it from then on.
    reserved = "Total Reserved",
    /// What something is called.
    name = "name",
    /// The number of an operator, which what it launched has too.
    external = "External id",
    /// The dimensions of what an operator is given.
    dimensions = "Input Dims",
    /// What it is made of.
    types = "Input type",
    /// What else it is given.
    concrete = "Concrete Inputs",
}

impl<'de: 'a, 'a> Deserialize<'de> for Arguments<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ArgumentVisitor)
    }
}

struct ArgumentVisitor;

impl<'de> Visitor<'de> for ArgumentVisitor {
    type Value = Arguments<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("arguments")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Arguments<'de>, A::Error> {
        let mut arguments = Arguments::default();
        while let Some(key) = map.next_key::<Text<'_>>()? {
            match ArgumentPlace::named(&key.0) {
                Some(place) => match raw(&mut map)?.map(TraceValue::of) {
                    Some(value) => arguments.set(place, value),
                    None => arguments.remove(place),
                },
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_an_event_is_does_not_depend_on_the_order_of_its_fields() {
        let one =
            r#"{"ph": "X", "cat": "kernel", "name": "k", "tid": 7, "ts": 1.5, "dur": 2, "args": {"correlation": 3}}"#;
        let other = r#"{"args":{"correlation":3},"dur":2,"ts":1.5,"tid":7,"name":"k","cat":"kernel","ph":"X"}"#;
        for event in [event(one), event(other)] {
            assert_eq!(event.meaning(), Some(Meaning::Kernel));
            assert_eq!((event.time, event.duration), (Some(Nanos(1500)), Some(Nanos(2000))));
            assert_eq!((event.thread(), number(event.arguments().correlation())), (Some(7), Some(3_u64)));
            assert_eq!(event.name, "k");
        }
    }

    #[test]
    fn what_is_of_no_use_is_skipped() {
        for text in [
            r#"{"ph": "X", "cat": "python_function", "name": "torch/nn/modules/module.py(1): f", "ts": 1, "dur": 1}"#,
            r#"{"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g"}"#,
            r#"{"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 5}"#,
            r#"{"ph": "C", "name": "counter"}"#,
            r#"{"ph": "i", "name": "Record Window End", "ts": 1}"#,
            r#"{"ph": "M", "name": "process_name"}"#,
        ] {
            assert!(event(text).is_one() && event(text).meaning().is_none(), "{text}");
        }
        assert!(!event(r#"{"name": "no event"}"#).is_one());
    }

    #[test]
    fn odd_values_are_none() {
        let odd = r#"{"ph": "X", "cat": "kernel", "name": "a\u001b\"b", "name": "\u001b[31m", "tid": "main", "ts": "soon",
            "dur": -1, "args": {"correlation": 1e999, "stream": [7], "device": -1, "bytes": 99999999999999999999}}"#;
        let event = event(odd);
        assert_eq!((event.time, event.duration, event.thread()), (None, None, None));
        assert_eq!(event.name, "\u{1b}[31m");
        let odd = event.arguments();
        let values = [odd.correlation(), odd.stream(), odd.device(), odd.bytes()];
        assert_eq!(values.map(number::<u64>), [None; 4]);
    }

    #[test]
    fn events_without_arguments_are_events() {
        for arguments in ["null", "{}"] {
            assert!(event(&format!(r#"{{"ph": "X", "cat": "kernel", "args": {arguments}}}"#)).is_one());
        }
    }
}
