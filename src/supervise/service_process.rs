//! The supervisor's side of the processes that serve sockets of a sandbox ([`crate::service`]). A process is started before
//! the sandbox, gets the sockets that pid 1 created, and reports errors. If it dies it is restarted, up to [`MAX_STARTS`]
//! starts in all.
//!
//! ```text
//! ServiceProcess::start ── Ready ──> started ── sockets from pid 1 ──> serving ── dies ──> restarted, or closed
//! ```
//! The supervisor holds the file of an API key open and never reads it.

use super::registration::register;
use super::status::{StatusEvent, StatusWriter, duplicate_fd};
use super::worker;
use crate::api::{API_SUBCOMMAND, ModelApiConfig, key};
use crate::error::{Code, Error, Result};
use crate::mcp::mailbox::MAILBOX_SUBCOMMAND;
use crate::plan::agent::step::SandboxService;
use crate::service::{MAX_MESSAGE_SIZE, SOCKET_MESSAGE, ServiceConfig, ServiceEvent};
use crate::spec::{ApiKeySource, MailboxSpec, ModelApiSpec, SandboxSpec};
use crate::stage::agent::launcher::Launcher;
use crate::sys::file::set_nonblocking;
use crate::sys::scm::socket_pair;
use crate::sys::{file, pidfd, scm};
use mio::unix::SourceFd;
use mio::{Registry, Token};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Milliseconds until a process must be ready. A key may come from a pipe, whose writer must write it by then.
const READY_TIMEOUT_MS: u16 = 10_000;
/// Longest wait for a process to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Most starts of one process in the life of a sandbox, the first one included.
const MAX_STARTS: u32 = 4;

/// What a process serves, and what it takes to start it again.
#[derive(Debug)]
enum Service {
    ModelApi { spec: ModelApiSpec, key: File },
    Mailbox(MailboxSpec),
}

impl Service {
    fn kind(&self) -> SandboxService {
        match self {
            Service::ModelApi { .. } => SandboxService::ModelApi,
            Service::Mailbox(_) => SandboxService::Mailbox,
        }
    }

    /// The first message to the process, which ends with `parent`.
    fn config(&self, parent: i32) -> Vec<u8> {
        match self {
            Service::ModelApi { spec, .. } => {
                let service = ModelApiConfig {
                    upstream: spec.upstream.to_string(),
                    header: spec.header.to_string(),
                    ca_file: spec.ca_file.clone(),
                };
                ServiceConfig { parent, service }.encode()
            }
            Service::Mailbox(spec) => ServiceConfig { parent, service: spec }.encode(),
        }
    }

    /// The descriptor that goes with it.
    fn descriptor(&self) -> Option<RawFd> {
        match self {
            Service::ModelApi { key, .. } => Some(key.as_raw_fd()),
            Service::Mailbox(_) => None,
        }
    }

    /// Why the process cannot be started again, if it cannot.
    fn restart_objection(&self) -> Option<&'static str> {
        match self {
            Service::ModelApi { key, .. } if !key.metadata().is_ok_and(|metadata| metadata.is_file()) => {
                Some("and its key cannot be read again")
            }
            Service::ModelApi { .. } | Service::Mailbox(_) => None,
        }
    }

    /// An error of it, as a line of text.
    fn describe_error(&self, why: &str) -> String {
        match self {
            Service::ModelApi { spec, .. } => format!("serve the model API at {}: {why}", spec.upstream),
            Service::Mailbox(spec) => format!("serve the mailbox of run {}: {why}", spec.run),
        }
    }
}

/// The processes of one sandbox.
#[derive(Debug, Default)]
pub struct ServiceProcesses(Vec<ServiceProcess>);

impl ServiceProcesses {
    /// Starts those that the sandbox needs. On return each has what it needs, and has dropped all other rights.
    ///
    /// # Errors
    /// The key, a certificate or the mailbox cannot be used, or a process could not be started.
    pub fn start(spec: &SandboxSpec) -> Result<Self> {
        let api = spec
            .model_api
            .as_ref()
            .map(|api| open_key(&api.key).map(|key| Service::ModelApi { spec: api.clone(), key }));
        let mailbox = spec.mailbox.as_ref().map(|mailbox| Ok(Service::Mailbox(mailbox.clone())));
        let services = api.into_iter().chain(mailbox);
        services.map(|service| ServiceProcess::start(service?)).collect::<Result<_>>().map(ServiceProcesses)
    }

