//! The supervisor's side of the relay process. The process gets its rules and the sockets that pid 1 created, and sends
//! requests for sockets, questions about hosts, and denials.
//!
//! ```text
//! RelayProcess::start ── rules, sockets ──> relaying ── exits, or invalid message ──> ended: connections refused
//! ```
//! It is not restarted. The names behind addresses that programs have looked up exist only in its memory, and a hostile
//! program that can crash it could try again and again.

use crate::egress::io::publish::UnreachablePort;
use crate::egress::io::{ConsentQuestion, HostCountsRow, NetworkDenial};
use crate::error::{Error, Result};
use crate::relay::RELAY_SUBCOMMAND;
use crate::relay::message_socket::{MessageSocket, ReceiveResult};
use crate::relay::wire::{RelayCommand, RelayEvent, RelayStart};
use crate::spec::policy::hosts::Destination;
use crate::sys::net::IpFamily;
use crate::sys::pidfd;
use crate::sys::scm::socket_pair;
use crate::sys::seccomp::listener::SyscallNotification;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The token of the relay's socket.
const RELAY_TOKEN: Token = Token(1 << 38);
/// Milliseconds that the process may take to exit, and the longest wait for its account.
const EXIT_TIMEOUT_MS: u16 = 1000;
const ACCOUNT_TIMEOUT: Duration = Duration::from_millis(500);
/// Most messages that are received in one round of the loop.
const MAX_MESSAGES_PER_ROUND: usize = 64;
/// Most pending socket requests and questions of the relay; more are a fault of the relay.
const MAX_PENDING: usize = 256;
/// Most calls that wait for the mode of a directory; each thread of a program waits for one at most.
const MAX_MODE_REQUESTS: usize = 1 << 16;
/// Most rows of an account; a relay counts fewer hosts separately.
const MAX_ACCOUNT_ROWS: usize = 1024;

/// The reports of the relay since the last call.
#[derive(Debug, Default)]
pub(super) struct RelayReports {
    /// Accesses that were denied to programs.
    pub(super) refusals: Vec<NetworkDenial>,
    /// Connections to published ports that no server inside accepted.
    pub(super) unreachable_ports: Vec<UnreachablePort>,
}

/// The relay process; dropping this ends it.
#[derive(Debug)]
pub(super) struct RelayProcess {
    child: Child,
    pidfd: OwnedFd,
    channel: MessageSocket,
    reports: RelayReports,
    questions: Vec<ConsentQuestion>,
    /// Questions that have no answer yet.
    open_questions: BTreeMap<u64, Destination>,
    wanted_sockets: Vec<IpFamily>,
    mode_requests: Vec<SyscallNotification>,
    account: (usize, Vec<HostCountsRow>),
    /// The account is being received.
    awaiting_account: bool,
    has_drained: bool,
    /// The socket may have more messages, although no event reports it.
    has_unread: bool,
    /// Why the process is given up.
    failure: Option<String>,
}

