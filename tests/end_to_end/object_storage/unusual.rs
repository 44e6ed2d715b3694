//! What people mistype, set wrongly or call strangely.

use std::fs;

use super::{KEY, Machine, SAMPLE, SECRET, Server, URL, failed, succeeded, with_sample};

/// Characters that URLs or shells read in another way.
const STRANGE: &str = "ä%]#~*?\"{^|\\`日本%20";

#[test]
fn names_have_any_characters() {
    let (server, machine) = (Server::start(), Machine::new());
    let local = machine.stdout(&server, &["analyze", SAMPLE, "--format", "json"]);
    // A query would end an address.
    let place = STRANGE.replace('?', "");
    // In the URL of a file, a percent sign begins a character's number.
    let encoded = place.replace('%', "%25");
    for url in [format!("s3://bucket/{place}/run"), format!("file://{}/{encoded}/run", machine.0.path().display())] {
        succeeded(machine.run(&server, &["upload", SAMPLE, &url]));
        if url.starts_with("s3") {
            server.state().objects.insert(format!("{place}/run/{STRANGE}.json"), b"{}".to_vec());
        } else {
            fs::write(machine.0.path().join(&place).join(format!("run/{STRANGE}.json")), "{}").unwrap();
        }
        assert_eq!(machine.stdout(&server, &["analyze", &url, "--format", "json"]), local, "{url}");
    }
}

#[test]
fn a_run_is_called_as_its_place() {
    let (server, machine) = (with_sample(), Machine::new());
    machine.stdout(&server, &["export", URL, "--format", "parquet", "-o", "tables"]);
    assert!(machine.0.path().join("tables/steps/run=mine").exists());
    let path = machine.json(&server, &["inspect", URL])["path"].to_string();
    assert!(path.ends_with("/mine\""), "{path}");
}

#[test]
fn settings_that_name_no_store_are_refused() {
    let (server, machine) = (with_sample(), Machine::new());
    let said = |name: &str, value: &str| {
        let mut command = machine.command(&server, &["analyze", URL]);
        failed(&command.env(name, value).output().unwrap())
    };
    for endpoint in ["127.0.0.1:5005", "http://127.0.0.1:99999", "http://no such host", "http://[::1"] {
        let said = said("AWS_ENDPOINT_URL", endpoint);
        assert!(said.contains("cannot use AWS_ENDPOINT_URL") && said.contains("http://127.0.0.1:9000"), "{said}");
    }
    assert!(said("AWS_SESSION_TOKEN", "one\ntwo").contains("cannot use AWS_SESSION_TOKEN"));
    let mut half = machine.command(&server, &["analyze", URL]);
    let half = failed(&half.env_remove("AWS_SECRET_ACCESS_KEY").output().unwrap());
    assert!(half.contains("cannot use AWS_SECRET_ACCESS_KEY: it is not set"), "{half}");
    // White space around them is not part of them.
    let mut command = machine.command(&server, &["analyze", URL]);
    let trimmed =
        command.env("AWS_ACCESS_KEY_ID", format!("{KEY}\n")).env("AWS_SECRET_ACCESS_KEY", format!("{SECRET}\n"));
    succeeded(trimmed.env("AWS_SESSION_TOKEN", "").output().unwrap());
}

#[test]
fn urls_are_refused_where_paths_are_meant() {
    let (server, machine) = (with_sample(), Machine::new());
    let said = |arguments: &[&str]| failed(&machine.run(&server, arguments));
    for arguments in [
        &["train", "--backend", "cpu", "--run", URL][..],
        &["record", "--run", URL, "--", "true"],
        &["import", URL, "--run", URL],
        &["analyze", SAMPLE, "-o", URL],
        &["export", SAMPLE, "-o", URL],
        &["export", SAMPLE, "--format", "parquet", "-o", URL],
        &["serve-metrics", URL],
    ] {
        let said = said(arguments);
        assert!(said.contains("takes a path on this machine, not a URL"), "{said}");
    }
    assert!(!machine.0.path().join("s3:").exists());
    assert!(said(&["analyze", "file:///"]).contains("it names the whole file system"));
    let metrics = machine.stdout(&server, &["serve-metrics", URL, "--once"]);
    assert_eq!(metrics, machine.stdout(&server, &["serve-metrics", SAMPLE, "--once"]));
}

#[test]
fn an_empty_bucket_has_nothing() {
    let (server, machine) = (Server::start(), Machine::new());
    let said = failed(&machine.run(&server, &["analyze", "s3://bucket"]));
    assert!(said.contains("cannot read s3://bucket: nothing is there"), "{said}");
}
