use super::{
    super::{
        record_form::tests::{ToldKind, told},
        record_kind,
    },
    *,
};

/// Writes records as CUPTI does, each as long as that version makes it.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) bytes: Vec<u8>,
    pub(crate) offsets: Vec<usize>,
}

/// What is set aside for kernels.
pub(crate) const LOCAL_MEMORY: u64 = 132 << 20;

/// The lengths of a kernel, a copy, a peer copy, a fill and a memory record.
pub(crate) const VERSION_12: [usize; 5] = [208, 88, 96, 88, 120];
pub(crate) const VERSION_13: [usize; 5] = [248, 112, 96, 104, 128];

impl Page {
    fn push(&mut self, length: usize, fields: &[(usize, &[u8])]) {
        let at = self.bytes.len();
        self.offsets.push(at);
        // What is not read is no zero.
        self.bytes.resize(at + length, 0xa5);
        for (offset, field) in fields {
            self.bytes[at + offset..at + offset + field.len()].copy_from_slice(field);
        }
    }

    pub(crate) fn kernel(&mut self, lengths: [usize; 5], work: Work, name: &'static CStr) {
        let (place, name) = (place(work), (name.as_ptr() as usize).to_le_bytes());
        let (start, end) = (work.start.to_le_bytes(), work.end.to_le_bytes());
        let correlation = work.correlation.to_le_bytes();
        let fields: [(usize, &[u8]); 7] = [
            (0, &10_u32.to_le_bytes()),
            (16, &start),
            (24, &end),
            (40, &place),
            (92, &correlation),
            (104, &name),
            (192, &LOCAL_MEMORY.to_le_bytes()),
        ];
        self.push(lengths[0], &fields);
    }

    pub(crate) fn copy(&mut self, lengths: [usize; 5], work: Work, bytes: u64, direction: u8) {
        self.transfer((1, lengths[1], 44), work, bytes, direction);
    }

    pub(crate) fn peer_copy(&mut self, lengths: [usize; 5], work: Work, bytes: u64) {
        self.transfer((22, lengths[2], 60), work, bytes, 10);
    }

    pub(crate) fn set(&mut self, lengths: [usize; 5], work: Work, bytes: u64) {
        self.transfer((2, lengths[3], 44), work, bytes, 0);
    }

    fn transfer(&mut self, (kind, length, correlation_at): (u32, usize, usize), work: Work, bytes: u64, direction: u8) {
        let place = place(work);
        let (start, end) = (work.start.to_le_bytes(), work.end.to_le_bytes());
        let correlation = work.correlation.to_le_bytes();
        let fields: [(usize, &[u8]); 7] = [
            (0, &kind.to_le_bytes()),
            (4, &[direction]),
            (8, &bytes.to_le_bytes()),
            (16, &start),
            (24, &end),
            (32, &place),
            (correlation_at, &correlation),
        ];
        self.push(length, &fields);
    }

    pub(crate) fn memory(&mut self, lengths: [usize; 5], operation: u32, kind: u32, pool: Option<(u64, u64)>) {
        let (pool_address, pool_size) = pool.unwrap_or_default();
        let fields: [(usize, &[u8]); 11] = [
            (0, &49_u32.to_le_bytes()),
            (4, &operation.to_le_bytes()),
            (8, &kind.to_le_bytes()),
            (12, &77_u32.to_le_bytes()),
            (16, &0xa000_u64.to_le_bytes()),
            (24, &512_u64.to_le_bytes()),
            (32, &1000_u64.to_le_bytes()),
            (52, &place(WORK)),
            (80, &u32::from(pool.is_some()).to_le_bytes()),
            (88, &pool_address.to_le_bytes()),
            (104, &pool_size.to_le_bytes()),
        ];
        self.push(lengths[4], &fields);
    }

    pub(crate) fn unknown(&mut self, length: usize) {
        self.push(length, &[(0, &9999_u32.to_le_bytes())]);
    }

    /// Where the record after one is.
    pub(crate) fn next(&self) -> impl FnMut(Option<usize>) -> Next {
        let offsets = self.offsets.clone();
        move |last| {
            let index = last.map_or(0, |last| offsets.iter().position(|offset| *offset == last).unwrap() + 1);
            offsets.get(index).map_or(Next::End, |offset| Next::At(*offset))
        }
    }
}

fn place(work: Work) -> [u8; 12] {
    bytemuck::cast([0, work.place.context, work.place.stream])
}

