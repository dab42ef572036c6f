//! `saggar completions`: what a shell needs to complete our command line.

use crate::cli::Cli;
use crate::error::{Error, Result};
use clap::CommandFactory;
use std::io::Write;

pub(super) fn run(shell: clap_complete::Shell) -> Result<u8> {
    // clap_complete panics when its writer fails, as it does for `saggar completions bash | head`.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "saggar", &mut script);
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::system("write the completions", error))
        }
        _ => Ok(0),
    }
}
