//! A small HTTP server: whatever a client does, it takes a bounded amount of memory and time (`connection`), and a bounded
//! number of clients is served at once, among which a new one always finds room (`connections`). Bodies of requests are not
//! read, and no connection is used twice.

mod connection;
mod connections;
mod listener;
mod request;

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

pub(crate) use self::{
    connection::{Bounds, GOODBYE},
    connections::Connections,
    listener::{Listener, Serving},
    request::{Head, ParsedRequest},
};

/// What a head of an answer ends with.
pub(crate) const END: &str = "Connection: close\r\n\r\n";

/// What is served.
pub(crate) trait Answers: Send + Sync + 'static {
    /// What a request gets.
    fn reply(&self, said: &ParsedRequest<'_>) -> io::Result<Reply>;
}

/// What a request gets.
pub(crate) struct Reply {
    /// All that stands before the body, or all there is.
    pub(crate) head: String,
    /// What is sent after that, if it is what was asked for.
    pub(crate) body: Option<Body>,
}

/// What is sent behind a head.
#[derive(Clone)]
pub(crate) enum Body {
    /// A file.
    File(Arc<File>),
    /// Something in memory.
    Bytes(Arc<[u8]>),
}

impl Body {
    /// How long it is.
    pub(crate) fn length(&self) -> io::Result<u64> {
        match self {
            Body::File(file) => Ok(file.metadata()?.len()),
            Body::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }

    fn read_at(&self, piece: &mut [u8], from: u64) -> io::Result<usize> {
        match self {
            Body::File(file) => file.read_at(piece, from),
            Body::Bytes(bytes) => {
                let rest = usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or_default();
                let read = rest.len().min(piece.len());
                piece[..read].copy_from_slice(&rest[..read]);
                Ok(read)
            }
        }
    }
}

impl ParsedRequest<'_> {
    /// What is asked for, or what whoever asks otherwise gets.
    pub(crate) fn head(&self) -> Result<&Head<'_>, Reply> {
        match self {
            ParsedRequest::Head(head) => Ok(head),
            ParsedRequest::TooMuch | ParsedRequest::Unfinished => {
                Err(Reply::refusal("431 Request Header Fields Too Large", "request too large\n"))
            }
            ParsedRequest::Malformed => Err(Reply::refusal("400 Bad Request", "malformed request\n")),
        }
    }
}

impl Reply {
    /// That there is nothing, and why.
    pub(crate) fn refusal(status: &str, why: &str) -> Reply {
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{END}{why}", why.len());
        Reply { head, body: None }
    }
}

/// Whether somebody asks for this machine by a name of this machine: a name of somebody else's that leads here is not ours.
pub(crate) fn is_local(host: Option<&[u8]>, port: u16) -> bool {
    let local = ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}"));
    host.is_some_and(|host| local.iter().any(|local| local.as_bytes() == host))
}
