//! `stepscope open`: a run in ui.perfetto.dev, without a file to carry there.

mod answer;
mod browser;
mod connection;
mod connections;
mod request;
mod serve;
mod site;

use std::{
    io::{Write, stdout},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{
    export::{Chosen, Packing, export},
    seconds, source,
};
use browser::Surroundings;
use serve::{Ended, Server};
use signal_hook::consts::{SIGINT, SIGTERM};
use site::Site;

/// Show a run in ui.perfetto.dev.
///
/// The trace is served on this machine only, to that site only, and only until it has been fetched and the page may have
/// been loaded again; it is not uploaded to anywhere. Ctrl-C ends it before that.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope open\n  \
    stepscope open runs/2026-11-14T10-22-07-llama-tiny --steps 10..12")]
pub(crate) struct Arguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Only print the link.
    #[arg(long)]
    no_browser: bool,
    /// Where Perfetto's UI is.
    #[arg(long, value_name = "URL", value_parser = Site::parse, default_value = "https://ui.perfetto.dev")]
    ui: Site,
    /// The port to serve on. Perfetto's UI may ask for no other than the default; 0 is any that is free.
    #[arg(long, value_name = "N", default_value_t = 9001)]
    port: u16,
    /// How many seconds to go on when it has been fetched, for a page that is loaded again.
    #[arg(long, value_name = "S", value_parser = seconds::parse, default_value = "20")]
    linger: Duration,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let run = source::open(&arguments.chosen.sources)?;
    // What is in the way is known before any work is done.
    let server = Server::bind(arguments.port, &run.info.name, arguments.ui.clone())?;
    // Nobody can open it by a name, and it goes with this process, however that ends.
    let mut file = tempfile::tempfile().context("cannot make a temporary file")?;
    let exported = export(&run, &arguments.chosen.of(&run), Packing::None, &mut file)?;
    let link = server.link();
    let surroundings = Surroundings::of_this_process();
    let mut told = exported.summary();
    if let Some(forward) = surroundings.forward(server.port()) {
        told += &format!("tunnel    {forward}\n          run this where your browser is, and open the link there\n");
    }
    let linger = arguments.linger.as_secs_f64();
    told += &format!("serving   until {linger} s after it has been fetched, or Ctrl-C\n");
    tell(&told);
    // From here on it ends with a word. Before that, what is asked to end ends at once.
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).context("cannot listen to signals")?;
    }
    writeln!(stdout().lock(), "{link}")?;
    if !arguments.no_browser && surroundings.has_browser() {
        // The link is there all the same.
        drop(open::that_detached(&link));
    }
    tell(match server.serve(file, arguments.linger, &stopped)? {
        Ended::Fetched => "fetched   all of it; the page keeps it\n",
        Ended::Stopped { was_fetched: true } => "stopped   after all of it was fetched; the page keeps it\n",
        Ended::Stopped { was_fetched: false } => "stopped   before all of it was fetched\n",
    });
    Ok(())
}

/// Says something to people. A closed stderr leaves nobody to tell.
fn tell(text: &str) {
    drop(anstream::stderr().lock().write_all(text.as_bytes()));
}
