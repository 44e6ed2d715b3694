//! Serves one file to one site, on this machine only.

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{self, BufReader, Seek},
    net::Ipv4Addr,
};

use anyhow::{Result, anyhow, bail};
use tiny_http::{Header, Method, Request, Response, StatusCode};

/// A site whose pages may fetch the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// The page to open.
    page: String,
    /// What a browser calls its pages' origin.
    origin: String,
}

impl Site {
    /// Reads an address of a site.
    pub(super) fn parse(text: &str) -> Result<Site, String> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let host = rest.and_then(|rest| rest.split('/').next()).filter(|host| !host.is_empty());
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:/[]".contains(c);
        match (rest, host) {
            (Some(rest), Some(host)) if rest.chars().all(plain) => {
                let scheme = &text[..text.len() - rest.len()];
                Ok(Site { page: text.trim_end_matches('/').into(), origin: format!("{scheme}{host}") })
            }
            _ => Err(format!("`{text}` is not the address of a site, such as https://ui.perfetto.dev")),
        }
    }
}

/// Serves one file.
pub(super) struct Server {
    http: tiny_http::Server,
    port: u16,
    /// The one path there is. Others on this machine cannot guess it.
    path: String,
    site: Site,
}

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The file.
    File,
    /// What a browser may ask for.
    Permission,
    /// That there is a file, and how long it is.
    Head,
    /// Nothing, for this reason.
    Refused(u16),
}

impl Server {
    /// Takes a port of this machine, for a trace of this name.
    pub(super) fn bind(port: u16, name: &str, site: Site) -> Result<Server> {
        let http = tiny_http::Server::http((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
            anyhow!("cannot serve on port {port} of this machine: {error}; end what uses it: another `stepscope open`, or trace_processor")
        })?;
        let port = http.server_addr().to_ip().map_or(port, |address| address.port());
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
        let name: String = name.chars().map(plain).take(64).collect();
        let path = format!("/{name}-{:016x}.pftrace", RandomState::new().hash_one(port));
        Ok(Server { http, port, path, site })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// What shows the trace when it is opened.
    pub(super) fn link(&self) -> String {
        format!("{}/#!/?url=http://127.0.0.1:{}{}", self.site.page, self.port, self.path)
    }

    /// Serves the file until it has been fetched, all of it.
    pub(super) fn serve_once(self, file: &File) -> Result<()> {
        for request in self.http.incoming_requests() {
            let answer = self.answer(&request);
            // Whoever goes away before the end may come again.
            if self.give(request, answer, file).is_ok() && answer == Answer::File {
                return Ok(());
            }
        }
        bail!("the port was closed before the trace was fetched")
    }

    fn answer(&self, request: &Request) -> Answer {
        let header = |name: &'static str| {
            let found = request.headers().iter().find(|header| header.field.equiv(name));
            found.map(|header| header.value.as_str())
        };
        let local = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        // A name of somebody else's that leads here is not ours.
        let is_here = header("Host").is_some_and(|host| local.iter().any(|local| local == host));
        if !is_here || header("Origin") != Some(self.site.origin.as_str()) {
            return Answer::Refused(403);
        }
        if request.url() != self.path {
            return Answer::Refused(404);
        }
        match request.method() {
            Method::Get => Answer::File,
            Method::Head => Answer::Head,
            Method::Options => Answer::Permission,
            _ => Answer::Refused(405),
        }
    }

    fn give(&self, request: Request, answer: Answer, mut file: &File) -> io::Result<()> {
        let permission = [
            ("Access-Control-Allow-Origin", self.site.origin.as_str()),
            ("Access-Control-Allow-Methods", "GET, HEAD"),
            // Pages of the internet ask before they reach into a private network.
            ("Access-Control-Allow-Private-Network", "true"),
            ("Vary", "Origin"),
            ("Cache-Control", "no-store"),
        ];
        let headers = permission.iter().filter_map(|(name, value)| Header::from_bytes(*name, *value).ok());
        let headers: Vec<Header> = headers.collect();
        let empty =
            |status: u16, headers: Vec<Header>| Response::new(StatusCode(status), headers, io::empty(), Some(0), None);
        match answer {
            Answer::Refused(status) => request.respond(empty(status, Vec::new())),
            Answer::Permission => request.respond(empty(204, headers)),
            Answer::File | Answer::Head => {
                let length = file.metadata()?.len();
                file.rewind()?;
                let kind = Header::from_bytes("Content-Type", "application/octet-stream").ok();
                let headers = headers.into_iter().chain(kind).collect();
                let body = BufReader::new(file);
                let response = Response::new(StatusCode(200), headers, body, usize::try_from(length).ok(), None);
                // A length that is said tells a browser how far it is.
                request.respond(response.with_chunked_threshold(usize::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_an_origin() {
        let site = Site::parse("https://ui.perfetto.dev/").unwrap();
        assert_eq!((site.page.as_str(), site.origin.as_str()), ("https://ui.perfetto.dev", "https://ui.perfetto.dev"));
        let own = Site::parse("http://localhost:10000/v58/ui").unwrap();
        assert_eq!(
            (own.page.as_str(), own.origin.as_str()),
            ("http://localhost:10000/v58/ui", "http://localhost:10000")
        );
        for text in ["", "ui.perfetto.dev", "https://", "ftp://a", "https://a b", "https://a\r\nX: y"] {
            assert!(Site::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_becomes_a_path_that_nobody_guesses() {
        let site = Site::parse("https://ui.perfetto.dev").unwrap();
        let bind = || Server::bind(0, "my run/../é", site.clone()).unwrap();
        let (one, other) = (bind(), bind());
        assert!(one.path.starts_with("/my-run------") && one.path.ends_with(".pftrace"), "{}", one.path);
        assert_ne!(one.path, other.path);
        assert_eq!(one.link(), format!("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{}{}", one.port, one.path));
    }
}
