//! The adapter for Claude Code and other agents with the `stream-json` protocol on stdin and stdout.
//!
//! One process runs many turns. A turn is one `user` line and ends with the agent's `result` line. The model, thinking
//! and permission mode of a query are sent first, as control requests. The `user` line follows after the agent has
//! accepted all of them, so that a turn never runs in another mode than requested. A line that is not JSON makes the
//! agent exit, so only validated lines are sent to it.

use super::{
    AbortAction, Adapter, AdapterEvent, AgentMessage, AgentTransport, TurnContext, encode_line, start_flags,
};
use crate::proto::json::{self, quote};
use crate::proto::{LogLevel, QueryCommand, QueryField, uuid_v4};
use std::collections::BTreeMap;

/// Prefix of the ids of the bridge's own control requests. Their responses are not forwarded.
const REQUEST_ID_PREFIX: &str = "saggar-";

/// Arguments of every start. Partial messages are always enabled; turns that did not request them do not receive them.
const ARGUMENTS: [&str; 8] = [
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
    "--permission-prompt-tool",
    "stdio",
];

/// The adapter for agents with the `stream-json` protocol.
#[derive(Debug, Default)]
pub struct StreamJsonAdapter {
    request_count: u64,
    /// The bridge's own control requests without a response, by the number in their id.
    pending_requests: BTreeMap<u64, ControlPurpose>,
    /// The `user` line of a turn whose settings are not all accepted yet.
    held_user_line: Option<Vec<u8>>,
    /// Settings that this process has accepted.
    settings: BTreeMap<&'static str, String>,
    /// Settings of a process that was ended because it was idle. A query without them runs in the next process as it
    /// would have run in that one.
    retained_settings: BTreeMap<&'static str, String>,
    /// The next start follows such an end.
    retains_settings: bool,
    /// The agent runs a turn that it started itself (a background task triggered it).
    agent_started_turn: bool,
    /// Number of `result` lines of such turns that precede the `result` of the running turn.
    pending_foreign_results: u32,
}

#[derive(Debug)]
enum ControlPurpose {
    Interrupt,
    Resume,
    Setting { name: &'static str, value: String },
}

impl StreamJsonAdapter {
    /// Creates an adapter for a process that has not been started yet.
    pub fn new() -> Self {
        StreamJsonAdapter::default()
    }

    fn control_request(&mut self, purpose: ControlPurpose, body: &str) -> Vec<u8> {
        self.request_count += 1;
        self.pending_requests.insert(self.request_count, purpose);
        let id = format!("{REQUEST_ID_PREFIX}{}", self.request_count);
        encode_line(&format!("{{\"type\":\"control_request\",\"request_id\":\"{id}\",\"request\":{body}}}"))
    }

    /// Encodes the control requests that apply the settings of the query to the process.
    fn setting_requests(&mut self, query: &QueryCommand) -> Vec<u8> {
        let mut lines = Vec::new();
        for (field, name, key) in [
            (QueryField::Model, "set_model", "model"),
            (QueryField::Thinking, "set_max_thinking_tokens", "max_thinking_tokens"),
            (QueryField::PermissionMode, "set_permission_mode", "mode"),
        ] {
            let value = match field {
                QueryField::Thinking => query.field(field).and_then(thinking_tokens),
                _ => query.field(field).map(str::to_owned),
            };
            let value = value.or_else(|| match self.settings.contains_key(name) {
                true => None,
                false => self.retained_settings.get(name).cloned(),
            });
            let Some(value) = value.filter(|value| self.settings.get(name) != Some(value)) else { continue };
            let body = format!("{{\"subtype\":\"{name}\",\"{key}\":{value}}}");
            lines.append(&mut self.control_request(ControlPurpose::Setting { name, value }, &body));
        }
        lines
    }

    fn has_pending_settings(&self) -> bool {
        self.pending_requests.values().any(|purpose| matches!(purpose, ControlPurpose::Setting { .. }))
    }

