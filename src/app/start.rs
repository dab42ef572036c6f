//! From a plan to a running sandbox: guard, cgroup, clone.

use super::degraded;
use super::disk;
use super::prepare::PreparedSandbox;
use super::{sockets, start_report};
use crate::cgroup::{self, CgroupPlace, SandboxCgroups, agent::exec};
use crate::egress::io::publish::PublishedListeners;
use crate::error::Result;
use crate::launch::agent::cleanup::{CleanupGuard, HostArtifacts};
use crate::launch::agent::{self as launch, LaunchedSandbox};
use crate::plan::agent as plan;
use crate::spec::{Protection, ProtectionStrength};
use crate::supervise::service_process::ServiceProcesses;
use crate::supervise::signals;
use std::os::fd::AsFd;

/// A running sandbox and what it leaves on the host. Fields drop in order: first the sandbox, then the rest.
#[derive(Debug)]
pub(crate) struct StartedSandbox {
    pub(crate) launched: LaunchedSandbox,
    pub(crate) guard: CleanupGuard,
    /// The ports of the host that lead inside.
    pub(crate) published: PublishedListeners,
    /// What serves sockets of it.
    pub(crate) services: ServiceProcesses,
    /// The cgroups that could be made.
    pub(crate) cgroups: SandboxCgroups,
}

impl StartedSandbox {
    /// Makes what the sandbox needs on the host and starts it; what is missing is added to the plan's
    /// `degraded`. `known` says that somebody knows its name: then it has a runtime directory. `commands` says that
    /// servers may run commands in it beside the first program.
    pub(crate) fn new(
        prepared: &mut PreparedSandbox,
        is_addressable: bool,
        runs_commands: bool,
    ) -> Result<Self> {
        sockets::risky_sockets(&prepared.policy.effective).iter().for_each(|out| log::warn!("{out}"));
        signals::block()?;
        let limits = &prepared.spec.limits;
        let root = &prepared.spec.cgroup;
        let place =
            CgroupPlace::choose(&prepared.id, limits, root).enter_scope(&prepared.id, limits, root)?;
        let artifacts = HostArtifacts {
            cgroups: place.cgroups(),
            directory: is_addressable || prepared.session.is_some(),
            skipped: prepared.hidden_in_git(),
        };
        let mut guard = CleanupGuard::new(&prepared.id, artifacts)?;
        if let Some(session) = &prepared.session {
            guard.add_session(session, prepared.project.as_ref().map(|project| project.id))?;
        }
        // A port in use is an error while there is nothing to undo.
        let published =
            PublishedListeners::bind(prepared.spec.published_ports.iter().map(|(publish, _)| publish))?;
        disk::set_quota(prepared)?;
        let required = plan::strength_of(&prepared.spec, Protection::Cgroup) == ProtectionStrength::Require;
        let outcome = cgroup::create(&place, &prepared.spec.limits, required)?;
        let mut missing = outcome.degraded;
        let limits = &prepared.spec.limits;
        let instead = degraded::process_limits(&missing, limits, &prepared.spec.identity);
        if !prepared.policy.effective.quiet_degraded.value
            && let Some(message) = degraded::message(&missing, &instead, &place, limits)
        {
            log::warn!("{message}");
        }
        instead.explain(&mut missing);
        prepared.plan.process_limits = instead;
        prepared.plan.degraded.extend(missing);
        let cgroups = outcome.cgroup.paths();
        start_report::log(prepared, &cgroups);
        let main = outcome.cgroup.main();
        if runs_commands && let (Some(_), Some(path)) = (main, &guard.cgroups().unified) {
            exec::enable_memory_accounting(path);
        }
        // Before the clone: a key or a mailbox that cannot be used is known before there is a sandbox.
        let services = ServiceProcesses::start(&prepared.spec)?;
        let launched = launch::start(&prepared.plan, main.map(AsFd::as_fd), || outcome.cgroup.enter())?;
        Ok(StartedSandbox { launched, guard, published, services, cgroups })
    }
}
