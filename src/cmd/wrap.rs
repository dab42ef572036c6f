//! `saggar wrap`: runs a command in the default sandbox.

use crate::app::wrap::{self, WrapRequest};
use crate::cli::WrapArgs;
use crate::error::Result;
use crate::text::DisplayEscaped;
use std::io::IsTerminal;

pub(super) fn run(args: WrapArgs) -> Result<u8> {
    let request = WrapRequest {
        status_fd: args.sandbox.status_fd,
        sandbox: args.sandbox.into(),
        argv: args.argv,
        dies_with_parent: args.die_with_parent,
    };
    if args.dry_run {
        return super::explain::print_steps(&wrap::plan(&request)?);
    }
    let prepared = wrap::prepare(request)?;
    if let Some(workspace) = prepared.found_workspace()
        && std::io::stderr().is_terminal()
    {
        super::print_notices(&[format!("workspace: {}", workspace.escaped())]);
    }
    let outcome = prepared.start()?.supervise();
    super::print_notices(&outcome.notices);
    outcome.status
}
