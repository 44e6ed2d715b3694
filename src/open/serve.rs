//! Serves one file to one site, on this machine only.

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{self, Cursor, Read},
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use tiny_http::{Header, Method, Request, Response, StatusCode};

use super::whole::Whole;

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

/// How often it is looked at whether it is time to end.
const OFTEN: Duration = Duration::from_millis(100);
/// So many requests are answered at once; one that comes then waits.
const MOST_AT_ONCE: usize = 16;

/// Serves one file.
pub(super) struct Server {
    http: tiny_http::Server,
    address: Address,
}

/// Where the file is, and for whom.
#[derive(Clone)]
struct Address {
    port: u16,
    /// The one path there is. Others on this machine cannot guess it.
    path: String,
    site: Site,
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All of the file was fetched, and after that nobody came for a while.
    Fetched,
    /// Somebody asked to.
    Stopped {
        /// Whether all of the file had been fetched before that.
        was_fetched: bool,
    },
}

/// What became of requests so far.
#[derive(Default)]
struct Outcome {
    /// How many are being answered.
    at_work: usize,
    /// When all of the file was last fetched.
    fetched: Option<Instant>,
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
    Refused(u16, &'static str),
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
        Ok(Server { http, address: Address { port, path, site } })
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port
    }

    /// What shows the trace when it is opened.
    pub(super) fn link(&self) -> String {
        let Address { port, path, site } = &self.address;
        format!("{}/#!/?url=http://127.0.0.1:{port}{path}", site.page)
    }

    /// Serves the file until all of it has been fetched and nobody has come for it again for a while, or until it is
    /// stopped. Whoever goes away before the end may come again.
    pub(super) fn serve(&self, file: File, linger: Duration, stopped: &AtomicBool) -> Result<Ended> {
        let (file, outcome) = (Arc::new(file), Arc::new(Mutex::new(Outcome::default())));
        let state = || {
            let outcome = locked(&outcome);
            (outcome.at_work, outcome.fetched)
        };
        loop {
            let (at_work, fetched) = state();
            if stopped.load(Ordering::Relaxed) {
                if at_work > 0 {
                    // Whoever has just taken the last of it is about to say so.
                    thread::sleep(OFTEN);
                }
                return Ok(Ended::Stopped { was_fetched: state().1.is_some() });
            }
            if at_work == 0 && fetched.is_some_and(|fetched| fetched.elapsed() >= linger) {
                return Ok(Ended::Fetched);
            }
            if at_work >= MOST_AT_ONCE {
                thread::sleep(OFTEN);
                continue;
            }
            let Some(request) = self.http.recv_timeout(OFTEN)? else { continue };
            locked(&outcome).at_work += 1;
            let (address, file, outcome) = (self.address.clone(), Arc::clone(&file), Arc::clone(&outcome));
            // A page that does not read on is in nobody's way.
            thread::spawn(move || {
                let was_whole = address.respond(request, file).unwrap_or(false);
                let mut outcome = locked(&outcome);
                outcome.at_work -= 1;
                if was_whole {
                    outcome.fetched = Some(Instant::now());
                }
            });
        }
    }
}

/// What is behind a lock, also where somebody panicked with it.
fn locked(outcome: &Mutex<Outcome>) -> std::sync::MutexGuard<'_, Outcome> {
    outcome.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Address {
    fn answer(&self, request: &Request) -> Answer {
        let header = |name: &'static str| {
            let found = request.headers().iter().find(|header| header.field.equiv(name));
            found.map(|header| header.value.as_str())
        };
        let local = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        // A name of somebody else's that leads here is not ours.
        let is_here = header("Host").is_some_and(|host| local.iter().any(|local| local == host));
        if !is_here || header("Origin") != Some(self.site.origin.as_str()) {
            return Answer::Refused(403, "this is for pages of Perfetto's UI that stepscope was told of (--ui)\n");
        }
        if request.url() != self.path {
            return Answer::Refused(404, "there is one trace here, at the link that stepscope printed\n");
        }
        match request.method() {
            Method::Get => Answer::File,
            Method::Head => Answer::Head,
            Method::Options => Answer::Permission,
            _ => Answer::Refused(405, "the trace can be fetched, and nothing else\n"),
        }
    }

    /// Answers a request; whether that took all of the file.
    fn respond(&self, request: Request, file: Arc<File>) -> io::Result<bool> {
        let permission = [
            ("Access-Control-Allow-Origin", self.site.origin.as_str()),
            ("Access-Control-Allow-Methods", "GET, HEAD"),
            // Pages of the internet ask before they reach into a private network.
            ("Access-Control-Allow-Private-Network", "true"),
            ("Vary", "Origin"),
            ("Cache-Control", "no-store"),
        ];
        let headers = |kind: &'static str| {
            let all = permission.iter().copied().chain([("Content-Type", kind)]);
            all.filter_map(|(name, value)| Header::from_bytes(name, value).ok()).collect::<Vec<Header>>()
        };
        let answer = self.answer(&request);
        match answer {
            Answer::Refused(status, why) => {
                let plain = Header::from_bytes("Content-Type", "text/plain").into_iter().collect();
                let body = Cursor::new(why.as_bytes());
                request.respond(Response::new(StatusCode(status), plain, body, Some(why.len()), None))?;
                Ok(false)
            }
            Answer::Permission => {
                request.respond(Response::new(StatusCode(204), headers("text/plain"), io::empty(), Some(0), None))?;
                Ok(false)
            }
            Answer::File | Answer::Head => {
                let mut body = Whole::of(file)?;
                let (length, progress) = (usize::try_from(body.length()).ok(), body.progress());
                let body: &mut dyn Read = &mut body;
                let response = Response::new(StatusCode(200), headers("application/octet-stream"), body, length, None);
                // A length that is said tells a browser how far it is.
                request.respond(response.with_chunked_threshold(usize::MAX))?;
                Ok(answer == Answer::File && progress.is_whole())
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
        let (path, port) = (&one.address.path, one.port());
        assert!(path.starts_with("/my-run------") && path.ends_with(".pftrace"), "{path}");
        assert_ne!(*path, other.address.path);
        assert_eq!(one.link(), format!("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{port}{path}"));
    }
}