impl RelayProcess {
    /// Starts the process and sends its start message. Messages are queued in its socket, as pid 1 works meanwhile.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn start(start: &RelayStart, registry: &Registry) -> Result<Self> {
        let of_init =
            pidfd::open(start.init).map_err(|e| Error::system("open a pidfd of pid 1", e.desc()))?;
        let (socket, theirs) = socket_pair()?;
        let child = relay_command(theirs).spawn().map_err(|e| Error::system("start the relay", e))?;
        let pidfd = pidfd::open(child.id().cast_signed())
            .map_err(|e| Error::system("open a pidfd of the relay", e.desc()))?;
        let mut it = RelayProcess {
            child,
            pidfd,
            channel: MessageSocket::new(socket)?,
            reports: RelayReports::default(),
            questions: Vec::new(),
            open_questions: BTreeMap::new(),
            wanted_sockets: Vec::new(),
            mode_requests: Vec::new(),
            account: (0, Vec::new()),
            awaiting_account: false,
            has_drained: false,
            has_unread: false,
            failure: None,
        };
        it.channel
            .send(start, Some(of_init))
            .map_err(|e| Error::system("send the relay what it is to do", e.desc()))?;
        let both = Interest::READABLE | Interest::WRITABLE;
        registry
            .register(&mut SourceFd(&it.channel.as_fd().as_raw_fd()), RELAY_TOKEN, both)
            .map_err(|e| Error::system("watch the relay", e))?;
        Ok(it)
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: &RelayCommand, passed_fd: Option<OwnedFd>) {
        if self.channel.send(message, passed_fd).is_err() || self.channel.is_full() {
            self.failure.get_or_insert_with(|| "its process does not listen".into());
        }
    }

    /// Handles an event; false when the token belongs to another module.
    pub(super) fn on_event(&mut self, token: Token) -> bool {
        self.has_unread |= token == RELAY_TOKEN;
        token == RELAY_TOKEN
    }

    /// Whether there are messages to receive.
    pub(super) fn has_more(&self) -> bool {
        self.has_unread || self.failure.is_some()
    }

    /// Receives messages; false when the process has exited or is given up.
    pub(super) fn receive(&mut self) -> bool {
        if !std::mem::take(&mut self.has_unread) {
            return self.failure.is_none();
        }
        // A relay that has exited may have sent the reason before.
        let _ = self.channel.flush();
        for _ in 0..MAX_MESSAGES_PER_ROUND {
            if !self.receive_message() {
                return self.failure.is_none();
            }
        }
        self.has_unread = true;
        self.failure.is_none()
    }

    /// Receives one message; false when there is none.
    fn receive_message(&mut self) -> bool {
        match self.channel.receive() {
            ReceiveResult::Message(message, _) => self.on_message(message),
            ReceiveResult::WouldBlock => return false,
            ReceiveResult::Closed => {
                self.failure.get_or_insert_with(|| "its process has died".into());
                return false;
            }
        }
        true
    }

    fn on_message(&mut self, message: RelayEvent) {
        match message {
            RelayEvent::Failed(error) => self.failure = Some(error.to_string()),
            RelayEvent::HostQuestion { number, to, program } => {
                if let Ok(to) = to.parse::<Destination>()
                    && self.open_questions.len() < MAX_PENDING
                {
                    self.open_questions.insert(number, to.clone());
                    self.questions.push(ConsentQuestion::Asked { number, to, program });
                }
            }
            RelayEvent::QuestionWithdrawn(number) => {
                if self.open_questions.remove(&number).is_some() {
                    self.questions.push(ConsentQuestion::Withdrawn { number });
                }
            }
            RelayEvent::Denied(refused) => self.reports.refusals.push(refused.into()),
            RelayEvent::ModeRequested(notification) if self.mode_requests.len() < MAX_MODE_REQUESTS => {
                self.mode_requests.push(notification);
            }
            RelayEvent::ModeRequested(_) => {}
            RelayEvent::PortUnreachable(unanswered) => self.reports.unreachable_ports.push(unanswered),
            RelayEvent::SocketRequested(family) if self.wanted_sockets.len() < MAX_PENDING => {
                self.wanted_sockets.push(family)
            }
            RelayEvent::SocketRequested(_) => {}
            RelayEvent::Account(stand, rows, is_last) if self.account.1.len() <= MAX_ACCOUNT_ROWS => {
                self.account.0 = stand;
                self.account.1.extend(rows);
                self.awaiting_account &= !is_last;
            }
            RelayEvent::Account(..) => self.awaiting_account = false,
            RelayEvent::Drained => self.has_drained = true,
        }
    }

    /// The reports since the last call.
    pub(super) fn take_reports(&mut self) -> RelayReports {
        std::mem::take(&mut self.reports)
    }

    /// New and withdrawn questions since the last call.
    pub(super) fn take_questions(&mut self) -> Vec<ConsentQuestion> {
        std::mem::take(&mut self.questions)
    }

    /// Closes an answered question; returns its host.
    pub(super) fn close_question(&mut self, number: u64) -> Option<Destination> {
        self.open_questions.remove(&number)
    }

    /// Calls that wait for the mode of a directory.
    pub(super) fn take_mode_requests(&mut self) -> Vec<SyscallNotification> {
        std::mem::take(&mut self.mode_requests)
    }

    /// Requests the sockets that the relay needs; `request` returns whether the request could be sent.
    pub(super) fn request_sockets(&mut self, mut request: impl FnMut(IpFamily) -> bool) {
        self.wanted_sockets.retain(|family| !request(*family));
    }

    /// Whether all data of the programs has been sent to its destination.
    pub(super) fn is_drained(&self) -> bool {
        self.has_drained
    }

    /// The number of open connections, and the counts of each host: current ones, or as far as they arrive within
    /// [`ACCOUNT_TIMEOUT`].
    pub(super) fn account(&mut self) -> (usize, Vec<HostCountsRow>) {
        self.account = (0, Vec::new());
        self.awaiting_account = true;
        self.send(&RelayCommand::SendAccount, None);
        let until = Instant::now() + ACCOUNT_TIMEOUT;
        while self.awaiting_account && self.failure.is_none() {
            if self.receive_message() {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            let Ok(left) = PollTimeout::try_from(left) else { break };
            let mut fds = [PollFd::new(self.channel.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, left) == Ok(0) {
                break;
            }
        }
        std::mem::take(&mut self.account)
    }

    /// Ends the process; returns the reason as a message.
    pub(super) fn stop(self, registry: &Registry) -> String {
        let _ = registry.deregister(&mut SourceFd(&self.channel.as_fd().as_raw_fd()));
        let why = self.failure.as_deref().unwrap_or("it is not needed any more");
        format!("network: nothing is relayed any more: {why}")
    }
}

impl Drop for RelayProcess {
    /// The process ends when its socket is closed; a supervisor with another user id may not kill it.
    fn drop(&mut self) {
        let _ = shutdown(self.channel.as_fd().as_raw_fd(), Shutdown::Both);
        if pidfd::wait_exit(self.pidfd.as_fd(), EXIT_TIMEOUT_MS) {
            let _ = self.child.wait();
        }
    }
}

/// The command of the relay, with its end of the socket.
fn relay_command(socket: OwnedFd) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("saggar").arg(RELAY_SUBCOMMAND).env_clear().current_dir("/");
    command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null());
    // Signals that the terminal sends to the program must not reach this process.
    command.process_group(0);
    command
}
