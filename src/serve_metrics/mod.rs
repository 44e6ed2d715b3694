//! `stepscope serve-metrics`: what a run says, as metrics, while it grows and after that.

mod exposition;
mod family;
mod follow;
mod job_metrics;
mod otlp;
mod push;
mod rank_metrics;
mod reading;
mod scrape;

use std::{
    io::{Write, stdout},
    net::{Ipv4Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use signal_hook::consts::{SIGINT, SIGTERM};
use stepscope_traces::Run;

use self::{
    exposition::Form,
    follow::{Published, families, follow, read},
    push::{Pusher, Target},
    scrape::Scraped,
};
use crate::{
    http::{Bounds, Listener},
    object_storage, source,
};

/// Where metrics are served unless somebody says so.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9641);

/// Serve the metrics of a run to Prometheus, or push them over OTLP.
///
/// The run is followed while it grows: figures are those of its last steps. Once it has ended they are those of `stepscope
/// analyze`. Serving ends with Ctrl-C.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope serve-metrics runs/mine\n  \
    stepscope serve-metrics runs/mine --listen 0.0.0.0:9641\n  \
    stepscope serve-metrics runs/mine --push http://localhost:4318\n  \
    stepscope serve-metrics runs/mine --once")]
pub(crate) struct Arguments {
    /// The run directory, which may be made later, or another tool's trace.
    run: PathBuf,
    /// Where to serve: an address and a port, or a port of this machine only; 0 picks a free one [default:
    /// 127.0.0.1:9641, or nowhere with --push]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Push to an OpenTelemetry collector, over OTLP/HTTP without TLS.
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    push: Option<Target>,
    /// Seconds between pushes.
    #[arg(long, value_name = "S", value_parser = push::interval, default_value = "15", requires = "push")]
    push_every: Duration,
    /// Leave out metrics of single ranks where a job has more ranks than this.
    #[arg(long, value_name = "N", default_value_t = 64)]
    rank_metrics: usize,
    /// Print the metrics that there are now, and exit.
    #[arg(long, conflicts_with_all = ["listen", "push"])]
    once: bool,
}

/// An address with a port, or a port of this machine.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    let mut found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().ok_or_else(|| format!("`{text}` has no address"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { run, rank_metrics, .. } = arguments;
    if arguments.once {
        let run = match object_storage::is_meant(run) {
            true => source::open(std::slice::from_ref(run))?,
            false => Run::of_source(run)?,
        };
        let families = families(&read(&run)?, *rank_metrics);
        return Ok(stdout().lock().write_all(Form::Prometheus.text(&families).as_bytes())?);
    }
    let instead =
        "--once prints the metrics of what is in object storage now; where the run is recorded, serve its directory";
    object_storage::refuse(Some(run), "serve-metrics follows a run, and", instead)?;
    let listen = arguments.listen.or(arguments.push.is_none().then_some(USUAL));
    let listener = listen.map(|address| {
        let cannot = |error| anyhow!("cannot serve on {address}: {error}; --listen names another address or port");
        Listener::bind(address, Bounds::USUAL).map_err(cannot)
    });
    let listener = listener.transpose()?;
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).context("cannot handle signals")?;
    }
    let published = Arc::new(Published::default());
    let link = listener.as_ref().map(|listener| format!("http://{}/metrics", listener.address()));
    let serving = listener.map(|listener| {
        let answers = Scraped::of(&published, listener.address());
        listener.start(answers)
    });
    let serving = serving.transpose();
    let serving = serving.context("cannot serve")?;
    let pusher = arguments.push.as_ref().map(|target| Pusher::start(target, arguments.push_every, &published));
    let pusher = pusher.transpose().context("cannot push")?;
    if let Some(link) = link {
        writeln!(stdout().lock(), "{link}")?;
    }
    if let Some(target) = &arguments.push {
        tell(&format!("pushing   to {target} every {:?}", arguments.push_every));
    }
    if !run.exists() {
        tell(&format!("waiting   for {}", run.display()));
    }
    let mut told = false;
    let publish = |reading: &reading::Reading| published.publish(families(reading, *rank_metrics));
    let followed = follow(
        run,
        &mut |reading| {
            let ranks = reading.analysis.as_ref().map_or(0, |analysis| analysis.ranks.len());
            if ranks > *rank_metrics && !std::mem::replace(&mut told, true) {
                tell(&format!(
                    "left out  metrics of single ranks: there are {ranks}; --rank-metrics {ranks} adds them"
                ));
            }
            publish(reading);
        },
        &stopped,
    );
    pusher.into_iter().for_each(Pusher::end);
    serving.into_iter().for_each(crate::http::Serving::end);
    followed
}

/// Says something to people. A closed stderr leaves nobody to tell.
fn tell(text: &str) {
    drop(writeln!(anstream::stderr().lock(), "{text}"));
}
