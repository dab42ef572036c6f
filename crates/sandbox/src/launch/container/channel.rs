//! The runtime's end of the socket to the process that is being started: receives its reports, and formats its errors
//! as callers expect them.

use crate::plan::container::step::ContainerStep;
use crate::plan::container::{ContainerPlan, NAMESPACES};
use crate::spec::container::Namespace;
use crate::stage::container::wire::{ChildNeed, ChildReport, ChildRequest};
use crate::stage::wire::LEN;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::{Errno, scm};
use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The channel to one process.
#[derive(Debug)]
pub(super) struct ChildChannel<'a> {
    socket: OwnedFd,
    /// The steps of the process, at least from the start of this channel to the end.
    steps: Cow<'a, [ContainerStep]>,
    joins: Cow<'a, [(Namespace, PathBuf)]>,
    /// The program's name, for messages.
    program: String,
}

/// A report of the process; failures are returned as errors.
#[derive(Debug)]
pub(super) enum ChildEvent {
    Needs(ChildNeed),
    /// The process needs network devices, in the network namespace of this socket.
    NetDevices(OwnedFd),
    /// The process needs the hooks run, in these namespaces.
    Hooks(Vec<(OwnedFd, u64)>),
    Terminal(u32, OwnedFd),
    Created,
    Listener(OwnedFd),
    /// The process has executed the program, or exited without a report.
    End,
}

impl<'a> ChildChannel<'a> {
    pub(super) fn new(socket: OwnedFd, plan: &'a ContainerPlan, program: String) -> Self {
        ChildChannel {
            socket,
            steps: plan.steps.as_slice().into(),
            joins: plan.joins.as_slice().into(),
            program,
        }
    }

    /// Makes a channel to the init of a created container, before its last steps.
    pub(super) fn for_start(socket: OwnedFd, program: String) -> Self {
        ChildChannel {
            socket,
            steps: Cow::Borrowed(&[ContainerStep::Seccomp, ContainerStep::Execute]),
            joins: Cow::default(),
            program,
        }
    }

    /// Returns the same channel, without a borrow of the plan.
    pub(super) fn into_owned(self) -> ChildChannel<'static> {
        let ChildChannel { socket, steps, joins, program } = self;
        ChildChannel { socket, steps: steps.into_owned().into(), joins: joins.into_owned().into(), program }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn send(&self, answer: ChildRequest) -> Result<()> {
        match scm::send(self.socket.as_fd(), &answer.encode(), &[]) {
            // The last report of the process is the better error.
            Err(Errno::EPIPE) => Ok(()),
            other => other.map_err(|e| Error::system("send to the process of the container", e.desc())),
        }
    }

    /// Waits for the report `expected`, and returns the pid of its sender.
    pub(super) fn receive_pid(&self, expected: ChildReport) -> Result<i32> {
        let (report, received) = self.receive()?;
        match (report, received.pid) {
            (Some(report), Some(pid)) if report == expected => Ok(pid),
            (Some(report), _) => Err(self.failure(report)),
            (None, _) => Err(child_killed()),
        }
    }

    /// Waits for the next report.
    pub(super) fn next_event(&self) -> Result<ChildEvent> {
        let (report, scm::ReceivedMessage { fds, .. }) = self.receive()?;
        Ok(match (report, fds) {
            (None, _) => ChildEvent::End,
            (Some(ChildReport::Needs(ChildNeed::Hooks)), fds) => {
                let flags = NAMESPACES.iter().map(|(_, flag)| *flag);
                ChildEvent::Hooks(fds.into_iter().flatten().zip(flags).collect())
            }
            (Some(ChildReport::Needs(ChildNeed::NetDevices)), [Some(socket), ..]) => {
                ChildEvent::NetDevices(socket)
            }
            (Some(ChildReport::Needs(need)), _) => ChildEvent::Needs(need),
            (Some(ChildReport::Terminal { number }), [Some(master), ..]) => {
                ChildEvent::Terminal(number, master)
            }
            (Some(ChildReport::Created), _) => ChildEvent::Created,
            (Some(ChildReport::Listener), [Some(listener), ..]) => ChildEvent::Listener(listener),
            (Some(report), _) => return Err(self.failure(report)),
        })
    }

    fn receive(&self) -> Result<(Option<ChildReport>, scm::ReceivedMessage)> {
        let mut buffer = [0; LEN];
        let received = match scm::receive(self.socket.as_fd(), &mut buffer) {
            Err(Errno::ECONNRESET) => return Ok((None, scm::ReceivedMessage::default())),
            other => {
                other.map_err(|e| Error::system("receive from the process of the container", e.desc()))?
            }
        };
        Ok((ChildReport::decode(&buffer[..received.len]), received))
    }

