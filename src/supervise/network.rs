//! The network of a sandbox, as the loop of its supervisor uses it: outgoing connections by policy, and published
//! ports. A separate process relays both ([`super::relay_process`]); this module exchanges messages with it.

use super::missing_rules::MissingRules;
use super::relay_process::RelayProcess;
use super::sandbox::{RunningSandbox, TransferredFd};
use super::status::{StatusEvent, StatusWriter};
use super::worker::ports::open_listeners;
use crate::bridge::core::{Bridge, HostQuestionResult};
use crate::bridge::proto::permission::HostAccessQuestion;
use crate::egress::io::publish::{PortForward, PublishedListeners};
use crate::egress::io::{ConsentQuestion, DenialKind as Refused, HostCountsRow};
use crate::error::{Code, Error, Result};
use crate::launch::ids::NOBODY;
use crate::plan::agent::AgentPlan;
use crate::relay::wire::{RelayCommand, RelayStart, RuleChunk};
use crate::spec::policy::hosts::{Destination, HostRules};
use crate::stage::agent::launcher::Launcher;
use crate::sys::Errno;
use crate::sys::net::IpFamily;
use crate::sys::redirect::SocketProtocol;
use mio::Registry;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Longest time to deliver the last data of the programs to their hosts. The relay gives up earlier if no byte is delivered
/// any more.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The network of a sandbox.
#[derive(Debug)]
pub(super) struct SandboxNetwork {
    /// The network goes by policy.
    by_policy: bool,
    /// The relay, if one is needed and while it runs. Borrowed for the time of one call.
    relay: RefCell<Option<RelayProcess>>,
    /// Why the relay has exited, until that is reported.
    relay_error: Option<String>,
    /// The published ports of the host, and whether saggar chose the host port of each.
    published: Vec<(PortForward, bool)>,
    /// The published ports have been reported.
    ports_reported: bool,
    /// Ports inside on which the relay listens, and a socket of the sandbox that gives access to its network namespace
    /// to create more.
    listened_ports: BTreeSet<u16>,
    namespace_socket: Option<OwnedFd>,
    /// While pid 1 is at its setup: the ports of rules that have replaced those it was started with.
    ports_at_setup: Option<Vec<u16>>,
    /// Hosts that are allowed for the life of the session.
    consented: BTreeSet<Destination>,
    /// When undelivered data is dropped, once no program is left.
    drain_deadline: Option<Instant>,
    /// The rules that programs lacked.
    missing_rules: MissingRules,
}

