//! The runtime's end of the socket to the process that is made: what it says, and errors as callers read them.

use crate::error::{Code, Error, Result};
use crate::plan::container::step::Step;
use crate::plan::container::{NAMESPACES, Plan};
use crate::spec::container::Namespace;
use crate::stage::container::wire::{Answer, LEN, Need, Report};
use crate::sys::{Errno, scm};
use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// A conversation with one process.
#[derive(Debug)]
pub(super) struct Talk<'a> {
    socket: OwnedFd,
    /// What it does, at least from where this conversation begins to the end.
    steps: Cow<'a, [Step]>,
    joins: Cow<'a, [(Namespace, PathBuf)]>,
    /// The program's name, for messages.
    program: String,
}

/// What the process says; failures are errors.
#[derive(Debug)]
pub(super) enum Heard {
    Needs(Need),
    /// It needs network devices, in the namespace of this socket.
    NetDevices(OwnedFd),
    /// It needs hooks, in these namespaces.
    Hooks(Vec<(OwnedFd, u64)>),
    Terminal(u32, OwnedFd),
    Created,
    Listener(OwnedFd),
    /// It became the program, or is gone without a word.
    End,
}

impl<'a> Talk<'a> {
    pub(super) fn new(socket: OwnedFd, plan: &'a Plan, program: String) -> Self {
        Talk { socket, steps: plan.steps.as_slice().into(), joins: plan.joins.as_slice().into(), program }
    }

    /// With an init that has everything but its program.
    pub(super) fn of_start(socket: OwnedFd, program: String) -> Self {
        Talk { socket, steps: Cow::Borrowed(&[Step::Seccomp, Step::Execute]), joins: Cow::default(), program }
    }

    /// The same, without its plan.
    pub(super) fn into_owned(self) -> Talk<'static> {
        let Talk { socket, steps, joins, program } = self;
        Talk { socket, steps: steps.into_owned().into(), joins: joins.into_owned().into(), program }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn answer(&self, answer: Answer) -> Result<()> {
        match scm::send(self.socket.as_fd(), &answer.encode(), &[]) {
            // What it said before it went is the better news.
            Err(Errno::EPIPE) => Ok(()),
            other => other.map_err(|e| Error::system("speak to the process of the container", e.desc())),
        }
    }

    /// The pid of the process that says `expected`.
    pub(super) fn pid_of(&self, expected: Report) -> Result<i32> {
        let (report, beside) = self.receive()?;
        match (report, beside.pid) {
            (Some(report), Some(pid)) if report == expected => Ok(pid),
            (Some(report), _) => Err(self.failure(report)),
            (None, _) => Err(gone()),
        }
    }

    /// Waits for the next thing that it says.
    pub(super) fn next(&self) -> Result<Heard> {
        let (report, scm::Received { fds, .. }) = self.receive()?;
        Ok(match (report, fds) {
            (None, _) => Heard::End,
            (Some(Report::Needs(Need::Hooks)), fds) => {
                let flags = NAMESPACES.iter().map(|(_, flag)| *flag);
                Heard::Hooks(fds.into_iter().flatten().zip(flags).collect())
            }
            (Some(Report::Needs(Need::NetDevices)), [Some(socket), ..]) => Heard::NetDevices(socket),
            (Some(Report::Needs(need)), _) => Heard::Needs(need),
            (Some(Report::Terminal { number }), [Some(master), ..]) => Heard::Terminal(number, master),
            (Some(Report::Created), _) => Heard::Created,
            (Some(Report::Listener), [Some(listener), ..]) => Heard::Listener(listener),
            (Some(report), _) => return Err(self.failure(report)),
        })
    }

    fn receive(&self) -> Result<(Option<Report>, scm::Received)> {
        let mut buffer = [0; LEN];
        let received = match scm::receive(self.socket.as_fd(), &mut buffer) {
            Err(Errno::ECONNRESET) => return Ok((None, scm::Received::default())),
            other => other.map_err(|e| Error::system("hear the process of the container", e.desc()))?,
        };
        Ok((Report::decode(&buffer[..received.len]), received))
    }

