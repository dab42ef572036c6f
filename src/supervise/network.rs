//! The network of a sandbox that has one by policy, on the loop of its supervisor.

use super::status::{Event, Status};
use crate::egress::io::Relay;
use crate::error::Result;
use crate::plan::Plan;
use crate::sys::catch::Kind;
use mio::Registry;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The relay of a sandbox, where it has one.
#[derive(Debug)]
pub(super) struct Network(Option<Relay>);

impl Network {
    /// As the plan has it.
    pub(super) fn of(plan: &Plan) -> Self {
        Network(plan.egress.clone().map(|rules| {
            have_descriptors();
            Relay::new(rules)
        }))
    }

    /// Takes a socket of the sandbox over that hears calls to a port.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn hear(&mut self, registry: &Registry, kind: Kind, port: u16, socket: OwnedFd) -> Result<()> {
        self.0.as_mut().map_or(Ok(()), |relay| relay.hear(registry, kind, port, socket))
    }

    /// Handles an event; false when it is somebody else's.
    pub(super) fn ready(&mut self, registry: &Registry, event: &mio::event::Event) -> bool {
        self.0.as_mut().is_some_and(|relay| relay.ready(registry, event))
    }

    /// Does what is due, once in each round of the loop.
    pub(super) fn tick(&mut self, registry: &Registry) {
        if let Some(relay) = &mut self.0 {
            relay.tick(registry);
        }
    }

    /// How long the loop may wait at most.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.0.as_ref().and_then(Relay::patience)
    }

    /// Tells what was refused since the last time, as events and as lines of a log.
    pub(super) fn tell(&mut self, id: &str, status: &mut Status, mut log: impl FnMut(&str)) {
        for refusal in self.0.iter_mut().flat_map(Relay::refusals) {
            log(&refusal.to_string());
            status.say(&Event::Refused { id, refusal });
        }
    }
}

/// Every connection takes two descriptors: as many are to be had as the host lets this process have. The sandbox has
/// limits of its own, which it has set already.
fn have_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
