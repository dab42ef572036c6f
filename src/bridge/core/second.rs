//! What a connection of the second dialect says and is told (seed 003, RB-01 to RB-27, RB-36 to RB-39).
//!
//! A `user` message is a turn like any other. Nothing is said of its end but the conversation itself; what goes
//! wrong below that is told as one `system` line. Control requests are answered at once, whatever the agent is
//! doing.

use super::conn::Reply;
use super::{Bridge, ConnId};
use crate::bridge::proto::permission::{By, Reading, read_response};
use crate::bridge::proto::second::{self, Inbound, Request, Seen, User, closing_result, control};
use crate::bridge::proto::{Event, Field, Id, LogLevel, Query, json};

/// What all connections of the second dialect share, and a reconnect leaves as it is (RB-39).
#[derive(Debug)]
pub(super) struct Shared {
    /// Messages that were told, by their uuids: what comes back of them is an echo (RB-07).
    posted: Seen,
    /// Messages that were taken (RB-08).
    taken: Seen,
    /// Control requests that were done, by the JSON of their ids: a second delivery changes nothing.
    done: Seen,
    /// What control requests have set, for the turns to come.
    settings: Settings,
}

/// JSON of fields of a query.
#[derive(Debug, Default)]
struct Settings {
    model: Option<String>,
    thinking: Option<String>,
    mode: Option<String>,
}

impl Shared {
    pub(super) fn new(remembered: usize) -> Self {
        let new = || Seen::new(remembered);
        Shared { posted: new(), taken: new(), done: new(), settings: Settings::default() }
    }
}

impl Bridge {
    /// Messages of an earlier run of this conversation, oldest first: `told` are those that servers have heard,
    /// `taken` those that they have said, by their uuids. What comes again of either is dropped (RB-39).
    pub fn remember(
        &mut self,
        told: impl IntoIterator<Item = String>,
        taken: impl IntoIterator<Item = String>,
    ) {
        for uuid in told {
            self.shared.posted.add(&uuid);
        }
        for uuid in taken {
            self.shared.taken.add(&uuid);
        }
    }

    pub(super) fn second_line(&mut self, conn: ConnId, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        match second::read(line) {
            Ok(Inbound::Answer(response)) => self.second_answer(conn, response),
            Ok(Inbound::Cancel(id)) => self.second_cancel(conn, &id),
            Ok(Inbound::Request(request)) => self.control_request(conn, &request),
            Ok(Inbound::User(user)) => self.user(conn, &user),
            Ok(Inbound::Other(kind)) => self.ignored(&format!("type {:?}", json::shorten(&kind))),
            Err(why) => self.ignored(&why),
        }
    }

    /// Tells a connection that filters, or that speaks bare lines, of a line of the agent.
    pub(super) fn tell_looked_at(&mut self, conn: ConnId, id: Option<&Id>, data: &str) {
        let Some(to) = self.conns.get(&conn) else { return };
        let (filters, is_second) = (to.filters(), to.is_second());
        let outgoing = second::look(data);
        if filters && !outgoing.eligible {
            return;
        }
        if !is_second {
            return self.send(conn, Event::Message { data }.encode(id));
        }
        // Before it leaves: its echo may be here at once (RB-38).
        if let Some(uuid) = &outgoing.uuid {
            self.posted(uuid);
        }
        let mut line = Vec::with_capacity(data.len() + 1);
        line.extend_from_slice(data.as_bytes());
        line.push(b'\n');
        self.send(conn, line);
    }

    fn posted(&mut self, uuid: &str) {
        if self.shared.posted.add(uuid) {
            self.note(true, uuid);
        }
    }

    /// The line that tells of a failure below the conversation.
    pub(super) fn notice(&mut self, text: &str) -> Vec<u8> {
        let (uuid, line) = control::notice(&self.config.name, text);
        self.posted(&uuid);
        line
    }

    /// The last word on every connection of the second dialect (RB-36).
    pub(super) fn say_closing(&mut self) {
        let conns: Vec<ConnId> =
            self.conns.iter().filter(|(_, conn)| conn.is_second()).map(|(id, _)| *id).collect();
        for conn in conns {
            self.send(conn, closing_result(&self.config.name));
        }
    }

    fn control_request(&mut self, conn: ConnId, request: &Request<'_>) {
        let id = request.request_id;
        let Some(from) = self.conns.get_mut(&conn) else { return };
        if from.answered.has(id) {
            return self.ignored("a control_request that was answered");
        }
        from.answered.add(id);
        let session = &self.config.name;
        let reply = match request.subtype.as_str() {
            "initialize" => control::initialized(session, id, self.config.pid),
            _ if from.outbound_only => control::error(session, id, control::OUTBOUND_ONLY),
            subtype => match self.control(conn, subtype, request) {
                Some(Ok(())) => control::success(&self.config.name, id),
                Some(Err(why)) => control::error(&self.config.name, id, &why),
                None => control::unknown(&self.config.name, id, subtype),
            },
        };
        self.shared.done.add(id);
        self.send(conn, reply);
    }

