//! Messages on a connection: a length, then JSON.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
};

use serde::{Serialize, de::DeserializeOwned};

/// Writes a message.
pub(crate) fn send(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&bytes)
}

/// Reads a message of `most` bytes at most. Whatever else comes, memory is taken only for bytes that are there.
pub(crate) fn receive<T: DeserializeOwned>(stream: &mut impl Read, most: u32) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    let mut bytes = Vec::new();
    stream.take(length.into()).read_to_end(&mut bytes)?;
    if bytes.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fuzz::fuzz,
        rendezvous::message::{FromHub, Hello, MOST, ToHub},
    };

    /// Ports are open to everybody.
    #[test]
    fn fuzzed_messages() {
        let message = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        let seeds = [
            r#"{"protocol":2,"rank":1,"world":2,"settings":{"model":"tiny","steps":10}}"#,
            r#"{"Offer":{"name":"addresses","blob":[49,50,55]}}"#,
            r#"{"Offers":{"name":"addresses","blobs":[[49],[50,55]]}}"#,
            r#""AskHealth""#,
            r#"{"Refused":"no"}"#,
        ];
        fuzz!(seeds.map(message).to_vec(), |bytes: &[u8]| {
            receive::<Hello>(&mut &*bytes, MOST).is_ok()
                | receive::<ToHub>(&mut &*bytes, MOST).is_ok()
                | receive::<FromHub>(&mut &*bytes, MOST).is_ok()
        });
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let read = |bytes: &[u8]| receive::<Vec<u8>>(&mut &*bytes, 16).map_err(|error| error.to_string());
        assert_eq!(read(b"\x05\0\0\0[1,2]"), Ok(vec![1, 2]));
        for bytes in [&b""[..], b"\x05", b"\x05\0\0\0[1,", b"\xff\xff\xff\xff", b"GET / HTTP/1.1", b"\x02\0\0\0{}"] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
