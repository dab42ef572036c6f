//! The process that serves the mailbox of a run to the programs of one sandbox ([`crate::service`]).
//!
//! ```text
//!  program ── /run/mailbox.sock ──> mailbox process ── bridge.jsonl of the run
//!                ^ created inside by pid 1
//! ```
//! The name of the sandbox in the run comes from its supervisor, so that no program can send as another (AM-19). The
//! process parses what programs send; it has the files of the run and no other rights.

use super::{LocalMailbox, MAILBOX_RIGHTS, MailboxTools, confine};
use crate::error::{Error, Result};
use crate::mcp::serve_sockets;
use crate::service::{self, ServiceConfig, end_with_parent};
use crate::spec::MailboxSpec;
use nix::sys::resource::{Resource, setrlimit};
use std::os::fd::OwnedFd;

/// The first argument of saggar when it executes itself as the mailbox process.
pub const MAILBOX_SUBCOMMAND: &str = "__mailbox";
/// Most bytes of memory for data (RLIMIT_DATA in getrlimit(2)): it is not that of the sandbox. Two messages of 16 MiB can
/// be read at a time, every byte of them escaped.
const MAX_MEMORY: u64 = 512 << 20;

/// Runs the mailbox process. Standard input is its socket to the supervisor.
pub fn run_mailbox_process() -> u8 {
    service::run(MAILBOX_RIGHTS.name, prepare, |mailbox, supervisor| {
        serve_sockets(MailboxTools::new(mailbox), supervisor)
    })
}

/// Opens the mailbox and drops all rights but those to its files.
fn prepare(config: ServiceConfig<MailboxSpec>, _: Option<OwnedFd>) -> Result<LocalMailbox> {
    let ServiceConfig { parent, service: MailboxSpec { root, repo, run, name } } = config;
    let mailbox = LocalMailbox::open(&root, &repo, run, &name)?;
    setrlimit(Resource::RLIMIT_DATA, MAX_MEMORY, MAX_MEMORY)
        .map_err(|e| Error::system("limit the memory of the mailbox process", e.desc()))?;
    confine::confine(mailbox.path())?;
    end_with_parent(parent)?;
    Ok(mailbox)
}
