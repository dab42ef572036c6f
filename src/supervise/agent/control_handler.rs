//! Handles the requests of the control socket for an agent's sandbox.

use super::AgentLoop;
use super::session_state::EndRequest;
use crate::bridge::core::{Bridge, ExecId};
use crate::bridge::io::ConnectionHub;
use crate::cgroup::freeze::UnifiedFreezer;
use crate::control::files::FileRequest;
use crate::control::method::UpdateChange;
use crate::control::rpc::{RpcError, RpcErrorKind};
use crate::control::server::ResponseTicket;
use crate::error::{Error, Result};
use crate::session::session_state::SessionState;
use crate::spec::policy::{HostPolicy, HostRule, Setting};
use crate::stage::agent::wire::ExecFlags;
use crate::supervise::channel::control::{ControlHandler, ControlResult, ControlSocket, to_rpc_error};
use crate::supervise::status::{StatusEvent, missing_protections};
use mio::unix::SourceFd;
use mio::{Interest, Token};
use serde_json::{Value, json};
use std::os::fd::{AsFd, AsRawFd};

/// Token of the cgroup freezer's events.
pub(super) const FREEZER_TOKEN: Token = Token(3);

/// Whether the sandbox is frozen, and the requests that wait for it.
#[derive(Debug, Default)]
pub(super) struct FreezeState {
    freezer: Option<UnifiedFreezer>,
    /// The requested state.
    pub(super) requested: bool,
    waiters: Vec<ResponseTicket>,
}

impl ControlHandler for AgentLoop<'_> {
    fn control_socket(&mut self) -> Option<&mut ControlSocket> {
        self.control.as_mut()
    }

    fn state_json(&self) -> Value {
        let pid = self.channel.agent.as_ref().map_or(0, |agent| agent.pid);
        let session = self.session_state();
        let status = match session {
            SessionState::Paused => "paused",
            SessionState::Starting => "creating",
            _ => "running",
        };
        let bridge = self.channel.hub.core();
        json!({
            "ociVersion": "1.3.0",
            "id": self.id,
            "status": status,
            "pid": pid,
            "bundle": self.program.cwd.to_string_lossy(),
            "annotations": {},
            "session": {
                "id": self.session,
                "state": session,
                "conversation": bridge.session(),
                "busy": bridge.is_busy(),
                "commandsEnded": bridge.commands_ended(),
                "lastExit": self.last_exit.as_ref().map(ToString::to_string),
                "lastStatus": self.last_status(),
            },
            "network": self.hosts_json(),
            "networkMode": self.policy_state.policy().network.value.name(),
            "published": self.network.published(),
            "degraded": missing_protections(&self.policy_state.still_missing(&self.plan.degraded)),
            "generation": self.policy_state.generation,
            "exit": null,
        })
    }

    fn stats_json(&self) -> std::result::Result<Value, RpcError> {
        let mut stats = match (self.cgroups.stats(), self.network.account()) {
            (None, None) => return Err(no_cgroup_error("its usage is not counted")),
            (None, Some(_)) => json!({}),
            (Some(stats), _) => json!(stats),
        };
        if let Some((open, hosts)) = self.network.account() {
            stats["network"] = json!({ "open": open, "hosts": hosts });
        }
        Ok(stats)
    }

    fn kill(&mut self, signal: i32) -> ControlResult {
        let Some(agent) = &self.channel.agent else {
            return Err(RpcError::new(RpcErrorKind::State, "no agent runs; the next query starts one"));
        };
        self.sandbox.signal(agent.id, signal, false);
        Ok(())
    }

    fn freeze(&mut self, freeze: bool, ticket: ResponseTicket) {
        if freeze && !matches!(self.session_state(), SessionState::Active | SessionState::Paused) {
            let message = format!("the session is {}: there is nothing to pause", self.session_state());
            return self.respond(ticket, Err(RpcError::new(RpcErrorKind::State, message)));
        }
        if !freeze && self.detached && self.freeze.requested {
            self.clock.restart();
        }
        self.paused_for = None;
        if let Err(failure) = self.write_freezer(freeze) {
            return self.respond(ticket, Err(failure));
        }
        self.freeze.waiters.push(ticket);
        self.on_freezer_event();
    }

    fn apply_change(&mut self, what: &UpdateChange) -> ControlResult {
        self.change_policy_from_request(what).map_err(|error| to_rpc_error(&error))
    }

    fn generation(&mut self) -> &mut u64 {
        &mut self.policy_state.generation
    }

    fn start_command(&mut self, exec: ExecId, command: String) -> Result<()> {
        let registry = self.channel.poll.registry();
        let (sandbox, hold) = (&mut self.sandbox, self.execs.needs_barrier());
        self.execs.run(registry, exec, command, |program, streams| {
            sandbox.exec(registry, program, streams, ExecFlags::SUBREAPER, hold)
        })
    }

    fn kill_command(&mut self, exec: ExecId) {
        self.execs.kill(exec);
    }

    fn shut_down(&mut self) {
        self.end_request.get_or_insert(EndRequest::Shutdown);
        self.cancel_snapshot();
        self.thaw();
        self.channel.hub.with_bridge(Bridge::begin_termination);
    }

    fn has_own_work(&self) -> bool {
        // A session that is not ready yet does not idle.
        !self.agent_has_run || self.scripts.is_pending() || self.snapshot.is_some() || !self.files.is_empty()
    }

    fn start_file_call(&mut self, call: FileRequest, ticket: ResponseTicket) {
        let (Some(workspace), Some(launcher)) = (&self.workspace, self.privileged.launcher()) else {
            let failure = RpcError::new(RpcErrorKind::State, "the sandbox is being made");
            return self.respond(ticket, Err(failure));
        };
        let registry = self.channel.poll.registry();
        let begun = self.files.start(launcher, &call, ticket, workspace.as_fd(), registry);
        if let Some((ticket, answer)) = begun {
            self.respond(ticket, answer);
        }
    }

    fn request_snapshot(&mut self, all: bool, ticket: ResponseTicket) {
        self.start_snapshot(all, ticket);
    }

    fn is_frozen(&self) -> bool {
        self.freeze.requested
    }

    fn bridge(&mut self) -> &mut ConnectionHub {
        &mut self.channel.hub
    }
}

