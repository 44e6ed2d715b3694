//! A connection until a deadline: one that drips is over by then, too.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Instant,
};

/// Reads and writes until a deadline.
pub(super) struct Until<'a> {
    pub(super) stream: &'a TcpStream,
    pub(super) deadline: Instant,
}

impl Until<'_> {
    /// The bounds of the next call, which are never none.
    fn bound(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.set_write_timeout(Some(left))
    }

    /// Lets the connection take as long as it takes.
    pub(super) fn end(self) -> io::Result<()> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.bound()?;
        self.stream.read(bytes).map_err(over)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bound()?;
        self.stream.write(bytes).map_err(over)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A call that ends at its bound says that it would block, where it says so at all.
fn over(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread, time::Duration};

    use super::*;

    #[test]
    fn whoever_drips_is_over_at_the_deadline() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut dripping = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let drips = thread::spawn(move || while dripping.write_all(b"x").is_ok() {});
        let mut until = Until { stream: &stream, deadline: Instant::now() + Duration::from_millis(50) };
        let mut byte = [0; 1];
        let error = loop {
            if let Err(error) = until.read_exact(&mut byte) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(stream);
        drips.join().unwrap();
    }

    #[test]
    fn whoever_says_nothing_is_over_at_the_deadline() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let mut until = Until { stream: &stream, deadline: Instant::now() + Duration::from_millis(50) };
        let outcome = until.read(&mut [0; 1]).map_err(|error| error.kind());
        assert_eq!(outcome, Err(io::ErrorKind::TimedOut));
    }
}
