//! The supervisor's side of the process that serves the model API. The process is started before the sandbox, gets the
//! sockets that pid 1 created, and reports errors. If it dies it is restarted, up to [`MAX_STARTS`] starts in all.
//!
//! ```text
//! ApiProcess::start ── the key is valid ──> started ── sockets from pid 1 ──> serving ── dies ──> restarted, or closed
//! ```
//! The supervisor holds the key file open and never reads it.

use super::registration::register;
use super::status::{StatusEvent, StatusWriter, duplicate_fd};
use super::worker;
use crate::api::wire::{ApiProcessConfig, ApiProcessEvent, MAX_MESSAGE_SIZE, SOCKET_MESSAGE};
use crate::api::{API_SUBCOMMAND, key};
use crate::error::{Code, Error, Result};
use crate::launch::{set_nonblocking, socket_pair};
use crate::spec::{self, ApiKeySource};
use crate::stage::agent::launcher::Launcher;
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

/// The token of the process's socket.
const API_TOKEN: Token = Token(6);
/// Milliseconds until the process must have read its key; the key may come from a pipe, whose writer must write it by
/// then.
const READY_TIMEOUT_MS: u16 = 10_000;
/// Longest wait for the process to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Most starts in the life of a sandbox, the first one included.
const MAX_STARTS: u32 = 4;

/// The process, and the data to start it again.
#[derive(Debug)]
pub struct ApiProcess {
    spec: spec::ModelApiSpec,
    key: File,
    process: Option<ApiChild>,
    starts: u32,
    /// The listening sockets; empty once the model API is no longer served.
    sockets: Vec<OwnedFd>,
    /// Errors that have not been reported yet.
    unreported_errors: Vec<String>,
    /// Restarts the process for a supervisor that has dropped its rights.
    launcher: Option<Rc<Launcher>>,
}

/// A running process; dropping this ends it.
#[derive(Debug)]
struct ApiChild {
    /// The process, if it is a child of the supervisor; the launcher reaps children of its own.
    child: Option<Child>,
    socket: OwnedFd,
}

impl Drop for ApiChild {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ApiProcess {
    /// Starts the process. On return it has read its key and has dropped the rights that it does not need.
    ///
    /// # Errors
    /// The key or a certificate is not valid, or the process could not be started.
    pub fn start(spec: &spec::ModelApiSpec) -> Result<Self> {
        let key = open_key(&spec.key)?;
        let process = ApiChild::start(spec, &key)?;
        process.await_ready()?;
        let (sockets, troubles) = (Vec::new(), Vec::new());
        Ok(ApiProcess {
            spec: spec.clone(),
            key,
            process: Some(process),
            starts: 1,
            sockets,
            unreported_errors: troubles,
            launcher: None,
        })
    }

    /// From now on the launcher restarts the process.
    pub(super) fn use_launcher(&mut self, launcher: &Rc<Launcher>) {
        self.launcher = Some(Rc::clone(launcher));
    }

    /// Registers the process's socket with the loop.
    ///
    /// # Errors
    /// [`Code::System`]
    pub(super) fn register(&self, registry: &Registry) -> Result<()> {
        let Some(process) = &self.process else { return Ok(()) };
        set_nonblocking(process.socket.as_fd())?;
        register(registry, process.socket.as_fd(), API_TOKEN)
    }

    /// Adds a listening socket on which the process serves requests.
    pub(super) fn add_socket(&mut self, socket: OwnedFd) {
        if let Some(process) = &self.process {
            process.send_socket(&socket);
            self.sockets.push(socket);
        }
    }

    /// Handles an event; false when the token belongs to another module.
    pub(super) fn on_event(&mut self, registry: &Registry, token: Token) -> bool {
        if token == API_TOKEN {
            while let Some(process) = &self.process {
                let mut buffer = [0; MAX_MESSAGE_SIZE];
                let said = match scm::receive(process.socket.as_fd(), &mut buffer) {
                    Err(nix::Error::EAGAIN) => break,
                    Err(_) => None,
                    Ok(received) => buffer.get(..received.len).and_then(ApiProcessEvent::decode),
                };
                match said {
                    Some(ApiProcessEvent::Ready) => {}
                    Some(ApiProcessEvent::UpstreamUnreachable(text)) => self.unreported_errors.push(text),
                    Some(ApiProcessEvent::Failed(error)) => self.close_sockets(registry, &error.to_string()),
                    None => self.on_child_exit(registry),
                }
            }
        }
        token == API_TOKEN
    }

    /// Restarts a process that has exited or sent an invalid message; closes the sockets when that fails.
    fn on_child_exit(&mut self, registry: &Registry) {
        let Some(mut process) = self.deregister(registry) else { return };
        let how = process.stop();
        let is_file = self.key.metadata().is_ok_and(|metadata| metadata.is_file());
        if self.starts >= MAX_STARTS || !is_file {
            let why = if is_file { "too often" } else { "and its key cannot be read again" };
            return self.close_sockets(registry, &format!("its process has died ({how}), {why}"));
        }
        self.starts += 1;
        match ApiChild::start_with(self.launcher.as_deref(), &self.spec, &self.key) {
            Ok(process) => {
                self.sockets.iter().for_each(|socket| process.send_socket(socket));
                self.process = Some(process);
                match self.register(registry) {
                    Ok(()) => {
                        self.record_error(&format!("its process has died ({how}), and is started again"))
                    }
                    Err(error) => self.close_sockets(registry, &error.to_string()),
                }
            }
            Err(error) => self.close_sockets(registry, &error.to_string()),
        }
    }

