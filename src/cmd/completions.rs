//! `saggar completions`: what a shell needs to complete our command line.

use crate::cli::Cli;
use crate::error::Result;
use clap::CommandFactory;

pub(super) fn run(shell: clap_complete::Shell) -> Result<u8> {
    // clap_complete panics when its writer fails: a vector does not.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "saggar", &mut script);
    super::say_exactly(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
