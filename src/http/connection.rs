//! One connection, from its request to its end: one answer, through a small buffer, for as long as there is progress.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use super::{
    Answers, Body,
    request::{self, ParsedRequest},
};

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// So many are served at once.
    pub(crate) connections: usize,
    /// No head of a request is longer.
    pub(crate) head_bytes: usize,
    /// A head is there within this time.
    pub(crate) head_time: Duration,
    /// Whoever takes nothing of a body for so long is gone.
    pub(crate) stalled: Duration,
}

impl Bounds {
    /// Ample for browsers, and for what scrapes metrics.
    pub(crate) const USUAL: Bounds = Bounds {
        connections: 32,
        head_bytes: 16 << 10,
        head_time: Duration::from_secs(15),
        stalled: Duration::from_secs(60),
    };
}

/// A body goes out in pieces of this size.
const PIECE: usize = 64 << 10;
/// How long a client has to say that it took the end, and how much of what it says is passed over meanwhile.
pub(crate) const GOODBYE: Duration = Duration::from_secs(1);
const GOODBYE_BYTES: u64 = 64 << 10;

/// A client's connection.
pub(crate) struct Connection {
    stream: TcpStream,
    stage: Mutex<Stage>,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Since then it has not asked for anything that it may have.
    Asks(Instant),
    /// It took some of a body then.
    Takes(Instant),
    /// All of a body was sent then.
    Leaves(Instant),
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Connection {
        Connection { stream, stage: Mutex::new(Stage::Asks(Instant::now())) }
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.locked()
    }

    fn locked(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Ends it, whatever it is doing.
    pub(crate) fn end(&self) {
        drop(self.stream.shutdown(Shutdown::Both));
    }

    /// Answers the one request it may have; says whether the client took all of a body.
    pub(crate) fn serve(&self, answers: &impl Answers, bounds: &Bounds) -> io::Result<bool> {
        let mut head = vec![0; bounds.head_bytes];
        let length = request::read(&self.stream, &mut head, bounds.head_time)?;
        let reply = answers.reply(&ParsedRequest::of(&head[..length]))?;
        drop(head);
        self.stream.set_write_timeout(Some(bounds.stalled))?;
        (&self.stream).write_all(reply.head.as_bytes())?;
        if let Some(body) = &reply.body {
            self.send(body)?;
            *self.locked() = Stage::Leaves(Instant::now());
        }
        self.say_goodbye()?;
        Ok(reply.body.is_some())
    }

    fn send(&self, body: &Body) -> io::Result<()> {
        let (length, mut piece, mut sent) = (body.length()?, vec![0; PIECE], 0);
        while sent < length {
            *self.locked() = Stage::Takes(Instant::now());
            let read = body.read_at(&mut piece, sent)?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            (&self.stream).write_all(&piece[..read])?;
            sent += read as u64;
        }
        Ok(())
    }

    /// Waits a moment for the client to take the end. Closing while it still sends would take the answer back, and whoever
    /// goes away without having taken all of it says so now.
    fn say_goodbye(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let (began, mut passed_over, mut bytes) = (Instant::now(), 0, [0; 4 << 10]);
        while let Some(left) = GOODBYE.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            self.stream.set_read_timeout(Some(left))?;
            match (&self.stream).read(&mut bytes) {
                Ok(0) => break,
                Ok(more) => passed_over += more as u64,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => return Err(error),
            }
            if passed_over > GOODBYE_BYTES {
                break;
            }
        }
        Ok(())
    }
}
