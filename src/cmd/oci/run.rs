//! `saggar run`: creates and starts a container; in the foreground also waits for the program and deletes it.

use super::creation::{CreatedContainer, CreationMode, create_container};
use super::out_of_memory::OomReporter;
use super::service_notification::NotificationRelay;
use super::{OciContext, cleanup, foreground, start};
use crate::cgroup::CgroupHandle;
use crate::cli::oci::RunArgs;
use crate::error::Result;
use std::os::fd::AsFd;

pub(super) fn run(context: &OciContext, args: &RunArgs) -> Result<u8> {
    if args.detach {
        let mut made = create_container(context, &args.container, CreationMode::Detached)?;
        let relay = start_program(&mut made, CreationMode::Detached)?;
        made.lock = None;
        relay.map_or(Ok(()), |relay| relay.wait_ready(made.init.pidfd.as_fd()))?;
        return Ok(0);
    }
    // From here on, signals are forwarded to the container and do not end this process alone.
    let signals = foreground::open_signals()?;
    let mut made = create_container(context, &args.container, CreationMode::Foreground)?;
    let subreaper = !args.no_subreaper;
    if subreaper {
        foreground::become_subreaper()?;
    }
    let relay = start_program(&mut made, CreationMode::Foreground)?;
    // Other commands may inspect and stop the container while it runs.
    made.lock = None;
    // After the start, which it does not delay: in a new cgroup no program was killed before.
    let group = made.record.cgroup.as_ref().and_then(|location| CgroupHandle::open(location).ok());
    let oom = group.as_ref().map(|group| match cleanup::owns_cgroups(group.location()) {
        true => OomReporter::from_start(group),
        false => OomReporter::from_now(group),
    });
    let status = foreground::wait(&made.init, &signals, subreaper, relay.as_ref());
    if let Some(oom) = oom {
        oom.report(&made.record.id);
    }
    if !args.keep {
        delete_container(&made)?;
    }
    status
}

/// Starts the program. If that fails, the container is destroyed, because no caller knows of it yet. Returns what passes its
/// notifications on: a program that outlives this process is the main one of its service.
fn start_program(made: &mut CreatedContainer, mode: CreationMode) -> Result<Option<NotificationRelay>> {
    let init = (made.init.pidfd.as_fd(), made.init.pid);
    let main_pid = (mode == CreationMode::Detached).then_some(made.init.pid);
    let started = NotificationRelay::open(&made.directory, main_pid).and_then(|relay| {
        start::start_program(&made.directory, &made.record, &made.container, init).map(|()| relay)
    });
    started.inspect_err(|_| {
        if made.directory.path().exists()
            && let Err(error) =
                cleanup::destroy(&made.directory, &made.record, &made.container.hooks.poststop)
        {
            log::error!("{error}");
        }
    })
}

/// Deletes the container, unless another command has done so.
fn delete_container(made: &CreatedContainer) -> Result<()> {
    match made.directory.lock_or_fail() {
        Ok(_held) => cleanup::destroy(&made.directory, &made.record, &made.container.hooks.poststop),
        Err(error) if error.code() == crate::error::Code::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
