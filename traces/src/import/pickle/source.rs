//! Bytes in order, from any reader.

use std::io::{self, ErrorKind, Read};

/// How much is read at once.
const CHUNK: usize = 256 << 10;

/// The bytes ended.
#[derive(Debug)]
pub(super) enum Stopped {
    /// At the end of the input.
    End,
    /// At an error of the operating system.
    Io(io::Error),
}

/// A reader with a buffer that fixed-width numbers are taken from.
pub(super) struct Source<R> {
    reader: R,
    buffer: Box<[u8]>,
    at: usize,
    filled: usize,
    /// Bytes before those in the buffer.
    before: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(reader: R) -> Source<R> {
        Source { reader, buffer: vec![0; CHUNK].into_boxed_slice(), at: 0, filled: 0, before: 0 }
    }

    /// How many bytes were taken.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Whether the input goes on or ends as it should behind what was read: a gzip file ends with a checksum.
    pub(super) fn ends_well(&mut self) -> bool {
        self.reader.read(&mut self.buffer).is_ok()
    }

    /// Reads on, once all that was read is taken.
    fn refill(&mut self) -> Result<(), Stopped> {
        self.before += self.filled as u64;
        (self.at, self.filled) = (0, 0);
        loop {
            match self.reader.read(&mut self.buffer) {
                Ok(0) => return Err(Stopped::End),
                Ok(length) => {
                    self.filled = length;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A gzip file that was cut off.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(Stopped::End),
                Err(error) => return Err(Stopped::Io(error)),
            }
        }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Stopped> {
        if self.at == self.filled {
            self.refill()?;
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Stopped> {
        let mut array = [0; N];
        match self.buffer[self.at..self.filled].first_chunk::<N>() {
            Some(chunk) => {
                array = *chunk;
                self.at += N;
            }
            None => {
                for byte in &mut array {
                    *byte = self.byte()?;
                }
            }
        }
        Ok(array)
    }

    /// Shows the next bytes, piece by piece: a length that nothing follows takes no memory.
    pub(super) fn pieces(&mut self, mut length: u64, mut show: impl FnMut(&[u8])) -> Result<(), Stopped> {
        while length > 0 {
            if self.at == self.filled {
                self.refill()?;
            }
            let piece = length.min((self.filled - self.at) as u64) as usize;
            show(&self.buffer[self.at..self.at + piece]);
            self.at += piece;
            length -= piece as u64;
        }
        Ok(())
    }
}
