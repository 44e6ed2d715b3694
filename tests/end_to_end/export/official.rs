//! Traces as the official schema reads them.

use std::{fs, io::Read, path::Path};

use flate2::read::GzDecoder;
use perfetto_protos::{trace::Trace, trace_packet::TracePacket};
use protobuf::{
    Message, MessageDyn,
    reflect::{ReflectFieldRef, ReflectValueRef},
};

/// The packets of a file, all of its bytes.
pub(crate) fn packets(file: &Path) -> Vec<TracePacket> {
    packets_of(&fs::read(file).unwrap())
}

/// The packets of a trace, packed or not.
pub(crate) fn packets_of(bytes: &[u8]) -> Vec<TracePacket> {
    let mut unpacked = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        GzDecoder::new(bytes).read_to_end(&mut unpacked).unwrap();
    }
    let trace = Trace::parse_from_bytes(if unpacked.is_empty() { bytes } else { &unpacked }).unwrap();
    let mut unknown = Vec::new();
    unknown_fields(&trace, &mut unknown);
    assert_eq!(unknown, [], "fields that the official schema does not have");
    trace.packet
}

/// The fields of a message, and of those in it, that the schema does not have.
fn unknown_fields(message: &dyn MessageDyn, found: &mut Vec<(String, u32)>) {
    let descriptor = message.descriptor_dyn();
    let name = || descriptor.name().to_owned();
    found.extend(message.unknown_fields_dyn().iter().map(|(number, _)| (name(), number)));
    for field in descriptor.fields() {
        match field.get_reflect(message) {
            ReflectFieldRef::Optional(value) => {
                if let Some(ReflectValueRef::Message(message)) = value.value() {
                    unknown_fields(&*message, found);
                }
            }
            ReflectFieldRef::Repeated(values) => {
                for value in &values {
                    if let ReflectValueRef::Message(message) = value {
                        unknown_fields(&*message, found);
                    }
                }
            }
            ReflectFieldRef::Map(_) => {}
        }
    }
}
