//! The tables of a rank, defined once: the row a program records, and the columns a file and a reader hold.

use crate::{
    columns::{Buffers, Column, Field, FieldColumn, TextColumn},
    ids::{Correlation, CounterId, Group, Layer, MicroBatch, NameId, Nanos, Pool, Sequence, Stage, Step, Stream},
    vocabulary::{MemoryCategory, MemoryOperation, Phase, SpanKind},
    window::Window,
};

/// What the file format needs to know of a table.
pub(crate) trait Table: Default {
    /// The file that holds it in a rank's directory.
    const FILE: &'static str;

    /// Whether only the last minutes of it are kept, where that is so of a rank.
    const IS_TIMED: bool = true;

    /// Whether rows hold until others end them, so that each segment of a ring begins with those that do.
    const IS_RETOLD: bool = false;

    /// What is pushed to it.
    type Row;

    /// Appends one row.
    fn push_row(&mut self, row: &Self::Row);

    /// The order in which the rows of a batch go to a file, if it is not the one they are in.
    fn order(rows: &[Self::Row]) -> Option<Vec<u32>>;

    /// How many rows it has.
    fn len(&self) -> usize;

    /// The columns and their names, in the order of the file.
    fn columns(&self) -> Vec<(&'static str, &dyn Buffers)>;

    /// The columns, to append to.
    fn columns_mut(&mut self) -> Vec<&mut dyn Buffers>;

    /// How many of its columns, the last ones, older files do not have.
    fn added_columns() -> usize {
        0
    }

    /// From the first beginning to the last end of its rows, if it has rows and they have times.
    fn time_range(&self) -> Option<(Nanos, Nanos)>;

    /// Appends the rows of `batch` that lie in `window`.
    fn append_within(&mut self, batch: &Self, window: Window);

    /// Leaves out the rows, from this one on, that are not over before the last time there is; says how many.
    fn leave_out_endless(&mut self, _from: usize) -> u64 {
        0
    }

    /// Removes every row and keeps the memory.
    fn clear(&mut self) {
        self.columns_mut().into_iter().for_each(|column| column.truncate(0));
    }
}

macro_rules! table {
    (
        $(#[$row_doc:meta])* row $row:ident;
        $(#[$table_doc:meta])* table $table:ident in $file:literal $(, retold: $retold:literal)? $(, batches grouped by $key:ident)? $(, $added:literal column added)?;
        time $start:ident $(to + $duration:ident)?;
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    ) => {
        $(#[$row_doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $row {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $row {
            /// When it began and when it ended.
            pub fn interval(&self) -> (Nanos, Nanos) {
                (self.$start, self.$start $(+ self.$duration)?)
            }
        }

        $(#[$table_doc])*
        #[derive(Debug, Default)]
        pub struct $table {
            $($(#[$doc])* pub $field: <$type as Field>::Column,)*
        }

        impl $table {
            /// How many rows there are.
            pub fn len(&self) -> usize {
                Table::len(self)
            }

            /// Whether there are no rows.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Appends one row.
            pub fn push(&mut self, row: &$row) {
                $(self.$field.push(row.$field);)*
            }

            /// One row. Panics past the end, as slices do.
            pub fn row(&self, row: usize) -> $row {
                $row { $($field: self.$field.get(row),)* }
            }

            fn has_end(&self, row: usize) -> bool {
                let start = self.$start.get(row);
                start.has_end(Nanos(0)) $(&& start.has_end(self.$duration.get(row)))?
            }

            /// Every row.
            pub fn rows(&self) -> impl ExactSizeIterator<Item = $row> + DoubleEndedIterator + '_ {
                (0..self.len()).map(|row| self.row(row))
            }
        }

        impl Table for $table {
            const FILE: &'static str = $file;
            $(const IS_RETOLD: bool = $retold;)?

            type Row = $row;

            fn push_row(&mut self, row: &$row) {
                self.push(row);
            }

            fn order(rows: &[$row]) -> Option<Vec<u32>> {
                $(if !rows.is_sorted_by_key(|row| row.$key) {
                    let mut order: Vec<u32> = (0..rows.len() as u32).collect();
                    order.sort_by_key(|row| rows[*row as usize].$key);
                    return Some(order);
                })?
                let _ = rows;
                None
            }

            fn len(&self) -> usize {
                [$(self.$field.iter().len()),*][0]
            }

            fn columns(&self) -> Vec<(&'static str, &dyn Buffers)> {
                vec![$((stringify!($field), &self.$field as &dyn Buffers)),*]
            }

            fn columns_mut(&mut self) -> Vec<&mut dyn Buffers> {
                vec![$(&mut self.$field as &mut dyn Buffers),*]
            }

            $(fn added_columns() -> usize {
                $added
            })?

            fn time_range(&self) -> Option<(Nanos, Nanos)> {
                let intervals = (0..self.len()).map(|row| {
                    let start = self.$start.get(row);
                    (start, start $(+ self.$duration.get(row))?)
                });
                // A duration may be negative, in a file that somebody else made.
                intervals.reduce(|(from, to), (start, end)| (from.min(start).min(end), to.max(start).max(end)))
            }

            fn append_within(&mut self, batch: &Self, window: Window) {
                batch.rows().filter(|row| window.touches(row.interval())).for_each(|row| self.push(&row));
            }

            fn leave_out_endless(&mut self, from: usize) -> u64 {
                let endless = (from..self.len()).filter(|row| !self.has_end(*row)).count();
                if endless > 0 {
                    let kept = (from..self.len()).filter(|row| self.has_end(*row)).map(|row| self.row(row));
                    let kept: Vec<$row> = kept.collect();
                    self.columns_mut().into_iter().for_each(|column| column.truncate(from));
                    kept.iter().for_each(|row| self.push(row));
                }
                endless as u64
            }
        }
    };
}

table! {
    /// A timed interval: a kernel, a copy, a collective, or an annotation around them.
    row Span;
    /// Timed intervals. Those of one stream that one thread recorded are in the order in which it did. A batch holds one
    /// stream after another, because a stream repeats itself and streams together do not: it reads twice as fast.
    table Spans in "spans.arrows", batches grouped by stream, 1 column added;
    time start_ns to + duration_ns;
    /// When it began.
    start_ns: Nanos,
    /// How long it took.
    duration_ns: Nanos,
    /// What it is.
    kind: SpanKind,
    /// Its name.
    name: NameId,
    /// The stream it ran on; of an annotation or a launch, the thread that made it.
    stream: Option<Stream>,
    /// What ties it to its launch.
    correlation: Option<Correlation>,
    /// The step it belongs to.
    step: Option<Step>,
    /// The micro-batch it belongs to.
    micro_batch: Option<MicroBatch>,
    /// The phase it belongs to.
    phase: Option<Phase>,
    /// The layer it belongs to.
    layer: Option<Layer>,
    /// The pipeline stage it belongs to.
    stage: Option<Stage>,
    /// The bytes it moved; of a collective, the message's.
    bytes: Option<u64>,
    /// The process group of a collective.
    group: Option<Group>,
    /// The number of a collective in its group, the same on all its ranks.
    sequence: Option<Sequence>,
    /// The floating-point operations it did.
    flops: Option<u64>,
    /// Who launched it: a name whose text is that of an [`Origin`](crate::Origin).
    origin: Option<NameId>,
}

table! {
    /// Something that happened to memory.
    row MemoryEvent;
    /// What happened to memory. What one thread recorded is in order; what several did is in order of time only once it
    /// is sorted.
    table MemoryEvents in "memory.arrows", retold: true, 1 column added;
    time time_ns;
    /// When it happened.
    time_ns: Nanos,
    /// What happened.
    op: MemoryOperation,
    /// The address of the block.
    address: u64,
    /// Its size; a free may leave it to the allocation.
    bytes: Option<u64>,
    /// What it is for; a free may leave it to the allocation.
    category: Option<MemoryCategory>,
    /// The step it happened in.
    step: Option<Step>,
    /// The phase it happened in.
    phase: Option<Phase>,
    /// The layer it happened in.
    layer: Option<Layer>,
    /// The pool it came from.
    pool: Option<Pool>,
    /// Who asked for it: a name whose text is a stack of calls, one in each line, the innermost first.
    site: Option<NameId>,
}

table! {
    /// A sampled value.
    row CounterSample;
    /// Sampled values. What one thread recorded is in order.
    table CounterSamples in "counters.arrows";
    time time_ns;
    /// When it was sampled.
    time_ns: Nanos,
    /// What was sampled.
    counter: CounterId,
    /// The value.
    value: f64,
}

/// Interned names, in the order in which they were first used.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    id: Column<NameId>,
    text: TextColumn,
}

impl Strings {
    fn push(&mut self, id: NameId, text: &str) {
        self.id.push(id);
        self.text.push(text);
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (NameId, &str)> {
        self.id.iter().enumerate().map(|(row, id)| (id, self.text.get(row)))
    }
}

impl Table for Strings {
    const FILE: &'static str = "strings.arrows";
    const IS_TIMED: bool = false;

    type Row = (NameId, String);

    fn push_row(&mut self, (id, text): &(NameId, String)) {
        self.push(*id, text);
    }

    fn order(_: &[(NameId, String)]) -> Option<Vec<u32>> {
        None
    }

    fn len(&self) -> usize {
        self.id.numbers().len()
    }

    fn columns(&self) -> Vec<(&'static str, &dyn Buffers)> {
        vec![("id", &self.id), ("text", &self.text)]
    }

    fn columns_mut(&mut self) -> Vec<&mut dyn Buffers> {
        vec![&mut self.id, &mut self.text]
    }

    fn time_range(&self) -> Option<(Nanos, Nanos)> {
        None
    }

    fn append_within(&mut self, batch: &Self, _: Window) {
        batch.rows().for_each(|(id, text)| self.push(id, text));
    }
}

impl MemoryEvent {
    /// An event of which nothing else is known.
    pub fn new(time_ns: Nanos, op: MemoryOperation, address: u64, bytes: Option<u64>) -> MemoryEvent {
        let (category, step, phase, layer, pool, site) = (None, None, None, None, None, None);
        MemoryEvent { time_ns, op, address, bytes, category, step, phase, layer, pool, site }
    }
}

impl Span {
    /// A span of which nothing else is known.
    #[inline]
    pub fn new(kind: SpanKind, name: NameId, start_ns: Nanos, duration_ns: Nanos) -> Span {
        Span {
            start_ns,
            duration_ns,
            kind,
            name,
            stream: None,
            correlation: None,
            step: None,
            micro_batch: None,
            phase: None,
            layer: None,
            stage: None,
            bytes: None,
            group: None,
            sequence: None,
            flops: None,
            origin: None,
        }
    }
}