    /// From now on the launcher restarts them.
    pub(super) fn use_launcher(&mut self, launcher: &Rc<Launcher>) {
        self.0.iter_mut().for_each(|process| process.launcher = Some(Rc::clone(launcher)));
    }

    /// Registers their sockets with the loop.
    ///
    /// # Errors
    /// [`Code::System`]
    pub(super) fn register(&self, registry: &Registry) -> Result<()> {
        self.0.iter().try_for_each(|process| process.register(registry))
    }

    /// Adds a listening socket on which a service is offered.
    pub(super) fn add_socket(&mut self, service: SandboxService, socket: OwnedFd) {
        if let Some(process) = self.0.iter_mut().find(|process| process.service.kind() == service) {
            process.add_socket(socket);
        }
    }

    /// Handles an event; false when the token belongs to another module.
    pub(super) fn on_event(&mut self, registry: &Registry, token: Token) -> bool {
        let process = self.0.iter_mut().find(|process| process.token() == token);
        process.map(|process| process.on_event(registry)).is_some()
    }

    /// Reports the errors since the last call, as events and as log lines.
    pub(super) fn report_errors(&mut self, id: &str, status: &mut StatusWriter, mut log: impl FnMut(&str)) {
        for process in &mut self.0 {
            for why in process.unreported_errors.drain(..) {
                log(&why);
                status.write(&match process.service.kind() {
                    SandboxService::ModelApi => StatusEvent::Api { id, why: &why },
                    SandboxService::Mailbox => StatusEvent::Mailbox { id, why: &why },
                });
            }
        }
    }
}

/// One process, and what it takes to start it again.
#[derive(Debug)]
struct ServiceProcess {
    service: Service,
    process: Option<ServiceChild>,
    starts: u32,
    /// The listening sockets; empty once the service is no longer offered.
    sockets: Vec<OwnedFd>,
    /// Errors that have not been reported yet.
    unreported_errors: Vec<String>,
    /// Restarts the process for a supervisor that has dropped its rights.
    launcher: Option<Rc<Launcher>>,
}

/// A running process; dropping this ends it.
#[derive(Debug)]
struct ServiceChild {
    /// The process, if it is a child of the supervisor; the launcher reaps children of its own.
    child: Option<Child>,
    socket: OwnedFd,
}

impl Drop for ServiceChild {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ServiceProcess {
    fn start(service: Service) -> Result<Self> {
        let process = ServiceChild::start(&service)?;
        process.await_ready(service.kind())?;
        Ok(ServiceProcess {
            service,
            process: Some(process),
            starts: 1,
            sockets: Vec::new(),
            unreported_errors: Vec::new(),
            launcher: None,
        })
    }

    fn token(&self) -> Token {
        match self.service.kind() {
            SandboxService::ModelApi => Token(6),
            SandboxService::Mailbox => Token(9),
        }
    }

    fn register(&self, registry: &Registry) -> Result<()> {
        let Some(process) = &self.process else { return Ok(()) };
        set_nonblocking(process.socket.as_fd())?;
        register(registry, process.socket.as_fd(), self.token())
    }

    fn add_socket(&mut self, socket: OwnedFd) {
        if let Some(process) = &self.process {
            process.send_socket(&socket);
            self.sockets.push(socket);
        }
    }

    fn on_event(&mut self, registry: &Registry) {
        while let Some(process) = &self.process {
            let mut buffer = [0; MAX_MESSAGE_SIZE];
            let event = match scm::receive(process.socket.as_fd(), &mut buffer) {
                Err(nix::Error::EAGAIN) => break,
                Err(_) => None,
                Ok(received) => buffer.get(..received.len).and_then(ServiceEvent::decode),
            };
            match event {
                Some(ServiceEvent::Ready) => {}
                Some(ServiceEvent::Unavailable(text)) => self.unreported_errors.push(text),
                Some(ServiceEvent::Failed(error)) => self.close_sockets(registry, &error.to_string()),
                None => self.on_child_exit(registry),
            }
        }
    }

    /// Restarts a process that has exited or sent an invalid message; closes the sockets when that fails.
    fn on_child_exit(&mut self, registry: &Registry) {
        let Some(mut process) = self.deregister(registry) else { return };
        let how = process.stop();
        let objection =
            self.service.restart_objection().or((self.starts >= MAX_STARTS).then_some("too often"));
        if let Some(why) = objection {
            return self.close_sockets(registry, &format!("its process has died ({how}), {why}"));
        }
        self.starts += 1;
        match ServiceChild::restart(self.launcher.as_deref(), &self.service) {
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
            // The launcher ends when the sandbox has ended, and its children with it.
            Err(_) if self.launcher.as_ref().is_some_and(|launcher| pidfd::has_exited(launcher.pidfd())) => {}
            Err(error) => self.close_sockets(registry, &error.to_string()),
        }
    }