    /// Returns the step for which `left` steps remain, itself included.
    fn step(&self, left: u32) -> Option<&ContainerStep> {
        let index = usize::try_from(left).ok().and_then(|left| self.steps.len().checked_sub(left))?;
        self.steps.get(index)
    }

    fn failure(&self, report: ChildReport) -> Error {
        match report {
            ChildReport::Failed { step, errno } => self.step_failed(step, Errno::from_raw(errno)),
            ChildReport::JoinFailed { join, errno } => {
                let errno = Errno::from_raw(errno).desc();
                let join = usize::try_from(join).ok().and_then(|join| self.joins.get(join));
                match join {
                    Some((kind, path)) => Error::system(
                        format_args!("join the {} namespace {}", kind.proc_name(), path.display()),
                        errno,
                    ),
                    None => Error::system("join the namespaces of the container", errno),
                }
            }
            ChildReport::TimeNamespaceFailed { errno } => {
                super::time_offsets::time_offsets_error(&errno_text(Errno::from_raw(errno)))
            }
            ChildReport::CloneFailed { errno } => crate::launch::hint::clone_failed(Errno::from_raw(errno)),
            _ => Error::system("make the process of the container", "it sent an unexpected message"),
        }
    }

    /// Callers match these messages for missing programs literally.
    fn step_failed(&self, left: u32, errno: Errno) -> Error {
        let step = self.step(left);
        let name = &self.program;
        match (step, errno) {
            (Some(ContainerStep::FindProgram), Errno::ENOENT | Errno::ENOTDIR) if !name.contains('/') => {
                Error::new(Code::NotFound, format!("exec: \"{name}\": executable file not found in $PATH"))
            }
            (Some(ContainerStep::FindProgram), Errno::ENOENT | Errno::ENOTDIR) => {
                let why = errno_text(errno);
                Error::new(Code::NotFound, format!("exec: \"{name}\": stat {name}: {why}"))
            }
            (Some(ContainerStep::FindProgram), Errno::EISDIR) => {
                // Docker's exit status 126 depends on these two words.
                let message = format!("exec: \"{name}\": is a directory: permission denied");
                Error::new(Code::NotExecutable, message)
            }
            (Some(ContainerStep::FindProgram), _) => {
                Error::new(Code::NotExecutable, format!("exec: \"{name}\": {}", errno_text(errno)))
            }
            (Some(ContainerStep::Execute), Errno::ENOENT) => {
                Error::new(Code::NotFound, format!("exec {name}: no such file or directory"))
                    .hint("the file is there, and its interpreter is not")
            }
            (Some(ContainerStep::Execute), _) => {
                Error::new(Code::NotExecutable, format!("exec {name}: {}", errno_text(errno)))
            }
            (Some(ContainerStep::WorkingDirectory { path, .. }), Errno::EXDEV) => {
                let path = path.to_string_lossy();
                let message =
                    format!("process.cwd {path}: it is not inside of the container (CVE-2024-21626)");
                Error::new(Code::Refused, message)
            }
            (Some(ContainerStep::WorkingDirectory { path, .. }), _) => {
                let path = path.to_string_lossy();
                Error::new(
                    Code::Invalid,
                    format!("chdir to cwd (\"{path}\") set in config.json failed: {}", errno_text(errno)),
                )
            }
            (Some(step), _) => {
                let error = Error::new(Code::System, format!("{step}: {}", errno_text(errno)));
                match super::hint::hint_for_step(step, errno) {
                    Some(hint) => error.hint(hint),
                    None => error,
                }
            }
            (None, _) => Error::system("make the process of the container", errno.desc()),
        }
    }
}

/// Returns the error for a process that exited without a report.
pub(super) fn child_killed() -> Error {
    Error::system("make the process of the container", "it was killed")
        .hint("see whether the limits of its cgroup leave room for a process: pids, memory")
}

/// Formats an error number as Go's runtime does, since callers compare the text.
fn errno_text(errno: Errno) -> String {
    let mut text = errno.desc().to_owned();
    text.get_mut(..1).map(str::make_ascii_lowercase);
    text
}

/// Formats an I/O error with the text of its error number, in lower case.
pub(super) fn os_text(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |number| errno_text(Errno::from_raw(number)))
}
