//! Handles the requests of the control socket for a container.

use super::SidecarLoop;
use crate::bridge::core::{Bridge, ExecId};
use crate::bridge::io::ConnectionHub;
use crate::control::files::FileRequest;
use crate::control::method::UpdateChange;
use crate::control::rpc::{RpcError, RpcErrorKind};
use crate::control::server::ResponseTicket;
use crate::error::{Error, Result};
use crate::supervise::channel::control::{self as talk, ControlHandler, ControlResult, ControlSocket};
use crate::supervise::status::StatusEvent;
use serde_json::{Value, json};

impl ControlHandler for SidecarLoop {
    fn control_socket(&mut self) -> Option<&mut ControlSocket> {
        self.control.as_mut()
    }

    fn state_json(&self) -> Value {
        let mut state = self.container.state();
        let bridge = self.channel.hub.core();
        state["session"] = json!({
            "id": self.name,
            "state": if self.container.is_frozen() { "paused" } else { "active" },
            "busy": bridge.is_busy(),
            "commandsEnded": bridge.commands_ended(),
            "lastExit": null,
        });
        state["degraded"] = json!([]);
        state["generation"] = json!(self.generation);
        state["exit"] = json!(null);
        state
    }

    fn stats_json(&self) -> std::result::Result<Value, RpcError> {
        self.container.stats().map_err(to_rpc_error)
    }

    fn kill(&mut self, signal: i32) -> ControlResult {
        let gone =
            |error| RpcError::new(RpcErrorKind::State, format!("the program of the container: {error}"));
        self.container.signal(signal).map_err(gone)
    }

    fn freeze(&mut self, freeze: bool, ticket: ResponseTicket) {
        let done = self.container.freeze(freeze);
        if done.is_ok() {
            self.channel.hub.with_bridge(|bridge| bridge.set_paused(freeze));
            let id = &self.name;
            if let Some(control) = &mut self.control {
                control.publish_event(&if freeze {
                    StatusEvent::Paused { id }
                } else {
                    StatusEvent::Resumed { id }
                });
            }
        }
        self.respond(ticket, done.map(|()| json!({})).map_err(to_rpc_error));
    }

    fn apply_change(&mut self, what: &UpdateChange) -> ControlResult {
        match what {
            UpdateChange::Resources(resources) => {
                self.container.update(resources).map_err(|error| talk::to_rpc_error(&error))?;
                let event = StatusEvent::Updated { id: &self.name, generation: self.generation + 1 };
                if let Some(control) = &mut self.control {
                    control.publish_event(&event);
                }
                Ok(())
            }
            UpdateChange::Limits(_) | UpdateChange::Network(_) => {
                let message = "update: a container has resources, as config.json has them, and no limits or network of saggar's";
                Err(RpcError::new(RpcErrorKind::Params, message))
            }
        }
    }

    fn generation(&mut self) -> &mut u64 {
        &mut self.generation
    }

    fn start_command(&mut self, exec: ExecId, command: String) -> Result<()> {
        self.commands.run(&self.container, self.channel.poll.registry(), exec, command)
    }

    fn kill_command(&mut self, exec: ExecId) {
        self.commands.kill(exec);
    }

    fn shut_down(&mut self) {
        if self.container.is_frozen() {
            let _ = self.container.freeze(false);
        }
        self.channel.hub.with_bridge(Bridge::begin_termination);
    }

    fn start_file_call(&mut self, _: FileRequest, ticket: ResponseTicket) {
        let message = "a container has no workspace; exec reads its files";
        self.respond(ticket, Err(RpcError::new(RpcErrorKind::Unsupported, message)));
    }

    fn request_snapshot(&mut self, _: bool, ticket: ResponseTicket) {
        let message = "snapshot: a container has no session, and nothing of it is kept";
        self.respond(ticket, Err(RpcError::new(RpcErrorKind::Unsupported, message)));
    }

    fn is_frozen(&self) -> bool {
        self.container.is_frozen()
    }

    fn bridge(&mut self) -> &mut ConnectionHub {
        &mut self.channel.hub
    }
}

fn to_rpc_error(error: Error) -> RpcError {
    let kind = if error.code() == crate::error::Code::Unsupported {
        RpcErrorKind::Unsupported
    } else {
        RpcErrorKind::Internal
    };
    RpcError::new(kind, error.to_string())
}
