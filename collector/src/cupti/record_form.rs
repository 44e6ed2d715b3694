//! What records have in them: all that CUPTI has, or only what is read here.
//!
//! From 13.4 on CUPTI writes records with just the fields that are asked for, those of kernels less than half as long, and launches
//! cost less. It says with each buffer where in a record they are.
#![allow(unsafe_code)]

#[cfg(test)]
use std::ptr;

use super::record_kind::{COPY, GRAPH, KERNEL, MEMORY, PEER_COPY, POOL, SET};

/// What the records of a buffer have in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordForm {
    /// All that CUPTI has.
    Whole,
    /// What is read here, and where that is.
    Short(Box<ShortLayouts>),
}

/// A kind of record, and the fields of it that are read.
pub(crate) struct ShortRecord {
    pub(crate) kind: u32,
    /// That of the kind comes first, as CUPTI wants it.
    pub(crate) fields: &'static [i32],
}

/// No record has more fields.
const MOST_FIELDS: usize = 16;

/// All that can be asked for.
pub(crate) const SHORT_RECORDS: [ShortRecord; 7] = {
    use field::{block, copy, graph, kernel, peer_copy, pool, set};
    [
        ShortRecord {
            kind: KERNEL,
            fields: &[
                field::KIND,
                kernel::START,
                kernel::END,
                kernel::CONTEXT,
                kernel::STREAM,
                kernel::CORRELATION,
                kernel::NAME,
                kernel::LOCAL_MEMORY,
                kernel::GRID_X,
                kernel::GRID_Y,
                kernel::GRID_Z,
                kernel::BLOCK_X,
                kernel::BLOCK_Y,
                kernel::BLOCK_Z,
                kernel::STATIC_SHARED_MEMORY,
                kernel::DYNAMIC_SHARED_MEMORY,
            ],
        },
        ShortRecord {
            kind: COPY,
            fields: &[
                field::KIND,
                copy::START,
                copy::END,
                copy::CONTEXT,
                copy::STREAM,
                copy::CORRELATION,
                copy::BYTES,
                copy::DIRECTION,
            ],
        },
        ShortRecord {
            kind: PEER_COPY,
            fields: &[
                field::KIND,
                peer_copy::START,
                peer_copy::END,
                peer_copy::CONTEXT,
                peer_copy::STREAM,
                peer_copy::CORRELATION,
                peer_copy::BYTES,
                peer_copy::DIRECTION,
            ],
        },
        ShortRecord {
            kind: SET,
            fields: &[field::KIND, set::START, set::END, set::CONTEXT, set::STREAM, set::CORRELATION, set::BYTES],
        },
        ShortRecord {
            kind: GRAPH,
            fields: &[
                field::KIND,
                graph::START,
                graph::END,
                graph::CONTEXT,
                graph::STREAM,
                graph::CORRELATION,
                graph::NUMBER,
            ],
        },
        ShortRecord {
            kind: MEMORY,
            fields: &[
                field::KIND,
                block::OPERATION,
                block::MEMORY_KIND,
                block::TIME,
                block::CORRELATION,
                block::CONTEXT,
                block::STREAM,
                block::ADDRESS,
                block::BYTES,
                block::POOL_TYPE,
                block::POOL_ADDRESS,
                block::POOL_SIZE,
            ],
        },
        ShortRecord {
            kind: POOL,
            fields: &[
                field::KIND,
                pool::OPERATION,
                pool::POOL_TYPE,
                pool::TIME,
                pool::CORRELATION,
                pool::ADDRESS,
                pool::SIZE,
            ],
        },
    ]
};

/// CUPTI's numbers for fields, which the bindings to CUPTI 13.0 do not have.
mod field {
    /// Of every kind of record.
    pub(crate) const KIND: i32 = 0;

    pub(crate) mod kernel {
        pub(crate) const START: i32 = 7;
        pub(crate) const END: i32 = 8;
        pub(crate) const CONTEXT: i32 = 11;
        pub(crate) const STREAM: i32 = 12;
        pub(crate) const GRID_X: i32 = 13;
        pub(crate) const GRID_Y: i32 = 14;
        pub(crate) const GRID_Z: i32 = 15;
        pub(crate) const BLOCK_X: i32 = 16;
        pub(crate) const BLOCK_Y: i32 = 17;
        pub(crate) const BLOCK_Z: i32 = 18;
        pub(crate) const STATIC_SHARED_MEMORY: i32 = 19;
        pub(crate) const DYNAMIC_SHARED_MEMORY: i32 = 20;
        pub(crate) const CORRELATION: i32 = 22;
        pub(crate) const NAME: i32 = 24;
        pub(crate) const LOCAL_MEMORY: i32 = 41;
    }

