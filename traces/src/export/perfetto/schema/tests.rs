//! Our messages are the official ones: what is written by the one is read by the other, field by field.

use perfetto_protos::trace::Trace as OfficialTrace;
use protobuf::{Message as _, text_format::print_to_string_pretty};

use super::*;

/// What the official schema reads of a packet, by the names it has for everything.
fn official(packet: TracePacket) -> String {
    let bytes = Trace { packet: vec![packet] }.encode_to_vec();
    print_to_string_pretty(&OfficialTrace::parse_from_bytes(&bytes).unwrap())
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "}").collect()
}

fn packet(data: Data) -> TracePacket {
    TracePacket { data: Some(data), ..Default::default() }
}

#[test]
fn events_are_the_official_ones() {
    let annotation = |name_iid, value| DebugAnnotation { name_iid: Some(name_iid), name: None, value: Some(value) };
    let named = DebugAnnotation { name_iid: None, name: Some("try".into()), value: Some(Value::Text("this".into())) };
    let event = TrackEvent {
        category_iids: vec![1, 2],
        debug_annotations: vec![
            annotation(1, Value::Unsigned(2)),
            annotation(2, Value::Signed(-3)),
            annotation(3, Value::Double(0.5)),
            annotation(4, Value::TextIid(6)),
            named,
        ],
        r#type: Some(EventType::SliceBegin as i32),
        name_iid: Some(7),
        track_uuid: Some(8),
        flow_ids_old: vec![9, 10],
        ..Default::default()
    };
    let read = official(TracePacket {
        timestamp: Some(11),
        trusted_packet_sequence_id: Some(12),
        sequence_flags: Some(NEEDS_INCREMENTAL_STATE),
        first_packet_on_sequence: Some(true),
        trace_packet_defaults: Some(TracePacketDefaults {
            track_event_defaults: Some(TrackEventDefaults { track_uuid: Some(13) }),
        }),
        ..packet(Data::TrackEvent(event))
    });
    let mut expected = "packet { timestamp: 11 sequence_flags: 2 trace_packet_defaults { track_event_defaults { \
        track_uuid: 13 first_packet_on_sequence: true track_event { category_iids: 1 category_iids: 2 type: \
        TYPE_SLICE_BEGIN track_uuid: 8 flow_ids_old: 9 flow_ids_old: 10 debug_annotations { name_iid: 1 uint_value: 2 \
        debug_annotations { name_iid: 2 int_value: -3 debug_annotations { name_iid: 3 double_value: 0.5 \
        debug_annotations { name_iid: 4 string_value_iid: 6 debug_annotations { name: \"try\" string_value: \"this\" \
        name_iid: 7 trusted_packet_sequence_id: 12"
        .split_whitespace()
        .collect::<Vec<_>>();
    let mut found = read.split_whitespace().filter(|word| *word != "}").collect::<Vec<_>>();
    // The order in which it prints fields is its own.
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "{read}");
}

#[test]
fn types_of_events_are_the_official_ones() {
    for (kind, name) in [
        (EventType::Unspecified, "TYPE_UNSPECIFIED"),
        (EventType::SliceBegin, "TYPE_SLICE_BEGIN"),
        (EventType::SliceEnd, "TYPE_SLICE_END"),
        (EventType::Instant, "TYPE_INSTANT"),
        (EventType::Counter, "TYPE_COUNTER"),
    ] {
        let event = TrackEvent { r#type: Some(kind as i32), ..Default::default() };
        let read = official(packet(Data::TrackEvent(event)));
        assert_eq!(lines(&read), ["packet {", "track_event {", &format!("type: {name}")]);
    }
    let value = |event: TrackEvent| official(packet(Data::TrackEvent(event)));
    let whole = TrackEvent { counter_value: Some(-5), ..Default::default() };
    assert_eq!(lines(&value(whole))[2..], ["counter_value: -5"]);
    let real = TrackEvent { double_counter_value: Some(1.5), name: Some("a".into()), ..Default::default() };
    let read = value(real);
    assert!(read.contains("double_counter_value: 1.5") && read.contains("name: \"a\""), "{read}");
}

#[test]
fn tracks_are_the_official_ones() {
    let read = official(packet(Data::TrackDescriptor(TrackDescriptor {
        uuid: Some(1),
        name: Some("memory".into()),
        parent_uuid: Some(2),
        counter: Some(CounterDescriptor { unit: Some(CounterUnit::SizeBytes as i32), unit_name: Some("W".into()) }),
        child_ordering: Some(ChildTracksOrdering::Explicit as i32),
        sibling_order_rank: Some(-3),
    })));
    for field in [
        "uuid: 1",
        "name: \"memory\"",
        "parent_uuid: 2",
        "unit: UNIT_SIZE_BYTES",
        "unit_name: \"W\"",
        "child_ordering: EXPLICIT",
        "sibling_order_rank: -3",
    ] {
        assert!(lines(&read).contains(&field), "{field} in {read}");
    }
    assert_eq!(lines(&read).len(), 7 + 3, "and nothing else: {read}");
}

#[test]
fn texts_metadata_and_the_first_view_are_the_official_ones() {
    let interned = |text: &str| vec![Interned { iid: Some(1), text: Some(text.into()) }];
    let read = official(TracePacket {
        interned_data: Some(InternedData {
            event_categories: interned("kernel"),
            event_names: interned("matmul"),
            debug_annotation_names: interned("flops"),
            debug_annotation_string_values: interned("forward"),
        }),
        ..packet(Data::ServiceEvent(TracingServiceEvent { tracing_started: Some(true), tracing_disabled: None }))
    });
    let of =
        |field: &str| lines(&read).iter().position(|line| *line == field).unwrap_or_else(|| panic!("{field}: {read}"));
    for (field, text) in [
        ("event_categories {", "name: \"kernel\""),
        ("event_names {", "name: \"matmul\""),
        ("debug_annotation_names {", "name: \"flops\""),
        ("debug_annotation_string_values {", "str: \"forward\""),
    ] {
        assert_eq!(lines(&read)[of(field) + 1], "iid: 1");
        // Interned strings are bytes there, and printed as such.
        assert_eq!(lines(&read)[of(field) + 2], text);
    }
    of("tracing_started: true");
    let ends = TracingServiceEvent { tracing_started: None, tracing_disabled: Some(true) };
    let read = official(packet(Data::ServiceEvent(ends)));
    assert_eq!(lines(&read), ["packet {", "service_event {", "tracing_disabled: true"]);
    let metadata = vec![ChromeMetadata { name: Some("run".into()), string_value: Some("tiny".into()) }];
    let read = official(packet(Data::ChromeEvents(ChromeEventBundle { metadata })));
    assert_eq!(lines(&read), ["packet {", "chrome_events {", "metadata {", "name: \"run\"", "string_value: \"tiny\""]);
}
