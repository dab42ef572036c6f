//! The limits and allowed hosts of an agent's sandbox, which the control socket may change at run time.

use super::AgentLoop;
use crate::cgroup::agent::limits;
use crate::control::method::UpdateChange;
use crate::error::{Code, Error, Result};
use crate::plan::agent::DegradedProtection;
use crate::spec::limits_of;
use crate::spec::policy::{self, EffectivePolicy, HostPolicy, TimeoutAction};
use crate::supervise::status::StatusEvent;
use crate::supervise::time_limits::TimeLimits;
use std::collections::BTreeSet;

/// The policy in force.
#[derive(Debug)]
pub(super) struct CurrentPolicy {
    policy: EffectivePolicy,
    /// Number of changes plus one.
    pub(super) generation: u64,
    /// Protections that were missing at the start and hold since a change.
    restored: BTreeSet<&'static str>,
}

impl CurrentPolicy {
    /// The policy at the start.
    pub(super) fn new(policy: EffectivePolicy) -> Self {
        CurrentPolicy { policy, generation: 1, restored: BTreeSet::new() }
    }

    /// The action when the session reaches its wall-clock limit.
    pub(super) fn timeout_action(&self) -> TimeoutAction {
        self.policy.limits.at_timeout.value
    }

    /// The current policy.
    pub(super) fn policy(&self) -> &EffectivePolicy {
        &self.policy
    }

    /// The current rules for hosts.
    pub(super) fn hosts(&self) -> &HostPolicy {
        &self.policy.hosts
    }

    /// The protections among these that are still missing.
    pub(super) fn still_missing(&self, degraded: &[DegradedProtection]) -> Vec<DegradedProtection> {
        degraded.iter().filter(|one| !self.restored.contains(one.name.as_str())).cloned().collect()
    }
}

impl AgentLoop<'_> {
    /// Changes limits or hosts; on an error nothing changes.
    pub(super) fn change_policy_from_request(&mut self, what: &UpdateChange) -> Result<()> {
        match what {
            UpdateChange::Limits(text) => self.change_limits(text)?,
            UpdateChange::Network(text) => {
                let policy = policy::update_network(&self.policy_state.policy, text)?;
                self.network.set_rules(&policy.hosts.rules(), self.privileged.launcher())?;
                self.policy_state.policy = policy;
            }
            UpdateChange::Resources(_) => {
                let message = "update: an agent's sandbox has limits, as a policy has them, and no resources";
                return Err(Error::new(Code::Invalid, message).hint("see saggar-policy(5), limits"));
            }
        }
        let (id, generation) = (self.id, self.policy_state.generation + 1);
        self.status.write(&StatusEvent::Updated { id, generation });
        Ok(())
    }

    fn change_limits(&mut self, text: &str) -> Result<()> {
        let policy = policy::update_limits(&self.policy_state.policy, text)?;
        let (before, after) = (limits_of(&self.policy_state.policy)?, limits_of(&policy)?);
        // memory.high is set by saggar below memory.max, and would interfere with the change.
        if let Some(memory) = &mut self.memory {
            memory.suspend();
        }
        let changed = limits::update(&self.cgroups, &before, &after);
        if let Some(memory) = &mut self.memory {
            memory.reactivate();
        }
        self.policy_state.restored.extend(changed?);
        self.clock.set_limits(TimeLimits::from_policy(&policy, &self.cgroups));
        let agent_idle = policy.limits.agent_idle.as_ref().map(|limit| limit.value.duration());
        self.channel.hub.with_bridge(|bridge| bridge.set_agent_idle_limit(agent_idle));
        self.policy_state.policy = policy;
        Ok(())
    }
}
