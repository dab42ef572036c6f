//! Starts the program of a created container.

use super::channel::{ChildChannel, ChildEvent};
use super::hooks::{self, HookPoint};
use super::{ContainerStartRequest, seccomp_listener, spawn, start_socket};
use crate::spec::container::ProcessSpec;
use crate::stage::container::wire::ChildRequest;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::pidfd;

/// Runs startContainer hooks and releases the init to execute the program; returns after the execve.
///
/// # Errors
/// [`Code::Refused`] when the init does not wait for it, and [`Code::Invalid`] when there is no program: the container
/// is unchanged. [`Code::NotFound`], [`Code::NotExecutable`] for the program, and any other failure: the init is
/// killed.
pub fn start(request: &ContainerStartRequest<'_>) -> Result<()> {
    let ContainerStartRequest { container, state_dir, .. } = *request;
    let process = container.process.as_ref().ok_or_else(|| {
        Error::new(Code::Invalid, "start the container: process is not set in its config.json")
    })?;
    let listener = seccomp_listener::ListenerSocket::connect(request.listener)?;
    let channel = ChildChannel::for_start(
        start_socket::connect_start(state_dir)?,
        spawn::program_args(&process.program)?.name(),
    );
    let started = run_program(request, process, &channel, listener);
    if started.is_err() {
        let _ = pidfd::signal(request.init, libc::SIGKILL);
    }
    start_socket::remove(state_dir);
    started
}

fn run_program(
    request: &ContainerStartRequest<'_>,
    process: &ProcessSpec,
    channel: &ChildChannel<'_>,
    mut listener: seccomp_listener::ListenerSocket,
) -> Result<()> {
    let hooks = &request.container.hooks.start_container;
    if !hooks.is_empty() {
        channel.send(ChildRequest::SendNamespaces)?;
        match channel.next_event()? {
            ChildEvent::Hooks(namespaces) => {
                let place = HookPoint::inside(&namespaces, &process.program.env);
                hooks::run("startContainer", hooks, request.state, place)?;
            }
            _ => return Err(super::channel::child_killed()),
        }
    }
    channel.send(ChildRequest::Go)?;
    loop {
        match channel.next_event()? {
            ChildEvent::Listener(fd) => listener.send(&fd, request.pid, request.state)?,
            ChildEvent::End => return Ok(()),
            _ => {}
        }
    }
}
