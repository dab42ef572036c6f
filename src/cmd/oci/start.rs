//! `saggar start`, and the same for `run`: startContainer hooks, the program, poststart hooks.

use super::container::{Found, Status, state};
use super::{Context, filter, undo, wrong_status};
use crate::cli::oci::IdArgs;
use crate::error::{Code, Error, Result};
use crate::launch::container::{self as launch, hooks};
use crate::spec::container::Container;
use crate::state::container::{Directory, Record};
use crate::state::counters::{self, Kind};
use std::os::fd::{AsFd, BorrowedFd};

pub(super) fn run(context: &Context, args: &IdArgs) -> Result<u8> {
    let directory = context.find(&args.id)?;
    // Nothing of an earlier moment counts once the lock is ours.
    let _held = directory.must_lock()?;
    let found = Found::new(directory)?;
    match found.status() {
        Status::Created => {}
        status => return Err(wrong_status("start", found.directory.id(), status)),
    }
    let container = found.config()?.container;
    if !container.hooks.start_container.is_empty() {
        // On their way into the container hooks are still our own file.
        launch::protect_self()?;
    }
    let (init, pid) = found.init()?;
    start(&found.directory, &found.record, &container, (init.as_fd(), pid))?;
    Ok(0)
}

/// Lets the program of a created container run. When a hook fails, the container is destroyed and its
/// poststop hooks run (runtime.md, Lifecycle, 7 to 10).
///
/// # Errors
/// [`Code::Invalid`] without a process, and then nothing has happened; [`Code::NotFound`] and
/// [`Code::NotExecutable`] for the program; whatever failed in a hook.
pub(super) fn start(
    directory: &Directory,
    record: &Record,
    container: &Container,
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
    let created = state(record, Status::Created).to_string();
    let listener = filter::listener(container);
    let request = launch::Start {
        container,
        state_dir: directory.path(),
        init,
        pid,
        listener: listener.as_ref(),
        state: &created,
    };
    let hooks = &container.hooks;
    if let Err(error) = launch::start(&request) {
        // A program that cannot run leaves a stopped container; a hook that fails ends its life.
        let of_program = matches!(error.code(), Code::NotFound | Code::NotExecutable);
        if !of_program && !hooks.start_container.is_empty() {
            give_up(directory, record, &hooks.poststop);
        }
        return Err(error);
    }
    counters::started(Kind::Container);
    let running = state(record, Status::Running).to_string();
    hooks::run("poststart", &hooks.poststart, &running, hooks::Place::runtime(&record.bundle))
        .inspect_err(|_| give_up(directory, record, &hooks.poststop))
}

fn give_up(directory: &Directory, record: &Record, poststop: &[crate::spec::container::Hook]) {
    if let Err(error) = undo::destroy(directory, record, poststop) {
        log::error!("{error}");
    }
}
