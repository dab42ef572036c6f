//! What the control socket asks of an agent's sandbox.

use super::Loop;
use super::kept::Asked;
use crate::bridge::core::{Bridge, ExecId};
use crate::bridge::io::Hub;
use crate::cgroup::agent::freeze::Freezer;
use crate::cgroup::agent::live::Stats;
use crate::control::clients::Ticket;
use crate::control::files::FileCall;
use crate::control::method::Change;
use crate::control::rpc::{Failure, Kind};
use crate::error::{Error, Result};
use crate::session::states::State;
use crate::spec::policy::{HostRule, Hosts, Setting};
use crate::stage::wire::ExecFlags;
use crate::supervise::status::{Event, missing};
use crate::supervise::talk::control::{Control, Controlled, Done, failure};
use mio::unix::SourceFd;
use mio::{Interest, Token};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::os::fd::{AsFd, AsRawFd};

/// Something happened to the freezer.
pub(super) const FREEZER: Token = Token(3);

/// Whether the sandbox stands still, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Stillness {
    freezer: Option<Freezer>,
    /// What it was told last.
    pub(super) frozen: bool,
    waiting: Vec<Ticket>,
}

impl Controlled for Loop<'_> {
    fn control(&mut self) -> Option<&mut Control> {
        self.control.as_mut()
    }

    fn state(&self) -> Value {
        let pid = self.talk.agent.as_ref().map_or(0, |agent| agent.pid);
        let session = self.session_state();
        let status = match session {
            State::Paused => "paused",
            State::Starting => "creating",
            _ => "running",
        };
        let bridge = self.talk.hub.state();
        json!({
            "ociVersion": "1.3.0",
            "id": self.id,
            "status": status,
            "pid": pid,
            "bundle": self.program.cwd,
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
            "network": self.hosts(),
            "published": self.network.published(),
            "degraded": missing(&self.limited.still(&self.plan.degraded)),
            "generation": self.limited.generation,
            "exit": null,
        })
    }

    fn stats(&self) -> std::result::Result<Value, Failure> {
        let cgroup = self.cgroup.as_deref().filter(|cgroup| cgroup.is_dir());
        let mut stats = match (cgroup, self.network.account()) {
            (None, None) => return Err(no_cgroup("nobody counts what it uses")),
            (None, Some(_)) => json!({}),
            (Some(cgroup), _) => json!(Stats::of(cgroup)),
        };
        if let Some((open, hosts)) = self.network.account() {
            stats["network"] = json!({ "open": open, "hosts": hosts });
        }
        Ok(stats)
    }

    fn kill(&mut self, signal: Signal) -> Done {
        let Some(agent) = &self.talk.agent else {
            return Err(Failure::new(Kind::State, "no agent runs; the next query starts one"));
        };
        self.sandbox.signal(agent.id, signal, false);
        Ok(())
    }

    fn freeze(&mut self, freeze: bool, ticket: Ticket) {
        if freeze && !matches!(self.session_state(), State::Active | State::Paused) {
            let message = format!("the session is {}: there is nothing to pause", self.session_state());
            return self.answer(ticket, Err(Failure::new(Kind::State, message)));
        }
        if !freeze && self.detached && self.still.frozen {
            self.clock.again();
        }
        self.paused_by = None;
        if let Err(failure) = self.tell_freezer(freeze) {
            return self.answer(ticket, Err(failure));
        }
        self.still.waiting.push(ticket);
        self.freezer_changed();
    }

    fn change(&mut self, what: &Change) -> Done {
        self.change_policy(what).map_err(|error| failure(&error))
    }

    fn generation(&mut self) -> &mut u64 {
        &mut self.limited.generation
    }

    fn begin(&mut self, exec: ExecId, command: String) -> Result<()> {
        let registry = self.talk.poll.registry();
        let (sandbox, hold) = (&mut self.sandbox, self.execs.hold());
        self.execs.run(registry, exec, command, |program, streams| {
            sandbox.exec(registry, program, streams, ExecFlags::SUBREAPER, hold)
        })
    }

    fn end(&mut self, exec: ExecId) {
        self.execs.kill(exec);
    }

    fn shut_down(&mut self) {
        self.asked.get_or_insert(Asked::Shutdown);
        self.give_up_snapshot();
        self.thaw();
        self.talk.hub.bridge(Bridge::terminate);
    }

    fn files(&mut self, call: FileCall, ticket: Ticket) {
        let (Some(workspace), Some(launcher)) = (&self.workspace, self.privileged.launcher()) else {
            let failure = Failure::new(Kind::State, "the sandbox is being made");
            return self.answer(ticket, Err(failure));
        };
        let registry = self.talk.poll.registry();
        let begun = self.files.begin(launcher, &call, ticket, workspace.as_fd(), registry);
        if let Some((ticket, answer)) = begun {
            self.answer(ticket, answer);
        }
    }

    fn snapshot(&mut self, all: bool, ticket: Ticket) {
        self.take_snapshot(all, ticket);
    }

    fn is_frozen(&self) -> bool {
        self.still.frozen
    }

    fn bridge(&mut self) -> &mut Hub {
        &mut self.talk.hub
    }
}