    /// Does what is asked for; `None` when nobody knows it.
    fn control(&mut self, conn: ConnId, subtype: &str, request: &Request<'_>) -> Option<Result<(), String>> {
        let repeated = self.shared.done.has(request.request_id);
        let field = |name: &str| {
            json::scan(request.body, &[name]).ok().and_then(|scan| scan.fields[0]).unwrap_or("null")
        };
        let settings = &mut self.shared.settings;
        let (slot, value) = match subtype {
            "interrupt" => {
                if !repeated {
                    self.interrupt(conn);
                }
                return Some(Ok(()));
            }
            "set_model" => (&mut settings.model, model(field("model"))),
            "set_max_thinking_tokens" => (&mut settings.thinking, thinking(field("max_thinking_tokens"))),
            "set_permission_mode" if !self.adapter.takes_modes() => {
                return Some(Err(control::NO_MODES.into()));
            }
            "set_permission_mode" => {
                let name = json::string(field("mode")).unwrap_or_default();
                let mode = self.config.permissions.may_set_mode(&name);
                (&mut settings.mode, mode.map(|mode| json::quote(mode.name())))
            }
            _ => return None,
        };
        Some(value.map(|value| {
            if !repeated {
                *slot = Some(value);
            }
        }))
    }

    fn user(&mut self, conn: ConnId, user: &User<'_>) {
        let uuid = user.uuid.as_deref();
        if uuid.is_some_and(|uuid| self.shared.posted.has(uuid)) {
            return self.ignored("an echo of what was told");
        }
        if uuid.is_some_and(|uuid| self.shared.taken.has(uuid)) {
            return self.ignored("a message that was taken before");
        }
        let Some(from) = self.conns.get(&conn).filter(|conn| !conn.outbound_only) else {
            return self.ignored("a message on an outbound-only connection");
        };
        let partials = !from.filters();
        let remembered = uuid.is_some_and(|uuid| self.shared.taken.add(uuid));
        let Some(content) = &user.content else {
            return self.ignored("a message without content");
        };
        let Settings { model, thinking, mode } = &self.shared.settings;
        let settings = [(Field::Model, model), (Field::Thinking, thinking), (Field::PermissionMode, mode)];
        let settings: Vec<(Field, &str)> =
            settings.into_iter().filter_map(|(field, json)| Some((field, json.as_deref()?))).collect();
        let session = self.session.as_deref().unwrap_or(&self.config.name);
        let query = Query::of_user(content, uuid, session, partials, &settings);
        let is_taken = self.enqueue_query(Reply::new(conn, None), Box::new(query));
        // What found no place may come again.
        match uuid.filter(|_| remembered) {
            Some(uuid) if is_taken => self.note(false, uuid),
            Some(uuid) => self.shared.taken.forget_newest(uuid),
            None => {}
        }
    }

    fn second_answer(&mut self, conn: ConnId, response: &str) {
        if !self.may_say(conn) {
            return;
        }
        match read_response(response, true) {
            Reading::Whole(answer) => {
                let Some(pending) = self.questions.get(&answer.request_id) else {
                    return self.ignored("an answer to no open question");
                };
                if !self.hears(&pending.ask) {
                    return;
                }
                let line = pending.ask.answer(answer.verdict, answer.body);
                self.decided(&answer.request_id, &line, answer.verdict, By::Server, Some(conn));
            }
            // It names a question and says neither yes nor no to it: nobody will say it better.
            Reading::Malformed { request_id, why } => {
                self.denied(&request_id, By::Bridge, Some(conn), &format!("the answer is malformed: {why}"));
            }
            Reading::Nameless(why) => self.ignored(why),
        }
    }

    fn second_cancel(&mut self, conn: ConnId, id: &str) {
        if self.may_say(conn) {
            self.denied(id, By::Server, Some(conn), "the server took the question back");
        }
    }

    fn may_say(&mut self, conn: ConnId) -> bool {
        let outbound_only = self.conns.get(&conn).is_none_or(|conn| conn.outbound_only);
        if outbound_only {
            self.ignored("an answer on an outbound-only connection");
        }
        !outbound_only
    }

    #[cfg(test)]
    pub(super) fn shared_has_taken(&self, uuid: &str) -> bool {
        self.shared.taken.has(uuid)
    }

    fn ignored(&mut self, why: &str) {
        self.log(LogLevel::Debug, &format!("ignored: {why}"));
    }
}

/// The model's name as JSON; none is the agent's own.
fn model(json: &str) -> Result<String, String> {
    match json {
        "null" => Ok("\"default\"".into()),
        name if json::string(name).is_some_and(|name| !name.is_empty()) => Ok(name.into()),
        _ => Err("set_model: the model is not a name".into()),
    }
}

/// The `thinking` of a query.
fn thinking(json: &str) -> Result<String, String> {
    let is_count = json == "null" || serde_json::from_str::<u64>(json).is_ok();
    match is_count {
        true => Ok(format!("{{\"budgetTokens\":{json}}}")),
        false => Err("set_max_thinking_tokens: max_thinking_tokens is not a number of tokens".into()),
    }
}
