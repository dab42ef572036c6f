//! Connections of the SDK dialect: their input and output (saggar-bridge(7), RB-01 to RB-27, RB-36 to RB-39).
//!
//! A `user` message is a turn like any other. Its end has no event beyond the conversation itself. An error outside
//! the conversation is sent as one `system` line. Control requests are answered at once, whatever the agent does.

use super::connection::CommandReply;
use super::{Bridge, ConnId};
use crate::proto::permission::{DecidedBy, ParsedResponse, parse_response};
use crate::proto::sdk_dialect::{
    self, SdkControlRequest, SdkMessage, SeenUuids, UserMessage, closing_result, control,
};
use crate::proto::{BridgeEvent, CommandId, LogLevel, QueryCommand, QueryField, json};

/// State of the SDK dialect that all connections share and that survives a reconnect (RB-39).
#[derive(Debug)]
pub(super) struct SdkState {
    /// Uuids of sent messages. A received message with one of them is an echo (RB-07).
    sent_messages: SeenUuids,
    /// Uuids of received messages (RB-08).
    received_messages: SeenUuids,
    /// Handled control requests, by the JSON of their ids. A repeated request has no effect.
    handled_requests: SeenUuids,
    /// Settings from control requests, for later turns.
    settings: SdkSettings,
}

/// Query fields, as JSON.
#[derive(Debug, Default)]
struct SdkSettings {
    model: Option<String>,
    thinking: Option<String>,
    mode: Option<String>,
}

impl SdkState {
    pub(super) fn new(remembered: usize) -> Self {
        let new = || SeenUuids::new(remembered);
        SdkState {
            sent_messages: new(),
            received_messages: new(),
            handled_requests: new(),
            settings: SdkSettings::default(),
        }
    }
}

impl Bridge {
    /// Restores the uuids of messages of an earlier run of this session, oldest first: `sent` to servers, and
    /// `received` from them. Repetitions of either are dropped (RB-39).
    pub(crate) fn restore_seen_messages(
        &mut self,
        sent: impl IntoIterator<Item = String>,
        received: impl IntoIterator<Item = String>,
    ) {
        for uuid in sent {
            self.sdk_state.sent_messages.insert(&uuid);
        }
        for uuid in received {
            self.sdk_state.received_messages.insert(&uuid);
        }
    }

    pub(super) fn handle_sdk_line(&mut self, conn: ConnId, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        match sdk_dialect::parse_sdk_message(line) {
            Ok(SdkMessage::Response(response)) => self.handle_sdk_response(conn, response),
            Ok(SdkMessage::Cancel(id)) => self.handle_sdk_cancel(conn, &id),
            Ok(SdkMessage::ControlRequest(request)) => self.handle_control_request(conn, &request),
            Ok(SdkMessage::User(user)) => self.handle_user_message(conn, &user),
            Ok(SdkMessage::Other(kind)) => self.log_ignored(&format!("type {:?}", json::shorten(&kind))),
            Err(why) => self.log_ignored(&why),
        }
    }

    /// Sends a line of the agent to a connection that filters or that uses the SDK dialect.
    pub(super) fn send_classified(&mut self, conn: ConnId, id: Option<&CommandId>, data: &str) {
        let Some(to) = self.connections.get(&conn) else { return };
        let (filters, is_second) = (to.is_filtered(), to.speaks_sdk());
        let outgoing = sdk_dialect::classify_line(data);
        if filters && !outgoing.is_eligible {
            return;
        }
        if !is_second {
            return self.send(conn, BridgeEvent::Message { data }.encode(id));
        }
        // Recorded before the line is sent, because its echo may arrive at once (RB-38).
        if let Some(uuid) = &outgoing.uuid {
            self.mark_sent(uuid);
        }
        let mut line = Vec::with_capacity(data.len() + 1);
        line.extend_from_slice(data.as_bytes());
        line.push(b'\n');
        self.send(conn, line);
    }

    fn mark_sent(&mut self, uuid: &str) {
        if self.sdk_state.sent_messages.insert(uuid) {
            self.store_uuid(true, uuid);
        }
    }

    /// Encodes an error outside the conversation.
    pub(super) fn error_notice(&mut self, text: &str) -> Vec<u8> {
        let (uuid, line) = control::encode_notice(&self.config.session_name, text);
        self.mark_sent(&uuid);
        line
    }

    /// Sends the final `result` on every connection of the SDK dialect (RB-36).
    pub(super) fn send_closing_results(&mut self) {
        let conns: Vec<ConnId> =
            self.connections.iter().filter(|(_, conn)| conn.speaks_sdk()).map(|(id, _)| *id).collect();
        for conn in conns {
            self.send(conn, closing_result(&self.config.session_name));
        }
    }

    fn handle_control_request(&mut self, conn: ConnId, request: &SdkControlRequest<'_>) {
        let id = request.request_id;
        let Some(from) = self.connections.get_mut(&conn) else { return };
        if from.answered_requests.contains(id) {
            return self.log_ignored("a control_request that was answered");
        }
        from.answered_requests.insert(id);
        let session = &self.config.session_name;
        let reply = match request.subtype.as_str() {
            "initialize" => control::initialize_response(session, id, self.config.pid),
            _ if from.outbound_only => control::error_response(session, id, control::OUTBOUND_ONLY),
            subtype => match self.apply_control_request(conn, subtype, request) {
                Some(Ok(())) => control::success_response(&self.config.session_name, id),
                Some(Err(why)) => control::error_response(&self.config.session_name, id, &why),
                None => control::unknown_subtype_response(&self.config.session_name, id, subtype),
            },
        };
        self.sdk_state.handled_requests.insert(id);
        self.send(conn, reply);
    }

