//! The loop of the relay. It executes commands of the supervisor and sends events to it.
//!
//! Process: the program that the supervisor has executed, confined ([`super::confine::confine_relay`]).

use super::attribution_client::AttributionClient;
use super::message_socket::{MessageSocket, ReceiveResult};
use super::wire::{MAX_ITEMS, RelayCommand, RelayEvent, RelayStart};
use crate::io::publish::PortPublisher;
use crate::io::{ConsentQuestion, HostConsent, NetworkRelay};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use saggar_policy::hosts::HostRules;
use saggar_sys::Errno;
use saggar_sys::error::{Code, Error, Result};
use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The tokens of the sockets to the supervisor and to the attribution.
const SUPERVISOR: Token = Token(0);
const REPORTS: Token = Token(1);
/// Number of descriptors that are not used for connections.
const RESERVED_FDS: u64 = 128;
/// Most messages of the supervisor that are handled before connections get their turn.
const MAX_MESSAGES_PER_ROUND: usize = 64;

/// Longest time without a byte sent after which the last data of the programs is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of the loop.
struct RelayLoop {
    supervisor: MessageSocket,
    relay: Option<NetworkRelay>,
    publisher: PortPublisher,
    /// Rules of which not all chunks have been received.
    rules: HostRules,
    /// The socket may have more messages, although no event reports it.
    has_unread: bool,
    drain: DrainState,
    attribution_has_exited: Rc<Cell<bool>>,
}

/// Whether the last data of the programs has been relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainState {
    /// Programs may still run.
    Running,
    /// No program runs; their last data may not have been received yet.
    Receiving,
    /// All data of the programs has been received, and this number of bytes has been sent at this time.
    Sending(u64, Instant),
}

/// Relays until the supervisor has exited.
///
/// # Errors
/// The loop could not start, or the attribution has exited.
pub(super) fn run_loop(
    supervisor: OwnedFd,
    start: &RelayStart,
    descriptors: usize,
    outside: Option<AttributionClient>,
) -> Result<()> {
    let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
    let both = Interest::READABLE | Interest::WRITABLE;
    watch(poll.registry(), supervisor.as_raw_fd(), SUPERVISOR, both)?;
    if let Some(outside) = &outside {
        watch(poll.registry(), outside.reports_fd(), REPORTS, Interest::READABLE)?;
    }
    // Connections from the host get a share of the descriptors if ports can be published.
    let share = if start.publishes_ports { PortPublisher::descriptor_share(descriptors) } else { 0 };
    let attribution_is_gone = outside.as_ref().map(AttributionClient::exit_flag).unwrap_or_default();
    let mut it = RelayLoop {
        supervisor: MessageSocket::new(supervisor)?,
        relay: outside.map(|outside| NetworkRelay::new(Box::new(outside), descriptors - share)),
        publisher: PortPublisher::new(share),
        rules: HostRules::default(),
        has_unread: true,
        drain: DrainState::Running,
        attribution_has_exited: attribution_is_gone,
    };
    it.run(poll)
}