impl SandboxNetwork {
    /// Starts the network of the plan for the sandbox of this pid 1, with its published ports. If the relay is root it
    /// changes to the user and group `id`.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn start(
        plan: &AgentPlan,
        (init, id): (i32, Option<u32>),
        published: PublishedListeners,
        registry: &Registry,
    ) -> Result<Self> {
        let mut it = SandboxNetwork {
            by_policy: plan.egress.is_some(),
            relay: RefCell::default(),
            relay_error: None,
            published: Vec::new(),
            ports_reported: false,
            listened_ports: BTreeSet::new(),
            namespace_socket: None,
            ports_at_setup: Some(Vec::new()),
            consented: BTreeSet::new(),
            drain_deadline: None,
            missing_rules: MissingRules::default(),
        };
        if it.by_policy || !published.is_empty() {
            let start = RelayStart {
                supervisor: std::process::id().cast_signed(),
                init,
                id: id.unwrap_or(NOBODY),
                owner: plan.program_ids(),
                network_by_policy: it.by_policy,
                publishes_ports: !published.is_empty(),
            };
            it.relay = RefCell::new(Some(RelayProcess::start(&start, registry)?));
        }
        for (published, chosen, socket) in published.into_parts() {
            it.published.push((published, chosen));
            it.send(&RelayCommand::Publish(published), Some(socket));
        }
        plan.egress.iter().for_each(|rules| it.send_rules(rules));
        Ok(it)
    }

    /// Sends a message to the relay. The exit of a relay is detected when its socket is read.
    fn send(&mut self, message: &RelayCommand, passed_fd: Option<OwnedFd>) {
        if let Some(relay) = self.relay.get_mut() {
            relay.send(message, passed_fd);
        }
    }

    fn send_rules(&mut self, rules: &HostRules) {
        RuleChunk::split(rules).into_iter().for_each(|some| self.send(&RelayCommand::Rules(some), None));
    }

    /// The published ports.
    pub(super) fn published(&self) -> Vec<PortForward> {
        self.published.iter().map(|(published, _)| *published).collect()
    }

    /// Passes on what the relay requests of the sandbox: sockets of pid 1, and responses to calls.
    pub(super) fn pass_requests(&mut self, sandbox: &mut RunningSandbox<'_>, registry: &Registry) {
        let relay = self.relay.get_mut().as_mut();
        let calls = relay.map(|relay| {
            relay.request_sockets(|family| sandbox.request_socket(family));
            relay.take_mode_requests()
        });
        sandbox.answer_mode_requests(registry, calls);
    }

    /// Sends a requested socket to the relay, or the error why there is none.
    pub(super) fn send_socket(&mut self, family: IpFamily, socket: std::result::Result<OwnedFd, Errno>) {
        match socket {
            Ok(socket) => self.send(&RelayCommand::ProvideSocket(family, None), Some(socket)),
            Err(errno) => self.send(&RelayCommand::ProvideSocket(family, Some(errno as i32)), None),
        }
    }

    /// Sends descriptors of pid 1 to the relay.
    pub(super) fn send_transferred(&mut self, transferred: TransferredFd) {
        match transferred {
            TransferredFd::CapturedListener(kind, port, socket) => self.add_listener(kind, port, socket),
            TransferredFd::RejectSniffer(family, answer, socket) => {
                self.send(&RelayCommand::AddSniffer(family, answer), Some(socket))
            }
            TransferredFd::SeccompListener(listener) => {
                self.send(&RelayCommand::SetSeccompListener, Some(listener))
            }
        }
    }

    fn add_listener(&mut self, kind: SocketProtocol, port: u16, socket: OwnedFd) {
        if kind == SocketProtocol::Tcp && self.namespace_socket.is_none() {
            self.namespace_socket = socket.try_clone().ok();
        }
        self.listened_ports.insert(port);
        self.send(&RelayCommand::AddListener(kind, port), Some(socket));
    }

    /// Handles an event; false when the token belongs to another module.
    pub(super) fn on_event(&mut self, event: &mio::event::Event) -> bool {
        self.relay.get_mut().as_mut().is_some_and(|relay| relay.on_event(event.token()))
    }

    /// Does periodic work; called once per round of the loop.
    pub(super) fn tick(&mut self, registry: &Registry) {
        let slot = self.relay.get_mut();
        if slot.as_mut().is_some_and(|relay| !relay.receive())
            && let Some(relay) = slot.take()
        {
            // All copies of its sockets are closed: connections are refused at once.
            self.namespace_socket = None;
            self.relay_error = Some(relay.stop(registry));
        }
    }

    /// Longest time that the loop may wait for events.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let relay = self.relay.borrow();
        let has_more = relay.as_ref().is_some_and(RelayProcess::has_more).then_some(Duration::ZERO);
        let end = self.drain_deadline.map(|until| until.saturating_duration_since(Instant::now()));
        end.into_iter().chain(has_more).min()
    }

    /// Whether all data of the programs has been delivered, or [`DRAIN_TIMEOUT`] has passed. Called when no program is
    /// left.
    pub(super) fn is_drained(&mut self) -> bool {
        let Some(relay) = self.relay.get_mut() else { return true };
        match self.drain_deadline {
            Some(until) => relay.is_drained() || until <= Instant::now(),
            None => {
                relay.send(&RelayCommand::Drain, None);
                self.drain_deadline = Some(Instant::now() + DRAIN_TIMEOUT);
                false
            }
        }
    }

    /// Enables questions about hosts: see [`SandboxNetwork::take_questions`].
    pub(super) fn enable_questions(&mut self) {
        self.send(&RelayCommand::EnableQuestions, None);
    }

    /// Allows these hosts, HOST:PORT, to which a user consented before the sandbox started; invalid names are ignored.
    pub(super) fn allow_hosts(&mut self, hosts: &[String]) {
        for to in hosts.iter().filter_map(|host| host.parse::<Destination>().ok()) {
            self.send(&RelayCommand::AllowHost(to.to_string()), None);
            self.consented.insert(to);
        }
    }

    /// New and withdrawn questions since the last call.
    pub(super) fn take_questions(&mut self) -> Vec<ConsentQuestion> {
        self.relay.get_mut().as_mut().map(RelayProcess::take_questions).unwrap_or_default()
    }

    /// Sends the answer to a question to the relay.
    pub(super) fn answer(&mut self, HostQuestionResult { number, verdict, keep }: HostQuestionResult) {
        let Some(relay) = self.relay.get_mut() else { return };
        let to = relay.close_question(number);
        let withheld = match verdict {
            Ok(()) => None,
            Err(why) if why.is_empty() => Some("the request for permission was denied".into()),
            Err(why) => Some(format!("the request for permission was denied: {why}")),
        };
        if withheld.is_none() && keep {
            self.consented.extend(to);
        }
        self.send(&RelayCommand::AnswerQuestion { number, denial: withheld, keep }, None);
    }

    /// Opens sockets for the ports of rules that were set while pid 1 was at its setup, which is now done.
    ///
    /// # Errors
    /// As [`SandboxNetwork::set_rules`]: the sandbox must not run with rules that are in force in part.
    pub(super) fn finish_setup(&mut self, launcher: Option<&Launcher>) -> Result<()> {
        let ports = self.ports_at_setup.take().unwrap_or_default();
        self.listen_on(&ports, launcher)
    }

    /// Replaces the rules, and opens sockets for ports that the old rules did not name. On an error the old rules stay
    /// in force.
    ///
    /// # Errors
    /// [`Code::Refused`] for a port that a program inside uses; [`Code::Unsupported`] if there is no relay.
    pub(super) fn set_rules(&mut self, rules: &HostRules, launcher: Option<&Launcher>) -> Result<()> {
        if !self.by_policy || self.relay.get_mut().is_none() {
            return Err(not_relayed());
        }
        let ports: Vec<u16> =
            rules.reachable_ports().into_iter().filter(|port| !self.listened_ports.contains(port)).collect();
        if let Some(taken) = self.published().into_iter().map(|one| one.to).find(|port| ports.contains(port))
        {
            let message = format!("update: port {taken} is published, and a server inside is to have it");
            return Err(Error::new(Code::Refused, message).hint("name other ports"));
        }
        match &mut self.ports_at_setup {
            Some(later) => *later = ports,
            None => self.listen_on(&ports, launcher)?,
        }
        self.send_rules(rules);
        Ok(())
    }

    /// Listens on these ports, as far as the relay does not yet.
    fn listen_on(&mut self, ports: &[u16], launcher: Option<&Launcher>) -> Result<()> {
        let ports: Vec<u16> =
            ports.iter().copied().filter(|port| !self.listened_ports.contains(port)).collect();
        if !ports.is_empty() {
            let beside = self.namespace_socket.as_ref().ok_or_else(not_relayed)?;
            let launcher = launcher.ok_or_else(not_relayed)?;
            for (port, socket) in ports.iter().zip(open_new_listeners(launcher, beside.as_fd(), &ports)?) {
                self.add_listener(SocketProtocol::Tcp, *port, socket);
            }
        }
        Ok(())
    }

    /// The hosts to which a user has consented; `None` if the network does not go by policy.
    pub(super) fn consented_hosts(&self) -> Option<Vec<String>> {
        self.by_policy.then(|| self.consented.iter().map(ToString::to_string).collect())
    }

    /// The number of open connections, and the counts of each host; `None` if the network does not go by policy.
    pub(super) fn account(&self) -> Option<(usize, Vec<HostCountsRow>)> {
        let account = || self.relay.borrow_mut().as_mut().map(RelayProcess::account).unwrap_or_default();
        self.by_policy.then(account)
    }

    /// Reports denials since the last call, as events and as log lines, and the exit of the relay.
    pub(super) fn report(&mut self, id: &str, status: &mut StatusWriter, mut log: impl FnMut(&str)) {
        let reports = self.relay.get_mut().as_mut().map(RelayProcess::take_reports).unwrap_or_default();
        for refusal in reports.refusals {
            // Routine denials are reported only as events, not in the log.
            if !refusal.is_usual {
                log(&refusal.to_string());
            }
            self.missing_rules.add(&refusal);
            status.write(&match refusal.kind {
                Refused::Unreachable => StatusEvent::HostUnreachable { id, refusal },
                _ => StatusEvent::Denied { id, refusal },
            });
        }
        for unanswered in reports.unreachable_ports {
            log(&unanswered.to_string());
            status.write(&StatusEvent::PortUnreachable { id, unreachable_port: unanswered });
        }
        if let Some(why) = self.relay_error.take() {
            log(&why);
            status.write(&StatusEvent::Relay { id, why: &why });
        }
    }

    /// Reports at the end which rules would have allowed what was denied for want of one.
    pub(super) fn report_missing_rules(&mut self, log: impl FnMut(String)) {
        std::mem::take(&mut self.missing_rules).into_lines().for_each(log);
    }

    /// Reports the published ports, once: as events, and in the log if saggar chose the port.
    pub(super) fn report_published(
        &mut self,
        id: &str,
        status: &mut StatusWriter,
        mut log: impl FnMut(&str),
    ) {
        if !std::mem::replace(&mut self.ports_reported, true) {
            for (published, chosen) in self.published.iter().copied() {
                if chosen {
                    log(&published.to_string());
                }
                status.write(&StatusEvent::Published { id, published });
            }
        }
    }
}

fn not_relayed() -> Error {
    Error::new(Code::Unsupported, "update: the network of this sandbox is not relayed by policy")
}

/// Opens sockets for these ports in the network namespace of another socket of the sandbox.
fn open_new_listeners(launcher: &Launcher, beside: BorrowedFd<'_>, ports: &[u16]) -> Result<Vec<OwnedFd>> {
    open_listeners(launcher, beside, ports).map_err(|errno| match errno {
        Errno::EADDRINUSE => {
            let message = "update: a program inside listens on one of the ports that are new";
            Error::new(Code::Refused, message).hint("end it, or name other ports")
        }
        errno => Error::system("listen in the network of the sandbox", errno),
    })
}

/// Asks the user or client that answers the agent's permission requests about a host.
pub(super) fn ask_permission(bridge: &mut Bridge, question: &ConsentQuestion) {
    match question {
        ConsentQuestion::Asked { number, to, program } => bridge.ask_about_host(HostAccessQuestion {
            number: *number,
            host: &to.host.to_string(),
            port: to.port,
            program: program.as_ref().map(|program| (program.name.as_str(), program.pid)),
        }),
        ConsentQuestion::Withdrawn { number } => bridge.withdraw_host_question(*number),
    }
}
