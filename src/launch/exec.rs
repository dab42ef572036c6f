//! Programs in a running sandbox: one request to pid 1, a gate, and the word whether it became a program.

use super::{Launched, set_nonblocking, socket_pair};
use crate::error::{Code, Error, Result};
use crate::spec::Program;
use crate::stage::block;
use crate::stage::wire::{ExecFlags, GateReport, LEN, Point, Request};
use crate::sys::{Errno, file, process, scm};
use nix::sys::socket::{setsockopt, sockopt};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A program on its way: the supervisor's end of its gate.
#[derive(Debug)]
pub struct Gate {
    socket: OwnedFd,
    open: bool,
}

/// What a gate tells.
#[derive(Debug)]
pub enum Passage {
    /// The program waits; this is its pid on the host. [`Gate::open`] lets it go on.
    Waiting(i32),
    /// It became the program.
    Through,
    /// It did not, and is gone.
    Failed(Error),
    /// Nothing to tell now.
    Nothing,
}

impl Launched {
    /// Asks pid 1 to run `program` with these standard streams. `flags` are bits of
    /// [`crate::stage::wire::ExecFlags`]; `hold` keeps it at its gate until [`Gate::open`].
    ///
    /// # Errors
    /// [`Code::Invalid`] for a NUL byte in an argument or a variable; [`Code::System`].
    pub fn exec(
        &self,
        id: u32,
        program: &Program,
        streams: [BorrowedFd<'_>; 3],
        flags: u32,
        hold: bool,
    ) -> Result<Gate> {
        let name = program.argv.first().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let path = program.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let bytes = block::write(program, path.unwrap_or(OsStr::new("/usr/bin:/bin"))).map_err(|errno| {
            let error = Error::new(Code::Invalid, format!("run {name:?}: {}", errno.desc()));
            if errno == Errno::EINVAL {
                error.hint("a program name, an argument or a variable has a NUL byte, or there is no program")
            } else {
                error
            }
        })?;
        let block = file::sealed(c"saggar-exec", &bytes)
            .map_err(|e| Error::system(format_args!("write down the arguments of {name:?}"), e))?;
        let (ours, theirs) = socket_pair()?;
        setsockopt(&ours, sockopt::PassCred, &true).map_err(|e| Error::system("ask for credentials", e))?;
        let fds =
            [block.as_fd(), streams[0], streams[1], streams[2], theirs.as_fd()].map(|fd| fd.as_raw_fd());
        let flags = if hold { flags } else { flags | ExecFlags::AT_ONCE };
        self.send(Request::Exec { id, flags }, &fds)?;
        set_nonblocking(ours.as_fd())?;
        let mut gate = Gate { socket: ours, open: false };
        if !hold {
            gate.open()?;
        }
        Ok(gate)
    }
}

impl Gate {
    /// Lets the program go on. Once is enough; more is no error.
    ///
    /// # Errors
    /// [`Code::System`] when it is gone.
    pub fn open(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.open, true) {
            scm::send(self.socket.as_fd(), &[1], &[])
                .map_err(|e| Error::system("let the program go on", e))?;
        }
        Ok(())
    }

    /// Whether the program stops here: its end of the gate closes with its life, and at execve.
    pub fn holds(&self) -> bool {
        !self.open && process::is_ready(self.socket.as_raw_fd(), libc::POLLHUP) == Ok(false)
    }

    /// What the gate tells now, without waiting. `name` is the program's, for messages.
    pub fn passage(&self, name: &OsStr) -> Passage {
        let mut buffer = [0; LEN];
        let received = match scm::receive(self.socket.as_fd(), &mut buffer) {
            Ok(received) => received,
            Err(Errno::EAGAIN) => return Passage::Nothing,
            Err(Errno::ECONNRESET) => return Passage::Through,
            Err(errno) => return Passage::Failed(Error::system("wait at the gate of the program", errno)),
        };
        match GateReport::decode(&buffer[..received.len]) {
            Some(GateReport::Waiting) => Passage::Waiting(received.pid.unwrap_or(0)),
            Some(GateReport::Failed { point, errno }) => Passage::Failed(failure(point, errno, name)),
            None => Passage::Through,
        }
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn failure(point: Point, errno: i32, name: &OsStr) -> Error {
    let why = Errno::from_raw(errno).desc();
    let name = name.to_string_lossy();
    match point {
        Point::NotFound => Error::new(Code::NotFound, format!("run {name:?}: not found in the sandbox"))
            .hint("programs are those of /usr, of --ro and of the workspace; see saggar explain"),
        Point::NotExecutable => Error::new(Code::NotExecutable, format!("run {name:?}: {why}")).hint(
            "it is there and cannot be executed: see its mode, and whether its interpreter is in the sandbox",
        ),
        Point::WorkingDirectory => {
            Error::new(Code::Invalid, format!("run {name:?}: enter its working directory: {why}"))
        }
        Point::Session => Error::system(format_args!("run {name:?}: make its session"), why),
        Point::Streams => Error::system(format_args!("run {name:?}: arrange its standard streams"), why),
        Point::Filter => Error::system(format_args!("run {name:?}: load its seccomp filter"), why),
        Point::Block => Error::system(format_args!("run {name:?}: read its arguments"), why),
    }
}