pub(crate) const WORK: Work =
    Work { start: 1000, end: 1250, place: CuptiStream { context: 1, stream: 13 }, correlation: 77 };

#[test]
fn records_of_both_versions_are_read_alike() {
    for lengths in [VERSION_12, VERSION_13] {
        let mut page = Page::default();
        page.kernel(lengths, WORK, c"matmul");
        page.unknown(24);
        page.copy(lengths, WORK, 4096, 1);
        page.peer_copy(lengths, WORK, 8192);
        page.set(lengths, WORK, 64);
        page.memory(lengths, 1, 3, None);
        page.memory(lengths, 2, 3, Some((0xf000, 1 << 20)));
        page.memory(lengths, 1, 2, None);
        let mut expected = [
            Record::Kernel {
                work: WORK,
                name: c"matmul",
                shape: LaunchShape([0xa5a5_a5a5; 8]),
                local_memory: LOCAL_MEMORY,
            },
            Record::Other,
            Record::Copy { work: WORK, bytes: 4096, direction: 1 },
            Record::Copy { work: WORK, bytes: 8192, direction: 10 },
            Record::Set { work: WORK, bytes: 64 },
            Record::Memory(MemoryChange {
                time: 1000,
                correlation: 77,
                place: Some(WORK.place),
                block: Some((true, 0xa000, 512)),
                pool: None,
            }),
            Record::Memory(MemoryChange {
                time: 1000,
                correlation: 77,
                place: Some(WORK.place),
                block: Some((false, 0xa000, 512)),
                pool: Some((0xf000, 1 << 20)),
            }),
            Record::Other,
        ]
        .into_iter();
        // SAFETY: the names are static.
        unsafe { read(&page.bytes, &RecordForm::Whole, page.next(), |record| assert_eq!(record, expected.next())) };
        assert!(expected.next().is_none());
    }
}

#[test]
fn what_does_not_fit_in_the_buffer_is_not_read() {
    let mut page = Page::default();
    page.kernel(VERSION_12, WORK, c"matmul");
    for length in 0..200 {
        // SAFETY: the name is static.
        assert!(unsafe { read_one(&page.bytes[..length], &RecordForm::Whole, 0) }.is_none(), "{length}");
    }
    // SAFETY: the name is static, and outlives the page.
    assert!(unsafe { read_one(&page.bytes[..200], &RecordForm::Whole, 0) }.is_some());
    // SAFETY: nothing is read so far behind the end of the page.
    assert!(unsafe { read_one(&page.bytes, &RecordForm::Whole, usize::MAX) }.is_none());
}

