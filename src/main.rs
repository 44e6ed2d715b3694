//! Stepscope's command line: flags and glue. Each subcommand is a file of its own.

mod amount;
mod amount_of_bytes;
mod analyze;
mod black_box;
mod completions;
mod diff;
mod doctor;
mod export;
mod failure;
mod folded;
#[cfg(test)]
#[path = "../tests/support/fuzz.rs"]
mod fuzz;
mod http;
mod import;
mod incidents;
mod inspect;
mod live;
mod man;
mod nearest;
mod new_run;
mod object_storage;
mod open;
mod output;
mod own_profiler;
mod plan;
mod progress;
mod record;
mod recording_cost;
mod render;
mod seconds;
mod serve_metrics;
mod source;
mod summarize;
mod summary_use;
mod terminal;
mod torch_memory;
mod train;
mod trigger;
mod upload;
mod words;

use std::{io, process::ExitCode};

use anstream::ColorChoice;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

/// Where every training step goes: time, memory, communication.
#[derive(Parser)]
#[command(
    name = "stepscope",
    version,
    long_version = LONG_VERSION,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Arguments {
    /// When to color the output.
    ///
    /// `auto` colors terminals, and honors NO_COLOR, CLICOLOR and CLICOLOR_FORCE.
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        overrides_with = "color",
        help_heading = "Global options"
    )]
    color: clap::ColorChoice,
    #[command(subcommand)]
    command: Command,
}

/// What `--version` says; `-V` says only the first word of it.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    env!("STEPSCOPE_BUILD_COMMIT"),
    "\nbuilt ",
    env!("STEPSCOPE_BUILD_DATE"),
    ", ",
    env!("STEPSCOPE_BUILD_PROFILE"),
    ", ",
    env!("STEPSCOPE_BUILD_TARGET"),
);

#[derive(Subcommand)]
enum Command {
    Analyze(analyze::Arguments),
    Completions(completions::Arguments),
    Diff(diff::Arguments),
    Doctor(doctor::Arguments),
    Export(export::Arguments),
    Import(import::Arguments),
    Incidents(incidents::Arguments),
    Inspect(inspect::Arguments),
    Live(live::Arguments),
    Man(man::Arguments),
    Open(open::Arguments),
    Plan(Box<plan::Arguments>),
    Record(Box<record::Arguments>),
    ServeMetrics(serve_metrics::Arguments),
    Summarize(summarize::Arguments),
    Train(Box<train::Arguments>),
    Trigger(trigger::Arguments),
    Upload(upload::Arguments),
}

/// Output format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

fn main() -> ExitCode {
    stepscope_collector::injection::hear_of_children();
    let done = |()| ExitCode::SUCCESS;
    let arguments = Arguments::parse();
    match arguments.color {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    }
    .write_global();
    let outcome = match arguments.command {
        Command::Analyze(arguments) => analyze::run(&arguments).map(done),
        Command::Completions(arguments) => completions::run(&arguments, Arguments::command()).map(done),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments).map(done),
        Command::Export(arguments) => export::run(&arguments).map(done),
        Command::Import(arguments) => import::run(&arguments).map(done),
        Command::Incidents(arguments) => incidents::run(&arguments).map(done),
        Command::Inspect(arguments) => inspect::run(&arguments).map(done),
        Command::Live(arguments) => live::run(arguments).map(done),
        Command::Man(arguments) => man::run(&arguments, Arguments::command()).map(done),
        Command::Open(arguments) => open::run(&arguments).map(done),
        Command::Plan(arguments) => plan::run(&arguments).map(done),
        Command::Record(arguments) => record::run(&arguments),
        Command::ServeMetrics(arguments) => serve_metrics::run(&arguments).map(done),
        Command::Summarize(arguments) => summarize::run(&arguments).map(done),
        Command::Train(arguments) => train::run(*arguments),
        Command::Trigger(arguments) => trigger::run(&arguments).map(done),
        Command::Upload(arguments) => upload::run(&arguments).map(done),
    };
    match outcome {
        Ok(status) => status,
        // Whoever reads has read enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            failure::explain(&error);
            ExitCode::from(2)
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
