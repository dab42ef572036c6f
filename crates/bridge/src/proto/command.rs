//! Commands: the lines of the command dialect that a server sends, each validated once (saggar-bridge(7), BP-14 to
//! BP-17, BP-20).

use super::json::{self, JsonScan};
use super::permission::{ParsedResponse, PermissionVerdict, parse_response};
use super::{DEPTH_LIMIT, event::BridgeEvent};
use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

/// Time limit of an `exec` whose command gives no timeout (BP-22).
const DEFAULT_EXEC_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum timeout of an `exec`: one day.
const MAX_EXEC_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Maximum length of an `id`, in bytes of JSON. The id is copied to every event of its command.
const MAX_ID_LENGTH: usize = 1024;

/// The id of a command, echoed on its events: any JSON string or number, as its original text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandId(Box<str>);

impl CommandId {
    /// An id from its JSON text; `None` for empty text.
    pub(crate) fn from_json(text: &str) -> Option<CommandId> {
        (!text.is_empty()).then(|| CommandId(text.into()))
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// One valid command.
#[derive(Debug)]
pub struct BridgeCommand {
    /// The id that is echoed on every event of this command.
    pub id: Option<CommandId>,
    /// The operation, with its parameters.
    pub body: CommandBody,
}

/// The operation of a command.
#[derive(Debug)]
pub enum CommandBody {
    /// Run one turn of the agent.
    Query(Box<QueryCommand>),
    /// Start the agent with its conversation.
    Resume(ResumeCommand),
    /// Abort the running turn.
    Interrupt,
    /// End the bridge and the agent.
    Shutdown,
    /// Run a shell command in the agent's sandbox, next to the agent.
    Exec(ExecCommand),
    /// Change settings of this connection.
    Set(SetCommand),
    /// Send every event with a number above this one, and all later events.
    Replay(u64),
    /// A response to the agent's own control request, forwarded to the agent.
    Response(QuestionResponse),
}

/// An optional field of a `query` that changes how the agent works (DECISIONS 17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryField {
    /// `model`: the model that answers.
    Model = 15,
    /// `thinking`: the limit of the agent's thinking.
    Thinking,
    /// `permissionMode`: what the agent may do without a permission question.
    PermissionMode,
    /// `maxTurns`: the maximum number of model calls.
    MaxTurns,
    /// `maxBudgetUsd`: the maximum cost in US dollars.
    MaxBudgetUsd,
    /// `effort`: the effort level.
    Effort,
    /// `outputFormat`: the schema of the agent's output.
    OutputFormat,
    /// `allowedTools`: tools that run without a permission question.
    AllowedTools,
    /// `disallowedTools`: tools that the agent may not use.
    DisallowedTools,
    /// `betas`: beta features of the API to enable.
    Betas,
    /// `initialAgent`: the agent definition that answers.
    InitialAgent,
    /// `subagents`: the agent definitions that the agent may call.
    Subagents,
}

/// A `query`: the received line and the ranges of its fields in it. The line is stored once, however long the prompt.
#[derive(Debug)]
pub struct QueryCommand {
    line: String,
    session: String,
    wants_partials: bool,
    fields: [Option<Range<usize>>; FIELD_NAMES.len()],
    unknown_fields: Vec<String>,
    /// The server's uuid of the message; only in the SDK dialect.
    uuid: Option<String>,
    /// The server's uuid of the command; only in the command dialect.
    delivery: Option<String>,
}

impl QueryCommand {
    /// The whole command as received.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The prompt: any JSON, as its original text (BP-20).
    pub fn prompt(&self) -> &str {
        self.field_at(PROMPT).unwrap_or("null")
    }

    /// The server's id of the session.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Whether the server wants `stream_event` lines.
    pub fn wants_partials(&self) -> bool {
        self.wants_partials
    }

    /// The JSON text of an optional field; `None` also for `null`.
    pub fn field(&self, field: QueryField) -> Option<&str> {
        self.field_at(field as usize).filter(|text| *text != "null")
    }

