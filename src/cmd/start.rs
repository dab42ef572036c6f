//! From a plan to a running sandbox: guard, cgroup, clone.

use super::disk;
use super::prepare::Prepared;
use super::sockets;
use crate::cgroup::{self, agent::leaf};
use crate::egress::io::publish::Listeners;
use crate::error::Result;
use crate::launch::guard::{Guard, Leaves};
use crate::launch::{self, Launched};
use crate::plan;
use crate::spec::{Protection, Strength};
use crate::supervise::api::Api;
use crate::supervise::signals;
use std::os::fd::AsFd;

/// A running sandbox and what it leaves on the host. Fields drop in order: first the sandbox, then the rest.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) launched: Launched,
    pub(super) guard: Guard,
    /// The ports of the host that lead inside.
    pub(super) published: Listeners,
    /// What serves the model API to it, where something does.
    pub(super) api: Option<Api>,
    /// Whether it has the cgroup that the guard was told of.
    pub(super) has_cgroup: bool,
}

impl Started {
    /// Makes what the sandbox needs on the host and starts it; what is missing is added to the plan's
    /// `degraded`. `known` says that somebody knows its name: then it has a runtime directory. `commands` says that
    /// servers may run commands in it beside the first program.
    pub(super) fn new(prepared: &mut Prepared, known: bool, commands: bool) -> Result<Self> {
        sockets::ways_out(&prepared.policy.effective).iter().for_each(|out| log::warn!("{out}"));
        signals::block()?;
        let place = cgroup::place(&prepared.id);
        let cgroup = place.as_deref().filter(|place| cgroup::may_make(place));
        let leaves = Leaves { cgroup, directory: known || prepared.session.is_some() };
        let mut guard = Guard::new(&prepared.id, leaves)?;
        if let Some(session) = &prepared.session {
            guard.add_session(session, prepared.project.as_ref().map(|project| project.number))?;
        }
        // A port in use is an error while there is nothing to undo.
        let published = Listeners::bind(prepared.spec.publish.iter().map(|(publish, _)| publish))?;
        disk::limit(prepared)?;
        let required = plan::want(&prepared.spec, Protection::Cgroup) == Strength::Require;
        let outcome = cgroup::create(place.as_deref(), &prepared.spec.limits, required)?;
        prepared.plan.degraded.extend(outcome.degraded);
        if commands && let (Some(_), Some(place)) = (&outcome.cgroup, cgroup) {
            leaf::enable(place);
        }
        // Before the clone: a key that cannot be used is known before there is a sandbox.
        let api = prepared.spec.api.as_ref().map(Api::start).transpose()?;
        let main = outcome.cgroup.as_ref().map(|cgroup| cgroup.main().as_fd());
        let launched = launch::start(&prepared.plan, main)?;
        Ok(Started { launched, guard, published, api, has_cgroup: outcome.cgroup.is_some() })
    }
}
