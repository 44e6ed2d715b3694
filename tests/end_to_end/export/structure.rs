//! What a trace says when it is read as a trace processor reads it, but for what that one forgives.

use std::collections::{BTreeMap, HashMap, HashSet};

use perfetto_protos::{
    debug_annotation::debug_annotation,
    trace_packet::{
        TracePacket,
        trace_packet::{Data, Optional_trusted_packet_sequence_id},
    },
    track_descriptor::{TrackDescriptor, track_descriptor},
    track_event::{TrackEvent, track_event},
};

/// A trace, read.
#[derive(Default)]
pub(crate) struct Structure {
    /// What each track is.
    pub(crate) tracks: HashMap<u64, Track>,
    pub(crate) slices: Vec<Slice>,
    pub(crate) instants: Vec<Slice>,
    /// Track, time and value of each, in the order of the file.
    pub(crate) values: Vec<(u64, u64, f64)>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The stretch of time that is shown first.
    pub(crate) view: Vec<u64>,
    sequences: HashMap<u32, Sequence>,
    /// What is open on each track.
    open: HashMap<u64, Vec<Slice>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Track {
    pub(crate) name: String,
    /// The names of those it is below, from the outermost.
    pub(crate) below: Vec<String>,
    /// The one of those that is below nothing: a rank, or all of them.
    pub(crate) group: u64,
    order: i32,
    is_counter: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) track: u64,
    pub(crate) name: String,
    pub(crate) category: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) arguments: BTreeMap<String, String>,
    pub(crate) flows: Vec<u64>,
    /// The names of those it is inside of, from the outermost.
    pub(crate) inside: Vec<String>,
}

impl Slice {
    pub(crate) fn duration(&self) -> u64 {
        self.end - self.start
    }

    /// What kind of span it is: the first of its tags.
    pub(crate) fn kind(&self) -> &str {
        self.category.split(',').next().unwrap_or_default()
    }

    pub(crate) fn number(&self, argument: &str) -> Option<f64> {
        self.arguments.get(argument)?.parse().ok()
    }
}

/// What a sequence of packets has said so far.
#[derive(Default)]
struct Sequence {
    last: u64,
    track: Option<u64>,
    names: HashMap<u64, String>,
    categories: HashMap<u64, String>,
    arguments: HashMap<u64, String>,
    texts: HashMap<u64, String>,
}

impl Structure {
    /// Reads packets, and fails where they are not as they should be.
    pub(crate) fn of(packets: &[TracePacket]) -> Structure {
        let mut trace = Structure::default();
        packets.iter().for_each(|packet| trace.take(packet));
        assert!(trace.open.values().all(Vec::is_empty), "every slice ends");
        trace.check_flows();
        trace.check_counters();
        trace
    }

    fn take(&mut self, packet: &TracePacket) {
        let sequence = packet.optional_trusted_packet_sequence_id.as_ref().map(|id| match id {
            Optional_trusted_packet_sequence_id::TrustedPacketSequenceId(id) => *id,
            _ => panic!("a sequence has a number"),
        });
        if let Some(id) = sequence {
            self.tell(id, packet);
        }
        match &packet.data {
            Some(Data::TrackDescriptor(track)) => self.declare(track),
            Some(Data::TrackEvent(event)) => self.event(sequence.unwrap(), packet.timestamp.unwrap(), event),
            Some(Data::ChromeEvents(bundle)) => {
                let entry = |entry: &perfetto_protos::chrome_trace_event::ChromeMetadata| {
                    (entry.name().to_owned(), entry.string_value().to_owned())
                };
                self.metadata.extend(bundle.metadata.iter().map(entry));
            }
            Some(Data::ServiceEvent(event)) => {
                assert_ne!(event.tracing_started(), event.tracing_disabled(), "it begins or it ends");
                self.view.push(packet.timestamp.unwrap());
            }
            None => {}
            other => panic!("{other:?} is nothing that we write"),
        }
    }

