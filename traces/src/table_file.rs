//! One table's file, while rows are appended to it.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    error::TraceError,
    format::{encode::Encoder, frame::END_OF_STREAM},
    tables::Table,
};

/// A batch is cut when it has this many rows, whatever the time.
const BATCH_ROWS: usize = 16 << 10;

/// One table's file.
pub(crate) struct TableFile<T: Table> {
    path: PathBuf,
    pub(crate) file: File,
    /// Rows that are not in the file yet, and room to lay them out in columns.
    pub(crate) pending: Vec<T::Row>,
    columns: T,
    /// Rows in the file, and before it.
    pub(crate) rows: u64,
    /// Bytes in the file.
    pub(crate) bytes: u64,
    message: Vec<u8>,
}

impl<T: Table> TableFile<T> {
    /// Makes a file that must not be there yet; its first row has this number.
    pub(crate) fn create(path: PathBuf, encoder: &mut Encoder, rows: u64) -> Result<TableFile<T>, TraceError> {
        let file =
            OpenOptions::new().write(true).create_new(true).open(&path).map_err(TraceError::io("create", &path))?;
        let (pending, columns, message) = (Vec::new(), T::default(), Vec::new());
        let mut table = TableFile { path, file, pending, columns, rows, bytes: 0, message };
        encoder.preamble::<T>(&mut table.message).map_err(TraceError::io("compress for", &table.path))?;
        table.append_message()?;
        Ok(table)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= BATCH_ROWS
    }

    pub(crate) fn flush(&mut self, encoder: &mut Encoder) -> Result<(), TraceError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.columns.clear();
        match T::order(&self.pending) {
            None => self.pending.iter().for_each(|row| self.columns.push_row(row)),
            Some(order) => order.iter().for_each(|row| self.columns.push_row(&self.pending[*row as usize])),
        }
        self.message.clear();
        encoder
            .rows(&self.columns, self.rows, &mut self.message)
            .map_err(TraceError::io("compress for", &self.path))?;
        self.append_message()?;
        self.rows += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    pub(crate) fn end(&mut self) -> Result<(), TraceError> {
        self.message.clear();
        self.message.extend_from_slice(&END_OF_STREAM);
        self.append_message()
    }

    /// Appends the message, or leaves the file as it was.
    fn append_message(&mut self) -> Result<(), TraceError> {
        self.file.write_all(&self.message).map_err(|error| {
            drop(self.file.set_len(self.bytes));
            TraceError::io("write to", &self.path)(error)
        })?;
        self.bytes += self.message.len() as u64;
        Ok(())
    }

    /// A removed file can still be written to, so the loss would be noticed too late.
    pub(crate) fn check_still_there(&self, directory: &Path) -> Result<(), TraceError> {
        let ours = self.file.metadata().map_err(TraceError::io("look at", &self.path))?;
        match fs::metadata(&self.path) {
            Ok(theirs) if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) => Ok(()),
            _ => Err(TraceError::Vanished { path: directory.to_owned() }),
        }
    }
}
