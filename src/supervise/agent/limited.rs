//! The limits of an agent's sandbox and the hosts that it reaches, which the control socket may change while it runs.

use super::Loop;
use crate::cgroup::agent::limits;
use crate::control::method::Change;
use crate::error::{Code, Error, Result};
use crate::plan::Degraded;
use crate::spec::limits_of;
use crate::spec::policy::{self, AtTimeout, Effective, Hosts};
use crate::supervise::clock::Times;
use crate::supervise::status::Event;
use std::collections::BTreeSet;

/// What holds now.
#[derive(Debug)]
pub(super) struct Limited {
    policy: Effective,
    /// How often it has changed, and one.
    pub(super) generation: u64,
    /// What was missing at the start, and holds since.
    held: BTreeSet<&'static str>,
}

impl Limited {
    /// As at the start.
    pub(super) fn new(policy: Effective) -> Self {
        Limited { policy, generation: 1, held: BTreeSet::new() }
    }

    /// What becomes of a session at its limit by the clock.
    pub(super) fn at_timeout(&self) -> AtTimeout {
        self.policy.limits.at_timeout.value
    }

    /// The rules for hosts, as they hold now.
    pub(super) fn hosts(&self) -> &Hosts {
        &self.policy.hosts
    }

    /// What of this is missing still.
    pub(super) fn still(&self, degraded: &[Degraded]) -> Vec<Degraded> {
        degraded.iter().filter(|one| !self.held.contains(one.what.as_str())).cloned().collect()
    }
}

impl Loop<'_> {
    /// Changes limits or hosts, or leaves all as they were.
    pub(super) fn change_policy(&mut self, what: &Change) -> Result<()> {
        match what {
            Change::Limits(text) => self.change_limits(text)?,
            Change::Network(text) => {
                let policy = policy::change_network(&self.limited.policy, text)?;
                self.network.change(&policy.hosts.rules(), self.privileged.launcher())?;
                self.limited.policy = policy;
            }
            Change::Resources(_) => {
                let message = "update: an agent's sandbox has limits, as a policy has them, and no resources";
                return Err(Error::new(Code::Invalid, message).hint("see saggar-policy(5), limits"));
            }
        }
        let (id, generation) = (self.id, self.limited.generation + 1);
        self.status.say(&Event::Updated { id, generation });
        Ok(())
    }

    fn change_limits(&mut self, text: &str) -> Result<()> {
        let policy = policy::change(&self.limited.policy, text)?;
        let (before, after) = (limits_of(&self.limited.policy)?, limits_of(&policy)?);
        // The brake below the limit is ours, and would be in the way.
        if let Some(memory) = &mut self.memory {
            memory.let_go();
        }
        let changed = limits::change(self.cgroup.as_deref(), &before, &after);
        if let Some(memory) = &mut self.memory {
            memory.take_hold();
        }
        self.limited.held.extend(changed?);
        self.clock.change(Times::of(&policy, self.cgroup.as_deref()));
        self.limited.policy = policy;
        Ok(())
    }
}