    /// Takes what a packet tells of its sequence.
    fn tell(&mut self, id: u32, packet: &TracePacket) {
        const CLEARED: u32 = 1;
        if packet.sequence_flags() & CLEARED != 0 {
            assert!(!self.sequences.contains_key(&id), "sequence {id} begins once");
            let track = packet
                .trace_packet_defaults
                .as_ref()
                .and_then(|defaults| Some(defaults.track_event_defaults.as_ref()?.track_uuid()));
            self.sequences.insert(id, Sequence { track, ..Sequence::default() });
        }
        let sequence = self.sequences.get_mut(&id).expect("a sequence begins with its state cleared");
        let Some(interned) = packet.interned_data.as_ref() else { return };
        sequence.names.extend(interned.event_names.iter().map(|entry| (entry.iid(), entry.name().to_owned())));
        sequence
            .categories
            .extend(interned.event_categories.iter().map(|entry| (entry.iid(), entry.name().to_owned())));
        let names = interned.debug_annotation_names.iter();
        sequence.arguments.extend(names.map(|entry| (entry.iid(), entry.name().to_owned())));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a text is UTF-8");
        let texts = interned.debug_annotation_string_values.iter();
        sequence.texts.extend(texts.map(|entry| (entry.iid(), text(entry.str()))));
    }

    fn declare(&mut self, descriptor: &TrackDescriptor) {
        const ROOT: u64 = 0;
        let (uuid, above) = (descriptor.uuid(), descriptor.parent_uuid());
        if uuid == ROOT {
            return;
        }
        let name = match &descriptor.static_or_dynamic_name {
            Some(track_descriptor::Static_or_dynamic_name::Name(name)) => name.clone(),
            _ => panic!("a track has a name"),
        };
        let (order, is_counter) = (descriptor.sibling_order_rank(), descriptor.counter.is_some());
        let track = match self.tracks.get(&above) {
            Some(parent) => {
                let below = [&parent.below[..], std::slice::from_ref(&parent.name)].concat();
                Track { name, below, group: parent.group, order, is_counter }
            }
            None => {
                assert_eq!(above, ROOT, "a group is told of before what is below it");
                Track { name, below: Vec::new(), group: uuid, order, is_counter }
            }
        };
        assert!(!track.name.contains(char::is_control) && track.name.chars().count() <= 512);
        assert!(self.tracks.insert(uuid, track).is_none(), "a track is told of once");
    }

    fn event(&mut self, id: u32, time: u64, event: &TrackEvent) {
        let sequence = self.sequences.get_mut(&id).unwrap();
        assert!(time >= sequence.last, "times of a sequence are in order");
        sequence.last = time;
        let uuid = event.track_uuid.or(sequence.track).expect("an event is on a track");
        let track = self.tracks.get(&uuid).expect("a track is told of before its events");
        let kind = event.type_.unwrap().enum_value().unwrap();
        assert_eq!(track.is_counter, kind == track_event::Type::TYPE_COUNTER, "{}", track.name);
        match kind {
            track_event::Type::TYPE_SLICE_BEGIN => {
                let slice = slice(self.sequences.get(&id).unwrap(), uuid, time, event);
                assert!(!slice.name.is_empty() && !slice.name.contains(char::is_control));
                let open = self.open.entry(uuid).or_default();
                let inside = open.iter().map(|outer| outer.name.clone()).collect();
                open.push(Slice { inside, ..slice });
            }
            track_event::Type::TYPE_SLICE_END => {
                let open = self.open.entry(uuid).or_default();
                let begun = open.pop().expect("what ends has begun");
                assert!(time >= begun.start);
                assert!(open.last().is_none_or(|outer| outer.start <= begun.start), "slices lie inside of each other");
                self.slices.push(Slice { end: time, ..begun });
            }
            track_event::Type::TYPE_INSTANT => {
                self.instants.push(slice(self.sequences.get(&id).unwrap(), uuid, time, event));
            }
            track_event::Type::TYPE_COUNTER => {
                let value = match event.counter_value_field {
                    Some(track_event::Counter_value_field::CounterValue(value)) => value as f64,
                    Some(track_event::Counter_value_field::DoubleCounterValue(value)) => value,
                    _ => panic!("a counter has a value"),
                };
                assert!(value.is_finite());
                self.values.push((uuid, time, value));
            }
            other => panic!("{other:?} is nothing that we write"),
        }
    }

