//! `saggar start`, also for `run`: runs the startContainer hooks, the program and the poststart hooks.

use super::container::{ContainerStatus, LoadedContainer, state};
use super::service_notification::NotificationRelay;
use super::{OciContext, cleanup, filter, wrong_status_error};
use crate::cli::oci::ContainerIdArgs;
use crate::error::{Code, Error, Result};
use crate::launch::container::{self as launch, hooks};
use crate::spec::container::ContainerSpec;
use crate::state::container::{ContainerDirectory, ContainerRecord};
use crate::state::counters::{self, StartKind};
use std::os::fd::{AsFd, BorrowedFd};

pub(super) fn run(context: &OciContext, args: &ContainerIdArgs) -> Result<u8> {
    let directory = context.find(&args.id)?;
    // Everything is read after the lock is taken, because earlier results may be stale.
    let held = directory.lock_or_fail()?;
    let found = LoadedContainer::load(directory)?;
    match found.status() {
        ContainerStatus::Created => {}
        status => return Err(wrong_status_error("start", found.directory.id(), status)),
    }
    let container = found.config()?.container;
    if !container.hooks.start_container.is_empty() {
        // Until a hook executes its program in the container, it still runs our own binary.
        launch::protect_self()?;
    }
    let (init, pid) = found.init()?;
    let relay = NotificationRelay::open(&found.directory, Some(pid))?;
    start_program(&found.directory, &found.record, &container, (init.as_fd(), pid))?;
    // Other commands may inspect and stop the container meanwhile.
    drop(held);
    relay.map_or(Ok(()), |relay| relay.wait_ready(init.as_fd()))?;
    Ok(0)
}

/// Starts the program of a created container. If a hook fails, the container is destroyed and its poststop hooks
/// run (runtime.md, Lifecycle, 7 to 10).
///
/// # Errors
/// [`Code::Invalid`] without a process, before anything has happened; [`Code::NotFound`] and
/// [`Code::NotExecutable`] for the program; any error of a hook.
pub(super) fn start_program(
    directory: &ContainerDirectory,
    record: &ContainerRecord,
    container: &ContainerSpec,
    (init, pid): (BorrowedFd<'_>, i32),
) -> Result<()> {
    if container.process.is_none() {
        let id = directory.id().as_str();
        return Err(Error::new(
            Code::Invalid,
            format!("start container {id:?}: its configuration has no process"),
        )
        .hint("give config.json a process, and create the container again"));
    }
    let created = state(record, ContainerStatus::Created).to_string();
    let listener = filter::listener(container);
    let request = launch::ContainerStartRequest {
        container,
        state_dir: directory.path(),
        init,
        pid,
        listener: listener.as_ref(),
        state: &created,
    };
    let hooks = &container.hooks;
    if let Err(error) = launch::start(&request) {
        // A program that cannot be executed leaves a stopped container; a failed hook destroys the container.
        let of_program = matches!(error.code(), Code::NotFound | Code::NotExecutable);
        if !of_program && !hooks.start_container.is_empty() {
            destroy_failed(directory, record, &hooks.poststop);
        }
        return Err(error);
    }
    counters::count_start(StartKind::Container);
    let running = state(record, ContainerStatus::Running).to_string();
    hooks::run("poststart", &hooks.poststart, &running, hooks::HookPoint::runtime(&record.bundle))
        .inspect_err(|_| destroy_failed(directory, record, &hooks.poststop))
}

fn destroy_failed(
    directory: &ContainerDirectory,
    record: &ContainerRecord,
    poststop: &[crate::spec::container::Hook],
) {
    if let Err(error) = cleanup::destroy(directory, record, poststop) {
        log::error!("{error}");
    }
}
