//! What the control socket asks of a container.

use super::Loop;
use crate::bridge::core::{Bridge, ExecId};
use crate::bridge::io::Hub;
use crate::control::clients::Ticket;
use crate::control::files::FileCall;
use crate::control::method::Change;
use crate::control::rpc::{Failure, Kind};
use crate::error::{Error, Result};
use crate::supervise::status::Event;
use crate::supervise::talk::control::{self as talk, Control, Controlled, Done};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

impl Controlled for Loop {
    fn control(&mut self) -> Option<&mut Control> {
        self.control.as_mut()
    }

    fn state(&self) -> Value {
        let mut state = self.room.state();
        let bridge = self.talk.hub.state();
        state["session"] = json!({
            "id": self.name,
            "state": if self.room.is_frozen() { "paused" } else { "active" },
            "busy": bridge.is_busy(),
            "commandsEnded": bridge.commands_ended(),
            "lastExit": null,
        });
        state["degraded"] = json!([]);
        state["generation"] = json!(self.generation);
        state["exit"] = json!(null);
        state
    }

    fn stats(&self) -> std::result::Result<Value, Failure> {
        self.room.stats().map_err(failure)
    }

    fn kill(&mut self, signal: Signal) -> Done {
        let gone = |error| Failure::new(Kind::State, format!("the program of the container: {error}"));
        self.room.signal(signal as i32).map_err(gone)
    }

    fn freeze(&mut self, freeze: bool, ticket: Ticket) {
        let done = self.room.freeze(freeze);
        if done.is_ok() {
            self.talk.hub.bridge(|bridge| bridge.pause(freeze));
            let id = &self.name;
            if let Some(control) = &mut self.control {
                control.event(&if freeze { Event::Paused { id } } else { Event::Resumed { id } });
            }
        }
        self.answer(ticket, done.map(|()| json!({})).map_err(failure));
    }

    fn change(&mut self, what: &Change) -> Done {
        match what {
            Change::Resources(resources) => {
                self.room.update(resources).map_err(|error| talk::failure(&error))?;
                let event = Event::Updated { id: &self.name, generation: self.generation + 1 };
                if let Some(control) = &mut self.control {
                    control.event(&event);
                }
                Ok(())
            }
            Change::Limits(_) | Change::Network(_) => {
                let message = "update: a container has resources, as config.json has them, and no limits or network of saggar's";
                Err(Failure::new(Kind::Params, message))
            }
        }
    }

    fn generation(&mut self) -> &mut u64 {
        &mut self.generation
    }

    fn begin(&mut self, exec: ExecId, command: String) -> Result<()> {
        self.commands.run(&self.room, self.talk.poll.registry(), exec, command)
    }

    fn end(&mut self, exec: ExecId) {
        self.commands.kill(exec);
    }

    fn shut_down(&mut self) {
        if self.room.is_frozen() {
            let _ = self.room.freeze(false);
        }
        self.talk.hub.bridge(Bridge::terminate);
    }

    fn files(&mut self, _: FileCall, ticket: Ticket) {
        let message = "a container has no workspace; exec reads its files";
        self.answer(ticket, Err(Failure::new(Kind::Unsupported, message)));
    }

    fn snapshot(&mut self, _: bool, ticket: Ticket) {
        let message = "snapshot: a container has no session, and nothing of it is kept";
        self.answer(ticket, Err(Failure::new(Kind::Unsupported, message)));
    }

    fn is_frozen(&self) -> bool {
        self.room.is_frozen()
    }

    fn bridge(&mut self) -> &mut Hub {
        &mut self.talk.hub
    }
}

fn failure(error: Error) -> Failure {
    let kind =
        if error.code() == crate::error::Code::Unsupported { Kind::Unsupported } else { Kind::Internal };
    Failure::new(kind, error.to_string())
}
