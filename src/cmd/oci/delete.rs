//! `saggar delete`: without `--force` only what has stopped; with it whatever there is.

use super::container::{Found, Status};
use super::{Context, lost, undo, wrong_status};
use crate::cli::oci::DeleteArgs;
use crate::error::{Code, Error, Result};
use crate::spec::container::Hook;
use crate::state::container::{Directory, Held};
use std::time::Duration;

/// How long `--force` waits for a verb that is changing the container, before it takes its work away; and how
/// long after that it gives that verb to notice.
const POLITE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_secs(10);

pub(super) fn run(context: &Context, args: &DeleteArgs) -> Result<u8> {
    let done = if args.force { force(context, &args.id) } else { stopped(context, &args.id) };
    match done {
        Err(error) if args.force && error.code() == Code::NotFound => Ok(0),
        other => other.map(|()| 0),
    }
}

fn stopped(context: &Context, id: &str) -> Result<()> {
    let directory = context.find(id)?;
    let _held = directory.must_lock()?;
    let found = Found::new(directory)?;
    match found.status() {
        Status::Stopped => {}
        status => {
            return Err(wrong_status("delete", found.directory.id(), status)
                .hint("kill it first and wait for its end, or say delete --force"));
        }
    }
    undo::destroy(&found.directory, &found.record, &poststop(&found))
}

fn force(context: &Context, id: &str) -> Result<()> {
    let directory = context.find(id)?;
    let _held = take(&directory)?;
    match Found::new(directory.clone()) {
        Ok(found) => undo::destroy(&found.directory, &found.record, &poststop(&found)),
        Err(error) => {
            log::warn!("{error}");
            without_record(context, directory)
        }
    }
}

/// What can still be found of a container whose record and its copy are gone or damaged: by the record in its lock,
/// else by cgroups of its name. The directory goes in any case.
fn without_record(context: &Context, directory: Directory) -> Result<()> {
    if let Some(record) = directory.last_record() {
        let found = Found { directory, record };
        return undo::destroy(&found.directory, &found.record, &poststop(&found));
    }
    // Nothing is made before there is a record.
    let is_bare = directory.is_bare();
    let ended = lost::processes(context, &directory)?;
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

/// The hooks of a configuration that can still be read.
fn poststop(found: &Found) -> Vec<Hook> {
    match found.config() {
        Ok(config) => config.container.hooks.poststop,
        Err(error) => {
            log::warn!("its poststop hooks do not run: {error}");
            Vec::new()
        }
    }
}

/// The lock; from a verb that does not give it up, by taking its container away.
fn take(directory: &Directory) -> Result<Held> {
    let asked = match directory.lock(POLITE) {
        Err(error) if error.code() == Code::System => {
            directory.mend_lock()?;
            directory.lock(POLITE)
        }
        other => other,
    };
    if let Some(held) = asked? {
        return Ok(held);
    }
    if let Ok(found) = Found::new(directory.clone())
        && found.record.process.as_ref().is_none_or(|process| !found.record.complete || !process.is_alive())
    {
        // It is being created, and its maker hangs, in a hook perhaps.
        found.record.creator.kill(AFTER);
    }
    directory.lock(AFTER)?.ok_or_else(|| {
        Error::new(
            Code::System,
            format!("container {:?}: another command holds its lock", directory.id().as_str()),
        )
        .hint("end that command; fuser(1) on the lock file in its directory names it")
    })
}
