//! Messages into tables.

use std::cell::RefCell;

use arrow_ipc::{CompressionType, Message, RecordBatch};
use zstd::bulk::Decompressor;

use super::{encode::STORED, frame, key};
use crate::{
    columns::{BufferSource, Malformed},
    ids::Nanos,
    tables::Table,
};

/// What a reader accepts; a writer cuts its batches far below.
const MAX_ROWS: usize = 1 << 16;

/// What a batch says of itself, before it is decompressed.
pub(crate) struct BatchHead<'a> {
    batch: RecordBatch<'a>,
    /// How many rows it has.
    pub(crate) rows: usize,
    /// How many columns it has.
    pub(crate) columns: usize,
    /// How many rows the file has before it.
    pub(crate) first_row: u64,
    /// The time it covers, where its table has times.
    pub(crate) time: Option<(Nanos, Nanos)>,
}

impl<'a> BatchHead<'a> {
    /// Reads the head of a batch of rows; `None` for any other message.
    pub(crate) fn of(message: &Message<'a>) -> Option<Result<BatchHead<'a>, Malformed>> {
        let batch = message.header_as_record_batch()?;
        let number = |wanted: &str| {
            let pairs = message.custom_metadata()?;
            pairs.iter().find(|pair| pair.key() == Some(wanted))?.value()
        };
        let parse = || {
            let rows = usize::try_from(batch.length()).ok().filter(|rows| *rows <= MAX_ROWS)?;
            let first_row = number(key::FIRST_ROW)?.parse().ok()?;
            let time = |wanted| Some(Nanos(number(wanted)?.parse().ok()?));
            let columns = batch.nodes()?.len();
            Some(BatchHead { batch, rows, columns, first_row, time: time(key::FROM_NS).zip(time(key::TO_NS)) })
        };
        Some(parse().ok_or(Malformed))
    }
}

/// Appends a batch to a table, or leaves the table as it was.
pub(crate) fn append<T: Table>(head: &BatchHead<'_>, body: &[u8], table: &mut T) -> Result<(), Malformed> {
    let before = table.len();
    let result = append_columns(head, body, table);
    if result.is_err() {
        table.columns_mut().into_iter().for_each(|column| column.truncate(before));
    }
    result
}

fn append_columns<T: Table>(head: &BatchHead<'_>, body: &[u8], table: &mut T) -> Result<(), Malformed> {
    let compressed = match head.batch.compression() {
        None => false,
        Some(compression) if compression.codec() == CompressionType::ZSTD => true,
        Some(_) => return Err(Malformed),
    };
    let buffers = head.batch.buffers().ok_or(Malformed)?;
    let buffers = buffers.iter().map(|buffer| (buffer.offset(), buffer.length()));
    let mut source = BodyBuffers { body, buffers, next: &[], compressed };
    source.advance()?;
    let mut columns = table.columns_mut().into_iter().enumerate();
    columns.try_for_each(|(index, column)| match index < head.columns {
        true => column.append(head.rows, &mut source),
        false => column.append_unknown(head.rows),
    })
}

thread_local! {
    /// What decompresses on this thread. It takes 100 kB, and a run may have thousands of tables that are read by turns.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Decompresses what has just this length.
fn decompress(packed: &[u8], into: &mut [u8]) -> Result<(), Malformed> {
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new().map_err(|_| Malformed)?),
        };
        let written = decompressor.decompress_to_buffer(packed, into).map_err(|_| Malformed)?;
        if written == into.len() { Ok(()) } else { Err(Malformed) }
    })
}

/// The buffers of a body, in order.
struct BodyBuffers<'a, I> {
    body: &'a [u8],
    buffers: I,
    /// The buffer that is read next: empty, or a length and bytes.
    next: &'a [u8],
    compressed: bool,
}

impl<I: Iterator<Item = (i64, i64)>> BodyBuffers<'_, I> {
    fn advance(&mut self) -> Result<(), Malformed> {
        self.next = match self.buffers.next() {
            None => &[],
            Some((offset, length)) => {
                let (offset, length) = (usize::try_from(offset), usize::try_from(length));
                let (Ok(offset), Ok(length)) = (offset, length) else { return Err(Malformed) };
                let end = offset.checked_add(length).ok_or(Malformed)?;
                self.body.get(offset..end).ok_or(Malformed)?
            }
        };
        Ok(())
    }

    /// The uncompressed length of the next buffer, or [`STORED`], and its bytes.
    fn split_next(&self) -> Result<(i64, &[u8]), Malformed> {
        if !self.compressed || self.next.is_empty() {
            return Ok((STORED, self.next));
        }
        let (length, data) = self.next.split_first_chunk::<8>().ok_or(Malformed)?;
        Ok((i64::from_le_bytes(*length), data))
    }
}

impl<I: Iterator<Item = (i64, i64)>> BufferSource for BodyBuffers<'_, I> {
    fn next_length(&self) -> Result<usize, Malformed> {
        match self.split_next()? {
            (STORED, data) => Ok(data.len()),
            (length, _) => usize::try_from(length).ok().filter(|length| *length <= frame::MAX_BODY).ok_or(Malformed),
        }
    }

    fn skip(&mut self) -> Result<(), Malformed> {
        self.advance()
    }

    fn next_into(&mut self, into: &mut [u8]) -> Result<(), Malformed> {
        if self.next_length()? != into.len() {
            return Err(Malformed);
        }
        let next = self.next;
        match self.split_next()? {
            (STORED, data) => into.copy_from_slice(data),
            _ => decompress(&next[8..], into)?,
        }
        self.advance()
    }
}
