//! The process that serves the model API, seen from the supervisor: it is started before the sandbox is, gets the
//! sockets that pid 1 made, says what is wrong, and is started again when it dies, a few times.
//!
//! ```text
//! Api::start ── the key is good ──> started ── sockets from pid 1 ──> serves ── dies ──> started again, or closed
//! ```
//! The supervisor holds the file of the key open and never reads it.

use super::sandbox::register;
use super::status::{Event, Status, take_descriptor};
use super::worker;
use crate::api::wire::{Errand, LONGEST, SOCKET, Said};
use crate::api::{ENTRY, key};
use crate::error::{Code, Error, Result};
use crate::launch::{set_nonblocking, socket_pair};
use crate::spec::{self, KeySource};
use crate::stage::launcher::Launcher;
use crate::sys::{file, scm};
use mio::unix::SourceFd;
use mio::{Registry, Token};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The token of its socket.
const API: Token = Token(6);
/// Milliseconds that it may take until it has its key: who gives a pipe has to write to it.
const READY_WITHIN: u16 = 10_000;
/// How long its end takes at most.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// How often it is started in the life of a sandbox.
const STARTS: u32 = 4;

/// The process, and what it takes to start it again.
#[derive(Debug)]
pub struct Api {
    spec: spec::Api,
    key: File,
    process: Option<Process>,
    starts: u32,
    /// The sockets that hear requests, as long as somebody serves them.
    sockets: Vec<OwnedFd>,
    /// What is wrong, and was not told yet.
    troubles: Vec<String>,
    /// Who starts it again for a supervisor that may not.
    launcher: Option<Rc<Launcher>>,
}

/// A process that ends when it is dropped.
#[derive(Debug)]
struct Process {
    /// Where it is ours: the launcher's children are reaped by themselves.
    child: Option<Child>,
    socket: OwnedFd,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

impl Api {
    /// Starts it; it has its key, and has given up what it does not need.
    ///
    /// # Errors
    /// What is wrong with the key, the certificates, or the start.
    pub fn start(spec: &spec::Api) -> Result<Self> {
        let key = open_key(&spec.key)?;
        let process = Process::start(spec, &key)?;
        process.is_ready()?;
        let (sockets, troubles) = (Vec::new(), Vec::new());
        Ok(Api {
            spec: spec.clone(),
            key,
            process: Some(process),
            starts: 1,
            sockets,
            troubles,
            launcher: None,
        })
    }

    /// From now on it is started again by the launcher.
    pub(super) fn part(&mut self, launcher: &Rc<Launcher>) {
        self.launcher = Some(Rc::clone(launcher));
    }

    /// Its messages come to this loop from now on.
    ///
    /// # Errors
    /// [`Code::System`]
    pub(super) fn watch(&self, registry: &Registry) -> Result<()> {
        let Some(process) = &self.process else { return Ok(()) };
        set_nonblocking(process.socket.as_fd())?;
        register(registry, process.socket.as_fd(), API)
    }

    /// Requests come on this socket.
    pub(super) fn offer(&mut self, socket: OwnedFd) {
        if let Some(process) = &self.process {
            process.pass(&socket);
            self.sockets.push(socket);
        }
    }

    /// Handles an event; false when it is somebody else's.
    pub(super) fn ready(&mut self, registry: &Registry, token: Token) -> bool {
        if token == API {
            while let Some(process) = &self.process {
                let mut buffer = [0; LONGEST];
                let said = match scm::receive(process.socket.as_fd(), &mut buffer) {
                    Err(nix::Error::EAGAIN) => break,
                    Err(_) => None,
                    Ok(received) => buffer.get(..received.len).and_then(Said::decode),
                };
                match said {
                    Some(Said::Ready) => {}
                    Some(Said::Trouble(text)) => self.troubles.push(text),
                    Some(Said::Failed(error)) => self.close(registry, &error.to_string()),
                    None => self.died(registry),
                }
            }
        }
        token == API
    }

    /// It is gone, or says what nobody understands.
    fn died(&mut self, registry: &Registry) {
        let Some(mut process) = self.leave(registry) else { return };
        let how = process.end();
        let is_file = self.key.metadata().is_ok_and(|metadata| metadata.is_file());
        if self.starts >= STARTS || !is_file {
            let why = if is_file { "too often" } else { "and its key cannot be read again" };
            return self.close(registry, &format!("its process has died ({how}), {why}"));
        }
        self.starts += 1;
        match Process::start_by(self.launcher.as_deref(), &self.spec, &self.key) {
            Ok(process) => {
                self.sockets.iter().for_each(|socket| process.pass(socket));
                self.process = Some(process);
                match self.watch(registry) {
                    Ok(()) => self.trouble(&format!("its process has died ({how}), and is started again")),
                    Err(error) => self.close(registry, &error.to_string()),
                }
            }
            Err(error) => self.close(registry, &error.to_string()),
        }
    }