    /// A flow has at least two ends, and no slice has both.
    fn check_flows(&self) {
        let mut ends: HashMap<u64, Vec<usize>> = HashMap::new();
        for (place, slice) in self.slices.iter().enumerate() {
            slice.flows.iter().for_each(|flow| ends.entry(*flow).or_default().push(place));
        }
        for (flow, ends) in ends {
            assert!(ends.len() > 1, "flow {flow} has two ends");
            assert_eq!(ends.iter().collect::<HashSet<_>>().len(), ends.len(), "flow {flow} has two different ends");
        }
    }

    fn check_counters(&self) {
        let mut last: HashMap<u64, u64> = HashMap::new();
        for (track, time, _) in &self.values {
            let before = last.insert(*track, *time);
            assert!(before.is_none_or(|before| before <= *time), "a counter's times are in order");
        }
    }

    /// How many flows a trace processor makes: one between each two neighbors.
    pub(crate) fn flows(&self) -> usize {
        let ends: usize = self.slices.iter().map(|slice| slice.flows.len()).sum();
        let ids: HashSet<u64> = self.slices.iter().flat_map(|slice| slice.flows.iter().copied()).collect();
        ends - ids.len()
    }

    /// All ranks together and each of them, in the order in which they are shown: number and name.
    pub(crate) fn groups(&self) -> Vec<(u64, String)> {
        let mut groups: Vec<_> = self.tracks.iter().filter(|(uuid, track)| track.group == **uuid).collect();
        groups.sort_by_key(|(_, track)| track.order);
        groups.into_iter().map(|(uuid, track)| (*uuid, track.name.clone())).collect()
    }

    /// The slices on tracks of a name, in a group.
    pub(crate) fn on(&self, group: u64, track: &str) -> Vec<&Slice> {
        let is_there = |slice: &&Slice| {
            let on = &self.tracks[&slice.track];
            on.group == group && on.name == track && !on.below.iter().any(|above| above == "host")
        };
        self.slices.iter().filter(is_there).collect()
    }

    /// Whether a slice is on a track of the host.
    pub(crate) fn is_on_host(&self, slice: &Slice) -> bool {
        self.tracks[&slice.track].below.iter().any(|above| above == "host")
    }

    /// The values of a counter of a group, in order.
    pub(crate) fn counter(&self, group: u64, name: &str) -> Vec<(u64, f64)> {
        let is_it = |track: &u64| self.tracks[track].group == group && self.tracks[track].name == name;
        self.values.iter().filter(|(track, ..)| is_it(track)).map(|(_, time, value)| (*time, *value)).collect()
    }
}

/// What an event says that begins a slice, or is an instant.
fn slice(sequence: &Sequence, track: u64, time: u64, event: &TrackEvent) -> Slice {
    let name = match &event.name_field {
        Some(track_event::Name_field::NameIid(number)) => sequence.names[number].clone(),
        Some(track_event::Name_field::Name(name)) => name.clone(),
        _ => panic!("an event has a name"),
    };
    let category = event.category_iids.iter().map(|number| sequence.categories[number].as_str()).collect();
    let argument = |annotation: &perfetto_protos::debug_annotation::DebugAnnotation| {
        let name = match &annotation.name_field {
            Some(debug_annotation::Name_field::NameIid(number)) => sequence.arguments[number].clone(),
            Some(debug_annotation::Name_field::Name(name)) => name.clone(),
            _ => panic!("an argument has a name"),
        };
        let value = match annotation.value.as_ref().expect("an argument has a value") {
            debug_annotation::Value::UintValue(value) => value.to_string(),
            debug_annotation::Value::IntValue(value) => value.to_string(),
            debug_annotation::Value::DoubleValue(value) => value.to_string(),
            debug_annotation::Value::StringValue(value) => value.clone(),
            debug_annotation::Value::StringValueIid(number) => sequence.texts[number].clone(),
            other => panic!("{other:?} is nothing that we write"),
        };
        (name, value)
    };
    Slice {
        track,
        name,
        category,
        start: time,
        end: time,
        arguments: event.debug_annotations.iter().map(argument).collect(),
        flows: event.flow_ids_old.clone(),
        inside: Vec::new(),
    }
}
