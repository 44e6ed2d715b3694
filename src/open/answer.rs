//! What a request gets: where the file is, for whom, and in which words of HTTP.

use std::hash::{BuildHasher, RandomState};

use super::{
    request::{Head, ParsedRequest},
    site::Site,
};

/// Where the file is, and for whom.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) port: u16,
    /// The one path there is. Others on this machine cannot guess it.
    path: String,
    site: Site,
}

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The file.
    File,
    /// What a browser may ask for.
    Permission,
    /// That there is a file, and how long it is.
    Length,
    /// Nothing, for this reason.
    Refused(&'static str, &'static str),
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

    pub(super) fn answer(&self, said: &ParsedRequest<'_>) -> Answer {
        let Head { method, path, host, origin } = match said {
            ParsedRequest::Head(head) => head,
            ParsedRequest::TooMuch | ParsedRequest::Unfinished => {
                return Answer::Refused("431 Request Header Fields Too Large", "request too large\n");
            }
            ParsedRequest::Malformed => return Answer::Refused("400 Bad Request", "malformed request\n"),
        };
        let local = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        // A name of somebody else's that leads here is not ours.
        let is_here = host.is_some_and(|host| local.iter().any(|local| local.as_bytes() == host));
        if !is_here || *origin != Some(self.site.origin.as_bytes()) {
            let why = "only the Perfetto UI chosen with --ui may fetch this trace\n";
            return Answer::Refused("403 Forbidden", why);
        }
        if *path != self.path {
            return Answer::Refused("404 Not Found", "the only trace here is at the link that stepscope printed\n");
        }
        match *method {
            "GET" => Answer::File,
            "HEAD" => Answer::Length,
            "OPTIONS" => Answer::Permission,
            _ => Answer::Refused("405 Method Not Allowed", "the trace can only be fetched\n"),
        }
    }

    /// What an answer begins with, and all of it unless it is the file. No connection is used twice.
    pub(super) fn text(&self, answer: Answer, length: u64) -> String {
        let permission = format!(
            "Access-Control-Allow-Origin: {}\r\n\
             Access-Control-Allow-Methods: GET, HEAD\r\n\
             Access-Control-Allow-Private-Network: true\r\n\
             Vary: Origin\r\n\
             Cache-Control: no-store\r\n",
            self.site.origin
        );
        let end = "Connection: close\r\n\r\n";
        match answer {
            // A length that is said tells a browser how far it is.
            Answer::File | Answer::Length => format!(
                "HTTP/1.1 200 OK\r\n{permission}Content-Type: application/octet-stream\r\n\
                 Content-Length: {length}\r\n{end}"
            ),
            Answer::Permission => format!("HTTP/1.1 204 No Content\r\n{permission}{end}"),
            Answer::Refused(status, why) => {
                format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{end}{why}", why.len())
            }
        }
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
