//! saggar executes its own program again for processes with fewer rights: the relay of the network, the API process, the
//! writer of snapshots and others. A program that embeds saggar is executed in their place, and has to become them.

use crate::mcp::mailbox;
use crate::{api, demo, prove, relay, session::snapshot::subprocess as snapshot};
use std::ffi::OsString;
use std::io::{BufReader, stdin, stdout};

/// Runs the process that `args` (with the program's name first) stand for, if saggar started this program as one of
/// its own; its exit status. Call it first in `main`, with one thread, and end with that status. `None` for other
/// arguments.
///
/// Without this call a network with a policy, published ports, a model API whose key stays outside, mailboxes and snapshots do
/// not work in a program that embeds saggar.
pub fn run_subprocess(args: &[OsString]) -> Option<u8> {
    let rest = args.get(2..).unwrap_or_default();
    let status = match args.get(1)?.to_str()? {
        demo::ENTRY => demo::run(BufReader::new(stdin()), stdout()),
        snapshot::SNAPSHOT_SUBCOMMAND => snapshot::run_snapshot(rest, stdout()),
        api::API_SUBCOMMAND => api::run_api_process(),
        mailbox::MAILBOX_SUBCOMMAND => mailbox::run_mailbox_process(),
        relay::RELAY_SUBCOMMAND => relay::run_relay(),
        prove::ENTRY => prove::probe::run(rest, stdout()),
        prove::harness::BYSTANDER => prove::harness::run_bystander(stdin()),
        _ => return None,
    };
    Some(status)
}