    /// The step with this many from it to the end.
    fn step(&self, left: u32) -> Option<&Step> {
        let index = usize::try_from(left).ok().and_then(|left| self.steps.len().checked_sub(left))?;
        self.steps.get(index)
    }

    fn failure(&self, report: Report) -> Error {
        match report {
            Report::Failed { step, errno } => self.step_failed(step, Errno::from_raw(errno)),
            Report::JoinFailed { join, errno } => {
                let errno = Errno::from_raw(errno).desc();
                let join = usize::try_from(join).ok().and_then(|join| self.joins.get(join));
                match join {
                    Some((kind, path)) => Error::system(
                        format_args!("join the {} namespace {}", kind.file(), path.display()),
                        errno,
                    ),
                    None => Error::system("join the namespaces of the container", errno),
                }
            }
            Report::ClocksFailed { errno } => super::time::clocks_failed(&lower(Errno::from_raw(errno))),
            Report::CloneFailed { errno } => crate::launch::hint::clone_failed(Errno::from_raw(errno)),
            _ => Error::system("make the process of the container", "it says what nobody expects"),
        }
    }

    /// Callers look for these texts of missing programs, word by word.
    fn step_failed(&self, left: u32, errno: Errno) -> Error {
        let step = self.step(left);
        let name = &self.program;
        match (step, errno) {
            (Some(Step::FindProgram), Errno::ENOENT | Errno::ENOTDIR) if !name.contains('/') => {
                Error::new(Code::NotFound, format!("exec: \"{name}\": executable file not found in $PATH"))
            }
            (Some(Step::FindProgram), Errno::ENOENT | Errno::ENOTDIR) => {
                let why = lower(errno);
                Error::new(Code::NotFound, format!("exec: \"{name}\": stat {name}: {why}"))
            }
            (Some(Step::FindProgram), Errno::EISDIR) => {
                // Docker makes 126 of these two words alone.
                let message = format!("exec: \"{name}\": is a directory: permission denied");
                Error::new(Code::NotExecutable, message)
            }
            (Some(Step::FindProgram), _) => {
                Error::new(Code::NotExecutable, format!("exec: \"{name}\": {}", lower(errno)))
            }
            (Some(Step::Execute), Errno::ENOENT) => {
                Error::new(Code::NotFound, format!("exec {name}: no such file or directory"))
                    .hint("the file is there, and its interpreter is not")
            }
            (Some(Step::Execute), _) => {
                Error::new(Code::NotExecutable, format!("exec {name}: {}", lower(errno)))
            }
            (Some(Step::WorkingDirectory { path, .. }), Errno::EXDEV) => {
                let path = path.to_string_lossy();
                let message =
                    format!("process.cwd {path}: it is not inside of the container (CVE-2024-21626)");
                Error::new(Code::Refused, message)
            }
            (Some(Step::WorkingDirectory { path, .. }), _) => {
                let path = path.to_string_lossy();
                Error::new(
                    Code::Invalid,
                    format!("chdir to cwd (\"{path}\") set in config.json failed: {}", lower(errno)),
                )
            }
            (Some(step), _) => {
                let error = Error::new(Code::System, format!("{step}: {}", lower(errno)));
                match super::hint::for_step(step, errno) {
                    Some(hint) => error.hint(hint),
                    None => error,
                }
            }
            (None, _) => Error::system("make the process of the container", errno.desc()),
        }
    }
}

/// The process went away without a word.
pub(super) fn gone() -> Error {
    Error::system("make the process of the container", "it was killed")
        .hint("see whether the limits of its cgroup leave room for a process: pids, memory")
}

/// As Go's runtime writes it, which callers compare with.
fn lower(errno: Errno) -> String {
    let mut text = errno.desc().to_owned();
    text.get_mut(..1).map(str::make_ascii_lowercase);
    text
}

/// An I/O error as the kernel says it, in lower case.
pub(super) fn os_text(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |number| lower(Errno::from_raw(number)))
}
