//! Messages into tables.

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

/// Reads batches; keeps its context from one to the next.
pub(crate) struct Decoder {
    decompressor: Decompressor<'static>,
}

impl Decoder {
    pub(crate) fn new() -> std::io::Result<Decoder> {
        Ok(Decoder { decompressor: Decompressor::new()? })
    }

    /// Appends a batch to a table, or leaves the table as it was.
    pub(crate) fn append<T: Table>(
        &mut self,
        head: &BatchHead<'_>,
        body: &[u8],
        table: &mut T,
    ) -> Result<(), Malformed> {
        let before = table.len();
        let result = self.append_columns(head, body, table);
        if result.is_err() {
            table.columns_mut().into_iter().for_each(|column| column.truncate(before));
        }
        result
    }

    fn append_columns<T: Table>(&mut self, head: &BatchHead<'_>, body: &[u8], table: &mut T) -> Result<(), Malformed> {
        let compressed = match head.batch.compression() {
            None => false,
            Some(compression) if compression.codec() == CompressionType::ZSTD => true,
            Some(_) => return Err(Malformed),
        };
        let buffers = head.batch.buffers().ok_or(Malformed)?;
        let mut source = BodyBuffers {
            body,
            buffers: buffers.iter().map(|buffer| (buffer.offset(), buffer.length())),
            next: &[],
            compressed,
            decompressor: &mut self.decompressor,
        };
        source.advance()?;
        let mut columns = table.columns_mut().into_iter().enumerate();
        columns.try_for_each(|(index, column)| match index < head.columns {
            true => column.append(head.rows, &mut source),
            false => column.append_unknown(head.rows),
        })
    }
}

/// The buffers of a body, in order.
struct BodyBuffers<'a, I> {
    body: &'a [u8],
    buffers: I,
    /// The buffer that is read next: empty, or a length and bytes.
    next: &'a [u8],
    compressed: bool,
    decompressor: &'a mut Decompressor<'static>,
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
            _ => {
                let written = self.decompressor.decompress_to_buffer(&next[8..], into).map_err(|_| Malformed)?;
                if written != into.len() {
                    return Err(Malformed);
                }
            }
        }
        self.advance()
    }
}
