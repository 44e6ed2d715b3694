//! A small store that speaks S3 on loopback: it checks signatures, lists in pages, and fails when it is told to.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

use sha2::{Digest, Sha256};

use super::signature;

pub(super) const KEY: &str = "AKIATESTONLY";
pub(super) const SECRET: &str = "not-a-secret-of-anyone";
pub(super) const BUCKET: &str = "bucket";
/// Real stores list a thousand.
const PAGE: usize = 7;

/// The store; its thread ends when this goes.
pub(super) struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// When everything was written, by a clock that is ahead of everybody's: so it is of late, however long a test takes.
const MODIFIED: &str = "Sat, 16 Nov 2126 03:26:03 GMT";
const LISTED_MODIFIED: &str = "2126-11-16T03:26:03.000Z";

#[derive(Default)]
pub(super) struct State {
    /// Content by key, in the one bucket.
    pub(super) objects: BTreeMap<String, Vec<u8>>,
    /// Method and key of each request that was let in.
    pub(super) requests: Vec<(String, String)>,
    /// How many requests are to fail with 503.
    pub(super) busy: usize,
    /// How many answers are to break off in the middle.
    pub(super) cut: usize,
    /// After how many more requests nobody answers any more.
    pub(super) gone_after: Option<usize>,
    is_closed: bool,
}

impl Server {
    pub(super) fn start() -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.lock().unwrap().is_closed {
                    return;
                }
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(&stream, &shared));
            }
        });
        Server { address, state }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Has a command use this store, with these credentials, and nothing of whoever runs the tests.
    pub(super) fn apply(&self, command: &mut Command, key: &str, secret: &str) {
        set_up(command, &format!("http://{}", self.address), key, secret);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state().is_closed = true;
        // Its thread waits for the next one.
        drop(TcpStream::connect(self.address));
    }
}

pub(super) fn set_up(command: &mut Command, endpoint: &str, key: &str, secret: &str) {
    let theirs = std::env::vars_os().map(|(name, _)| name);
    theirs.filter(|name| name.to_string_lossy().starts_with("AWS_")).for_each(|name| _ = command.env_remove(name));
    command.env("AWS_ENDPOINT_URL", endpoint).env("AWS_REGION", "us-east-1");
    command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", secret).env("NO_PROXY", "127.0.0.1");
}

/// A request.
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn read(input: &mut impl BufRead) -> Option<Request> {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            input.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        input.read_exact(&mut body).ok()?;
        Some(Request { method, path, query, headers, body })
    }

    fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next()
    }
}

/// An answer: its status, headers and body.
struct Answer(u16, Vec<(&'static str, String)>, Vec<u8>);

impl Answer {
    fn error(status: u16, code: &str) -> Answer {
        let body = format!("<Error><Code>{code}</Code><Message>The store says {code}.</Message></Error>");
        Answer(status, Vec::new(), body.into_bytes())
    }
}

fn serve(stream: &TcpStream, shared: &Mutex<State>) {
    let mut input = BufReader::new(stream);
    while let Some(request) = Request::read(&mut input) {
        let (answer, is_cut) = {
            let mut state = shared.lock().unwrap();
            if state.is_closed || state.gone_after == Some(0) {
                return;
            }
            state.gone_after = state.gone_after.map(|left| left - 1);
            let answer = answer(&mut state, &request);
            // Of lists, nobody asks for the rest.
            let is_object = answer.1.iter().any(|(name, _)| *name == "Last-Modified");
            let is_cut = is_object && answer.2.len() > 1 && request.method == "GET" && state.cut > 0;
            state.cut -= usize::from(is_cut);
            (answer, is_cut)
        };
        let Answer(status, headers, body) = answer;
        let mut head = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\n", body.len());
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        let sent = if request.method == "HEAD" { 0 } else { body.len() / if is_cut { 2 } else { 1 } };
        let bytes = [format!("{head}\r\n").as_bytes(), &body[..sent]].concat();
        let mut output = stream;
        if output.write_all(&bytes).is_err() || is_cut {
            return;
        }
    }
}

fn answer(state: &mut State, request: &Request) -> Answer {
    if state.busy > 0 {
        state.busy -= 1;
        return Answer::error(503, "SlowDown");
    }
    if let Err(code) = signature::check(request) {
        return Answer::error(403, code);
    }
    let path = decoded(&request.path);
    let (bucket, key) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    state.requests.push((request.method.clone(), key.to_owned()));
    if bucket != BUCKET {
        return Answer::error(404, "NoSuchBucket");
    }
    match (request.method.as_str(), key) {
        ("GET", "") => list(state, request),
        ("GET" | "HEAD", key) => match state.objects.get(key) {
            Some(content) => object(content, request),
            None => Answer::error(404, "NoSuchKey"),
        },
        ("PUT", key) => {
            if request.headers.contains_key("if-none-match") && state.objects.contains_key(key) {
                return Answer::error(412, "PreconditionFailed");
            }
            state.objects.insert(key.to_owned(), request.body.clone());
            Answer(200, vec![("ETag", tag(&request.body))], Vec::new())
        }
        _ => Answer::error(501, "NotImplemented"),
    }
}

fn object(content: &[u8], request: &Request) -> Answer {
    let mut headers = vec![("ETag", tag(content)), ("Last-Modified", MODIFIED.into())];
    let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let Some((from, to)) = range else { return Answer(200, headers, content.to_vec()) };
    let (from, last) = (from.parse::<usize>().unwrap(), content.len() - 1);
    let to = to.parse::<usize>().unwrap_or(last).min(last);
    headers.push(("Content-Range", format!("bytes {from}-{to}/{}", content.len())));
    Answer(206, headers, content[from..=to].to_vec())
}

fn list(state: &State, request: &Request) -> Answer {
    let (prefix, after) = (request.parameter("prefix").unwrap_or_default(), request.parameter("continuation-token"));
    let is_next = |key: &&String| key.starts_with(&prefix) && after.as_ref().is_none_or(|after| *key > after);
    let keys: Vec<&String> = state.objects.keys().filter(is_next).take(PAGE + 1).collect();
    let mut body = String::from("<ListBucketResult>");
    if keys.len() > PAGE {
        let next = keys[PAGE - 1];
        body += &format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>");
    }
    for key in keys.iter().take(PAGE) {
        let content = &state.objects[*key];
        body += &format!(
            "<Contents><Key>{key}</Key><LastModified>{LISTED_MODIFIED}</LastModified><ETag>{}</ETag>\
             <Size>{}</Size></Contents>",
            tag(content),
            content.len()
        );
    }
    Answer(200, Vec::new(), (body + "</ListBucketResult>").into_bytes())
}

fn tag(content: &[u8]) -> String {
    format!("\"{}\"", signature::hex(&Sha256::digest(content)[..8]))
}

pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).unwrap() as u8;
        bytes.push(if byte == b'%' { digit() * 16 + digit() } else { byte });
    }
    String::from_utf8(bytes).unwrap()
}
