//! The JSON as it comes in: what is read of it is kept in a few bytes, the rest is passed over.
//!
//! Lists are filled one record at a time. What was read before damage stays.

use std::{fmt, marker::PhantomData};

use hashbrown::HashMap;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::ids::Nanos;

/// What a GPU is among agents.
const GPU: u64 = 2;

/// What was recorded of some processes.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) processes: Vec<ProfiledProcess>,
}

/// What was recorded of one process.
#[derive(Debug, Default)]
pub(super) struct ProfiledProcess {
    pub(super) metadata: Metadata,
    pub(super) agents: HashMap<u64, Agent>,
    kinds: Vec<KindNames>,
    /// What the program called its ranges, by the numbers of their calls.
    pub(super) messages: HashMap<u64, String>,
    /// What kernels are called.
    pub(super) symbols: HashMap<u64, String>,
    pub(super) dispatches: Vec<Dispatch>,
    pub(super) copies: Vec<CopyRecord>,
    /// Calls that may launch something.
    pub(super) calls: Vec<ApiCall>,
    pub(super) markers: Vec<ApiCall>,
    /// Calls of RCCL.
    pub(super) collectives: Vec<ApiCall>,
    /// Records that do not say what they are of, or when that was.
    pub(super) unreadable: u64,
}

/// What is known of a process.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    pub(super) pid: u32,
    pub(super) host: String,
    pub(super) command: Vec<String>,
}

/// A processor.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) is_gpu: bool,
    pub(super) name: String,
    /// Its number among its kind.
    pub(super) number: Option<u32>,
    pub(super) memory_bytes: Option<u64>,
}

/// A kernel that ran.
#[derive(Debug)]
pub(super) struct Dispatch {
    pub(super) start: Nanos,
    pub(super) duration: Nanos,
    pub(super) agent: u64,
    pub(super) kernel: u64,
    pub(super) stream: Option<u32>,
    pub(super) correlation: Option<u64>,
}

/// A copy that was made.
#[derive(Debug)]
pub(super) struct CopyRecord {
    pub(super) start: Nanos,
    pub(super) duration: Nanos,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bytes: Option<u64>,
    pub(super) stream: Option<u32>,
    pub(super) correlation: Option<u64>,
}

/// A call of the host, or a range of the program's.
#[derive(Debug)]
pub(super) struct ApiCall {
    pub(super) correlation: u64,
    pub(super) start: Nanos,
    pub(super) duration: Nanos,
    pub(super) thread: Option<u32>,
    pub(super) kind: u32,
    pub(super) operation: u32,
}

impl ProfiledProcess {
    /// What a call is called.
    pub(super) fn operation(&self, kind: u32, operation: u32) -> Option<&str> {
        self.kinds.get(kind as usize)?.operations.get(operation as usize).map(String::as_str)
    }

    /// Keeps a record that says enough.
    fn keep<T>(&mut self, record: Option<T>, list: impl FnOnce(&mut ProfiledProcess) -> &mut Vec<T>) {
        match record {
            Some(record) => list(self).push(record),
            None => self.unreadable += 1,
        }
    }
}

