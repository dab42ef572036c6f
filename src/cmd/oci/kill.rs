//! `saggar kill`: sends the given signal to the container's first process, or to all of its processes.

use super::OciContext;
use super::container::{ContainerStatus, LoadedContainer};
use crate::cli::oci::KillArgs;
use crate::error::{Code, Error, Result};
use crate::signal_name;
use crate::sys::pidfd;
use std::os::fd::AsFd;

pub(super) fn run(context: &OciContext, args: &KillArgs) -> Result<u8> {
    let directory = context.find(&args.id)?;
    let signal = signal_name::parse(&args.signal).ok_or_else(|| {
        Error::new(Code::Usage, format!("unknown signal {:?}", args.signal))
            .hint("give a name such as TERM or SIGTERM, or a number from 0 to 64")
    })?;
    let found = LoadedContainer::load(directory)?;
    let stopped = matches!(found.status(), ContainerStatus::Stopped | ContainerStatus::Creating);
    let not_running =
        || Error::new(Code::Refused, format!("kill container {:?}: container not running", found.record.id));
    if args.all {
        let group = found.group()?;
        // Processes that share the host's pid namespace may outlive the first process.
        if stopped && group.pids()?.is_empty() {
            return Err(not_running());
        }
        group.kill_all(signal)?;
        return Ok(0);
    }
    if stopped {
        return Err(not_running());
    }
    let (init, pid) = found.init()?;
    pidfd::signal(init.as_fd(), signal).map_err(|errno| match errno {
        nix::errno::Errno::ESRCH => not_running(),
        errno => Error::system(format_args!("send signal {signal} to process {pid}"), errno),
    })?;
    if signal == libc::SIGKILL
        && let Ok(group) = found.group()
    {
        group.thaw_killed();
    }
    Ok(0)
}
