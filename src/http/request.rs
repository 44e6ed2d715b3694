//! The head of a request, within bounds. What follows it is never read: nothing that can be asked for has a body.

use std::{
    io::{self, ErrorKind, Read},
    net::TcpStream,
    time::{Duration, Instant},
};

use httparse::{EMPTY_HEADER, Error, Request, Status};

/// No head has more headers.
const MOST_HEADERS: usize = 100;

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) origin: Option<&'a [u8]>,
    pub(crate) accept: Option<&'a [u8]>,
}

/// What bytes of a client are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedRequest<'a> {
    /// A whole head.
    Head(Head<'a>),
    /// The beginning of one.
    Unfinished,
    /// More than a browser says.
    TooMuch,
    /// Something else.
    Malformed,
}

impl ParsedRequest<'_> {
    pub(crate) fn of(bytes: &[u8]) -> ParsedRequest<'_> {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut request = Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(Status::Complete(_)) => {}
            Ok(Status::Partial) => return ParsedRequest::Unfinished,
            Err(Error::TooManyHeaders) => return ParsedRequest::TooMuch,
            Err(_) => return ParsedRequest::Malformed,
        }
        // Of one that is said twice nobody knows which is meant.
        let only = |name: &str| {
            let mut found = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            found.next().filter(|_| found.next().is_none()).map(|header| header.value)
        };
        match (request.method, request.path) {
            (Some(method), Some(path)) => {
                let (host, origin, accept) = (only("Host"), only("Origin"), only("Accept"));
                ParsedRequest::Head(Head { method, path, host, origin, accept })
            }
            _ => ParsedRequest::Malformed,
        }
    }
}

/// Reads until a head is whole, the bytes are full, or it is known that it is none; says how many bytes there are. All of
/// it has to come within `patience`, however it comes.
pub(crate) fn read(mut stream: &TcpStream, bytes: &mut [u8], patience: Duration) -> io::Result<usize> {
    let (began, mut length) = (Instant::now(), 0);
    while length < bytes.len() && ParsedRequest::of(&bytes[..length]) == ParsedRequest::Unfinished {
        let left = patience.checked_sub(began.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(ErrorKind::TimedOut)?))?;
        match stream.read(&mut bytes[length..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz;

    #[test]
    fn fuzzed_requests() {
        let seeds =
            [&b"GET /a HTTP/1.1\r\nhost: here\r\nOrigin: there\r\nX: y\r\n\r\nbody"[..], b"OPTIONS * HTTP/1.0\r\n\r\n"];
        fuzz!(seeds.map(<[u8]>::to_vec).to_vec(), |bytes: &[u8]| matches!(
            ParsedRequest::of(bytes),
            ParsedRequest::Head(_)
        ));
    }

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let whole = b"GET /a HTTP/1.1\r\nhost: here\r\nOrigin: there\r\nAccept: */*\r\n\r\nbody";
        let head =
            Head { method: "GET", path: "/a", host: Some(b"here"), origin: Some(b"there"), accept: Some(b"*/*") };
        assert_eq!(ParsedRequest::of(whole), ParsedRequest::Head(head));
        for length in 0..whole.len() - 4 {
            assert_eq!(ParsedRequest::of(&whole[..length]), ParsedRequest::Unfinished, "{length}");
        }
    }

    #[test]
    fn what_no_browser_says_is_no_head() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MOST_HEADERS + 1));
        assert_eq!(ParsedRequest::of(many.as_bytes()), ParsedRequest::TooMuch);
        for text in ["GET /\r\n\r\n", "\0\0\0\0", "GET / HTTP/1.1\r\na b\r\n\r\n", "\x16\x03\x01\x02"] {
            assert_eq!(ParsedRequest::of(text.as_bytes()), ParsedRequest::Malformed, "{text:?}");
        }
        let twice = b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
        assert_eq!(
            ParsedRequest::of(twice),
            ParsedRequest::Head(Head { method: "GET", path: "/", host: None, origin: None, accept: None })
        );
    }
}
