//! Runs programs in a running sandbox: one request to pid 1, a barrier, and the report whether execve succeeded.

use super::LaunchedSandbox;
use crate::spec::ProgramSpec;
use crate::stage::agent::program_args;
use crate::stage::agent::wire::{BarrierReport, ExecFailurePoint, ExecFlags, InitRequest};
use crate::stage::wire::LEN;
use nix::sys::socket::{setsockopt, sockopt};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file::set_nonblocking;
use saggar_sys::scm::socket_pair;
use saggar_sys::text::DisplayEscaped;
use saggar_sys::{Errno, file, process, scm};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The supervisor's end of the barrier of a program that has not been executed yet.
#[derive(Debug)]
pub struct ExecBarrier {
    socket: OwnedFd,
    is_open: bool,
    /// Where the program starts, for messages.
    directory: PathBuf,
}

/// An event of a barrier.
#[derive(Debug)]
pub enum BarrierEvent {
    /// The program waits; this is its pid on the host. [`ExecBarrier::release`] releases it.
    Waiting(i32),
    /// The program has been executed.
    Executed,
    /// The program was not executed; its process has exited.
    Failed(Error),
    /// No event yet.
    Pending,
}

impl LaunchedSandbox {
    /// Sends pid 1 a request to run `program` with these standard streams. `flags` are bits of
    /// [`crate::stage::agent::wire::ExecFlags`]; with `hold` the program waits at its barrier until
    /// [`ExecBarrier::release`].
    ///
    /// # Errors
    /// [`Code::Invalid`] for a NUL byte in an argument or a variable; [`Code::System`].
    pub fn exec(
        &self,
        id: u32,
        program: &ProgramSpec,
        streams: [BorrowedFd<'_>; 3],
        flags: u32,
        hold: bool,
    ) -> Result<ExecBarrier> {
        let name = program.argv.first().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let path = program.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let bytes =
            program_args::encode(program, path.unwrap_or(OsStr::new("/usr/bin:/bin"))).map_err(|errno| {
                let error = Error::new(Code::Invalid, format!("run {name:?}: {}", errno.desc()));
                if errno == Errno::EINVAL {
                    error.hint(
                        "a program name, an argument or a variable has a NUL byte, or there is no program",
                    )
                } else {
                    error
                }
            })?;
        let program_args = file::sealed_memfd(c"saggar-exec", &bytes)
            .map_err(|e| Error::system(format_args!("write down the arguments of {name:?}"), e))?;
        let (ours, theirs) = socket_pair()?;
        setsockopt(&ours, sockopt::PassCred, &true).map_err(|e| Error::system("ask for credentials", e))?;
        let fds = [program_args.as_fd(), streams[0], streams[1], streams[2], theirs.as_fd()]
            .map(|fd| fd.as_raw_fd());
        let flags = if hold { flags } else { flags | ExecFlags::IMMEDIATE };
        self.send(InitRequest::Exec { id, flags }, &fds)?;
        set_nonblocking(ours.as_fd())?;
        let mut barrier = ExecBarrier { socket: ours, is_open: false, directory: program.cwd.clone() };
        if !hold {
            barrier.release()?;
        }
        Ok(barrier)
    }
}

impl ExecBarrier {
    /// Releases the program. Further calls have no effect.
    ///
    /// # Errors
    /// [`Code::System`] when the process has exited.
    pub fn release(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.is_open, true) {
            scm::send(self.socket.as_fd(), &[1], &[]).map_err(|e| Error::system("release the program", e))?;
        }
        Ok(())
    }

    /// Whether the program waits at the barrier: its end closes when the process exits, and at execve.
    pub fn is_waiting(&self) -> bool {
        !self.is_open && process::is_ready(self.socket.as_raw_fd(), libc::POLLHUP) == Ok(false)
    }

    /// Returns the current event, without waiting. `name` is the program's, for messages.
    pub fn poll_event(&self, name: &OsStr) -> BarrierEvent {
        let mut buffer = [0; LEN];
        let received = match scm::receive(self.socket.as_fd(), &mut buffer) {
            Ok(received) => received,
            Err(Errno::EAGAIN) => return BarrierEvent::Pending,
            Err(Errno::ECONNRESET) => return BarrierEvent::Executed,
            Err(errno) => {
                return BarrierEvent::Failed(Error::system("wait at the gate of the program", errno));
            }
        };
        match BarrierReport::decode(&buffer[..received.len]) {
            Some(BarrierReport::Waiting) => BarrierEvent::Waiting(received.pid.unwrap_or(0)),
            Some(BarrierReport::Failed { point, errno }) => {
                BarrierEvent::Failed(exec_error(point, errno, name, &self.directory))
            }
            None => BarrierEvent::Executed,
        }
    }
}

impl AsFd for ExecBarrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn exec_error(point: ExecFailurePoint, errno: i32, name: &OsStr, directory: &Path) -> Error {
    let why = Errno::from_raw(errno).desc();
    let name = name.to_string_lossy();
    match point {
        ExecFailurePoint::NotFound => Error::new(Code::NotFound, format!("run {name:?}: not found in the sandbox"))
            .hint("programs are those of /usr, of --ro and of the workspace; see saggar explain"),
        ExecFailurePoint::NotExecutable => Error::new(Code::NotExecutable, format!("run {name:?}: {why}")).hint(
            "it is there and cannot be executed: see its mode, and whether its interpreter is in the sandbox",
        ),
        ExecFailurePoint::WorkingDirectory => {
            Error::new(Code::Invalid, format!("run {name:?} in {}: {why}", directory.escaped()))
                .hint("--cwd names a directory in the sandbox; saggar explain shows what it contains")
        }
        ExecFailurePoint::Session => Error::system(format_args!("run {name:?}: make its session"), why),
        ExecFailurePoint::Streams => Error::system(format_args!("run {name:?}: arrange its standard streams"), why),
        ExecFailurePoint::Filter => Error::system(format_args!("run {name:?}: load its seccomp filter"), why),
        ExecFailurePoint::Arguments => Error::system(format_args!("run {name:?}: read its arguments"), why),
    }
}