    fn parse_response<'a>(&mut self, line: &'a str, response: Option<&'a str>) -> AdapterEvent<'a> {
        let scan = response.and_then(|text| json::scan(text, &["request_id", "subtype", "error"]).ok());
        let [id, subtype, error] = scan.map_or([None; 3], |scan| scan.fields);
        let number = id
            .and_then(json::parse_string)
            .and_then(|id| id.strip_prefix(REQUEST_ID_PREFIX).and_then(|number| number.parse::<u64>().ok()));
        let Some(purpose) = number.and_then(|number| self.pending_requests.remove(&number)) else {
            return AdapterEvent::Log(
                LogLevel::Debug,
                format!("an unexpected answer: {}", json::shorten(line)),
            );
        };
        let agreed = subtype.and_then(json::parse_string).as_deref() == Some("success");
        match purpose {
            ControlPurpose::Interrupt => AdapterEvent::Ignored,
            ControlPurpose::Resume => AdapterEvent::Resumed,
            ControlPurpose::Setting { name, value } if agreed => {
                self.settings.insert(name, value);
                if self.has_pending_settings() {
                    return AdapterEvent::Ignored;
                }
                self.held_user_line.take().map_or(AdapterEvent::Ignored, AdapterEvent::Send)
            }
            ControlPurpose::Setting { name, .. } => {
                let why = error.and_then(json::parse_string).unwrap_or_else(|| "no reason given".into());
                match self.held_user_line.take() {
                    Some(_) => AdapterEvent::TurnRejected(format!("the agent refused {name}: {why}")),
                    None => AdapterEvent::Log(LogLevel::Warn, format!("the agent refused {name}: {why}")),
                }
            }
        }
    }
}

impl Adapter for StreamJsonAdapter {
    fn name(&self) -> &'static str {
        "stream-json"
    }

    fn transport(&self) -> AgentTransport {
        AgentTransport::Stdio
    }

    fn start_arguments(&self, resume: Option<&str>, flags: &[String]) -> Vec<String> {
        let mut words: Vec<String> = ARGUMENTS.iter().map(|word| (*word).to_owned()).collect();
        words.extend(resume.map(|id| format!("--resume={id}")));
        words.extend_from_slice(flags);
        words
    }

    fn start_flags(&self, query: &QueryCommand) -> Result<Vec<String>, String> {
        for (field, name) in [(QueryField::Model, "model"), (QueryField::PermissionMode, "permissionMode")] {
            if query.field(field).is_some_and(|text| !text.starts_with('"')) {
                return Err(format!("query: the field {name} is not a string"));
            }
        }
        if query.field(QueryField::Thinking).is_some_and(|text| thinking_tokens(text).is_none()) {
            return Err("query: the field thinking has neither budgetTokens nor type disabled".into());
        }
        start_flags::start_flags(query)
    }

    fn sends_ready(&self) -> bool {
        false
    }

    fn takes_resume(&self) -> bool {
        false
    }

    fn can_replace_process(&self, has_conversation: bool, agent_session: Option<&str>) -> bool {
        !has_conversation || agent_session.is_some()
    }

    fn runs_own_turn(&self) -> bool {
        self.agent_started_turn
    }

    fn on_idle_end(&mut self) {
        self.retained_settings.append(&mut self.settings);
        self.retains_settings = true;
    }

    fn on_start(&mut self) {
        let retained_settings = match self.retains_settings {
            true => std::mem::take(&mut self.retained_settings),
            false => BTreeMap::new(),
        };
        // The request number continues, so that a response of an earlier process never matches a new request.
        *self = StreamJsonAdapter {
            request_count: self.request_count,
            retained_settings,
            ..StreamJsonAdapter::default()
        };
    }

