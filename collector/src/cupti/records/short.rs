//! Records that have only the fields that are read here.
#![allow(unsafe_code)]

use std::{array, ffi::c_char, ptr};

use super::{
    super::{
        record_form::ShortLayouts,
        record_kind::{COPY, GRAPH, KERNEL, MEMORY, PEER_COPY, POOL, SET},
        repeated::LaunchShape,
        streams::CuptiStream,
    },
    Record, Work, kernel_name,
    memory::{BlockChange, PoolChange},
};

/// The record at the beginning of some bytes.
///
/// # Safety
///
/// As for [`read`](super::read).
pub(super) unsafe fn record<'a>(bytes: &'a [u8], layouts: &ShortLayouts) -> Option<Record<'a>> {
    let kind = u32::from_le_bytes(*bytes.first_chunk()?);
    Some(match kind {
        KERNEL => {
            let fields: [u64; 15] = layouts.fields(kind, bytes)?;
            let [name, local_memory] = [fields[5], fields[6]];
            let shape = LaunchShape(array::from_fn(|index| fields[7 + index] as u32));
            let name = ptr::with_exposed_provenance::<c_char>(name as usize);
            // SAFETY: as the caller promises.
            let name = unsafe { kernel_name(name) };
            Record::Kernel { work: work(&fields), name, shape, local_memory }
        }
        COPY | PEER_COPY => {
            let fields: [u64; 7] = layouts.fields(kind, bytes)?;
            Record::Copy { work: work(&fields), bytes: fields[5], direction: fields[6] as u8 }
        }
        SET => {
            let fields: [u64; 6] = layouts.fields(kind, bytes)?;
            Record::Set { work: work(&fields), bytes: fields[5] }
        }
        GRAPH => {
            let fields: [u64; 6] = layouts.fields(kind, bytes)?;
            Record::Graph { work: work(&fields), number: fields[5] as u32 }
        }
        MEMORY => {
            let [operation, memory_kind, time, correlation, context, stream, address, bytes, pool_type, pool, size] =
                layouts.fields(kind, bytes)?;
            let change = BlockChange {
                operation: operation as u32,
                memory_kind: memory_kind as u32,
                time,
                correlation: correlation as u32,
                place: CuptiStream { context: context as u32, stream: stream as u32 },
                block: (address, bytes),
                pool_type: pool_type as u32,
                pool: (pool, size),
            };
            change.record()
        }
        POOL => {
            let [operation, pool_type, time, correlation, address, size] = layouts.fields(kind, bytes)?;
            let change = PoolChange {
                operation: operation as u32,
                pool_type: pool_type as u32,
                time,
                correlation: correlation as u32,
                pool: (address, size),
            };
            change.record()
        }
        _ => Record::Other,
    })
}

/// What the first fields of each thing that runs say. Numbers of contexts, streams and calls are counted, and fit.
fn work(fields: &[u64]) -> Work {
    let place = CuptiStream { context: fields[2] as u32, stream: fields[3] as u32 };
    Work { start: fields[0], end: fields[1], place, correlation: fields[4] as u32 }
}
