//! A table's file: rows go into it a row group at a time, so that none of the others is in memory.

use std::{fs::File, path::Path, sync::Arc};

use anyhow::{Result, anyhow};
use parquet::{
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::{
        metadata::SortingColumn,
        properties::{WriterProperties, WriterVersion},
        writer::SerializedFileWriter,
    },
    schema::types::Type,
};
use stepscope_traces::Nanos;

use super::field::Field;

/// So many rows are a row group: readers skip those that have nothing of what they look for, and share them among threads.
const GROUP: usize = 1 << 17;

/// A table's file.
pub(super) struct TableFile<R, C> {
    table: &'static str,
    fields: Vec<Field<R, C>>,
    writer: SerializedFileWriter<File>,
    rows: u64,
}

impl<R, C> TableFile<R, C> {
    /// A new file of a table with these columns. Rows of a group are in the order of the first of them.
    pub(super) fn create(table: &'static str, path: &Path, fields: Vec<Field<R, C>>) -> Result<Self> {
        let create = || -> Result<SerializedFileWriter<File>, ParquetError> {
            let columns = fields.iter().map(|field| field.column().map(Arc::new)).collect::<Result<_, _>>()?;
            let schema = Type::group_type_builder(table).with_fields(columns).build()?;
            // The first version of pages is the one that every reader knows.
            let properties = WriterProperties::builder()
                .set_writer_version(WriterVersion::PARQUET_1_0)
                .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
                .set_sorting_columns(Some(vec![SortingColumn { column_idx: 0, descending: false, nulls_first: false }]))
                .set_created_by(concat!("stepscope version ", env!("CARGO_PKG_VERSION")).into());
            let properties = fields.iter().fold(properties, |properties, field| field.packed(properties));
            SerializedFileWriter::new(File::create_new(path)?, Arc::new(schema), Arc::new(properties.build()))
        };
        let writer = create().map_err(|error| cannot(table, error))?;
        Ok(TableFile { table, fields, writer, rows: 0 })
    }

    /// Writes rows that are in order, in groups.
    pub(super) fn write(&mut self, rows: &[R], context: &C) -> Result<()> {
        rows.chunks(GROUP)
            .try_for_each(|group| self.write_group(group, context))
            .map_err(|error| cannot(self.table, error))
    }

    fn write_group(&mut self, rows: &[R], context: &C) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for field in &self.fields {
            if let Some(mut column) = group.next_column()? {
                field.write(rows, context, &mut column)?;
                column.close()?;
            }
        }
        group.close()?;
        self.rows += rows.len() as u64;
        Ok(())
    }

    /// Ends the file; how many rows it has.
    pub(super) fn finish(self) -> Result<u64> {
        self.writer.close().map_err(|error| cannot(self.table, error))?;
        Ok(self.rows)
    }
}

/// Rows on their way into a file, which they come to in the order of time. Each may come so many rows late.
pub(super) struct InTime<R, C> {
    file: TableFile<R, C>,
    time: fn(&R) -> Nanos,
    waiting: Vec<R>,
}

impl<R, C> InTime<R, C> {
    pub(super) fn new(file: TableFile<R, C>, time: fn(&R) -> Nanos) -> Self {
        InTime { file, time, waiting: Vec::new() }
    }

    pub(super) fn push(&mut self, row: R, context: &C) -> Result<()> {
        self.waiting.push(row);
        if self.waiting.len() == 2 * GROUP {
            self.waiting.sort_by_key(self.time);
            self.file.write(&self.waiting[..GROUP], context)?;
            self.waiting.drain(..GROUP);
        }
        Ok(())
    }

    /// Writes what waits, and ends the file; how many rows it has.
    pub(super) fn finish(mut self, context: &C) -> Result<u64> {
        self.waiting.sort_by_key(self.time);
        self.file.write(&self.waiting, context)?;
        self.file.finish()
    }
}

/// Each error says why in a line. The file's name says nothing: it is a hidden one until all is written.
fn cannot(table: &str, error: ParquetError) -> anyhow::Error {
    match error {
        ParquetError::External(why) => anyhow!("cannot write the table {table}: {why}"),
        why => anyhow!("cannot write the table {table}: {why}"),
    }
}