impl Loop<'_> {
    /// Which hosts are reached, where the network goes by policy.
    fn hosts(&self) -> Value {
        let texts = |rules: &[Setting<HostRule>]| -> Vec<String> {
            rules.iter().map(|rule| rule.value.to_string()).collect()
        };
        let Some(consented) = self.network.consented() else { return Value::Null };
        let Hosts { allow, deny, ask } = self.limited.hosts();
        json!({ "allow": texts(allow), "deny": texts(deny), "ask": texts(ask), "consented": consented })
    }

    /// Who is stopped hears no polite word.
    pub(super) fn thaw(&mut self) {
        if self.still.frozen {
            let _ = self.tell_freezer(false);
            self.freezer_changed();
        }
    }

    /// Stops everything in the cgroup, or lets it go on.
    pub(super) fn drive_freezer(&mut self, stop: bool) -> Done {
        let Some(cgroup) = self.cgroup.as_deref() else { return Err(no_cgroup("it cannot be paused")) };
        let fails = |error: Error| Failure::new(Kind::Internal, error.to_string());
        if self.still.freezer.is_none() {
            let freezer = Freezer::open(cgroup).map_err(|_| no_cgroup("it cannot be paused"))?;
            let registered = self.talk.poll.registry().register(
                &mut SourceFd(&freezer.events().as_raw_fd()),
                FREEZER,
                Interest::PRIORITY,
            );
            registered.map_err(|e| fails(Error::system("watch cgroup.events", e)))?;
            self.still.freezer = Some(freezer);
        }
        self.still.freezer.as_ref().map_or(Ok(()), |freezer| freezer.tell(stop).map_err(fails))
    }

    pub(super) fn tell_freezer(&mut self, freeze: bool) -> Done {
        // What stands still for a snapshot goes on after it.
        self.drive_freezer(freeze || self.snapshot.is_some())?;
        if std::mem::replace(&mut self.still.frozen, freeze) != freeze {
            self.talk.hub.bridge(|bridge| bridge.pause(freeze));
            let id = self.id;
            self.status.say(&if freeze { Event::Paused { id } } else { Event::Resumed { id } });
        }
        Ok(())
    }

    /// Answers those who wait, once all is as it was told.
    pub(super) fn freezer_changed(&mut self) {
        let Some(freezer) = &mut self.still.freezer else { return };
        // A cgroup above may be frozen, too: to go on is done when it was told.
        let done = !self.still.frozen || freezer.is_frozen().unwrap_or(true);
        if done {
            self.keep();
            for ticket in std::mem::take(&mut self.still.waiting) {
                self.answer(ticket, Ok(json!({})));
            }
        }
        self.tend_snapshot();
    }

    /// Whether nothing in the cgroup runs now, by the kernel's account.
    pub(super) fn stands_still(&mut self) -> bool {
        self.still.freezer.as_mut().is_some_and(|freezer| freezer.is_frozen().unwrap_or(false))
    }
}

fn no_cgroup(what: &str) -> Failure {
    let cure = "run saggar where its user may make cgroups (saggar doctor says how)";
    Failure::new(Kind::Unsupported, format!("the sandbox has no cgroup, so {what}; {cure}"))
}
