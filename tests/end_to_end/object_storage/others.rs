//! The same with stores of somebody else's: moto speaks S3, and Azurite is Microsoft's own emulator of Azure's. No emulator
//! speaks the XML of Google Cloud Storage, which is that of S3 but for how one logs in and for some headers: with these renamed,
//! moto does.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use super::{KEY, Machine, SAMPLE, SECRET, succeeded};
use crate::{
    binary::{command, text},
    skipped::skipped,
};

/// Where emulators have an account of this name and key.
const AZURE_ACCOUNT: &str = "devstoreaccount1";
const AZURE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A server on a free port until this goes, and how to use it.
struct Store {
    child: Child,
    variables: Vec<(String, String)>,
    machine: Machine,
}

impl Store {
    /// Starts a server. Its first line has its address, behind the last blank; `variables` say where it is.
    fn start(mut server: Command, variables: impl FnOnce(&str) -> Vec<(String, String)>) -> Store {
        let mut child = server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let endpoint = said.filter_map(|line| line.rsplit(' ').next().map(str::to_owned));
        let endpoint = endpoint.into_iter().find(|word| word.starts_with("http://")).unwrap();
        Store { child, variables: variables(&endpoint), machine: Machine::new() }
    }

    fn run(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = command(self.machine.0.path());
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|theirs| name.starts_with(theirs)) {
                command.env_remove(name);
            }
        }
        command.env("XDG_CACHE_HOME", self.machine.0.path().join("cache")).env("NO_PROXY", "127.0.0.1");
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).args(arguments).output().unwrap()
    }

    /// A run goes there and comes back, is continued, and nothing takes its place.
    fn holds_runs(&self, place: &str) {
        let url = &format!("{place}/runs/mine");
        succeeded(self.run(&["upload", SAMPLE, url]));
        let analyzed = |source| succeeded(self.run(&["analyze", source, "--format", "json"]));
        assert_eq!(analyzed(url), analyzed(SAMPLE));
        let again = self.run(&["upload", SAMPLE, url]);
        assert!(text(&again.stderr).contains(" in 2 requests"), "only what ranks say: {}", text(&again.stderr));
        let other = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples/single");
        let refused = text(&self.run(&["upload", other, url]).stderr);
        assert!(refused.contains("another run is there"), "{refused}");
        let missing = text(&self.run(&["analyze", &format!("{place}/runs/none")]).stderr);
        assert!(missing.contains("nothing is there"), "{missing}");
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It ends when nobody can write to it any more.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// A program in Python, unless it cannot do what the program needs.
fn python(needs: &str, program: &str) -> Option<Command> {
    let can = Command::new("python3").args(["-c", needs]).output();
    can.ok().filter(|can| can.status.success())?;
    let mut python = Command::new("python3");
    python.args(["-c", program]);
    Some(python)
}

#[test]
fn a_store_that_speaks_s3_understands_us() {
    let program = "import boto3, os, sys, moto.server as m\n\
                   server = m.ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\n\
                   server.start()\n\
                   host, port = server.get_host_and_port()\n\
                   url = f'http://127.0.0.1:{port}'\n\
                   boto3.client('s3', endpoint_url=url, region_name='us-east-1', aws_access_key_id='a', \
                   aws_secret_access_key='b').create_bucket(Bucket='bucket')\n\
                   print(url, flush=True)\n\
                   sys.stdin.read()\n\
                   os._exit(0)";
    let Some(python) = python("import moto.server", program) else { return skipped("python", &"python3 has no moto") };
    let store = Store::start(python, |endpoint| {
        let of_whom = [("ACCESS_KEY_ID", KEY), ("SECRET_ACCESS_KEY", SECRET)];
        let said = [("ENDPOINT_URL", endpoint), ("REGION", "us-east-1")].into_iter().chain(of_whom);
        said.map(|(name, value)| (format!("AWS_{name}"), value.to_owned())).collect()
    });
    store.holds_runs("s3://bucket");
    let said = text(&store.run(&["analyze", "s3://none/run"]).stderr);
    assert!(said.contains("there is no such bucket"), "{said}");
}

#[test]
fn a_store_that_speaks_as_googles_understands_us() {
    let program = "import os, sys, threading, urllib.request as ask\n\
                   from moto.server import DomainDispatcherApplication, create_backend_app\n\
                   from werkzeug.serving import make_server\n\
                   s3 = DomainDispatcherApplication(create_backend_app)\n\
                   login = 'AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=b'\n\
                   def store(request, respond):\n\
                   \x20   request['HTTP_AUTHORIZATION'] = login\n\
                   \x20   if request.pop('HTTP_X_GOOG_IF_GENERATION_MATCH', None) == '0':\n\
                   \x20       request['HTTP_IF_NONE_MATCH'] = '*'\n\
                   \x20   return s3(request, respond)\n\
                   server = make_server('127.0.0.1', 0, store, threaded=True)\n\
                   threading.Thread(target=server.serve_forever, daemon=True).start()\n\
                   url = f'http://127.0.0.1:{server.server_port}'\n\
                   ask.build_opener(ask.ProxyHandler({})).open(ask.Request(url + '/bucket', method='PUT'))\n\
                   print(url, flush=True)\n\
                   sys.stdin.read()\n\
                   os._exit(0)";
    let Some(python) = python("import moto.server", program) else { return skipped("python", &"python3 has no moto") };
    let store = Store::start(python, |endpoint| {
        let nobody = r#""private_key": "a", "private_key_id": "b", "client_email": "c", "disable_oauth": true"#;
        let key = format!(r#"{{{nobody}, "gcs_base_url": "{endpoint}"}}"#);
        [("GOOGLE_SERVICE_ACCOUNT_KEY".to_owned(), key)].into()
    });
    store.holds_runs("gs://bucket");
    let said = text(&store.run(&["analyze", "gs://none/run"]).stderr);
    assert!(said.contains("there is no such bucket") && said.contains("GOOGLE_BASE_URL"), "{said}");
}

#[test]
fn a_store_that_speaks_as_azures_understands_us() {
    let program = "import subprocess as s, sys\n\
                   from azure.storage.blob import BlobServiceClient\n\
                   server = s.Popen(['azurite-blob', '--disableTelemetry', '--inMemoryPersistence', '--blobPort', '0', \
                   '--skipApiVersionCheck'], stdout=s.PIPE, text=True)\n\
                   lines = (line.split()[-1] for line in server.stdout)\n\
                   url = next(word for word in lines if word.startswith('http')) + '/ACCOUNT'\n\
                   login = {'account_name': 'ACCOUNT', 'account_key': 'KEY'}\n\
                   BlobServiceClient(url, credential=login).create_container('bucket')\n\
                   print(url, flush=True)\n\
                   sys.stdin.read()\n\
                   server.terminate()\n\
                   server.wait()";
    let program = program.replace("ACCOUNT", AZURE_ACCOUNT).replace("KEY", AZURE_KEY);
    let needs = "import azure.storage.blob, subprocess; subprocess.run(['azurite-blob', '--version'], check=True)";
    let Some(python) = python(needs, &program) else {
        return skipped("python", &"there is no azurite-blob, or python3 has no azure.storage.blob");
    };
    let store = Store::start(python, |endpoint| {
        let said = [("ENDPOINT", endpoint), ("ACCOUNT_NAME", AZURE_ACCOUNT), ("ACCOUNT_KEY", AZURE_KEY)];
        said.map(|(name, value)| (format!("AZURE_STORAGE_{name}"), value.to_owned())).into()
    });
    store.holds_runs("az://bucket");
    let said = text(&store.run(&["analyze", "az://none/run"]).stderr);
    assert!(said.contains("there is no such container") && said.contains("AZURE_STORAGE_"), "{said}");
}
