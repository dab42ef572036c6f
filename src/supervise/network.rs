//! The network of a sandbox, on the loop of its supervisor: the way out of one that has it by policy, and the published
//! ports of any.

use super::sandbox::{Handed, Sandbox};
use super::status::{Event, Status};
use crate::bridge::core::{Bridge, HostAnswer};
use crate::bridge::proto::permission::HostAsk;
use crate::egress::io::publish::{Listeners, Published, Publisher};
use crate::egress::io::{Consent, Counted, Kind as Refused, Question, Relay};
use crate::error::{Code, Error, Result};
use crate::plan::Plan;
use crate::spec::policy::hosts::Rules;
use crate::stage::ports;
use crate::sys::Errno;
use crate::sys::catch::Kind;
use crate::sys::net::Family;
use mio::Registry;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Descriptors that the relay leaves to everybody else.
const OTHERS: u64 = 128;
/// How long what the last program sent may take to its host.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// The relay of a sandbox, where it has one.
#[derive(Debug)]
pub(super) struct Network {
    relay: Option<Relay>,
    publisher: Option<Publisher>,
    /// The ports that it has published were told.
    told: bool,
    /// When what is on its way is given up, once no program is left.
    until: Option<Instant>,
    /// A round of the loop has passed since.
    looked: bool,
}

