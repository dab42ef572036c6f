//! `saggar delete`: deletes a stopped container, or with `--force` any container.

use super::container::{ContainerStatus, LoadedContainer};
use super::{OciContext, cleanup, orphaned, wrong_status_error};
use crate::cli::oci::DeleteArgs;
use crate::error::{Code, Error, Result};
use crate::spec::container::Hook;
use crate::state::container::{ContainerDirectory, ContainerLock};
use std::time::Duration;

/// How long `--force` waits for the lock before it kills the process that creates the container, and how long it
/// waits for the lock after that.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(context: &OciContext, args: &DeleteArgs) -> Result<u8> {
    if args.regex {
        return Err(Error::new(
            Code::Unsupported,
            "delete --regex: containers are deleted by their ids alone",
        )
        .hint("saggar list --quiet prints the ids"));
    }
    let done = if args.force { force_delete(context, &args.id) } else { delete_stopped(context, &args.id) };
    match done {
        Err(error) if args.force && error.code() == Code::NotFound => Ok(0),
        other => other.map(|()| 0),
    }
}

fn delete_stopped(context: &OciContext, id: &str) -> Result<()> {
    let directory = context.find(id)?;
    let _held = directory.lock_or_fail()?;
    let found = LoadedContainer::load(directory)?;
    match found.status() {
        ContainerStatus::Stopped => {}
        status => {
            return Err(wrong_status_error("delete", found.directory.id(), status)
                .hint("kill it first and wait for its end, or use delete --force"));
        }
    }
    cleanup::destroy(&found.directory, &found.record, &poststop_hooks(&found))
}

fn force_delete(context: &OciContext, id: &str) -> Result<()> {
    let directory = context.find(id)?;
    let _held = take_lock(&directory)?;
    match LoadedContainer::load(directory.clone()) {
        Ok(found) => cleanup::destroy(&found.directory, &found.record, &poststop_hooks(&found)),
        Err(error) => {
            log::warn!("{error}");
            delete_without_record(context, directory)
        }
    }
}

/// Deletes a container whose record and its copy are missing or damaged: by the record in its lock, or else by the
/// cgroups with its name. The directory is removed in any case.
fn delete_without_record(context: &OciContext, directory: ContainerDirectory) -> Result<()> {
    if let Some(record) = directory.read_record_from_lock() {
        let found = LoadedContainer { directory, record };
        return cleanup::destroy(&found.directory, &found.record, &poststop_hooks(&found));
    }
    // The record is written before anything is created.
    let is_bare = directory.has_no_record();
    let ended = orphaned::kill_and_remove(context, &directory)?;
    directory.remove()?;
    if ended || is_bare {
        return Ok(());
    }
    let message = format!(
        "end container {:?}: its records are damaged, and no cgroup has its name: its processes may still run",
        directory.id().as_str()
    );
    Err(Error::new(Code::System, message)
        .hint("look for them with ps(1) and end them; its directory is removed"))
}

/// Returns the poststop hooks, or none if the configuration cannot be read.
fn poststop_hooks(found: &LoadedContainer) -> Vec<Hook> {
    match found.config() {
        Ok(config) => config.container.hooks.poststop,
        Err(error) => {
            log::warn!("its poststop hooks do not run: {error}");
            Vec::new()
        }
    }
}

/// Takes the lock. If it is not released, kills the creator of the container, unless the container runs.
fn take_lock(directory: &ContainerDirectory) -> Result<ContainerLock> {
    let locked = match directory.lock(LOCK_TIMEOUT) {
        Err(error) if error.code() == Code::System => {
            directory.repair_lock()?;
            directory.lock(LOCK_TIMEOUT)
        }
        other => other,
    };
    if let Some(lock) = locked? {
        return Ok(lock);
    }
    if let Ok(found) = LoadedContainer::load(directory.clone())
        && found.record.process.as_ref().is_none_or(|process| !found.record.complete || !process.is_alive())
    {
        // The container is being created, and its create hangs, perhaps in a hook.
        found.record.creator.kill_and_wait(RELEASE_TIMEOUT);
    }
    directory.lock(RELEASE_TIMEOUT)?.ok_or_else(|| {
        Error::new(
            Code::System,
            format!("container {:?}: another command holds its lock", directory.id().as_str()),
        )
        .hint("end that command; fuser(1) on the lock file in its directory names it")
    })
}
