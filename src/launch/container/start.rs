//! The program of a created container.

use super::hooks::{self, Place};
use super::talk::{Heard, Talk};
use super::{Start, birth, door, notify};
use crate::error::{Code, Error, Result};
use crate::spec::container::Process;
use crate::stage::container::wire::Answer;
use crate::sys::pidfd;

/// Runs startContainer hooks and lets the init become the program; returns when it has.
///
/// # Errors
/// [`Code::Refused`] when the init does not wait for it, and [`Code::Invalid`] when there is no program: the
/// container is as it was. [`Code::NotFound`], [`Code::NotExecutable`] for the program, and what else failed: the
/// init is killed.
pub fn start(request: &Start<'_>) -> Result<()> {
    let Start { container, state_dir, .. } = *request;
    let process = container.process.as_ref().ok_or_else(|| {
        Error::new(Code::Invalid, "start the container: process is not set in its config.json")
    })?;
    let listener = notify::Receiver::connect(request.listener)?;
    let talk = Talk::of_start(door::knock(state_dir)?, birth::image(&process.program)?.name());
    let started = go(request, process, &talk, listener);
    if started.is_err() {
        let _ = pidfd::signal(request.init, libc::SIGKILL);
    }
    door::remove(state_dir);
    started
}

fn go(request: &Start<'_>, process: &Process, talk: &Talk<'_>, mut listener: notify::Receiver) -> Result<()> {
    let hooks = &request.container.hooks.start_container;
    if !hooks.is_empty() {
        talk.answer(Answer::Namespaces)?;
        match talk.next()? {
            Heard::Hooks(namespaces) => {
                let place = Place::inside(&namespaces, &process.program.env);
                hooks::run("startContainer", hooks, request.state, place)?;
            }
            _ => return Err(super::talk::gone()),
        }
    }
    talk.answer(Answer::Go)?;
    loop {
        match talk.next()? {
            Heard::Listener(fd) => listener.send(&fd, request.pid, request.state)?,
            Heard::End => return Ok(()),
            _ => {}
        }
    }
}
