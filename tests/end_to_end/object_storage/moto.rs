//! The same with somebody else's store: moto, a Python package that speaks S3.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use super::{KEY, Machine, SAMPLE, SECRET, succeeded};
use crate::{
    binary::{command, text},
    skipped::skipped,
};

/// Serves on a free port until this goes.
struct Moto {
    child: Child,
    endpoint: String,
}

impl Moto {
    fn start() -> Option<Moto> {
        let can = Command::new("python3").args(["-c", "import moto.server"]).output();
        can.ok().filter(|can| can.status.success())?;
        let program = "import boto3, moto.server as m\n\
                       server = m.ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\n\
                       server.start()\n\
                       host, port = server.get_host_and_port()\n\
                       url = f'http://127.0.0.1:{port}'\n\
                       boto3.client('s3', endpoint_url=url, region_name='us-east-1', aws_access_key_id='a', \
                       aws_secret_access_key='b').create_bucket(Bucket='bucket')\n\
                       print(url, flush=True)\n\
                       input()";
        let mut python = Command::new("python3");
        python.args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = python.spawn().unwrap();
        let mut endpoint = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut endpoint).unwrap();
        Some(Moto { child, endpoint: endpoint.trim().to_owned() })
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        // It has ended or is about to.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_store_of_somebody_elses_understands_us() {
    let Some(moto) = Moto::start() else { return skipped("python", &"python3 has no moto") };
    let machine = Machine::new();
    let run = |arguments: &[&str]| {
        let mut command = command(machine.0.path());
        command.env("XDG_CACHE_HOME", machine.0.path().join("cache")).args(arguments);
        super::server::set_up(&mut command, &moto.endpoint, KEY, SECRET);
        command.output().unwrap()
    };
    let url = "s3://bucket/runs/mine";
    succeeded(run(&["upload", SAMPLE, url]));
    let analyzed = |source| succeeded(run(&["analyze", source, "--format", "json"]));
    assert_eq!(analyzed(url), analyzed(SAMPLE));
    let said = text(&run(&["analyze", "s3://none/run"]).stderr);
    assert!(said.contains("there is no such bucket"), "{said}");
    let other = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples/single");
    assert!(text(&run(&["upload", other, url]).stderr).contains("another run is there"));
}
