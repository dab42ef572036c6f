//! The network of a sandbox, as the loop of its supervisor has it: the way out of one that has it by policy, and the
//! published ports of any. A process of its own relays both ([`super::relay`]); what the loop asks and is told passes
//! here.

use super::relay::Process;
use super::sandbox::{Handed, Sandbox};
use super::status::{Event, Status};
use super::worker::ports::listen;
use crate::bridge::core::{Bridge, HostAnswer};
use crate::bridge::proto::permission::HostAsk;
use crate::egress::io::publish::{Listeners, Published};
use crate::egress::io::{Counted, Kind as Refused, Question};
use crate::error::{Code, Error, Result};
use crate::launch::ids::NOBODY;
use crate::plan::Plan;
use crate::relay::wire::{Down, SomeRules, Start};
use crate::spec::policy::hosts::{Destination, Rules};
use crate::stage::launcher::Launcher;
use crate::sys::Errno;
use crate::sys::catch::Kind;
use crate::sys::net::Family;
use mio::Registry;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long what the last program sent may take to its host.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// The network of a sandbox.
#[derive(Debug)]
pub(super) struct Network {
    /// It goes by policy.
    by_policy: bool,
    /// The relay, where one is needed and as long as it runs. Borrowed for the time of one call.
    relay: RefCell<Option<Process>>,
    /// Why it has ended, until that is told.
    ended: Option<String>,
    /// The ports of the host that lead inside, and whether saggar chose each.
    published: Vec<(Published, bool)>,
    /// They were told.
    told: bool,
    /// Ports inside that the relay hears, and a socket of the sandbox beside which others can be made.
    heard: BTreeSet<u16>,
    beside: Option<OwnedFd>,
    /// The hosts that were consented to for good.
    consented: BTreeSet<Destination>,
    /// When what is on its way is given up, once no program is left.
    until: Option<Instant>,
}

