//! One more process in a running container.

use super::birth::{self, Child};
use super::talk::{Heard, Talk};
use super::{Cgroup, Console, Exec, Init, console, facts, notify};
use crate::error::{Error, Result};
use crate::plan::container as plan;
use crate::stage::container::wire::Answer;
use crate::sys::{pidfd, process};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Starts a process in the container; it has become the program when this returns, and is our child.
///
/// # Errors
/// [`crate::error::Code::NotFound`], [`crate::error::Code::NotExecutable`] for the program; what failed, and the
/// process is gone.
pub fn exec(request: &Exec<'_>, cgroup: &dyn Cgroup) -> Result<Init> {
    let mut starting = begin_exec(request, cgroup)?;
    loop {
        if let Some(init) = starting.hear()? {
            return Ok(init);
        }
    }
}

/// The same, without waiting for it: for a caller that has others to look after. How long it takes is the
/// container's doing, which may be frozen.
///
/// # Errors
/// What failed before there was a process.
pub fn begin_exec(request: &Exec<'_>, cgroup: &dyn Cgroup) -> Result<Starting> {
    let Exec { container, process, options, .. } = *request;
    let facts = facts::gather(container, Some(process), Vec::new());
    let plan = plan::build_exec(container, process, &facts, options, request.filter)?;
    plan.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    birth::check_preserved(options.preserve_fds)?;
    let init = request.init.try_clone_to_owned().map_err(|e| Error::system("duplicate a pidfd", e))?;
    let joins = facts::foreign_namespaces(request.pid);
    let joins = if joins == 0 { Vec::new() } else { vec![(init, joins)] };
    let console = console::Receiver::connect(request.console)?;
    let listener = notify::Receiver::connect(request.filter.and_then(|filter| filter.listener.as_ref()))?;
    let (first, talk) = birth::begin(
        birth::Request {
            plan: &plan,
            image: Some(birth::image(&process.program)?),
            filter: request.filter,
            joins: &joins,
            door: None,
            streams: request.streams.map(birth::streams).transpose()?,
            die_with_runtime: options.die_with_runtime,
            process: Some(process),
            cpus: Some(&process.cpu_affinity),
        },
        cgroup,
    )?;
    // No ids are mapped: a user namespace is joined, and never made.
    let (intermediate, child) = if plan.intermediate { (Some(first), None) } else { (None, Some(first)) };
    if child.is_some() {
        talk.answer(Answer::Go)?;
    }
    Ok(Starting {
        talk: talk.into_owned(),
        intermediate,
        child,
        keeps_terminal: matches!(request.console, Console::Keep),
        terminal: None,
        console,
        listener,
        state: request.state.to_owned(),
    })
}

/// A process on its way into a container. Dropping it ends the process.
#[derive(Debug)]
pub struct Starting {
    talk: Talk<'static>,
    /// What makes the child in the container's namespaces; kept until the end, since it is to be reaped.
    intermediate: Option<Child>,
    /// What becomes the program, once it is there.
    child: Option<Child>,
    keeps_terminal: bool,
    terminal: Option<OwnedFd>,
    console: console::Receiver,
    listener: notify::Receiver,
    state: String,
}

impl AsFd for Starting {
    /// Readable when [`Starting::step`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.talk.socket()
    }
}

impl Starting {
    /// Goes as far as it can without waiting; the process, once it has become the program.
    ///
    /// # Errors
    /// As [`exec`].
    pub fn step(&mut self) -> Result<Option<Init>> {
        while process::is_ready(self.talk.socket().as_raw_fd(), libc::POLLIN)
            .map_err(|e| Error::system("hear the process of the container", e.desc()))?
        {
            if let Some(init) = self.hear()? {
                return Ok(Some(init));
            }
        }
        Ok(None)
    }

    /// Ends the process; [`Starting::step`] then fails.
    pub fn kill(&self) {
        for process in [&self.child, &self.intermediate].into_iter().flatten() {
            if let Ok(pidfd) = process.pidfd() {
                let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
            }
        }
    }

    /// Waits for the next thing that the process says, and does what is to be done about it.
    fn hear(&mut self) -> Result<Option<Init>> {
        if let (None, Some(intermediate)) = (&self.child, &self.intermediate) {
            self.child = Some(birth::born_inside(intermediate, &self.talk)?);
            self.talk.answer(Answer::Go)?;
            return Ok(None);
        }
        match self.talk.next()? {
            Heard::Terminal(_, master) if self.keeps_terminal => self.terminal = Some(master),
            Heard::Terminal(number, master) => self.console.send(number, master)?,
            Heard::Listener(fd) => self.listener.send(&fd, self.pid()?, &self.state)?,
            Heard::End => return self.end().map(Some),
            Heard::Created => {}
            Heard::Needs(_) | Heard::Hooks(_) | Heard::NetDevices(_) => self.talk.answer(Answer::Go)?,
        }
        Ok(None)
    }

    fn pid(&self) -> Result<i32> {
        self.child.as_ref().map(|child| child.pid).ok_or_else(super::talk::gone)
    }

    fn end(&mut self) -> Result<Init> {
        let child = self.child.take().ok_or_else(super::talk::gone)?;
        let pid = child.pid;
        let start_time = super::start_time(pid)?;
        Ok(Init { pid, start_time, pidfd: child.keep()?, terminal: self.terminal.take() })
    }
}