impl Network {
    /// As the plan has it, for the sandbox of this pid 1, with the ports of the host that lead inside.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn of(plan: &Plan, init: i32, published: Listeners, registry: &Registry) -> Result<Self> {
        let (mut relay, mut publisher) = (None, None);
        if plan.egress.is_some() || !published.is_empty() {
            let mut room = descriptors();
            if !published.is_empty() {
                let share = Publisher::share(room);
                room -= share;
                publisher = Some(Publisher::new(published, registry, share)?);
            }
            let ports: Vec<u16> =
                publisher.iter().flat_map(Publisher::published).map(|(one, _)| one.to).collect();
            relay = plan.egress.clone().map(|rules| Relay::new(rules, init, ports, room));
        }
        Ok(Network { relay, publisher, told: false, until: None, looked: false })
    }

    /// The ports of the host that lead inside.
    pub(super) fn published(&self) -> Vec<Published> {
        self.publisher.iter().flat_map(Publisher::published).map(|(published, _)| published).collect()
    }

    /// Asks pid 1 for the sockets of its network that are wanted.
    pub(super) fn ask(&mut self, sandbox: &Sandbox<'_>) {
        if let Some(publisher) = &mut self.publisher {
            publisher.ask(|family| sandbox.ask_for_socket(family));
        }
    }

    /// Takes one of them, or why there is none.
    pub(super) fn supply(
        &mut self,
        registry: &Registry,
        family: Family,
        socket: std::result::Result<OwnedFd, Errno>,
    ) {
        if let Some(publisher) = &mut self.publisher {
            publisher.supply(registry, family, socket);
        }
    }

    /// Takes over what pid 1 hands to the relay.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn take_over(&mut self, registry: &Registry, handed: Handed) -> Result<()> {
        let Some(relay) = &mut self.relay else { return Ok(()) };
        match handed {
            Handed::Caught(kind, port, socket) => relay.hear(registry, kind, port, socket),
            Handed::Witness(family, answer, socket) => relay.witness(registry, (family, answer), socket),
            Handed::Listener(listener) => relay.answer_for(registry, listener),
        }
    }

    /// Handles an event; false when it is somebody else's.
    pub(super) fn ready(&mut self, registry: &Registry, event: &mio::event::Event) -> bool {
        self.publisher.as_mut().is_some_and(|publisher| publisher.ready(registry, event))
            || self.relay.as_mut().is_some_and(|relay| relay.ready(registry, event))
    }

    /// Does what is due, once in each round of the loop.
    pub(super) fn tick(&mut self, registry: &Registry) {
        if let Some(publisher) = &mut self.publisher {
            publisher.tick(registry);
        }
        if let Some(relay) = &mut self.relay {
            relay.tick(registry);
        }
        self.looked = self.until.is_some();
    }

    /// How long the loop may wait at most.
    pub(super) fn patience(&self) -> Option<Duration> {
        let end = self.until.map(|until| match self.looked {
            true => until.saturating_duration_since(Instant::now()),
            false => Duration::ZERO,
        });
        let publisher = self.publisher.as_ref().and_then(Publisher::patience);
        end.into_iter().chain(self.relay.as_ref().and_then(Relay::patience)).chain(publisher).min()
    }

    /// Whether all that the programs have sent is where it was sent to, or has had its time. For when none of them is
    /// left.
    pub(super) fn is_settled(&mut self) -> bool {
        if self.relay.is_none() && self.publisher.is_none() {
            return true;
        }
        let is_unsent = self.relay.as_ref().is_some_and(Relay::has_unsent)
            || self.publisher.as_ref().is_some_and(Publisher::has_unsent);
        match self.until {
            Some(until) => !is_unsent || until <= Instant::now(),
            // Somebody may have called whom nobody has heard yet: not before another round of the loop.
            None => {
                self.until = Some(Instant::now() + LAST_BYTES);
                self.looked = false;
                false
            }
        }
    }

    /// Somebody can be asked about hosts: see [`Network::questions`].
    pub(super) fn may_ask(&mut self) {
        self.relay.iter_mut().for_each(Relay::may_ask);
    }

    /// Somebody has said yes to these hosts, HOST:PORT, before the sandbox began; what is none is left out.
    pub(super) fn consent(&mut self, hosts: &[String]) {
        let Some(relay) = &mut self.relay else { return };
        hosts.iter().filter_map(|host| host.parse().ok()).for_each(|to| relay.consent(to));
    }

    /// What is to be asked, and no longer.
    pub(super) fn questions(&mut self) -> Vec<Question> {
        self.relay.as_mut().map(Relay::questions).unwrap_or_default()
    }

    /// Takes the answer to a question.
    pub(super) fn answer(&mut self, registry: &Registry, HostAnswer { number, verdict, keep }: HostAnswer) {
        let Some(relay) = &mut self.relay else { return };
        let consent = match verdict {
            Ok(()) => Consent::Given,
            Err(why) if why.is_empty() => Consent::Withheld("who was asked about it said no".into()),
            Err(why) => Consent::Withheld(format!("who was asked about it said no: {why}")),
        };
        relay.answer(registry, number, &consent, keep);
    }

    /// Other rules from now on, with sockets for ports that were not named before: all of it, or nothing.
    ///
    /// # Errors
    /// [`Code::Refused`] for a port that a program inside has; [`Code::Unsupported`] where there is no relay.
    pub(super) fn change(&mut self, registry: &Registry, rules: Rules) -> Result<()> {
        let none =
            || Error::new(Code::Unsupported, "update: the network of this sandbox is not relayed by policy");
        let heard = self.relay.as_ref().ok_or_else(none)?.heard_ports();
        let ports: Vec<u16> = rules.ports().into_iter().filter(|port| !heard.contains(port)).collect();
        if let Some(taken) = self.published().into_iter().map(|one| one.to).find(|port| ports.contains(port))
        {
            let message = format!("update: port {taken} is published, and a server inside is to have it");
            return Err(Error::new(Code::Refused, message).hint("name other ports"));
        }
        let relay = self.relay.as_mut().ok_or_else(none)?;
        if !ports.is_empty() {
            let beside = relay.any_socket().ok_or_else(none)?;
            for (port, socket) in ports.iter().zip(sockets(beside, &ports)?) {
                relay.hear(registry, Kind::Tcp, *port, socket)?;
            }
        }
        relay.change(registry, rules);
        Ok(())
    }

    /// The hosts that somebody has said yes to; nothing where the network does not go by policy.
    pub(super) fn consented(&self) -> Option<Vec<String>> {
        self.relay.as_ref().map(|relay| relay.consented().map(ToString::to_string).collect())
    }

    /// How many connections stand, and what was done for each host; nothing where the network does not go by policy.
    pub(super) fn account(&self) -> Option<(usize, Vec<Counted>)> {
        self.relay.as_ref().map(Relay::account)
    }

    /// Tells what was refused since the last time, as events and as lines of a log.
    pub(super) fn tell(&mut self, id: &str, status: &mut Status, mut log: impl FnMut(&str)) {
        for refusal in self.relay.iter_mut().flat_map(Relay::refusals) {
            // Of what programs do in passing, whoever starts them hears only where he asks for events.
            if !refusal.is_usual {
                log(&refusal.to_string());
            }
            status.say(&match refusal.kind {
                Refused::Unreachable => Event::Unreachable { id, refusal },
                _ => Event::Refused { id, refusal },
            });
        }
        for unanswered in self.publisher.iter_mut().flat_map(Publisher::unanswered) {
            log(&unanswered.to_string());
            status.say(&Event::Unanswered { id, unanswered });
        }
    }

    /// Tells, once, which ports of the host lead inside: as events, and in the log where nobody has named them.
    pub(super) fn tell_published(&mut self, id: &str, status: &mut Status, mut log: impl FnMut(&str)) {
        if !std::mem::replace(&mut self.told, true) {
            for (published, chosen) in self.publisher.iter().flat_map(Publisher::published) {
                if chosen {
                    log(&published.to_string());
                }
                status.say(&Event::Published { id, published });
            }
        }
    }
}

/// Sockets for these ports beside another one of the sandbox.
fn sockets(beside: BorrowedFd<'_>, ports: &[u16]) -> Result<Vec<OwnedFd>> {
    ports::listen(beside, ports).map_err(|errno| match errno {
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

/// How many descriptors the relay may have: every connection takes two, so this process gets as many as the host lets
/// it have. The sandbox has limits of its own, which it has set already.
fn descriptors() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let most = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    usize::try_from(most.saturating_sub(OTHERS)).unwrap_or(usize::MAX)
}
