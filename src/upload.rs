//! `stepscope upload`: a run that was recorded, into object storage.

use std::path::PathBuf;

use anyhow::Result;
use stepscope_storage::{Location, Sending};
use stepscope_traces::{Run, TraceError};

use crate::{object_storage, progress::Bar};

/// Upload a run to object storage, or the rest of one whose upload broke off.
///
/// Other commands read it there by its URL. Checkpoints stay where they are. `record --upload` and `train --upload` upload a
/// run while it is recorded.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope upload runs/mine s3://bucket/runs/mine\n  \
    stepscope analyze s3://bucket/runs/mine\n\n\
    Credentials come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL for s3://,\n\
    GOOGLE_APPLICATION_CREDENTIALS for gs://, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY for az://.")]
pub(crate) struct Arguments {
    /// The run directory.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Where it goes: s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH.
    #[arg(value_name = "URL")]
    url: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let place: Location = arguments.url.parse()?;
    let run = Run::open(&arguments.run)?;
    if run.ranks.is_empty() {
        return Err(TraceError::NotARun { path: arguments.run.clone(), why: "nothing is recorded in it".into() }.into());
    }
    let bar = Bar::new("uploading");
    let sending = Sending::new(&arguments.run, &place);
    let all = sending.waiting();
    let mut sending = sending.telling(move |done| bar.show(done, all));
    object_storage::patiently(&mut sending)?;
    let sent = sending.sent();
    drop(sending);
    object_storage::say_uploaded(&place, sent);
    Ok(())
}