    /// Names of unknown fields, shortened.
    pub(crate) fn unknown_fields(&self) -> &[String] {
        &self.unknown_fields
    }

    /// The server's uuid of this command, by which a repetition of it is found; only in the command dialect.
    pub(crate) fn delivery(&self) -> Option<&str> {
        self.delivery.as_deref()
    }

    /// The server's uuid of this message, which the agent receives too; only in the SDK dialect.
    pub fn uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }

    fn field_at(&self, index: usize) -> Option<&str> {
        self.fields[index].clone().map(|range| &self.line[range])
    }
}

/// A `resume`.
#[derive(Debug)]
pub struct ResumeCommand {
    /// The whole command as received.
    pub line: String,
    /// The server's id of the session.
    pub session: String,
}

/// An `exec`.
#[derive(Debug, PartialEq, Eq)]
pub struct ExecCommand {
    /// The script that `/bin/sh -c` runs.
    pub command: String,
    /// Time limit. The whole process tree is killed when it expires.
    pub timeout: Duration,
}

/// A `set`. A setting that it leaves out does not change.
#[derive(Debug, PartialEq, Eq)]
pub struct SetCommand {
    /// Whether the connection receives `log` events.
    pub log: Option<bool>,
    /// The eligibility filter of the SDK dialect.
    pub filter: Option<bool>,
    /// The outbound-only mode of the SDK dialect.
    pub outbound_only: Option<bool>,
}

/// A well-formed `control_response` or `control_cancel_request`.
#[derive(Debug)]
pub struct QuestionResponse {
    /// The whole line as received.
    pub line: String,
    /// The id of the agent's request that the line answers.
    pub request_id: String,
    /// The verdict; `None` when the line cancels the question without an answer.
    pub verdict: Option<PermissionVerdict>,
}

/// A line that is not a valid command. The bridge answers it with one `error` event (BP-15).
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidCommand {
    /// The id of the line, if it could be parsed.
    pub id: Option<CommandId>,
    /// The reason of the rejection, for the `error` event.
    pub reason: String,
}

impl InvalidCommand {
    /// The `error` event that answers this line.
    pub(crate) fn error_event(&self) -> Vec<u8> {
        BridgeEvent::Error { text: &self.reason }.encode(self.id.as_ref())
    }
}

const CMD: usize = 0;
const EV: usize = 1;
const ID: usize = 2;
const TYPE: usize = 3;
const SESSION: usize = 4;
const PARTIALS: usize = 5;
const COMMAND: usize = 6;
const TIMEOUT: usize = 7;
const LOG: usize = 8;
const FILTER: usize = 9;
const OUTBOUND: usize = 10;
const REQUEST_ID: usize = 11;
const RESPONSE: usize = 12;
const AFTER: usize = 13;
const PROMPT: usize = 14;
const UUID: usize = FIELD_NAMES.len() - 1;

/// Every known top-level field. The names after `prompt` are in the order of [`QueryField`].
const FIELD_NAMES: [&str; 28] = [
    "cmd",
    "ev",
    "id",
    "type",
    "sessionId",
    "includePartialMessages",
    "command",
    "timeout",
    "log",
    "filter",
    "outboundOnly",
    "request_id",
    "response",
    "after",
    "prompt",
    "model",
    "thinking",
    "permissionMode",
    "maxTurns",
    "maxBudgetUsd",
    "effort",
    "outputFormat",
    "allowedTools",
    "disallowedTools",
    "betas",
    "initialAgent",
    "subagents",
    "uuid",
];

// [`QueryField`] starts at the index after `prompt`.
const _: () = assert!(PROMPT + 1 == QueryField::Model as usize);

type CommandScan<'a> = JsonScan<'a, { FIELD_NAMES.len() }>;

