//! `stepscope completions`: completion scripts for shells.

use std::io::Write;

use anyhow::Result;
use clap_complete::Shell;

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    stepscope completions bash > ~/.local/share/bash-completion/completions/stepscope\n  \
    stepscope completions zsh > ~/.zfunc/_stepscope\n  \
    stepscope completions fish > ~/.config/fish/completions/stepscope.fish")]
pub(crate) struct Arguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Writes the script for this command line.
pub(crate) fn run(arguments: &Arguments, mut command: clap::Command) -> Result<()> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&script)?;
    Ok(stdout.flush()?)
}