impl RelayLoop {
    fn run(&mut self, mut poll: Poll) -> Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            if std::mem::take(&mut self.has_unread) && !self.receive_messages(poll.registry())? {
                return Ok(());
            }
            self.publisher.tick(poll.registry());
            if let Some(relay) = &mut self.relay {
                relay.tick(poll.registry());
            }
            if self.report_events().is_err() || self.wait_writable().is_err() {
                return Ok(());
            }
            if self.attribution_has_exited.get() {
                return Err(Error::new(Code::State, "the process that looks into the sandbox is gone"));
            }
            match poll.poll(&mut events, self.poll_timeout()) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(|e| Error::system("wait for events", e))?,
            }
            for event in &events {
                match event.token() {
                    SUPERVISOR => self.has_unread = true,
                    REPORTS => {}
                    _ if self.publisher.on_event(poll.registry(), event) => {}
                    _ => _ = self.relay.as_mut().is_some_and(|relay| relay.on_event(poll.registry(), event)),
                }
            }
            if self.drain == DrainState::Receiving && !self.has_unread {
                self.drain = DrainState::Sending(0, Instant::now());
            }
        }
    }

    /// Longest time that the loop may wait for events.
    fn poll_timeout(&self) -> Option<Duration> {
        if self.has_unread || self.drain == DrainState::Receiving {
            return Some(Duration::ZERO);
        }
        let stall = match self.drain {
            DrainState::Sending(_, since) => Some(STALL_TIMEOUT.saturating_sub(since.elapsed())),
            DrainState::Running | DrainState::Receiving => None,
        };
        let relay = self.relay.as_ref().and_then(NetworkRelay::poll_timeout);
        relay.into_iter().chain(self.publisher.poll_timeout()).chain(stall).min()
    }

    /// Executes the commands of the supervisor; false when the supervisor has exited.
    fn receive_messages(&mut self, registry: &Registry) -> Result<bool> {
        if self.supervisor.flush().is_err() {
            return Ok(false);
        }
        for _ in 0..MAX_MESSAGES_PER_ROUND {
            match self.supervisor.receive() {
                ReceiveResult::Message(message, beside) => self.handle_message(registry, message, beside)?,
                ReceiveResult::WouldBlock => return Ok(true),
                ReceiveResult::Closed => return Ok(false),
            }
        }
        self.has_unread = true;
        Ok(true)
    }

    fn handle_message(
        &mut self,
        registry: &Registry,
        message: RelayCommand,
        passed_fd: Option<OwnedFd>,
    ) -> Result<()> {
        match (message, passed_fd, &mut self.relay) {
            (RelayCommand::Publish(published), Some(socket), relay) => {
                relay.iter_mut().for_each(|relay| relay.add_published_port(published.to));
                self.publisher.publish(registry, published, socket)?;
            }
            (RelayCommand::ProvideSocket(family, None), Some(socket), _) => {
                self.publisher.add_socket(registry, family, Ok(socket))
            }
            (RelayCommand::ProvideSocket(family, errno), _, _) => {
                let errno = errno.map_or(Errno::EMFILE, Errno::from_raw);
                self.publisher.add_socket(registry, family, Err(errno));
            }
            (RelayCommand::Drain, ..) => self.drain = DrainState::Receiving,
            (RelayCommand::SendAccount, _, relay) => {
                let (stand, rows) = relay.as_ref().map(NetworkRelay::account).unwrap_or_default();
                // The last message may have no rows.
                for rows in rows.chunks(MAX_ITEMS) {
                    self.send(&RelayEvent::Account(stand, rows.to_vec(), false))?;
                }
                self.send(&RelayEvent::Account(stand, Vec::new(), true))?;
            }
            (RelayCommand::Rules(some), _, Some(relay)) => match some.add_to(&mut self.rules) {
                Some(true) => relay.set_rules(registry, std::mem::take(&mut self.rules)),
                Some(false) => {}
                None => return Err(Error::new(Code::Invalid, "the supervisor sent an invalid rule")),
            },
            (RelayCommand::AddListener(kind, port), Some(socket), Some(relay)) => {
                relay.add_listener(registry, kind, port, socket)?
            }
            (RelayCommand::AddSniffer(family, answer), Some(socket), Some(relay)) => {
                relay.add_reject_sniffer(registry, (family, answer), socket)?;
            }
            (RelayCommand::SetSeccompListener, Some(listener), Some(relay)) => {
                relay.set_seccomp_listener(listener)
            }
            (RelayCommand::EnableQuestions, _, Some(relay)) => relay.enable_questions(),
            (RelayCommand::AllowHost(host), _, Some(relay)) => {
                host.parse().into_iter().for_each(|to| relay.allow_host(to))
            }
            (RelayCommand::AnswerQuestion { number, denial: withheld, keep }, _, Some(relay)) => {
                let consent = withheld.map_or(HostConsent::Granted, HostConsent::Denied);
                relay.answer_question(registry, number, &consent, keep);
            }
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, message: &RelayEvent) -> Result<()> {
        let sent = self.supervisor.send(message, None);
        sent.map_err(|e| Error::system("report to the supervisor", e.desc()))
    }

    /// Sends the pending events to the supervisor.
    fn report_events(&mut self) -> Result<(), Errno> {
        let channel = &mut self.supervisor;
        self.publisher
            .request_sockets(|family| channel.send(&RelayEvent::SocketRequested(family), None).is_ok());
        for unanswered in self.publisher.take_unreachable() {
            channel.send(&RelayEvent::PortUnreachable(unanswered), None)?;
        }
        let mut progress = self.publisher.unsent_progress();
        if let Some(relay) = &mut self.relay {
            for question in relay.take_questions() {
                channel.send(&question_message(question), None)?;
            }
            for refusal in relay.take_denials() {
                channel.send(&RelayEvent::Denied(refusal.into()), None)?;
            }
            for notification in relay.take_mode_requests() {
                channel.send(&RelayEvent::ModeRequested(notification), None)?;
            }
            progress = [progress, relay.unsent_progress()].into_iter().flatten().reduce(u64::wrapping_add);
        }
        if let DrainState::Sending(sent, since) = self.drain {
            match progress {
                Some(now_sent) if now_sent != sent => {
                    self.drain = DrainState::Sending(now_sent, Instant::now())
                }
                Some(_) if since.elapsed() < STALL_TIMEOUT => {}
                _ => {
                    self.drain = DrainState::Running;
                    channel.send(&RelayEvent::Drained, None)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until the supervisor reads its socket. While it does not, for example because it is stopped, nothing is
    /// reported and nothing is relayed.
    fn wait_writable(&mut self) -> Result<(), Errno> {
        while self.supervisor.is_full() {
            let mut fds = [PollFd::new(self.supervisor.as_fd(), PollFlags::POLLOUT)];
            poll(&mut fds, PollTimeout::NONE)?;
            self.supervisor.flush()?;
        }
        Ok(())
    }
}

fn question_message(question: ConsentQuestion) -> RelayEvent {
    match question {
        ConsentQuestion::Asked { number, to, program } => {
            RelayEvent::HostQuestion { number, to: to.to_string(), program }
        }
        ConsentQuestion::Withdrawn { number } => RelayEvent::QuestionWithdrawn(number),
    }
}

fn watch(registry: &Registry, fd: RawFd, token: Token, interest: Interest) -> Result<()> {
    registry.register(&mut SourceFd(&fd), token, interest).map_err(|e| Error::system("watch a descriptor", e))
}

/// The number of descriptors that this process may open: the host's limit (RLIMIT_NOFILE), as every connection takes
/// two.
pub(super) fn max_descriptors() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let most = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    usize::try_from(most.saturating_sub(RESERVED_FDS)).unwrap_or(usize::MAX)
}