impl AgentLoop<'_> {
    /// The hosts that may be reached, if the network goes by policy.
    fn hosts_json(&self) -> Value {
        let texts = |rules: &[Setting<HostRule>]| -> Vec<String> {
            rules.iter().map(|rule| rule.value.to_string()).collect()
        };
        let Some(consented) = self.network.consented_hosts() else { return Value::Null };
        let HostPolicy { allow, deny, ask } = self.policy_state.hosts();
        json!({ "allow": texts(allow), "deny": texts(deny), "ask": texts(ask), "consented": consented })
    }

    /// Thaws the sandbox: a frozen process cannot handle a request to exit.
    pub(super) fn thaw(&mut self) {
        if self.freeze.requested {
            let _ = self.write_freezer(false);
            self.on_freezer_event();
        }
    }

    /// Freezes or thaws every process in the cgroup.
    pub(super) fn set_frozen(&mut self, stop: bool) -> ControlResult {
        let Some(cgroup) = self.cgroups.unified.as_deref() else {
            return Err(no_cgroup_error("it cannot be paused"));
        };
        let fails = |error: Error| RpcError::new(RpcErrorKind::Internal, error.to_string());
        if self.freeze.freezer.is_none() {
            let freezer = UnifiedFreezer::open(cgroup).map_err(|_| no_cgroup_error("it cannot be paused"))?;
            let registered = self.channel.poll.registry().register(
                &mut SourceFd(&freezer.events().as_raw_fd()),
                FREEZER_TOKEN,
                Interest::PRIORITY,
            );
            registered.map_err(|e| fails(Error::system("watch cgroup.events", e)))?;
            self.freeze.freezer = Some(freezer);
        }
        self.freeze.freezer.as_ref().map_or(Ok(()), |freezer| freezer.set_frozen(stop).map_err(fails))
    }

    pub(super) fn write_freezer(&mut self, freeze: bool) -> ControlResult {
        // A sandbox that is frozen for a snapshot is thawed after it.
        self.set_frozen(freeze || self.snapshot.is_some())?;
        if std::mem::replace(&mut self.freeze.requested, freeze) != freeze {
            self.channel.hub.with_bridge(|bridge| bridge.set_paused(freeze));
            let id = self.id;
            self.status.write(&if freeze { StatusEvent::Paused { id } } else { StatusEvent::Resumed { id } });
        }
        Ok(())
    }

    /// Sends the pending responses once the cgroup has reached the requested state.
    pub(super) fn on_freezer_event(&mut self) {
        let Some(freezer) = &mut self.freeze.freezer else { return };
        // A parent cgroup may be frozen too: a thaw is complete as soon as it was requested.
        let done = !self.freeze.requested || freezer.is_frozen().unwrap_or(true);
        if done {
            self.record_state();
            for ticket in std::mem::take(&mut self.freeze.waiters) {
                self.respond(ticket, Ok(json!({})));
            }
        }
        self.advance_snapshot();
    }

    /// Whether every process in the cgroup is frozen, as reported by the kernel.
    pub(super) fn is_fully_frozen(&mut self) -> bool {
        self.freeze.freezer.as_mut().is_some_and(|freezer| freezer.is_frozen().unwrap_or(false))
    }
}

fn no_cgroup_error(what: &str) -> RpcError {
    let remedy = "run saggar where its user may create cgroups (saggar doctor shows how)";
    RpcError::new(RpcErrorKind::Unsupported, format!("the sandbox has no cgroup, so {what}; {remedy}"))
}
