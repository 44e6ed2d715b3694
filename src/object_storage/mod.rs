//! Runs in object storage: fetched before they are read, and uploaded while they are recorded.

mod fetch;
mod uploader;

use std::{io::Write, path::Path, time::Duration};

use anstyle::Style;
use anyhow::{Result, bail};
use stepscope_plan::text;
use stepscope_storage::{Location, Sent, StorageError};

pub(crate) use self::{
    fetch::{fetch, with_urls},
    uploader::{PATIENCE, Uploader, patiently},
};
use crate::{failure::WithHint, seconds, terminal};

/// Stores charge by the request.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// The folder of segments, in a run that jobs continue.
const SEGMENTS: &str = "segments";

/// Whether a source is in object storage.
pub(crate) fn is_meant(source: &Path) -> bool {
    source.to_str().is_some_and(Location::is_meant)
}

/// Which place in object storage a source is.
pub(crate) fn location(source: &Path) -> Result<Location, StorageError> {
    source.to_str().unwrap_or_default().parse()
}

/// Refuses a URL where a path of this machine is meant.
pub(crate) fn refuse(path: Option<&Path>, option: &str, instead: &str) -> Result<()> {
    match path.filter(|path| is_meant(path)) {
        Some(_) => {
            Err(WithHint { what: format!("{option} takes a path on this machine, not a URL"), hint: instead.into() }
                .into())
        }
        None => Ok(()),
    }
}

/// Uploading a run while it is recorded.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Upload")]
pub(crate) struct Arguments {
    /// Also upload the run while it is recorded: s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH.
    ///
    /// The run directory stays as it is without, and a failing upload never changes the job or its exit status.
    #[arg(long, value_name = "URL")]
    upload: Option<String>,
    /// How often the upload sends what is new: 30, 10m or 2h.
    #[arg(long, value_name = "TIME", value_parser = seconds::parse, requires = "upload", default_value = "30")]
    upload_every: Duration,
}

impl Arguments {
    /// Refuses what cannot work, before a job is started for it.
    pub(crate) fn check(&self) -> Result<()> {
        if self.upload_every < SHORTEST_PAUSE {
            bail!("--upload-every must be at least {} s", SHORTEST_PAUSE.as_secs());
        }
        self.place(Path::new(""))?;
        Ok(())
    }

    /// Begins to upload a run, if that was asked for.
    pub(crate) fn start(&self, run: &Path) -> Result<Option<Uploader>> {
        let Some(place) = self.place(run)? else { return Ok(None) };
        Ok(Some(Uploader::start(run, place, self.upload_every)?))
    }

    /// As [`Arguments::start`], where the program that records is this one: a signal that would end it ends it once the rest was
    /// tried.
    pub(crate) fn start_heeding_signals(&self, run: &Path) -> Result<Option<Uploader>> {
        self.start(run)?.map(Uploader::heeding_signals).transpose()
    }

    /// Whether an upload was asked for.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.upload.is_some()
    }

    /// Where a run goes. A segment of one goes where the segment belongs.
    fn place(&self, run: &Path) -> Result<Option<Location>, StorageError> {
        let Some(url) = &self.upload else { return Ok(None) };
        let place: Location = url.parse()?;
        let is_segment = run.parent().and_then(Path::file_name).is_some_and(|folder| folder == SEGMENTS);
        match run.file_name().filter(|_| is_segment) {
            Some(number) => place.join(&format!("{SEGMENTS}/{}", number.display())).map(Some),
            None => Ok(Some(place)),
        }
    }
}

/// Says what was uploaded.
pub(crate) fn say_uploaded(place: &Location, sent: Sent) {
    let (requests, bytes) = (text::counted(sent.requests, "request"), text::bytes(sent.bytes));
    say("uploaded", &format!("{place}: {bytes} in {requests}"));
}

/// The command that uploads what is left of a run.
fn command_to_upload(run: &Path, place: &Location) -> String {
    let words = ["upload".to_owned(), run.display().to_string(), place.to_string()];
    format!("{} {}", terminal::program(), terminal::command_line(&words))
}

fn say(word: &str, said: &str) {
    let bold = Style::new().bold();
    // A closed stderr leaves nobody to tell.
    drop(writeln!(anstream::stderr().lock(), "{bold}{word:<8}{bold:#}  {}", text::printable(said)));
}

/// What helps.
pub(crate) fn hint(error: &StorageError) -> Option<String> {
    Some(match error {
        StorageError::Url { .. } => {
            "write s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH".into()
        }
        StorageError::NoCredentials { .. } => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, as `aws configure export-credentials --format env` prints; \
             AWS_SKIP_SIGNATURE=true reads public buckets"
                .into()
        }
        StorageError::Setting { variable, .. } if variable.contains("ENDPOINT") || variable.contains("URL") => {
            "write it as in https://s3.example.com or http://127.0.0.1:9000, or unset it to ask the cloud's own store".into()
        }
        StorageError::Setting { variable, .. } if variable.starts_with("AWS_") => {
            "set it again; `aws configure export-credentials --format env` prints credentials as variables".into()
        }
        StorageError::Setting { .. } => "set it again, or unset it".into(),
        StorageError::Client { location, .. } => {
            format!("credentials and settings come from the environment: {}", Variables::of(location).all)
        }
        StorageError::Refused { location, .. } => format!(
            "check the credentials in the environment ({}), that they have not expired, and that they may list, read and \
             write there",
            Variables::of(location).all
        ),
        StorageError::NoBucket { location, .. } => {
            format!("check its name, and which store is asked: {} may say another one", Variables::of(location).endpoint)
        }
        StorageError::Missing { .. } => "check the path: it names a run, a trace or a folder of traces".into(),
        StorageError::Unreachable { location, .. } => {
            format!("check the network, and {} if it is set", Variables::of(location).endpoint)
        }
        StorageError::RunsInside { last, .. } => format!("the last of them is {last}"),
        StorageError::OtherRun { .. } => "name a path of its own for each run".into(),
        StorageError::NoRoom { .. } => "--ranks fetches only some ranks; XDG_CACHE_HOME says where copies are".into(),
        StorageError::TooMany { .. } => "name a run, a trace or a folder of traces".into(),
        StorageError::Failed { location, .. } if location.starts_with("file://") => {
            "check the path, and that you may read and write there".into()
        }
        StorageError::Failed { .. } | StorageError::File { .. } => return None,
    })
}

/// Which variables of the environment say how a store is reached.
struct Variables {
    all: &'static str,
    /// What says which store is asked.
    endpoint: &'static str,
}

impl Variables {
    fn of(location: &str) -> Variables {
        match location.split_once(':') {
            Some(("gs", _)) => Variables { all: "GOOGLE_*", endpoint: "GOOGLE_BASE_URL" },
            Some(("az", _)) => Variables { all: "AZURE_STORAGE_*", endpoint: "AZURE_STORAGE_ENDPOINT" },
            _ => Variables { all: "AWS_*", endpoint: "AWS_ENDPOINT_URL" },
        }
    }
}