impl BridgeCommand {
    /// Parses one line; `None` for a blank line (BP-17).
    ///
    /// # Errors
    /// [`InvalidCommand`], which the bridge sends as an `error` event. The connection stays open.
    pub fn parse(line: Cow<'_, [u8]>) -> Result<Option<BridgeCommand>, InvalidCommand> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let nameless = |reason: String| InvalidCommand { id: None, reason };
        let text = match line {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).ok(),
            Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).ok(),
        };
        let text = text.ok_or_else(|| nameless("the line is not valid utf-8".into()))?;
        if json::is_deeper_than(&text, DEPTH_LIMIT) {
            return Err(nameless(format!("the line is nested deeper than {DEPTH_LIMIT}")));
        }
        let scan = json::scan(&text, &FIELD_NAMES)
            .map_err(|e| nameless(format!("the line is not a JSON object: {e}")))?;
        let id = parse_id(scan.fields[ID]).map_err(nameless)?;
        match parse_fields(&scan) {
            Ok(ParsedLine::Query { session, partials, delivery }) => {
                let start = text.as_ptr().addr();
                let fields = scan.fields.map(|field| {
                    field.map(|part| {
                        let at = part.as_ptr().addr() - start;
                        at..at + part.len()
                    })
                });
                let unknown = scan.unknown;
                let query = QueryCommand {
                    line: text.into_owned(),
                    session,
                    wants_partials: partials,
                    fields,
                    unknown_fields: unknown,
                    uuid: None,
                    delivery,
                };
                Ok(Some(BridgeCommand { id, body: CommandBody::Query(Box::new(query)) }))
            }
            Ok(ParsedLine::Resume { session }) => {
                let line = text.into_owned();
                Ok(Some(BridgeCommand { id, body: CommandBody::Resume(ResumeCommand { line, session }) }))
            }
            Ok(ParsedLine::Response { request_id, verdict }) => {
                let line = text.into_owned();
                Ok(Some(BridgeCommand {
                    id,
                    body: CommandBody::Response(QuestionResponse { line, request_id, verdict }),
                }))
            }
            Ok(ParsedLine::Whole(request)) => Ok(Some(BridgeCommand { id, body: request })),
            Err(reason) => Err(InvalidCommand { id, reason }),
        }
    }
}

/// The parsed content of a line, before the line itself is moved into the command.
enum ParsedLine {
    Query { session: String, partials: bool, delivery: Option<String> },
    Resume { session: String },
    Response { request_id: String, verdict: Option<PermissionVerdict> },
    Whole(CommandBody),
}

fn parse_fields(line: &CommandScan<'_>) -> Result<ParsedLine, String> {
    if let Some(key) = line.forbidden {
        return Err(format!("the key {key} is not allowed"));
    }
    if let Some(at) = line.repeated {
        return Err(format!("the field {} is given twice", FIELD_NAMES[at]));
    }
    let fields = &line.fields;
    match (fields[CMD], fields[EV], fields[TYPE]) {
        (Some(_), Some(_), _) => Err("a line has cmd or ev, not both".into()),
        (Some(cmd), None, _) => parse_command(cmd, line),
        (None, Some(_), _) => Err("a command is expected here, not an event".into()),
        (None, None, Some(kind)) => parse_typed_line(kind, line),
        (None, None, None) => Err("the field cmd is missing".into()),
    }
}

