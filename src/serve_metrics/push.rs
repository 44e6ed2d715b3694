//! Pushes metrics to a collector, over OTLP/HTTP.
//!
//! What cannot be pushed is not kept: the next attempt pushes what is newest then. So a collector that is gone for long takes
//! no memory, and attempts become rarer.

use std::{
    fmt::{self, Display, Formatter},
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use stepscope_traces::ClockSnapshot;
use ureq::{
    Agent,
    http::{StatusCode, Uri, header::RETRY_AFTER, uri::Authority},
};

use super::{
    follow::Published,
    otlp::{self, Times},
    tell,
};
use crate::seconds;

/// Where OTLP has metrics, below the address of a collector.
const PATH: &str = "/v1/metrics";
/// How long one attempt may take.
const WITHIN: Duration = Duration::from_secs(10);
/// After a failure, and after many.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// However long a collector asks to be left alone.
const LONGEST_REST: Duration = Duration::from_secs(300);

/// Where to push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target(Uri);

impl Target {
    /// An address of a collector; without a path, that of OTLP is meant.
    pub(super) fn parse(text: &str) -> Result<Target, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
        let not_one = || "it is not an address such as http://localhost:4318".to_owned();
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err("TLS is not supported; push to a collector on this machine, which passes metrics on".into());
            }
            _ => return Err(not_one()),
        }
        let Some(authority) = uri.authority() else { return Err(not_one()) };
        let place = without_user(authority);
        if place != authority.host() && authority.port_u16().is_none() {
            return Err(format!("the port of {place} is no number up to 65535"));
        }
        if uri.path() != "/" {
            return Ok(Target(uri));
        }
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        format!("http://{authority}{PATH}{query}").parse().map(Target).map_err(|error| format!("{error}"))
    }
}

/// A host and its port.
fn without_user(authority: &Authority) -> &str {
    authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, place)| place)
}

impl Display for Target {
    /// Without what may be secret.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.0.authority().map_or("", without_user), self.0.path())
    }
}

/// How often to push: not without a pause.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let interval = seconds::parse(text)?;
    if interval.is_zero() { Err("metrics cannot be pushed all the time; use 1 or more".into()) } else { Ok(interval) }
}

/// The thread that pushes.
pub(super) struct Pusher {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Pusher {
    pub(super) fn start(target: &Target, every: Duration, published: &Arc<Published>) -> io::Result<Pusher> {
        let (stop, stopped) = channel();
        let (target, published) = (target.clone(), Arc::clone(published));
        let thread =
            thread::Builder::new().name("push".into()).spawn(move || push(&target, every, &published, &stopped))?;
        Ok(Pusher { stop, thread })
    }

    /// Pushes what is newest, and no more.
    pub(super) fn end(self) {
        drop(self.stop);
        drop(self.thread.join());
    }
}

fn push(target: &Target, every: Duration, published: &Published, stopped: &Receiver<()>) {
    let agent: Agent = Agent::config_builder()
        .timeout_global(Some(WITHIN))
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .into();
    let began = ClockSnapshot::take().wall_ns.0;
    let mut failures = Failures::default();
    // Whoever follows the run needs a moment to read it.
    let mut wait = FIRST_WAIT.min(every);
    loop {
        let is_last = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
        let families = published.latest();
        wait = FIRST_WAIT.min(every);
        if !families.is_empty() {
            let times = Times { began, now: ClockSnapshot::take().wall_ns.0 };
            let body = otlp::request(&families, times).to_string();
            wait = failures.after(attempt(&agent, target, &body), target, every);
        }
        if is_last {
            return;
        }
    }
}

/// Why nothing was pushed.
struct Failure {
    why: String,
    /// How long the collector wants to be left alone.
    rest: Option<Duration>,
}

fn attempt(agent: &Agent, target: &Target, body: &str) -> Result<(), Failure> {
    let request = agent.post(&target.0).header("Content-Type", "application/json");
    let answer = request.send(body).map_err(|error| Failure { why: error.to_string(), rest: None })?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => {
            let said = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let is_busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
            let rest = said.filter(|_| is_busy).map(Duration::from_secs);
            Err(Failure { why: format!("it answers {status}"), rest })
        }
    }
}

/// How often pushing has failed, one attempt after the other.
#[derive(Default)]
struct Failures {
    count: u32,
}

impl Failures {
    /// How long to wait after an attempt. The first failure is told, and the end of failures.
    fn after(&mut self, attempt: Result<(), Failure>, target: &Target, every: Duration) -> Duration {
        match attempt {
            Ok(()) => {
                if std::mem::take(&mut self.count) > 0 {
                    tell("pushed    again");
                }
                every
            }
            Err(Failure { why, rest }) => {
                if self.count == 0 {
                    tell(&format!("warning: cannot push metrics to {target}: {why}; trying again"));
                }
                self.count = self.count.saturating_add(1);
                let doubled = FIRST_WAIT * 2_u32.saturating_pow((self.count - 1).min(16));
                rest.map_or(doubled.min(LONGEST_WAIT), |rest| rest.clamp(FIRST_WAIT, LONGEST_REST))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_has_an_address() {
        let parsed = |text: &str| Target::parse(text).map(|target| target.0.to_string());
        for text in ["http://localhost:4318", "http://localhost:4318/", "http://localhost:4318/v1/metrics"] {
            assert_eq!(parsed(text).as_deref(), Ok("http://localhost:4318/v1/metrics"));
        }
        assert_eq!(parsed("http://a/b").as_deref(), Ok("http://a/b"));
        assert!(parsed("https://a").unwrap_err().contains("TLS"));
        assert!(parsed("http://a:99999").unwrap_err().contains("port"));
        let secret = Target::parse("http://me:secret@[::1]:4318/?key=secret").unwrap();
        assert_eq!(secret.0.to_string(), "http://me:secret@[::1]:4318/v1/metrics?key=secret");
        assert_eq!(secret.to_string(), "http://[::1]:4318/v1/metrics");
        assert!(interval("0").unwrap_err().contains("1 or more"));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "localhost", "a b", "ftp://a", "/v1/metrics"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn attempts_become_rarer_and_waiting_is_bounded() {
        let (every, mut failures) = (Duration::from_secs(15), Failures::default());
        let target = &Target::parse("http://a/b").unwrap();
        let failed = |rest: Option<u64>| Err(Failure { why: "no".into(), rest: rest.map(Duration::from_secs) });
        let waits: Vec<u64> = (0..8).map(|_| failures.after(failed(None), target, every).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        failures.count = u32::MAX;
        assert_eq!(failures.after(failed(None), target, every), LONGEST_WAIT);
        assert_eq!(failures.after(failed(Some(7)), target, every).as_secs(), 7);
        assert_eq!(failures.after(failed(Some(u64::MAX)), target, every), LONGEST_REST);
        assert_eq!(failures.after(Ok(()), target, every), every);
        assert_eq!(failures.after(failed(None), target, every), FIRST_WAIT);
    }
}
