//! The network of a sandbox that has one by policy, on the loop of its supervisor.

use super::status::{Event, Status};
use crate::egress::io::Relay;
use crate::error::Result;
use crate::plan::Plan;
use crate::sys::catch::Kind;
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
    /// When what is on its way is given up, once no program is left.
    until: Option<Instant>,
    /// A round of the loop has passed since.
    looked: bool,
}

impl Network {
    /// As the plan has it.
    pub(super) fn of(plan: &Plan) -> Self {
        let relay = plan.egress.clone().map(|rules| Relay::new(rules, descriptors()));
        Network { relay, until: None, looked: false }
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
        self.relay.as_mut().is_some_and(|relay| relay.ready(registry, event))
    }

    /// Does what is due, once in each round of the loop.
    pub(super) fn tick(&mut self, registry: &Registry) {
        if let Some(relay) = &mut self.relay {
            relay.tick(registry);
            self.looked = self.until.is_some();
        }
    }

    /// How long the loop may wait at most.
    pub(super) fn patience(&self) -> Option<Duration> {
        let end = self.until.map(|until| match self.looked {
            true => until.saturating_duration_since(Instant::now()),
            false => Duration::ZERO,
        });
        end.into_iter().chain(self.relay.as_ref().and_then(Relay::patience)).min()
    }

    /// Whether all that the programs have sent is with its hosts, or has had its time. For when none of them is left.
    pub(super) fn is_settled(&mut self) -> bool {
        let Some(relay) = &self.relay else { return true };
        match self.until {
            Some(until) => !relay.has_unsent() || until <= Instant::now(),
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
    }
}

/// How many descriptors the relay may have: every connection takes two, so this process gets as many as the host lets
/// it have. The sandbox has limits of its own, which it has set already.
fn descriptors() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let most = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    usize::try_from(most.saturating_sub(OTHERS)).unwrap_or(usize::MAX)
}