    /// Closes the listening sockets: connections are refused at once from now on.
    fn close_sockets(&mut self, registry: &Registry, why: &str) {
        self.deregister(registry);
        self.sockets.clear();
        self.record_error(&format!("{why}; it is no longer served"));
    }

    fn deregister(&mut self, registry: &Registry) -> Option<ApiChild> {
        let process = self.process.take()?;
        let _ = registry.deregister(&mut SourceFd(&process.socket.as_raw_fd()));
        Some(process)
    }

    fn record_error(&mut self, why: &str) {
        self.unreported_errors.push(format!("serve the model API at {}: {why}", self.spec.upstream));
    }

    /// Reports the errors since the last call, as events and as log lines.
    pub(super) fn report_errors(&mut self, id: &str, status: &mut StatusWriter, mut log: impl FnMut(&str)) {
        for why in self.unreported_errors.drain(..) {
            log(&why);
            status.write(&StatusEvent::Api { id, why: &why });
        }
    }
}

/// The command of the process, with its end of the socket.
pub(super) fn command(socket: OwnedFd) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("saggar").arg(API_SUBCOMMAND).env_clear().current_dir("/");
    command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null());
    // Signals that the terminal sends to the program must not reach this process.
    command.process_group(0);
    command
}

impl ApiChild {
    fn start(spec: &spec::ModelApiSpec, key: &File) -> Result<Self> {
        let (socket, theirs) = socket_pair()?;
        let child =
            command(theirs).spawn().map_err(|e| Error::system("start the process of the model API", e))?;
        ApiChild { child: Some(child), socket }.send_config(std::process::id().cast_signed(), spec, key)
    }

    /// Starts the process through the launcher if there is one.
    fn start_with(launcher: Option<&Launcher>, spec: &spec::ModelApiSpec, key: &File) -> Result<Self> {
        let Some(launcher) = launcher else { return ApiChild::start(spec, key) };
        let (socket, theirs) = socket_pair()?;
        worker::start_api(launcher, &theirs)?;
        ApiChild { child: None, socket }.send_config(launcher.pid(), spec, key)
    }

    /// Sends the configuration, and the pid of this process, with which the API process ends.
    fn send_config(self, parent: i32, spec: &spec::ModelApiSpec, key: &File) -> Result<Self> {
        let errand = ApiProcessConfig {
            supervisor: parent,
            upstream: spec.upstream.to_string(),
            header: spec.header.to_string(),
            ca_file: spec.ca_file.clone(),
        };
        scm::send(self.socket.as_fd(), &errand.encode(), &[key.as_raw_fd()])
            .map_err(|e| Error::system("send to the model API process", e.desc()))?;
        Ok(self)
    }

    /// Ends the process, and returns how it ended. Waits for its exit if it is our child. The process ends when its
    /// socket is closed; a supervisor with another user id may not kill it.
    fn stop(&mut self) -> String {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        let Some(child) = &mut self.child else { return "by itself".into() };
        if child.kill().is_ok() {
            return child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        }
        let until = Instant::now() + EXIT_TIMEOUT;
        loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) => return "not at all".into(),
                Ok(Some(status)) => return status.to_string(),
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Waits until the process has read its key.
    fn await_ready(&self) -> Result<()> {
        let mut waits = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let heard = loop {
            match poll(&mut waits, PollTimeout::from(READY_TIMEOUT_MS)) {
                Err(nix::Error::EINTR) => {}
                other => {
                    break other
                        .map_err(|e| Error::system("wait for the process of the model API", e.desc()))?;
                }
            }
        };
        if heard == 0 {
            return Err(Error::new(Code::System, "the key of the model API does not come within 10 s")
                .hint("if --api-key-fd is a pipe, write the key and close it"));
        }
        let mut buffer = [0; MAX_MESSAGE_SIZE];
        let received = scm::receive(self.socket.as_fd(), &mut buffer)
            .map_err(|e| Error::system("receive from the model API process", e.desc()))?;
        match buffer.get(..received.len).and_then(ApiProcessEvent::decode) {
            Some(ApiProcessEvent::Ready) => Ok(()),
            Some(ApiProcessEvent::Failed(error)) => Err(error),
            _ => Err(Error::new(Code::System, "the process of the model API died before it was ready")),
        }
    }

    /// Sends a listening socket. If the process dies before it receives the socket, the next start sends it again.
    fn send_socket(&self, socket: &OwnedFd) {
        let _ = scm::send(self.socket.as_fd(), SOCKET_MESSAGE, &[socket.as_raw_fd()]);
    }
}

fn open_key(source: &ApiKeySource) -> Result<File> {
    match source {
        ApiKeySource::File(path) => key::open_key_file(path),
        ApiKeySource::Descriptor(number) => {
            let file = duplicate_fd(*number, "--api-key-fd")?;
            // The caller's descriptor must not be inherited by any other program that is executed from here.
            fcntl(file::borrow_number(*number), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(|e| {
                Error::system(format_args!("keep descriptor {number} to ourselves"), e.desc())
            })?;
            key::check_key_descriptor(&file)?;
            Ok(file)
        }
    }
}