    /// Applies a control request; `None` for an unknown subtype.
    fn apply_control_request(
        &mut self,
        conn: ConnId,
        subtype: &str,
        request: &SdkControlRequest<'_>,
    ) -> Option<Result<(), String>> {
        let repeated = self.sdk_state.handled_requests.contains(request.request_id);
        let field = |name: &str| {
            json::scan(request.body, &[name]).ok().and_then(|scan| scan.fields[0]).unwrap_or("null")
        };
        let settings = &mut self.sdk_state.settings;
        let (slot, value) = match subtype {
            "interrupt" => {
                if !repeated {
                    self.interrupt(conn);
                }
                return Some(Ok(()));
            }
            "set_model" => (&mut settings.model, model_json(field("model"))),
            "set_max_thinking_tokens" => {
                (&mut settings.thinking, thinking_json(field("max_thinking_tokens")))
            }
            "set_permission_mode" if !self.adapter.supports_modes() => {
                return Some(Err(control::MODES_UNSUPPORTED.into()));
            }
            "set_permission_mode" => {
                let name = json::parse_string(field("mode")).unwrap_or_default();
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

    fn handle_user_message(&mut self, conn: ConnId, user: &UserMessage<'_>) {
        let uuid = user.uuid.as_deref();
        if uuid.is_some_and(|uuid| self.sdk_state.sent_messages.contains(uuid)) {
            return self.log_ignored("an echo of an earlier message");
        }
        if uuid.is_some_and(|uuid| self.sdk_state.received_messages.contains(uuid)) {
            return self.log_ignored("a message that was taken before");
        }
        let Some(from) = self.connections.get(&conn).filter(|conn| !conn.outbound_only) else {
            return self.log_ignored("a message on an outbound-only connection");
        };
        let partials = !from.is_filtered();
        let remembered = uuid.is_some_and(|uuid| self.sdk_state.received_messages.insert(uuid));
        let Some(content) = &user.content else {
            return self.log_ignored("a message without content");
        };
        let SdkSettings { model, thinking, mode } = &self.sdk_state.settings;
        let settings = [
            (QueryField::Model, model),
            (QueryField::Thinking, thinking),
            (QueryField::PermissionMode, mode),
        ];
        let settings: Vec<(QueryField, &str)> =
            settings.into_iter().filter_map(|(field, json)| Some((field, json.as_deref()?))).collect();
        let session = self.session.as_deref().unwrap_or(&self.config.session_name);
        let query = QueryCommand::from_user_message(content, uuid, session, partials, &settings);
        let is_taken = self.enqueue_query(CommandReply::new(conn, None), Box::new(query));
        // The message was rejected, so its repetition must be accepted.
        match uuid.filter(|_| remembered) {
            Some(uuid) if is_taken => self.store_uuid(false, uuid),
            Some(uuid) => self.sdk_state.received_messages.remove_newest(uuid),
            None => {}
        }
    }

    fn handle_sdk_response(&mut self, conn: ConnId, response: &str) {
        if !self.accepts_input_from(conn) {
            return;
        }
        match parse_response(response, true) {
            ParsedResponse::Complete(answer) => {
                let Some(pending) = self.questions.get(&answer.request_id) else {
                    return self.log_ignored("an answer to no open question");
                };
                if !self.can_deliver_response(&pending.question) {
                    return;
                }
                let line = pending.question.encode_response(answer.verdict, answer.body);
                self.decide_question(
                    &answer.request_id,
                    &line,
                    answer.verdict,
                    DecidedBy::Server,
                    Some(conn),
                );
            }
            // The response names a question and is neither an allowance nor a denial. No better response will follow,
            // so the question is denied.
            ParsedResponse::Malformed { request_id, why } => {
                self.deny_question(
                    &request_id,
                    DecidedBy::Bridge,
                    Some(conn),
                    &format!("the answer is malformed: {why}"),
                );
            }
            ParsedResponse::NoRequestId(why) => self.log_ignored(why),
        }
    }

    fn handle_sdk_cancel(&mut self, conn: ConnId, id: &str) {
        if self.accepts_input_from(conn) {
            self.deny_question(id, DecidedBy::Server, Some(conn), "the server took the question back");
        }
    }

    fn accepts_input_from(&mut self, conn: ConnId) -> bool {
        let outbound_only = self.connections.get(&conn).is_none_or(|conn| conn.outbound_only);
        if outbound_only {
            self.log_ignored("an answer on an outbound-only connection");
        }
        !outbound_only
    }

    /// Remembers the uuid of a command or a message that was accepted.
    pub(super) fn remember_received(&mut self, uuid: &str) {
        if self.sdk_state.received_messages.insert(uuid) {
            self.store_uuid(false, uuid);
        }
    }

    /// Whether a command or a message with this uuid was accepted before.
    pub(super) fn has_received(&self, uuid: &str) -> bool {
        self.sdk_state.received_messages.contains(uuid)
    }

    pub(super) fn log_ignored(&mut self, why: &str) {
        self.log(LogLevel::Debug, &format!("ignored: {why}"));
    }
}

/// The model's name as JSON; `null` selects the agent's default.
fn model_json(json: &str) -> Result<String, String> {
    match json {
        "null" => Ok("\"default\"".into()),
        name if json::parse_string(name).is_some_and(|name| !name.is_empty()) => Ok(name.into()),
        _ => Err("set_model: the model is not a name".into()),
    }
}

/// The `thinking` field of a query.
fn thinking_json(json: &str) -> Result<String, String> {
    let is_count = json == "null" || serde_json::from_str::<u64>(json).is_ok();
    match is_count {
        true => Ok(format!("{{\"budgetTokens\":{json}}}")),
        false => Err("set_max_thinking_tokens: max_thinking_tokens is not a number of tokens".into()),
    }
}
