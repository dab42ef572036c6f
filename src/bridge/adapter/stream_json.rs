//! Claude Code, and whatever else speaks its `stream-json` on stdin and stdout.
//!
//! One process serves many turns. A turn is one `user` line and ends with the agent's `result` line. What a
//! query says about model, thinking and permission mode goes ahead of it as control requests; the `user` line
//! follows only when the agent has agreed to all of them, so that a turn never runs in another mode than it
//! asked for. A line that is not JSON ends the agent, so nothing unchecked is ever passed to it.

use super::{Abort, Adapter, Context, Heard, Message, Transport, flags, line_out};
use crate::bridge::proto::json::{self, quote};
use crate::bridge::proto::{Field, LogLevel, Query, uuid_v4};
use std::collections::BTreeMap;

/// Marks control requests of ours; what answers them goes no further.
const OWN_PREFIX: &str = "saggar-";

/// Always given. Pieces of answers are always produced, and withheld from turns that did not ask.
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

/// The translator for agents that speak `stream-json`.
#[derive(Debug, Default)]
pub struct StreamJson {
    requests: u64,
    /// Control requests of ours without an answer yet, by the number in their id.
    open: BTreeMap<u64, Purpose>,
    /// The `user` line of a turn whose settings are not all agreed to.
    held: Option<Vec<u8>>,
    /// Settings this process has agreed to.
    settings: BTreeMap<&'static str, String>,
    /// The agent works on a turn of its own making (a background task woke it).
    own_turn: bool,
    /// `result` lines of such turns that come before that of the running one.
    foreign_results: u32,
}

#[derive(Debug)]
enum Purpose {
    Interrupt,
    Resume,
    Setting { name: &'static str, value: String },
}

impl StreamJson {
    /// A translator for a process that has not been started yet.
    pub fn new() -> Self {
        StreamJson::default()
    }

    fn request(&mut self, purpose: Purpose, body: &str) -> Vec<u8> {
        self.requests += 1;
        self.open.insert(self.requests, purpose);
        let id = format!("{OWN_PREFIX}{}", self.requests);
        line_out(&format!("{{\"type\":\"control_request\",\"request_id\":\"{id}\",\"request\":{body}}}"))
    }

    /// The control requests that bring the process to what the query asks for.
    fn settings(&mut self, query: &Query) -> Vec<u8> {
        let mut lines = Vec::new();
        for (field, name, key) in [
            (Field::Model, "set_model", "model"),
            (Field::Thinking, "set_max_thinking_tokens", "max_thinking_tokens"),
            (Field::PermissionMode, "set_permission_mode", "mode"),
        ] {
            let value = match field {
                Field::Thinking => query.field(field).and_then(thinking_tokens),
                _ => query.field(field).map(str::to_owned),
            };
            let Some(value) = value.filter(|value| self.settings.get(name) != Some(value)) else { continue };
            let body = format!("{{\"subtype\":\"{name}\",\"{key}\":{value}}}");
            lines.append(&mut self.request(Purpose::Setting { name, value }, &body));
        }
        lines
    }

    fn unsettled(&self) -> bool {
        self.open.values().any(|purpose| matches!(purpose, Purpose::Setting { .. }))
    }

    fn hear_response<'a>(&mut self, line: &'a str, response: Option<&'a str>) -> Heard<'a> {
        let scan = response.and_then(|text| json::scan(text, &["request_id", "subtype", "error"]).ok());
        let [id, subtype, error] = scan.map_or([None; 3], |scan| scan.fields);
        let number = id
            .and_then(json::string)
            .and_then(|id| id.strip_prefix(OWN_PREFIX).and_then(|number| number.parse::<u64>().ok()));
        let Some(purpose) = number.and_then(|number| self.open.remove(&number)) else {
            return Heard::Note(
                LogLevel::Debug,
                format!("an answer nobody waits for: {}", json::shorten(line)),
            );
        };
        let agreed = subtype.and_then(json::string).as_deref() == Some("success");
        match purpose {
            Purpose::Interrupt => Heard::Nothing,
            Purpose::Resume => Heard::Resumed,
            Purpose::Setting { name, value } if agreed => {
                self.settings.insert(name, value);
                if self.unsettled() {
                    return Heard::Nothing;
                }
                self.held.take().map_or(Heard::Nothing, Heard::Tell)
            }
            Purpose::Setting { name, .. } => {
                let why = error.and_then(json::string).unwrap_or_else(|| "no reason given".into());
                match self.held.take() {
                    Some(_) => Heard::Refused(format!("the agent refused {name}: {why}")),
                    None => Heard::Note(LogLevel::Warn, format!("the agent refused {name}: {why}")),
                }
            }
        }
    }
}

impl Adapter for StreamJson {
    fn name(&self) -> &'static str {
        "stream-json"
    }

    fn transport(&self) -> Transport {
        Transport::Stdio
    }

    fn arguments(&self, resume: Option<&str>, flags: &[String]) -> Vec<String> {
        let mut words: Vec<String> = ARGUMENTS.iter().map(|word| (*word).to_owned()).collect();
        words.extend(resume.map(|id| format!("--resume={id}")));
        words.extend_from_slice(flags);
        words
    }

