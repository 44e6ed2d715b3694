//! `stepscope man`: manual pages.

use std::{fs, io, io::Write, path::PathBuf};

use anyhow::{Result, anyhow};
use clap_mangen::Man;

/// Print the manual page, or write the pages of all commands into a directory.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope man | man -l -\n  \
    stepscope man ~/.local/share/man/man1")]
pub(crate) struct Arguments {
    /// Directory for the pages of all commands [default: print the main page]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Writes the pages of this command line.
pub(crate) fn run(arguments: &Arguments, command: clap::Command) -> Result<()> {
    let Some(directory) = &arguments.directory else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&page)?;
        return Ok(stdout.flush()?);
    };
    let cannot = |error: io::Error| anyhow!("cannot write manual pages into {}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(cannot)?;
    clap_mangen::generate_to(command, directory).map_err(cannot)
}