    /// Nobody serves any more: connections are refused at once.
    fn close(&mut self, registry: &Registry, why: &str) {
        self.leave(registry);
        self.sockets.clear();
        self.trouble(&format!("{why}; nobody serves it any more"));
    }

    fn leave(&mut self, registry: &Registry) -> Option<Process> {
        let process = self.process.take()?;
        let _ = registry.deregister(&mut SourceFd(&process.socket.as_raw_fd()));
        Some(process)
    }

    fn trouble(&mut self, why: &str) {
        self.troubles.push(format!("serve the model API at {}: {why}", self.spec.upstream));
    }

    /// Tells what was wrong since the last time, as events and as lines of a log.
    pub(super) fn tell(&mut self, id: &str, status: &mut Status, mut log: impl FnMut(&str)) {
        for why in self.troubles.drain(..) {
            log(&why);
            status.say(&Event::Api { id, why: &why });
        }
    }
}

/// The process of the model API, with its end of the socket.
pub(super) fn command(socket: OwnedFd) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("saggar").arg(ENTRY).env_clear().current_dir("/");
    command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null());
    // What the terminal sends to the program is not meant for it.
    command.process_group(0);
    command
}

impl Process {
    fn start(spec: &spec::Api, key: &File) -> Result<Self> {
        let (socket, theirs) = socket_pair()?;
        let child =
            command(theirs).spawn().map_err(|e| Error::system("start the process of the model API", e))?;
        Process { child: Some(child), socket }.instruct(std::process::id().cast_signed(), spec, key)
    }

    /// The same by the launcher, where there is one.
    fn start_by(launcher: Option<&Launcher>, spec: &spec::Api, key: &File) -> Result<Self> {
        let Some(launcher) = launcher else { return Process::start(spec, key) };
        let (socket, theirs) = socket_pair()?;
        worker::start_api(launcher, &theirs)?;
        Process { child: None, socket }.instruct(launcher.pid(), spec, key)
    }

    /// Tells it what to serve, and that it follows this process, its parent.
    fn instruct(self, parent: i32, spec: &spec::Api, key: &File) -> Result<Self> {
        let errand = Errand {
            supervisor: parent,
            upstream: spec.upstream.to_string(),
            header: spec.header.to_string(),
            ca_file: spec.ca_file.clone(),
        };
        scm::send(self.socket.as_fd(), &errand.encode(), &[key.as_raw_fd()])
            .map_err(|e| Error::system("speak to the process of the model API", e.desc()))?;
        Ok(self)
    }

    /// Ends it, and waits for that where it is our child; how it ended. It ends by itself when its socket does, and a
    /// supervisor of another id may not kill it.
    fn end(&mut self) -> String {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        let Some(child) = &mut self.child else { return "by itself".into() };
        if child.kill().is_ok() {
            return child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        }
        let until = Instant::now() + ENDS_WITHIN;
        loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) => return "not at all".into(),
                Ok(Some(status)) => return status.to_string(),
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Waits until it has its key.
    fn is_ready(&self) -> Result<()> {
        let mut waits = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let heard = loop {
            match poll(&mut waits, PollTimeout::from(READY_WITHIN)) {
                Err(nix::Error::EINTR) => {}
                other => {
                    break other
                        .map_err(|e| Error::system("wait for the process of the model API", e.desc()))?;
                }
            }
        };
        if heard == 0 {
            return Err(Error::new(Code::System, "the key of the model API does not come within 10 s")
                .hint("whoever gives a pipe with --api-key-fd writes the key and closes it"));
        }
        let mut buffer = [0; LONGEST];
        let received = scm::receive(self.socket.as_fd(), &mut buffer)
            .map_err(|e| Error::system("hear from the process of the model API", e.desc()))?;
        match buffer.get(..received.len).and_then(Said::decode) {
            Some(Said::Ready) => Ok(()),
            Some(Said::Failed(error)) => Err(error),
            _ => Err(Error::new(Code::System, "the process of the model API died before it was ready")),
        }
    }

    /// One that dies with it on its way gets it again when it is started again.
    fn pass(&self, socket: &OwnedFd) {
        let _ = scm::send(self.socket.as_fd(), SOCKET, &[socket.as_raw_fd()]);
    }
}

fn open_key(source: &KeySource) -> Result<File> {
    match source {
        KeySource::File(path) => key::open(path),
        KeySource::Descriptor(number) => {
            let file = take_descriptor(*number, "--api-key-fd")?;
            // The caller's number goes to nothing else that is executed from here.
            fcntl(file::number(*number), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(|e| {
                Error::system(format_args!("keep descriptor {number} to ourselves"), e.desc())
            })?;
            key::check_descriptor(&file)?;
            Ok(file)
        }
    }
}