fn parse_command(cmd: &str, line: &CommandScan<'_>) -> Result<ParsedLine, String> {
    let cmd = json::parse_string(cmd).ok_or("the field cmd is not a string")?;
    match cmd.as_str() {
        "query" => {
            if line.fields[PROMPT].is_none() {
                return Err("query: the field prompt is missing".into());
            }
            let partials = bool_field(line, PARTIALS)?.unwrap_or(false);
            let delivery = line.fields[UUID].map(|_| string_field(line, UUID, "query")).transpose()?;
            Ok(ParsedLine::Query { session: string_field(line, SESSION, "query")?, partials, delivery })
        }
        "resume" => Ok(ParsedLine::Resume { session: string_field(line, SESSION, "resume")? }),
        "interrupt" => Ok(ParsedLine::Whole(CommandBody::Interrupt)),
        "shutdown" => Ok(ParsedLine::Whole(CommandBody::Shutdown)),
        "exec" => {
            let command = string_field(line, COMMAND, "exec")?;
            if command.contains('\0') {
                return Err("exec: the command has a NUL character".into());
            }
            Ok(ParsedLine::Whole(CommandBody::Exec(ExecCommand { command, timeout: timeout_field(line)? })))
        }
        "set" => {
            let (log, filter, outbound_only) =
                (bool_field(line, LOG)?, bool_field(line, FILTER)?, bool_field(line, OUTBOUND)?);
            Ok(ParsedLine::Whole(CommandBody::Set(SetCommand { log, filter, outbound_only })))
        }
        "replay" => {
            let after = line.fields[AFTER].ok_or("replay: the field after is missing")?;
            let after = serde_json::from_str(after).map_err(|_| "replay: the field after is not a number")?;
            Ok(ParsedLine::Whole(CommandBody::Replay(after)))
        }
        other => Err(format!("unknown command {:?}", json::shorten(other))),
    }
}

/// Parses a line with a `type` and no `cmd`. Responses to the agent are accepted; other lines belong to the SDK
/// dialect.
fn parse_typed_line(kind: &str, line: &CommandScan<'_>) -> Result<ParsedLine, String> {
    let kind = json::parse_string(kind).ok_or("the field type is not a string")?;
    match kind.as_str() {
        "control_response" => {
            let response = line.fields[RESPONSE].ok_or("control_response: the field response is missing")?;
            match parse_response(response, false) {
                ParsedResponse::Complete(answer) => {
                    Ok(ParsedLine::Response { request_id: answer.request_id, verdict: Some(answer.verdict) })
                }
                ParsedResponse::Malformed { why, .. } | ParsedResponse::NoRequestId(why) => {
                    Err(format!("control_response: {why}"))
                }
            }
        }
        "control_cancel_request" => {
            let request_id = string_field(line, REQUEST_ID, "control_cancel_request")?;
            Ok(ParsedLine::Response { request_id, verdict: None })
        }
        "user" | "control_request" => Err(format!(
            "{kind}: this line belongs to the second dialect, and this connection uses the first"
        )),
        other => Err(format!("unknown type {:?}", json::shorten(other))),
    }
}

fn parse_id(id: Option<&str>) -> Result<Option<CommandId>, String> {
    let Some(text) = id else { return Ok(None) };
    if !text.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        return Err("the field id is neither a string nor a number".into());
    }
    if text.len() > MAX_ID_LENGTH {
        return Err(format!("the field id is longer than {MAX_ID_LENGTH} bytes"));
    }
    Ok(Some(CommandId(text.into())))
}

fn string_field(line: &CommandScan<'_>, at: usize, whose: &str) -> Result<String, String> {
    let name = FIELD_NAMES[at];
    let json = line.fields[at].ok_or_else(|| format!("{whose}: the field {name} is missing"))?;
    json::parse_string(json).ok_or_else(|| format!("{whose}: the field {name} is not a string"))
}

fn bool_field(line: &CommandScan<'_>, at: usize) -> Result<Option<bool>, String> {
    match line.fields[at] {
        None | Some("null") => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(format!("the field {} is neither true nor false", FIELD_NAMES[at])),
    }
}

fn timeout_field(line: &CommandScan<'_>) -> Result<Duration, String> {
    let ms = match line.fields[TIMEOUT] {
        None | Some("null") => return Ok(DEFAULT_EXEC_TIMEOUT),
        Some(json) => serde_json::from_str::<f64>(json).ok(),
    };
    match ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok()) {
        Some(time) if !time.is_zero() => Ok(time.min(MAX_EXEC_TIMEOUT)),
        _ => Err("exec: the field timeout is not a positive number of milliseconds".into()),
    }
}

mod user_message;

#[cfg(test)]
mod tests;