/// A record of any kind, as far as we read it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawRecord {
    kind: Whole,
    operation: Whole,
    thread_id: Whole,
    correlation_id: RawCorrelation,
    start_timestamp: Whole,
    end_timestamp: Whole,
    dispatch_info: RawDispatch,
    stream_id: Handle,
    src_agent_id: Handle,
    dst_agent_id: Handle,
    bytes: Whole,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawCorrelation {
    internal: Whole,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawDispatch {
    agent_id: Handle,
    queue_id: Handle,
    kernel_id: Whole,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Handle {
    handle: Whole,
}

impl RawRecord {
    fn times(&self) -> Option<(Nanos, Nanos)> {
        let time = |whole: Whole| whole.0.and_then(|time| i64::try_from(time).ok()).map(Nanos);
        let (start, end) = time(self.start_timestamp).zip(time(self.end_timestamp))?;
        (start <= end && start.has_end(end - start)).then_some((start, end - start))
    }

    fn stream(&self) -> Option<u32> {
        let said = self.stream_id.handle.0.or(self.dispatch_info.queue_id.handle.0);
        said.and_then(|stream| u32::try_from(stream).ok())
    }

    fn dispatch(&self) -> Option<Dispatch> {
        let (start, duration) = self.times()?;
        let (agent, kernel) = self.dispatch_info.agent_id.handle.0.zip(self.dispatch_info.kernel_id.0)?;
        let correlation = self.correlation_id.internal.0;
        Some(Dispatch { start, duration, agent, kernel, stream: self.stream(), correlation })
    }

    fn copy(&self) -> Option<CopyRecord> {
        let (start, duration) = self.times()?;
        let (from, to) = self.src_agent_id.handle.0.zip(self.dst_agent_id.handle.0)?;
        let (bytes, correlation) = (self.bytes.0, self.correlation_id.internal.0);
        Some(CopyRecord { start, duration, from, to, bytes, stream: self.stream(), correlation })
    }

    fn call(&self) -> Option<ApiCall> {
        let (start, duration) = self.times()?;
        let small = |whole: Whole| whole.0.and_then(|number| u32::try_from(number).ok());
        let (kind, operation) = (small(self.kind)?, small(self.operation)?);
        let (correlation, thread) = (self.correlation_id.internal.0?, small(self.thread_id));
        Some(ApiCall { correlation, start, duration, thread, kind, operation })
    }
}

/// A processor, as it stands there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawAgent {
    id: Handle,
    r#type: Whole,
    name: LenientText,
    product_name: LenientText,
    logical_node_type_id: Whole,
    mem_banks: Vec<RawMemory>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawMemory {
    size_in_bytes: Whole,
}

impl RawAgent {
    fn agent(self) -> Option<(u64, Agent)> {
        let name = if self.product_name.0.is_empty() { self.name.0 } else { self.product_name.0 };
        let memory = self.mem_banks.iter().filter_map(|bank| bank.size_in_bytes.0).fold(0, u64::saturating_add);
        let agent = Agent {
            is_gpu: self.r#type.0 == Some(GPU),
            name,
            number: self.logical_node_type_id.0.and_then(|number| u32::try_from(number).ok()),
            memory_bytes: Some(memory).filter(|bytes| *bytes > 0),
        };
        Some((self.id.handle.0?, agent))
    }
}

/// What a kernel is called.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawSymbol {
    kernel_id: Whole,
    formatted_kernel_name: LenientText,
    demangled_kernel_name: LenientText,
    kernel_name: LenientText,
}

impl RawSymbol {
    /// The first name that there is. Kernels without code are called 0.
    fn symbol(self) -> Option<(u64, String)> {
        let names = [self.formatted_kernel_name, self.demangled_kernel_name, self.kernel_name];
        let name = names.into_iter().map(|name| name.0).find(|name| !name.is_empty() && name != "0")?;
        Some((self.kernel_id.0?, name))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawMetadata {
    pid: Whole,
    node: RawNode,
    command: Vec<LenientText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawNode {
    hostname: LenientText,
}

/// The calls of a kind, in the order of their numbers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KindNames {
    operations: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawMessage {
    key: Whole,
    value: LenientText,
}

/// Reads objects, each of their fields by a function that is told its key.
struct ObjectReader<F>(F);

/// The value of a field, which is read or passed over.
trait ReadField {
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

impl<'de, F: ReadField> DeserializeSeed<'de> for ObjectReader<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: ReadField> Visitor<'de> for ObjectReader<F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.0.read(&key, &mut map)?;
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Reads a list, each of its elements as soon as it is there.
struct Each<T, F>(F, PhantomData<T>);

fn each<T, F: FnMut(T)>(take: F) -> Each<T, F> {
    Each(take, PhantomData)
}

impl<'de, T: DeserializeOwned, F: FnMut(T)> DeserializeSeed<'de> for Each<T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T)> Visitor<'de> for Each<T, F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            (self.0)(element);
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Results {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        ObjectReader(self).deserialize(deserializer)
    }
}

impl ReadField for &mut Results {
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "rocprofiler-sdk-tool" => map.next_value_seed(Processes(&mut self.processes)),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

/// A list of processes, or one alone.
struct Processes<'a>(&'a mut Vec<ProfiledProcess>);

impl<'a> Processes<'a> {
    fn next(&mut self) -> ObjectReader<&mut ProfiledProcess> {
        self.0.push(ProfiledProcess::default());
        let last = self.0.len() - 1;
        ObjectReader(&mut self.0[last])
    }
}

impl<'de> DeserializeSeed<'de> for Processes<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Processes<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("processes")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(self.next())?.is_some() {
            // Objects without anything are no processes, however many there are.
            self.0.pop_if(|process| process.dispatches.is_empty());
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<(), A::Error> {
        self.next().visit_map(map)
    }
}

impl ReadField for &mut ProfiledProcess {
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "metadata" => {
                let RawMetadata { pid, node, command } = map.next_value::<Option<RawMetadata>>()?.unwrap_or_default();
                self.metadata = Metadata {
                    pid: pid.0.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
                    host: node.hostname.0,
                    command: command.into_iter().map(|word| word.0).collect(),
                };
                Ok(())
            }
            "agents" => map.next_value_seed(each(|agent: RawAgent| self.agents.extend(agent.agent()))),
            "strings" => map.next_value_seed(ObjectReader(ReadStrings(self))),
            "kernel_symbols" => map.next_value_seed(each(|symbol: RawSymbol| self.symbols.extend(symbol.symbol()))),
            "buffer_records" => map.next_value_seed(ObjectReader(ReadRecords(self))),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

struct ReadStrings<'a>(&'a mut ProfiledProcess);

impl ReadField for ReadStrings<'_> {
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let process = &mut *self.0;
        match key {
            "buffer_records" => map.next_value_seed(each(|kind: KindNames| process.kinds.push(kind))),
            "marker_api" => map.next_value_seed(each(|RawMessage { key, value }: RawMessage| {
                process.messages.extend(key.0.map(|key| (key, value.0)));
            })),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

struct ReadRecords<'a>(&'a mut ProfiledProcess);

impl ReadField for ReadRecords<'_> {
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let process = &mut *self.0;
        let take = |record: RawRecord| match key {
            "kernel_dispatch" => process.keep(record.dispatch(), |process| &mut process.dispatches),
            "memory_copy" => process.keep(record.copy(), |process| &mut process.copies),
            "marker_api" => process.keep(record.call(), |process| &mut process.markers),
            "rccl_api" => process.keep(record.call(), |process| &mut process.collectives),
            _ => process.keep(record.call(), |process| &mut process.calls),
        };
        match key {
            "kernel_dispatch" | "memory_copy" | "marker_api" | "rccl_api" | "hip_api" | "hsa_api" => {
                map.next_value_seed(each(take))
            }
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

/// A whole number, if it is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Whole(Option<u64>);

/// A text, if it is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LenientText(String);

macro_rules! lenient {
    ($type:ident, $expected:literal, $($method:ident($value:ident: $given:ty) => $read:expr),*) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                struct Lenient;

                impl<'de> Visitor<'de> for Lenient {
                    type Value = $type;

                    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                        formatter.write_str($expected)
                    }

                    $(fn $method<E>(self, $value: $given) -> Result<$type, E> {
                        Ok($read)
                    })*

                    fn visit_unit<E>(self) -> Result<$type, E> {
                        Ok($type::default())
                    }

                    fn visit_bool<E>(self, _: bool) -> Result<$type, E> {
                        Ok($type::default())
                    }

                    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<$type, A::Error> {
                        while list.next_element::<IgnoredAny>()?.is_some() {}
                        Ok($type::default())
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$type, A::Error> {
                        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                        Ok($type::default())
                    }
                }

                deserializer.deserialize_any(Lenient)
            }
        }
    };
}

lenient!(Whole, "a whole number",
    visit_u64(number: u64) => Whole(Some(number)),
    visit_i64(_number: i64) => Whole(None),
    visit_f64(_number: f64) => Whole(None),
    visit_str(text: &str) => Whole(text.parse().ok()));

lenient!(LenientText, "a text",
    visit_u64(_number: u64) => LenientText::default(),
    visit_i64(_number: i64) => LenientText::default(),
    visit_f64(_number: f64) => LenientText::default(),
    visit_str(text: &str) => LenientText(text.to_owned()));