    /// Closes the listening sockets: connections are refused at once from now on.
    fn close_sockets(&mut self, registry: &Registry, why: &str) {
        self.deregister(registry);
        self.sockets.clear();
        self.record_error(&format!("{why}; it is no longer served"));
    }

    fn deregister(&mut self, registry: &Registry) -> Option<ServiceChild> {
        let process = self.process.take()?;
        let _ = registry.deregister(&mut SourceFd(&process.socket.as_raw_fd()));
        Some(process)
    }

    fn record_error(&mut self, why: &str) {
        self.unreported_errors.push(self.service.describe_error(why));
    }
}

/// The command of a process, with its end of the socket.
pub(super) fn command(service: SandboxService, socket: OwnedFd) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("saggar").arg(match service {
        SandboxService::ModelApi => API_SUBCOMMAND,
        SandboxService::Mailbox => MAILBOX_SUBCOMMAND,
    });
    command.env_clear().current_dir("/");
    command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null());
    // Signals that the terminal sends to the program must not reach this process.
    command.process_group(0);
    command
}

impl ServiceChild {
    fn start(service: &Service) -> Result<Self> {
        let (socket, theirs) = socket_pair()?;
        let kind = service.kind();
        let child = command(kind, theirs)
            .spawn()
            .map_err(|e| Error::system(format_args!("start the process of the {kind}"), e))?;
        ServiceChild { child: Some(child), socket }.send_config(std::process::id().cast_signed(), service)
    }

    /// Starts the process through the launcher if there is one.
    fn restart(launcher: Option<&Launcher>, service: &Service) -> Result<Self> {
        let Some(launcher) = launcher else { return ServiceChild::start(service) };
        let (socket, theirs) = socket_pair()?;
        worker::start_service(launcher, service.kind(), &theirs)?;
        ServiceChild { child: None, socket }.send_config(launcher.pid(), service)
    }

    fn send_config(self, parent: i32, service: &Service) -> Result<Self> {
        let descriptor = service.descriptor();
        scm::send(self.socket.as_fd(), &service.config(parent), descriptor.as_slice()).map_err(|e| {
            Error::system(format_args!("send to the process of the {}", service.kind()), e.desc())
        })?;
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

    /// Waits until the process has what it needs.
    fn await_ready(&self, kind: SandboxService) -> Result<()> {
        let mut waits = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let events = loop {
            match poll(&mut waits, PollTimeout::from(READY_TIMEOUT_MS)) {
                Err(nix::Error::EINTR) => {}
                other => {
                    break other.map_err(|e| {
                        Error::system(format_args!("wait for the process of the {kind}"), e.desc())
                    })?;
                }
            }
        };
        if events == 0 {
            return Err(not_ready_error(kind));
        }
        let mut buffer = [0; MAX_MESSAGE_SIZE];
        let received = scm::receive(self.socket.as_fd(), &mut buffer)
            .map_err(|e| Error::system(format_args!("receive from the process of the {kind}"), e.desc()))?;
        match buffer.get(..received.len).and_then(ServiceEvent::decode) {
            Some(ServiceEvent::Ready) => Ok(()),
            Some(ServiceEvent::Failed(error)) => Err(error),
            _ => {
                let message = format!("the process of the {kind} died before it was ready");
                Err(Error::new(Code::System, message))
            }
        }
    }

    /// Sends a listening socket. If the process dies before it receives the socket, the next start sends it again.
    fn send_socket(&self, socket: &OwnedFd) {
        let _ = scm::send(self.socket.as_fd(), SOCKET_MESSAGE, &[socket.as_raw_fd()]);
    }
}

fn not_ready_error(kind: SandboxService) -> Error {
    match kind {
        SandboxService::ModelApi => {
            Error::new(Code::System, "the key of the model API does not come within 10 s")
                .hint("if --api-key-fd is a pipe, write the key and close it")
        }
        SandboxService::Mailbox => {
            Error::new(Code::System, "the files of the mailbox cannot be opened within 10 s")
                .hint("another process holds the lock of its runs: see lslocks(8)")
        }
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
