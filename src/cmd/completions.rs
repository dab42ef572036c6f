//! `saggar completions`: prints the completion script of a shell.

use crate::cli::Cli;
use crate::error::Result;
use clap::CommandFactory;

pub(super) fn run(shell: clap_complete::Shell) -> Result<u8> {
    // clap_complete panics if its writer fails. A vector does not fail.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "saggar", &mut script);
    super::print_raw(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