impl Network {
    /// As the plan has it, for the sandbox of this pid 1, with the ports of the host that lead inside. The relay takes
    /// this user and group where it is root.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn of(
        plan: &Plan,
        (init, id): (i32, Option<u32>),
        published: Listeners,
        registry: &Registry,
    ) -> Result<Self> {
        let mut it = Network {
            by_policy: plan.egress.is_some(),
            relay: RefCell::default(),
            ended: None,
            published: Vec::new(),
            told: false,
            heard: BTreeSet::new(),
            beside: None,
            consented: BTreeSet::new(),
            until: None,
        };
        if it.by_policy || !published.is_empty() {
            let start = Start {
                supervisor: std::process::id().cast_signed(),
                init,
                id: id.unwrap_or(NOBODY),
                owner: plan.block.map(|block| (block.host_uid, block.host_gid)),
                by_policy: it.by_policy,
                publishes: !published.is_empty(),
            };
            it.relay = RefCell::new(Some(Process::start(&start, registry)?));
        }
        for (published, chosen, socket) in published.into_parts() {
            it.published.push((published, chosen));
            it.send(&Down::Publish(published), Some(socket));
        }
        plan.egress.iter().for_each(|rules| it.send_rules(rules));
        Ok(it)
    }

    /// Sends a message to the relay. One that is gone is noticed where its socket is read.
    fn send(&mut self, message: &Down, beside: Option<OwnedFd>) {
        if let Some(relay) = self.relay.get_mut() {
            relay.send(message, beside);
        }
    }

    fn send_rules(&mut self, rules: &Rules) {
        SomeRules::of(rules).into_iter().for_each(|some| self.send(&Down::Rules(some), None));
    }

    /// The ports of the host that lead inside.
    pub(super) fn published(&self) -> Vec<Published> {
        self.published.iter().map(|(published, _)| *published).collect()
    }

    /// Asks pid 1 for the sockets of its network that are wanted.
    pub(super) fn ask(&mut self, sandbox: &Sandbox<'_>) {
        if let Some(relay) = self.relay.get_mut() {
            relay.wanted(|family| sandbox.ask_for_socket(family));
        }
    }

    /// Passes one of them on, or why there is none.
    pub(super) fn supply(&mut self, family: Family, socket: std::result::Result<OwnedFd, Errno>) {
        match socket {
            Ok(socket) => self.send(&Down::Socket(family, None), Some(socket)),
            Err(errno) => self.send(&Down::Socket(family, Some(errno as i32)), None),
        }
    }

    /// Passes on what pid 1 hands to the relay.
    pub(super) fn take_over(&mut self, handed: Handed) {
        match handed {
            Handed::Caught(kind, port, socket) => self.hear(kind, port, socket),
            Handed::Witness(family, answer, socket) => {
                self.send(&Down::Witness(family, answer), Some(socket))
            }
            Handed::Listener(listener) => self.send(&Down::Listener, Some(listener)),
        }
    }

    fn hear(&mut self, kind: Kind, port: u16, socket: OwnedFd) {
        if kind == Kind::Tcp && self.beside.is_none() {
            self.beside = socket.try_clone().ok();
        }
        self.heard.insert(port);
        self.send(&Down::Hear(kind, port), Some(socket));
    }

    /// Handles an event; false when it is another's.
    pub(super) fn ready(&mut self, event: &mio::event::Event) -> bool {
        self.relay.get_mut().as_mut().is_some_and(|relay| relay.ready(event.token()))
    }

    /// Does what is due, once in each round of the loop.
    pub(super) fn tick(&mut self, registry: &Registry) {
        let slot = self.relay.get_mut();
        if slot.as_mut().is_some_and(|relay| !relay.receive())
            && let Some(relay) = slot.take()
        {
            // Its sockets are closed, and no copy of them is left: calls are refused at once.
            self.beside = None;
            self.ended = Some(relay.end(registry));
        }
    }

    /// How long the loop may wait at most.
    pub(super) fn patience(&self) -> Option<Duration> {
        let relay = self.relay.borrow();
        let has_more = relay.as_ref().is_some_and(Process::has_more).then_some(Duration::ZERO);
        let end = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        end.into_iter().chain(has_more).min()
    }

    /// Whether all that the programs have sent is where it was sent to, or has had its time. For when none of them is
    /// left.
    pub(super) fn is_settled(&mut self) -> bool {
        let Some(relay) = self.relay.get_mut() else { return true };
        match self.until {
            Some(until) => relay.has_settled() || until <= Instant::now(),
            None => {
                relay.send(&Down::Settle, None);
                self.until = Some(Instant::now() + LAST_BYTES);
                false
            }
        }
    }

    /// Somebody can be asked about hosts: see [`Network::questions`].
    pub(super) fn may_ask(&mut self) {
        self.send(&Down::MayAsk, None);
    }

    /// Somebody has said yes to these hosts, HOST:PORT, before the sandbox began; what is none is left out.
    pub(super) fn consent(&mut self, hosts: &[String]) {
        for to in hosts.iter().filter_map(|host| host.parse::<Destination>().ok()) {
            self.send(&Down::Consent(to.to_string()), None);
            self.consented.insert(to);
        }
    }

    /// What is to be asked, and no longer.
    pub(super) fn questions(&mut self) -> Vec<Question> {
        self.relay.get_mut().as_mut().map(Process::questions).unwrap_or_default()
    }

    /// Passes on the answer to a question.
    pub(super) fn answer(&mut self, HostAnswer { number, verdict, keep }: HostAnswer) {
        let Some(relay) = self.relay.get_mut() else { return };
        let to = relay.close_question(number);
        let withheld = match verdict {
            Ok(()) => None,
            Err(why) if why.is_empty() => Some("who was asked about it said no".into()),
            Err(why) => Some(format!("who was asked about it said no: {why}")),
        };
        if withheld.is_none() && keep {
            self.consented.extend(to);
        }
        self.send(&Down::Answer { number, withheld, keep }, None);
    }

    /// Other rules from now on, with sockets for ports that were not named before: all of it, or nothing.
    ///
    /// # Errors
    /// [`Code::Refused`] for a port that a program inside has; [`Code::Unsupported`] where there is no relay.
    pub(super) fn change(&mut self, rules: &Rules, launcher: Option<&Launcher>) -> Result<()> {
        let none =
            || Error::new(Code::Unsupported, "update: the network of this sandbox is not relayed by policy");
        if !self.by_policy || self.relay.get_mut().is_none() {
            return Err(none());
        }
        let ports: Vec<u16> = rules.ports().into_iter().filter(|port| !self.heard.contains(port)).collect();
        if let Some(taken) = self.published().into_iter().map(|one| one.to).find(|port| ports.contains(port))
        {
            let message = format!("update: port {taken} is published, and a server inside is to have it");
            return Err(Error::new(Code::Refused, message).hint("name other ports"));
        }
        if !ports.is_empty() {
            let beside = self.beside.as_ref().ok_or_else(none)?;
            let launcher = launcher.ok_or_else(none)?;
            for (port, socket) in ports.iter().zip(sockets(launcher, beside.as_fd(), &ports)?) {
                self.hear(Kind::Tcp, *port, socket);
            }
        }
        self.send_rules(rules);
        Ok(())
    }

    /// The hosts that somebody has said yes to; nothing where the network does not go by policy.
    pub(super) fn consented(&self) -> Option<Vec<String>> {
        self.by_policy.then(|| self.consented.iter().map(ToString::to_string).collect())
    }

    /// How many connections stand, and what was done for each host; nothing where the network does not go by policy.
    pub(super) fn account(&self) -> Option<(usize, Vec<Counted>)> {
        let account = || self.relay.borrow_mut().as_mut().map(Process::account).unwrap_or_default();
        self.by_policy.then(account)
    }

    /// Tells what was refused since the last time, as events and as lines of a log; and that the relay has ended.
    pub(super) fn tell(&mut self, id: &str, status: &mut Status, mut log: impl FnMut(&str)) {
        let reports = self.relay.get_mut().as_mut().map(Process::reports).unwrap_or_default();
        for refusal in reports.refusals {
            // Of what programs do in passing, whoever starts them hears only where he asks for events.
            if !refusal.is_usual {
                log(&refusal.to_string());
            }
            status.say(&match refusal.kind {
                Refused::Unreachable => Event::Unreachable { id, refusal },
                _ => Event::Refused { id, refusal },
            });
        }
        for unanswered in reports.unanswered {
            log(&unanswered.to_string());
            status.say(&Event::Unanswered { id, unanswered });
        }
        if let Some(why) = self.ended.take() {
            log(&why);
            status.say(&Event::Relay { id, why: &why });
        }
    }

    /// Tells, once, which ports of the host lead inside: as events, and in the log where nobody has named them.
    pub(super) fn tell_published(&mut self, id: &str, status: &mut Status, mut log: impl FnMut(&str)) {
        if !std::mem::replace(&mut self.told, true) {
            for (published, chosen) in self.published.iter().copied() {
                if chosen {
                    log(&published.to_string());
                }
                status.say(&Event::Published { id, published });
            }
        }
    }
}

/// Sockets for these ports beside another one of the sandbox.
fn sockets(launcher: &Launcher, beside: BorrowedFd<'_>, ports: &[u16]) -> Result<Vec<OwnedFd>> {
    listen(launcher, beside, ports).map_err(|errno| match errno {
        Errno::EADDRINUSE => {
            let message = "update: a program inside listens on one of the ports that are new";
            Error::new(Code::Refused, message).hint("end it, or name other ports")
        }
        errno => Error::system("listen in the network of the sandbox", errno),
    })
}

/// Puts a question about a host to whoever answers the agent's.
pub(super) fn ask(bridge: &mut Bridge, question: &Question) {
    match question {
        Question::Asked { number, to, program } => bridge.ask_about_host(HostAsk {
            number: *number,
            host: &to.host.to_string(),
            port: to.port,
            program: program.as_ref().map(|program| (program.name.as_str(), program.pid)),
        }),
        Question::Withdrawn { number } => bridge.forget_host(*number),
    }
}
