//! The network of a sandbox, on the loop of its supervisor: the way out of one that has it by policy, and the published
//! ports of any.

use super::sandbox::Sandbox;
use super::status::{Event, Status};
use crate::egress::io::Relay;
use crate::egress::io::publish::{Listeners, Published, Publisher};
use crate::error::Result;
use crate::plan::Plan;
use crate::sys::Errno;
use crate::sys::catch::Kind;
use crate::sys::net::Family;
use mio::Registry;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
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
    /// As the plan has it, with the ports of the host that lead inside.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn of(plan: &Plan, published: Listeners, registry: &Registry) -> Result<Self> {
        let (mut relay, mut publisher) = (None, None);
        if plan.egress.is_some() || !published.is_empty() {
            let mut room = descriptors();
            if !published.is_empty() {
                let share = Publisher::share(room);
                room -= share;
                publisher = Some(Publisher::new(published, registry, share)?);
            }
            relay = plan.egress.clone().map(|rules| Relay::new(rules, room));
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
    pub(super) fn supply(&mut self, registry: &Registry, family: Family, socket: Result<OwnedFd, Errno>) {
        if let Some(publisher) = &mut self.publisher {
            publisher.supply(registry, family, socket);
        }
    }

    /// Takes a socket of the sandbox over that hears calls to a port.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn hear(&mut self, registry: &Registry, kind: Kind, port: u16, socket: OwnedFd) -> Result<()> {
        self.relay.as_mut().map_or(Ok(()), |relay| relay.hear(registry, kind, port, socket))
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

    /// Tells what was refused since the last time, as events and as lines of a log.
    pub(super) fn tell(&mut self, id: &str, status: &mut Status, mut log: impl FnMut(&str)) {
        for refusal in self.relay.iter_mut().flat_map(Relay::refusals) {
            log(&refusal.to_string());
            status.say(&Event::Refused { id, refusal });
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

/// How many descriptors the relay may have: every connection takes two, so this process gets as many as the host lets
/// it have. The sandbox has limits of its own, which it has set already.
fn descriptors() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let most = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    usize::try_from(most.saturating_sub(OTHERS)).unwrap_or(usize::MAX)
}
