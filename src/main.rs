//! Stepscope's command line: flags and glue. Each subcommand is a file of its own.

mod amount;
mod analyze;
mod doctor;
mod failure;
mod import;
mod inspect;
mod output;
mod plan;
mod progress;
mod source;
mod text;
mod train;
mod words;

use std::{io, process::ExitCode};

use clap::{Parser, Subcommand, ValueEnum};

/// Where every training step goes: time, memory, communication.
#[derive(Parser)]
#[command(name = "stepscope", version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Analyze(analyze::Arguments),
    Doctor(doctor::Arguments),
    Import(import::Arguments),
    Inspect(inspect::Arguments),
    Plan(Box<plan::Arguments>),
    Train(Box<train::Arguments>),
}

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Analyze(arguments) => analyze::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Train(arguments) => train::run(*arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
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
