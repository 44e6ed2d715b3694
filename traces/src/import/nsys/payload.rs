//! What NCCL says with a range: in JSON, or as the bytes of a struct that the export describes.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Number;

use super::super::sqlite::{Database, TableColumn};

const ENTRIES: &str = "NVTX_PAYLOAD_SCHEMA_ENTRIES";

/// How many fields are kept. NCCL has about fifty.
const MOST_FIELDS: usize = 1 << 16;

/// Before the bytes of a struct stand the numbers of its domain and its schema, its size, and one more number.
const HEAD_BYTES: usize = 32;

/// What a range says. Each says a part of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Payload {
    #[serde(rename = "NCCL communicator ID")]
    pub(super) communicator: Option<Number>,
    #[serde(rename = "Message size [bytes]")]
    pub(super) bytes: Option<u64>,
    #[serde(rename = "No. of ranks")]
    pub(super) ranks: Option<u32>,
    #[serde(rename = "Rank")]
    pub(super) rank: Option<u32>,
    #[serde(rename = "CUDA device")]
    pub(super) device: Option<u32>,
    #[serde(rename = "Peer rank", alias = "Peer")]
    pub(super) peer: Option<u16>,
}

impl Payload {
    /// What a text says, if it can be read.
    pub(super) fn of_json(text: &str) -> Payload {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// The structs of a session, each with its fields, by the numbers of their domains and schemas.
#[derive(Default)]
pub(super) struct PayloadSchemas(HashMap<(u64, u64), Vec<PayloadField>>);

/// A whole number in a struct.
struct PayloadField {
    name: String,
    offset: usize,
    width: usize,
}

impl PayloadSchemas {
    /// Reads them.
    pub(super) fn of(database: &mut Database) -> PayloadSchemas {
        let mut schemas = PayloadSchemas::default();
        let mut left = MOST_FIELDS;
        let columns = ["domainId", "schemaId", "type", "name", "offset"].map(TableColumn::Value);
        database.scan(ENTRIES, &columns, |row| {
            let Some(((domain, schema), width)) = row.number(0).zip(row.number(1)).zip(row.integer(2).and_then(width))
            else {
                return;
            };
            let Some(name) = row.text(3).filter(|_| left > 0) else { return };
            left -= 1;
            // The first field has no offset.
            let offset = row.number(4).unwrap_or(0);
            let field = PayloadField { name: name.into_owned(), offset, width };
            schemas.0.entry((domain, schema)).or_default().push(field);
        });
        schemas
    }

    /// What the bytes of a range say.
    pub(super) fn payload(&self, bytes: &[u8]) -> Payload {
        let numbers = unsigned(bytes, 0, 8).zip(unsigned(bytes, 8, 8));
        let fields = numbers.and_then(|numbers| self.0.get(&numbers)).map_or(&[][..], Vec::as_slice);
        let mut payload = Payload::default();
        for field in fields {
            let at = HEAD_BYTES.saturating_add(field.offset);
            let Some(value) = unsigned(bytes, at, field.width) else { continue };
            match field.name.as_str() {
                "NCCL communicator ID" => payload.communicator = Some(value.into()),
                "Message size [bytes]" => payload.bytes = Some(value),
                "No. of ranks" => payload.ranks = value.try_into().ok(),
                "Rank" => payload.rank = value.try_into().ok(),
                "CUDA device" => payload.device = value.try_into().ok(),
                "Peer rank" | "Peer" => payload.peer = value.try_into().ok(),
                _ => {}
            }
        }
        payload
    }
}

/// How many bytes a field has, by its type in NVTX's words. Other types are none that NCCL counts in.
fn width(kind: i64) -> Option<usize> {
    match kind {
        5 | 6 | 15 | 16 => Some(4),
        7..=10 | 17 | 18 | 22 => Some(8),
        _ => None,
    }
}

fn unsigned(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}