#[test]
fn short_records_say_the_same() {
    let kinds: [ToldKind<'_>; 7] = [
        (
            record_kind::KERNEL,
            &[
                (0, 0, 4),
                (7, 8, 8),
                (8, 16, 8),
                (11, 24, 8),
                (12, 32, 8),
                (22, 40, 8),
                (24, 48, 8),
                (41, 56, 8),
                (13, 64, 4),
                (14, 68, 4),
                (15, 72, 4),
                (16, 76, 4),
                (17, 80, 4),
                (18, 84, 4),
                (19, 88, 4),
                (20, 92, 4),
            ],
        ),
        (
            record_kind::COPY,
            &[(0, 0, 4), (6, 8, 8), (7, 16, 8), (9, 24, 4), (10, 28, 4), (11, 32, 8), (5, 40, 8), (1, 48, 1)],
        ),
        (
            record_kind::PEER_COPY,
            &[(0, 0, 4), (6, 8, 8), (7, 16, 8), (9, 24, 4), (10, 28, 4), (15, 32, 8), (5, 40, 8), (1, 48, 1)],
        ),
        (record_kind::SET, &[(0, 0, 4), (3, 8, 8), (4, 16, 8), (6, 24, 4), (7, 28, 4), (8, 32, 8), (2, 40, 8)]),
        (record_kind::GRAPH, &[(0, 0, 4), (2, 8, 8), (3, 16, 8), (6, 24, 4), (7, 28, 4), (1, 32, 8), (5, 40, 4)]),
        (record_kind::POOL, &[(0, 0, 4), (1, 4, 4), (2, 8, 4), (10, 16, 8), (3, 24, 8), (7, 32, 8), (8, 40, 8)]),
        (
            record_kind::MEMORY,
            &[
                (0, 0, 4),
                (1, 4, 4),
                (2, 8, 4),
                (6, 16, 8),
                (3, 24, 8),
                (9, 32, 4),
                (10, 36, 4),
                (4, 40, 8),
                (5, 48, 8),
                (12, 56, 4),
                (13, 64, 8),
                (15, 72, 8),
            ],
        ),
    ];
    let form = RecordForm::Short(Box::new(told(&kinds)));
    let mut page = Page::default();
    let name = (c"matmul".as_ptr().expose_provenance() as u64).to_le_bytes();
    let (start, end, correlation) = (WORK.start.to_le_bytes(), WORK.end.to_le_bytes(), 77_u64.to_le_bytes());
    let (context, stream) = (WORK.place.context, WORK.place.stream);
    let shape: [u32; 8] = std::array::from_fn(|side| 3 + side as u32);
    let kernel: [(usize, &[u8]); 9] = [
        (0, &record_kind::KERNEL.to_le_bytes()),
        (64, bytemuck::cast_slice(&shape)),
        (8, &start),
        (16, &end),
        (24, &u64::from(context).to_le_bytes()),
        (32, &u64::from(stream).to_le_bytes()),
        (40, &correlation),
        (48, &name),
        (56, &LOCAL_MEMORY.to_le_bytes()),
    ];
    page.push(96, &kernel);
    let mut ran = |kind: u32, more: u64, direction: u8| {
        let fields: [(usize, &[u8]); 8] = [
            (0, &kind.to_le_bytes()),
            (8, &start),
            (16, &end),
            (24, &context.to_le_bytes()),
            (28, &stream.to_le_bytes()),
            (32, &correlation),
            (40, &more.to_le_bytes()),
            (48, &[direction]),
        ];
        page.push(56, &fields);
    };
    ran(record_kind::COPY, 4096, 1);
    ran(record_kind::PEER_COPY, 8192, 10);
    ran(record_kind::SET, 64, 0);
    ran(record_kind::GRAPH, 5, 0);
    let freed: [(usize, &[u8]); 12] = [
        (0, &record_kind::MEMORY.to_le_bytes()),
        (4, &2_u32.to_le_bytes()),
        (8, &3_u32.to_le_bytes()),
        (16, &1000_u64.to_le_bytes()),
        (24, &correlation),
        (32, &context.to_le_bytes()),
        (36, &stream.to_le_bytes()),
        (40, &0xa000_u64.to_le_bytes()),
        (48, &512_u64.to_le_bytes()),
        (56, &1_u32.to_le_bytes()),
        (64, &0xf000_u64.to_le_bytes()),
        (72, &(1_u64 << 20).to_le_bytes()),
    ];
    page.push(80, &freed);
    let pool: [(usize, &[u8]); 7] = [
        (0, &record_kind::POOL.to_le_bytes()),
        (4, &3_u32.to_le_bytes()),
        (8, &1_u32.to_le_bytes()),
        (16, &1000_u64.to_le_bytes()),
        (24, &correlation),
        (32, &0xf000_u64.to_le_bytes()),
        (40, &(1_u64 << 20).to_le_bytes()),
    ];
    page.push(48, &pool);
    // It is cut off.
    page.push(40, &[(0, &record_kind::SET.to_le_bytes())]);
    let shape = LaunchShape(shape);
    let mut expected = [
        Some(Record::Kernel { work: WORK, name: c"matmul", shape, local_memory: LOCAL_MEMORY }),
        Some(Record::Copy { work: WORK, bytes: 4096, direction: 1 }),
        Some(Record::Copy { work: WORK, bytes: 8192, direction: 10 }),
        Some(Record::Set { work: WORK, bytes: 64 }),
        Some(Record::Graph { work: WORK, number: 5 }),
        Some(Record::Memory(MemoryChange {
            time: 1000,
            correlation: 77,
            place: Some(WORK.place),
            block: Some((false, 0xa000, 512)),
            pool: Some((0xf000, 1 << 20)),
        })),
        Some(Record::Memory(MemoryChange {
            time: 1000,
            correlation: 77,
            place: None,
            block: None,
            pool: Some((0xf000, 1 << 20)),
        })),
        None,
    ]
    .into_iter();
    // SAFETY: the name is static.
    unsafe { read(&page.bytes, &form, page.next(), |record| assert_eq!(Some(record), expected.next())) };
    assert!(expected.next().is_none());
}
