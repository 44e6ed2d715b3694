//! What a request gets: where the file is, for whom, and in which words of HTTP.

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io,
    sync::Arc,
};

use super::site::Site;
use crate::http::{Answers, Body, END, Head, ParsedRequest, Reply, is_local};

/// Where the file is, and for whom.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) port: u16,
    /// The one path there is. Others on this machine cannot guess it.
    path: String,
    site: Site,
}

/// A trace, where it is and for whom.
pub(super) struct Trace {
    pub(super) address: Address,
    pub(super) file: Arc<File>,
}

impl Answers for Trace {
    fn reply(&self, said: &ParsedRequest<'_>) -> io::Result<Reply> {
        let head = match said.head() {
            Ok(head) => head,
            Err(refusal) => return Ok(refusal),
        };
        let body = Body::File(Arc::clone(&self.file));
        let length = body.length()?;
        let Address { site, .. } = &self.address;
        let permission = format!(
            "Access-Control-Allow-Origin: {}\r\n\
             Access-Control-Allow-Methods: GET, HEAD\r\n\
             Access-Control-Allow-Private-Network: true\r\n\
             Vary: Origin\r\n\
             Cache-Control: no-store\r\n",
            site.origin
        );
        if let Some(refusal) = self.address.refusal(head) {
            return Ok(refusal);
        }
        // A length that is said tells a browser how far it is.
        let found = format!(
            "HTTP/1.1 200 OK\r\n{permission}Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n{END}"
        );
        Ok(match head.method {
            "GET" => Reply { head: found, body: Some(body) },
            "HEAD" => Reply { head: found, body: None },
            "OPTIONS" => Reply { head: format!("HTTP/1.1 204 No Content\r\n{permission}{END}"), body: None },
            _ => Reply::refusal("405 Method Not Allowed", "the trace can only be fetched\n"),
        })
    }
}

impl Address {
    /// An address for a trace of this name.
    pub(super) fn new(port: u16, name: &str, site: Site) -> Address {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
        let name: String = name.chars().map(plain).take(64).collect();
        Address { port, path: format!("/{name}-{:016x}.pftrace", RandomState::new().hash_one(port)), site }
    }

    /// What shows the trace when it is opened.
    pub(super) fn link(&self) -> String {
        let Address { port, path, site } = self;
        format!("{}/#!/?url=http://127.0.0.1:{port}{path}", site.page)
    }

    /// Why this is not for whoever asks.
    fn refusal(&self, head: &Head<'_>) -> Option<Reply> {
        if !is_local(head.host, self.port) || head.origin != Some(self.site.origin.as_bytes()) {
            let why = "only the Perfetto UI chosen with --ui may fetch this trace\n";
            return Some(Reply::refusal("403 Forbidden", why));
        }
        let why = "the only trace here is at the link that stepscope printed\n";
        (head.path != self.path).then(|| Reply::refusal("404 Not Found", why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_a_path_that_nobody_guesses() {
        let site = Site::parse("https://ui.perfetto.dev").unwrap();
        let [one, other] = [1, 2].map(|_| Address::new(9001, "my run/../é", site.clone()));
        assert!(one.path.starts_with("/my-run------") && one.path.ends_with(".pftrace"), "{}", one.path);
        assert_ne!(one.path, other.path);
        assert_eq!(one.link(), format!("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001{}", one.path));
    }
}