    fn flags(&self, query: &Query) -> Result<Vec<String>, String> {
        for (field, name) in [(Field::Model, "model"), (Field::PermissionMode, "permissionMode")] {
            if query.field(field).is_some_and(|text| !text.starts_with('"')) {
                return Err(format!("query: the field {name} is not a string"));
            }
        }
        if query.field(Field::Thinking).is_some_and(|text| thinking_tokens(text).is_none()) {
            return Err("query: the field thinking has neither budgetTokens nor type disabled".into());
        }
        flags::of(query)
    }

    fn greets(&self) -> bool {
        false
    }

    fn hears_resume(&self) -> bool {
        false
    }

    fn started(&mut self) {
        // The numbers go on: an answer can then never be taken for that of an earlier process.
        *self = StreamJson { requests: self.requests, ..StreamJson::default() };
    }

    fn query(&mut self, query: &Query, context: Context<'_>) -> Vec<u8> {
        let content = content(query.prompt());
        let session = quote(context.agent_session.unwrap_or_default());
        // The agent drops a line whose uuid it has seen, so each is fresh, or the server's own.
        let uuid = quote(&query.uuid().map_or_else(uuid_v4, str::to_owned));
        let user = line_out(&format!(
            "{{\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":{content}}},\
             \"parent_tool_use_id\":null,\"session_id\":{session},\"uuid\":{uuid}}}"
        ));
        self.foreign_results = u32::from(self.own_turn);
        let settings = self.settings(query);
        if settings.is_empty() {
            return user;
        }
        self.held = Some(user);
        settings
    }

    fn opening(&self) -> bool {
        self.held.is_some()
    }

    fn resume(&mut self, _line: &str) -> Vec<u8> {
        // The agent says nothing of its own before its first turn; this it answers when it is up.
        self.request(Purpose::Resume, "{\"subtype\":\"initialize\"}")
    }

    fn abort(&mut self) -> Abort {
        if self.held.take().is_some() {
            return Abort::Unheard;
        }
        Abort::Tell(self.request(Purpose::Interrupt, "{\"subtype\":\"interrupt\"}"))
    }

    fn answer(&mut self, line: &str) -> Vec<u8> {
        line_out(line)
    }

    fn takes_modes(&self) -> bool {
        true
    }

    fn hear<'a>(&mut self, line: &'a str, in_turn: bool) -> Heard<'a> {
        let data = line.trim_ascii();
        let Ok(scan) = json::scan(data, &["type", "subtype", "session_id", "response"]) else {
            return Heard::Plain;
        };
        let [kind, subtype, session, response] = scan.fields;
        let kind = kind.and_then(json::string).unwrap_or_default();
        let mut message = Message { data, ..Message::default() };
        match kind.as_str() {
            "control_response" => return self.hear_response(data, response),
            "control_request" | "control_cancel_request" => message.asks = true,
            "stream_event" => {
                message.partial = true;
                self.own_turn |= !in_turn;
            }
            "assistant" => self.own_turn |= !in_turn,
            "result" => {
                self.own_turn = false;
                match self.foreign_results.checked_sub(1) {
                    Some(left) => self.foreign_results = left,
                    None => message.ends_turn = in_turn && self.held.is_none(),
                }
            }
            "system" if subtype.and_then(json::string).as_deref() == Some("init") => {
                message.agent_session = session.and_then(json::string);
            }
            _ => {}
        }
        Heard::Message(message)
    }
}

/// The number of thinking tokens that a `thinking` option asks for, as JSON.
fn thinking_tokens(text: &str) -> Option<String> {
    let scan = json::scan(text, &["budgetTokens", "type"]).ok()?;
    match scan.fields {
        // The agent's own default: what a server says that takes its number back.
        [Some("null"), _] => Some("null".into()),
        [Some(tokens), _] => serde_json::from_str::<u64>(tokens).ok().map(|n| n.to_string()),
        [None, Some("\"disabled\"")] => Some("0".into()),
        _ => None,
    }
}

/// The content of a `user` message: a string or an array of blocks as it is; a list of texts as text blocks;
/// any other JSON as its text (BP-20).
fn content(prompt: &str) -> String {
    match prompt.as_bytes().first() {
        Some(b'"') => prompt.to_owned(),
        Some(b'[') => match serde_json::from_str::<Vec<&serde_json::value::RawValue>>(prompt) {
            Ok(items) if !items.is_empty() => {
                let blocks: Vec<String> = items.into_iter().map(|item| block(item.get())).collect();
                format!("[{}]", blocks.join(","))
            }
            _ => quote(prompt),
        },
        _ => quote(prompt),
    }
}

fn block(item: &str) -> String {
    match item.as_bytes().first() {
        Some(b'{') => item.to_owned(),
        Some(b'"') => format!("{{\"type\":\"text\",\"text\":{item}}}"),
        _ => format!("{{\"type\":\"text\",\"text\":{}}}", quote(item)),
    }
}