    pub(crate) mod copy {
        pub(crate) const DIRECTION: i32 = 1;
        pub(crate) const BYTES: i32 = 5;
        pub(crate) const START: i32 = 6;
        pub(crate) const END: i32 = 7;
        pub(crate) const CONTEXT: i32 = 9;
        pub(crate) const STREAM: i32 = 10;
        pub(crate) const CORRELATION: i32 = 11;
    }

    pub(crate) mod peer_copy {
        pub(crate) const DIRECTION: i32 = 1;
        pub(crate) const BYTES: i32 = 5;
        pub(crate) const START: i32 = 6;
        pub(crate) const END: i32 = 7;
        pub(crate) const CONTEXT: i32 = 9;
        pub(crate) const STREAM: i32 = 10;
        pub(crate) const CORRELATION: i32 = 15;
    }

    pub(crate) mod set {
        pub(crate) const BYTES: i32 = 2;
        pub(crate) const START: i32 = 3;
        pub(crate) const END: i32 = 4;
        pub(crate) const CONTEXT: i32 = 6;
        pub(crate) const STREAM: i32 = 7;
        pub(crate) const CORRELATION: i32 = 8;
    }

    pub(crate) mod graph {
        pub(crate) const CORRELATION: i32 = 1;
        pub(crate) const START: i32 = 2;
        pub(crate) const END: i32 = 3;
        pub(crate) const NUMBER: i32 = 5;
        pub(crate) const CONTEXT: i32 = 6;
        pub(crate) const STREAM: i32 = 7;
    }

    pub(crate) mod block {
        pub(crate) const OPERATION: i32 = 1;
        pub(crate) const MEMORY_KIND: i32 = 2;
        pub(crate) const CORRELATION: i32 = 3;
        pub(crate) const ADDRESS: i32 = 4;
        pub(crate) const BYTES: i32 = 5;
        pub(crate) const TIME: i32 = 6;
        pub(crate) const CONTEXT: i32 = 9;
        pub(crate) const STREAM: i32 = 10;
        pub(crate) const POOL_TYPE: i32 = 12;
        pub(crate) const POOL_ADDRESS: i32 = 13;
        pub(crate) const POOL_SIZE: i32 = 15;
    }

    pub(crate) mod pool {
        pub(crate) const OPERATION: i32 = 1;
        pub(crate) const POOL_TYPE: i32 = 2;
        pub(crate) const CORRELATION: i32 = 3;
        pub(crate) const ADDRESS: i32 = 7;
        pub(crate) const SIZE: i32 = 8;
        pub(crate) const TIME: i32 = 10;
    }
}

/// Where a field is in a record, and how long it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FieldPlace {
    offset: u32,
    bytes: u32,
}

/// Where the fields of short records are, in the order in which they are asked for; nothing of kinds that CUPTI does not write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShortLayouts([Option<[FieldPlace; MOST_FIELDS]>; SHORT_RECORDS.len()]);

impl ShortLayouts {
    /// The layouts that CUPTI tells with a buffer.
    ///
    /// # Safety
    ///
    /// It is what CUPTI tells, and is still there.
    pub(crate) unsafe fn told(told: &CompleteInfo) -> ShortLayouts {
        ShortLayouts(SHORT_RECORDS.map(|ShortRecord { kind, fields }| {
            let is_known = told.bytes >= size_of::<CompleteInfo>() && !told.layouts.is_null();
            if !is_known || kind as usize >= told.layout_count {
                return None;
            }
            // SAFETY: NVIDIA's guide says that layouts are found by the number of their kind; there is one, or null.
            let layout = unsafe { told.layouts.add(kind as usize).read().as_ref() }?;
            if layout.bytes < size_of::<RecordLayout>() || layout.entries.is_null() {
                return None;
            }
            let entry = |index: usize| {
                // SAFETY: there are so many entries, each of which says how long it is: the first one is there if any is.
                unsafe {
                    let bytes = (*layout.entries).bytes;
                    let is_whole = bytes >= size_of::<LayoutEntry>();
                    is_whole.then(|| layout.entries.byte_add(index * bytes).read())
                }
            };
            let place_of = |field: i32| {
                let entry = (0..layout.field_count).filter_map(entry).find(|entry| entry.field == field)?;
                Some(FieldPlace { offset: entry.offset.try_into().ok()?, bytes: entry.size.try_into().ok()? })
            };
            let mut places = [FieldPlace::default(); MOST_FIELDS];
            for (place, field) in places.iter_mut().zip(fields) {
                *place = place_of(*field)?;
            }
            Some(places)
        }))
    }

