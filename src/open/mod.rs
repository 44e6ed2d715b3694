//! `stepscope open`: shows a run in ui.perfetto.dev.

mod answer;
mod browser;
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
/// The trace is served on this machine only, to that site only, and is not uploaded anywhere. Serving ends shortly after
/// the trace was fetched, or with Ctrl-C.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope open\n  \
    stepscope open runs/2026-11-14T10-22-07-llama-tiny --steps 10..12")]
pub(crate) struct Arguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Print the link without opening a browser.
    #[arg(long)]
    no_browser: bool,
    /// The address of the Perfetto UI.
    #[arg(long, value_name = "URL", value_parser = Site::parse, default_value = "https://ui.perfetto.dev")]
    ui: Site,
    /// The port to serve on; 0 picks a free one. ui.perfetto.dev can only fetch from the default.
    #[arg(long, value_name = "N", default_value_t = 9001)]
    port: u16,
    /// Seconds to keep serving after the trace was fetched, so that the page can be reloaded.
    #[arg(long, value_name = "S", value_parser = seconds::parse, default_value = "20")]
    linger: Duration,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let run = source::open(&arguments.chosen.sources)?;
    // What is in the way is known before any work is done.
    let server = Server::bind(arguments.port, &run.info.name, arguments.ui.clone())?;
    // Nobody can open it by a name, and it goes with this process, however that ends.
    let mut file = tempfile::tempfile().context("cannot create a temporary file")?;
    let exported = export(&run, &arguments.chosen.of(&run), Packing::None, &mut file)?;
    let link = server.link();
    let surroundings = Surroundings::of_this_process();
    let mut told = exported.summary();
    if let Some(forward) = surroundings.forward(server.port()) {
        told += &format!(
            "tunnel    {forward}\n          run this on the machine with your browser, and open the link there\n"
        );
    }
    let linger = arguments.linger.as_secs_f64();
    told += &format!("serving   until {linger} s after the trace was fetched, or Ctrl-C\n");
    tell(&told);
    // From here on it ends with a word. Before that, what is asked to end ends at once.
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).context("cannot handle signals")?;
    }
    writeln!(stdout().lock(), "{link}")?;
    if !arguments.no_browser && surroundings.has_browser() {
        // The link is there all the same.
        drop(open::that_detached(&link));
    }
    tell(match server.serve(file, arguments.linger, &stopped)? {
        Ended::Fetched => "fetched   the whole trace; the page keeps it\n",
        Ended::Stopped { was_fetched: true } => "stopped   after the whole trace was fetched; the page keeps it\n",
        Ended::Stopped { was_fetched: false } => "stopped   before the whole trace was fetched\n",
    });
    Ok(())
}

/// Says something to people. A closed stderr leaves nobody to tell.
fn tell(text: &str) {
    drop(anstream::stderr().lock().write_all(text.as_bytes()));
}