    fn encode_query(&mut self, query: &QueryCommand, context: TurnContext<'_>) -> Vec<u8> {
        let content = user_content(query.prompt());
        let session = quote(context.agent_session.unwrap_or_default());
        // The agent drops a line whose uuid it has seen, so each uuid is random, or the server's own.
        let uuid = quote(&query.uuid().map_or_else(uuid_v4, str::to_owned));
        let user = encode_line(&format!(
            "{{\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":{content}}},\
             \"parent_tool_use_id\":null,\"session_id\":{session},\"uuid\":{uuid}}}"
        ));
        self.pending_foreign_results = u32::from(self.agent_started_turn);
        let settings = self.setting_requests(query);
        if settings.is_empty() {
            return user;
        }
        self.held_user_line = Some(user);
        settings
    }

    fn awaits_settings(&self) -> bool {
        self.held_user_line.is_some()
    }

    fn encode_resume(&mut self, _line: &str, _agent_session: Option<&str>) -> Vec<u8> {
        // The agent sends nothing by itself before its first turn. It answers this request once it has started.
        self.control_request(ControlPurpose::Resume, "{\"subtype\":\"initialize\"}")
    }

    fn abort_turn(&mut self) -> AbortAction {
        if self.held_user_line.take().is_some() {
            return AbortAction::NotSent;
        }
        AbortAction::Send(self.control_request(ControlPurpose::Interrupt, "{\"subtype\":\"interrupt\"}"))
    }

    fn encode_response(&mut self, line: &str) -> Vec<u8> {
        encode_line(line)
    }

    fn supports_modes(&self) -> bool {
        true
    }

    fn parse_line<'a>(&mut self, line: &'a str, in_turn: bool) -> AdapterEvent<'a> {
        let data = line.trim_ascii();
        let Ok(scan) = json::scan(data, &["type", "subtype", "session_id", "response"]) else {
            return AdapterEvent::NotJson;
        };
        let [kind, subtype, session, response] = scan.fields;
        let kind = kind.and_then(json::parse_string).unwrap_or_default();
        let mut message = AgentMessage { data, ..AgentMessage::default() };
        match kind.as_str() {
            "control_response" => return self.parse_response(data, response),
            "control_request" | "control_cancel_request" => message.is_control = true,
            "stream_event" => {
                message.is_partial = true;
                self.agent_started_turn |= !in_turn;
            }
            "assistant" => self.agent_started_turn |= !in_turn,
            "result" => {
                self.agent_started_turn = false;
                match self.pending_foreign_results.checked_sub(1) {
                    Some(left) => self.pending_foreign_results = left,
                    None => message.ends_turn = in_turn && self.held_user_line.is_none(),
                }
            }
            "system" if subtype.and_then(json::parse_string).as_deref() == Some("init") => {
                message.agent_session = session.and_then(json::parse_string);
            }
            _ => {}
        }
        AdapterEvent::Message(message)
    }
}

/// The number of thinking tokens that a `thinking` option requests, as JSON.
fn thinking_tokens(text: &str) -> Option<String> {
    let scan = json::scan(text, &["budgetTokens", "type"]).ok()?;
    match scan.fields {
        // `null` selects the agent's own default: the server resets its earlier number.
        [Some("null"), _] => Some("null".into()),
        [Some(tokens), _] => serde_json::from_str::<u64>(tokens).ok().map(|n| n.to_string()),
        [None, Some("\"disabled\"")] => Some("0".into()),
        _ => None,
    }
}

/// The content of a `user` message. A string or an array of blocks is unchanged, a list of strings becomes text
/// blocks, and any other JSON becomes its text (BP-20).
fn user_content(prompt: &str) -> String {
    match prompt.as_bytes().first() {
        Some(b'"') => prompt.to_owned(),
        Some(b'[') => match serde_json::from_str::<Vec<&serde_json::value::RawValue>>(prompt) {
            Ok(items) if !items.is_empty() => {
                let blocks: Vec<String> = items.into_iter().map(|item| content_block(item.get())).collect();
                format!("[{}]", blocks.join(","))
            }
            _ => quote(prompt),
        },
        _ => quote(prompt),
    }
}

fn content_block(item: &str) -> String {
    match item.as_bytes().first() {
        Some(b'{') => item.to_owned(),
        Some(b'"') => format!("{{\"type\":\"text\",\"text\":{item}}}"),
        _ => format!("{{\"type\":\"text\",\"text\":{}}}", quote(item)),
    }
}
