//! Runs an additional process in a running container.

use super::channel::{ChildChannel, ChildEvent};
use super::spawn::{self, PendingChild};
use super::{
    ConsoleTarget, ContainerCgroup, ContainerExecRequest, LaunchedProcess, console, facts, seccomp_listener,
};
use crate::plan::container as plan;
use crate::stage::container::wire::ChildRequest;
use crate::state::process::start_time;
use saggar_sys::error::{Error, Result};
use saggar_sys::{pidfd, process};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Starts a process in the container; when this returns, it has executed the program, and is a child of this process.
///
/// # Errors
/// [`saggar_sys::error::Code::NotFound`], [`saggar_sys::error::Code::NotExecutable`] for the program; otherwise the failed step.
/// The process has exited.
pub fn exec(request: &ContainerExecRequest<'_>, cgroup: &dyn ContainerCgroup) -> Result<LaunchedProcess> {
    let mut starting = begin_exec(request, cgroup)?;
    loop {
        if let Some(init) = starting.handle_event()? {
            return Ok(init);
        }
    }
}

/// Like `exec`, but without waiting, for a caller that serves others meanwhile. The container determines how long
/// the start takes: it may be frozen.
///
/// # Errors
/// An error that occurred before the process existed.
pub fn begin_exec(request: &ContainerExecRequest<'_>, cgroup: &dyn ContainerCgroup) -> Result<PendingExec> {
    let ContainerExecRequest { container, process, options, .. } = *request;
    let facts = facts::gather(container, Some(process), Vec::new());
    let plan = plan::build_exec(container, process, &facts, options, request.filter)?;
    plan.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    spawn::check_preserved(options.preserve_fds)?;
    let init = request.init.try_clone_to_owned().map_err(|e| Error::system("duplicate a pidfd", e))?;
    let joins = facts::foreign_namespaces(request.pid);
    let joins = if joins == 0 { Vec::new() } else { vec![(init, joins)] };
    let console = console::ConsoleSocket::connect(request.console)?;
    let listener = seccomp_listener::ListenerSocket::connect(
        request.filter.and_then(|filter| filter.listener.as_ref()),
    )?;
    let (first, channel) = spawn::begin_spawn(
        spawn::SpawnRequest {
            plan: &plan,
            program: Some(spawn::program_args(&process.program)?),
            filter: request.filter,
            joins: &joins,
            start_socket: None,
            streams: request.streams.map(spawn::duplicate_streams).transpose()?,
            die_with_runtime: options.die_with_runtime,
            process: Some(process),
            cpus: Some(&process.cpu_affinity),
        },
        cgroup,
    )?;
    // No id maps are written: exec joins a user namespace, and never makes one.
    let (intermediate, child) =
        if plan.needs_intermediate { (Some(first), None) } else { (None, Some(first)) };
    if child.is_some() {
        channel.send(ChildRequest::Go)?;
    }
    Ok(PendingExec {
        channel: channel.into_owned(),
        intermediate,
        child,
        keeps_terminal: matches!(request.console, ConsoleTarget::Keep),
        terminal: None,
        console,
        listener,
        state: request.state.to_owned(),
    })
}

/// A process that is being started in a container. Dropping it kills the process.
#[derive(Debug)]
pub struct PendingExec {
    channel: ChildChannel<'static>,
    /// The intermediate process, which makes the child in the container's namespaces; kept until the end to be reaped.
    intermediate: Option<PendingChild>,
    /// The process that executes the program, once it exists.
    child: Option<PendingChild>,
    keeps_terminal: bool,
    terminal: Option<OwnedFd>,
    console: console::ConsoleSocket,
    listener: seccomp_listener::ListenerSocket,
    state: String,
}

impl AsFd for PendingExec {
    /// Readable when [`PendingExec::advance`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }
}

impl PendingExec {
    /// Proceeds as far as possible without waiting; returns the process after it has executed the program.
    ///
    /// # Errors
    /// As [`exec()`].
    pub fn advance(&mut self) -> Result<Option<LaunchedProcess>> {
        while process::is_ready(self.channel.socket().as_raw_fd(), libc::POLLIN)
            .map_err(|e| Error::system("receive from the process of the container", e.desc()))?
        {
            if let Some(init) = self.handle_event()? {
                return Ok(Some(init));
            }
        }
        Ok(None)
    }

    /// Kills the process; [`PendingExec::advance`] then fails.
    pub fn kill(&self) {
        for process in [&self.child, &self.intermediate].into_iter().flatten() {
            if let Ok(pidfd) = process.pidfd() {
                let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
            }
        }
    }

    /// Waits for the next event of the process, and handles it.
    fn handle_event(&mut self) -> Result<Option<LaunchedProcess>> {
        if let (None, Some(intermediate)) = (&self.child, &self.intermediate) {
            self.child = Some(spawn::await_child(intermediate, &self.channel)?);
            self.channel.send(ChildRequest::Go)?;
            return Ok(None);
        }
        match self.channel.next_event()? {
            ChildEvent::Terminal(_, master) if self.keeps_terminal => self.terminal = Some(master),
            ChildEvent::Terminal(number, master) => self.console.send(number, master)?,
            ChildEvent::Listener(fd) => self.listener.send(&fd, self.pid()?, &self.state)?,
            ChildEvent::End => return self.finish_launch().map(Some),
            ChildEvent::Created => {}
            ChildEvent::Needs(_) | ChildEvent::Hooks(_) | ChildEvent::NetDevices(_) => {
                self.channel.send(ChildRequest::Go)?
            }
        }
        Ok(None)
    }

    fn pid(&self) -> Result<i32> {
        self.child.as_ref().map(|child| child.pid).ok_or_else(super::channel::child_killed)
    }

    fn finish_launch(&mut self) -> Result<LaunchedProcess> {
        let child = self.child.take().ok_or_else(super::channel::child_killed)?;
        let pid = child.pid;
        let start_time = start_time(pid)?;
        Ok(LaunchedProcess { pid, start_time, pidfd: child.into_pidfd()?, terminal: self.terminal.take() })
    }
}