    /// The fields of a record behind that of its kind, if they are all there.
    pub(crate) fn fields<const COUNT: usize>(&self, kind: u32, record: &[u8]) -> Option<[u64; COUNT]> {
        let index = SHORT_RECORDS.iter().position(|record| record.kind == kind)?;
        let places = self.0[index].as_ref()?;
        let mut all = [0; COUNT];
        for (value, place) in all.iter_mut().zip(&places[1..]) {
            let field = record.get(place.offset as usize..)?.get(..place.bytes as usize)?;
            let mut bytes = [0; size_of::<u64>()];
            bytes.get_mut(..field.len())?.copy_from_slice(field);
            *value = u64::from_le_bytes(bytes);
        }
        Some(all)
    }
}

/// `CUpti_BufferCallbackCompleteInfo`.
#[repr(C)]
pub(crate) struct CompleteInfo {
    bytes: usize,
    _thread: u64,
    layouts: *const *const RecordLayout,
    layout_count: usize,
}

/// `CUpti_ActivityRecordLayout`.
#[repr(C)]
struct RecordLayout {
    bytes: usize,
    entries: *const LayoutEntry,
    field_count: usize,
    _record_bytes: usize,
}

/// `CUpti_ActivityFieldLayoutEntry`.
#[derive(Clone, Copy)]
#[repr(C)]
struct LayoutEntry {
    bytes: usize,
    field: i32,
    offset: usize,
    size: usize,
    _alignment: usize,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A kind, and where CUPTI says that each of its fields is: number, offset, and length.
    pub(crate) type ToldKind<'a> = (u32, &'a [(i32, usize, usize)]);

    /// The layouts, as CUPTI would tell them.
    pub(crate) fn told(kinds: &[ToldKind<'_>]) -> ShortLayouts {
        let entries_of = |fields: &[(i32, usize, usize)]| -> Vec<LayoutEntry> {
            let entry = |&(field, offset, size)| LayoutEntry {
                bytes: size_of::<LayoutEntry>(),
                field,
                offset,
                size,
                _alignment: 0,
            };
            fields.iter().map(entry).collect()
        };
        let entries: Vec<(u32, Vec<LayoutEntry>)> =
            kinds.iter().map(|(kind, fields)| (*kind, entries_of(fields))).collect();
        let layout = |entries: &Vec<LayoutEntry>| RecordLayout {
            bytes: size_of::<RecordLayout>(),
            entries: entries.as_ptr(),
            field_count: entries.len(),
            _record_bytes: 0,
        };
        let layouts: Vec<(u32, RecordLayout)> =
            entries.iter().map(|(kind, entries)| (*kind, layout(entries))).collect();
        let of_kind = |kind| layouts.iter().find(|(other, _)| *other == kind).map_or(ptr::null(), |(_, one)| one);
        let by_kind: Vec<*const RecordLayout> = (0..64).map(of_kind).collect();
        let info = CompleteInfo {
            bytes: size_of::<CompleteInfo>(),
            _thread: 0,
            layouts: by_kind.as_ptr(),
            layout_count: by_kind.len(),
        };
        // SAFETY: all of it is there.
        unsafe { ShortLayouts::told(&info) }
    }

    #[test]
    fn fields_are_where_cupti_says() {
        // Not in the order in which they are asked for, with one that nobody asked for, and of different lengths.
        let fields = [(2, 16, 8), (9, 4, 1), (0, 0, 4), (3, 24, 8), (4, 40, 8), (6, 32, 4), (7, 36, 4), (8, 48, 8)];
        let layouts = told(&[(SET, &fields), (POOL, &fields[..3])]);
        let mut record = vec![0xa5; 56];
        for (offset, value) in [(16, 64_u64), (24, 1000), (40, 1250), (48, 77)] {
            record[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        record[32..36].copy_from_slice(&5_u32.to_le_bytes());
        record[36..40].copy_from_slice(&13_u32.to_le_bytes());
        // Start, end, context, stream, correlation, bytes.
        assert_eq!(layouts.fields(SET, &record), Some([1000, 1250, 5, 13, 77, 64]));
        assert_eq!(layouts.fields::<6>(SET, &record[..55]), None, "it is cut off");
        assert_eq!(layouts.fields::<6>(POOL, &record), None, "not all of its fields were told");
        assert_eq!(layouts.fields::<6>(COPY, &record), None, "nothing was told of it");
        let nothing =
            CompleteInfo { bytes: size_of::<CompleteInfo>(), _thread: 0, layouts: ptr::null(), layout_count: 64 };
        // SAFETY: there is nothing.
        assert_eq!(unsafe { ShortLayouts::told(&nothing) }, ShortLayouts::default());
    }

    #[test]
    fn all_that_is_asked_for_has_room() {
        for ShortRecord { fields, .. } in &SHORT_RECORDS {
            assert!(fields.len() <= MOST_FIELDS && fields[0] == field::KIND);
        }
    }
}
