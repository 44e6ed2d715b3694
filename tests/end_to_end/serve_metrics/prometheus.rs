//! A real Prometheus, which listens on loopback only and ends with the test.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use super::ask;
use crate::skipped::skipped;

/// Longer than anything here takes on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Prometheus {
    child: Child,
    port: u16,
    /// Where it keeps what it scraped.
    _directory: TempDir,
}

impl Prometheus {
    /// Has one scrape a port of this machine; none where it is not installed.
    pub(super) fn start(scraped: u16) -> Option<Prometheus> {
        let directory = tempfile::tempdir().unwrap();
        let configuration = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n\
             - {{job_name: stepscope, static_configs: [{{targets: ['127.0.0.1:{scraped}']}}]}}\n"
        );
        fs::write(directory.path().join("prometheus.yml"), configuration).unwrap();
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new("prometheus");
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error"]);
        command.arg(format!("--web.listen-address=127.0.0.1:{port}")).current_dir(directory.path());
        match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => Some(Prometheus { child, port, _directory: directory }),
            Err(error) => {
                skipped("prometheus", &format!("prometheus: {error}"));
                None
            }
        }
    }

    /// What a query finds.
    pub(super) fn query(&self, query: &str) -> Value {
        until("Prometheus answers", || {
            TcpListener::bind(("127.0.0.1", self.port)).is_err().then_some(())?;
            let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let path = format!("/api/v1/query?query={encoded}");
            let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n", self.port);
            let answer = ask(self.port, &request);
            let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
            Some(answer["data"]["result"].clone())
                .filter(|result| result.as_array().is_some_and(|found| !found.is_empty()))
        })
    }

    /// All values that were scraped, once there is one of this name: by names and labels as they stood there.
    pub(super) fn values(&self, awaited: &str) -> BTreeMap<String, f64> {
        self.query(awaited);
        let found = self.query("{job=\"stepscope\",__name__=~\"stepscope_.*\"}");
        let value = |found: &Value| {
            let labels: BTreeMap<&str, &str> = found["metric"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, value)| (&**name, value.as_str().unwrap()))
                .collect();
            // As they are written: the rank first, words of the run as they come.
            let order = ["name", "host", "started", "state", "kind", "axis", "rank", "category", "part"];
            let labelled: Vec<String> =
                order.iter().filter_map(|label| Some(format!("{label}=\"{}\"", labels.get(label)?))).collect();
            let labelled = if labelled.is_empty() { String::new() } else { format!("{{{}}}", labelled.join(",")) };
            let value = found["value"][1].as_str().unwrap().parse().unwrap();
            (format!("{}{labelled}", labels["__name__"]), value)
        };
        found.as_array().unwrap().iter().map(value).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits for something, which comes.
pub(super) fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(100));
    }
}
