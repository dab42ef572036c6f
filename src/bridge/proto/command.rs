//! Commands: what a server may say on the first dialect, checked once (seed 000; BP-14 to BP-17, BP-20).

use super::json::{self, Scan};
use super::permission::{Reading, Verdict, read_response};
use super::{DEPTH_LIMIT, event::Event};
use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

/// How long an `exec` may run when the command does not say (BP-22).
const EXEC_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest timeout a command may ask for: a day.
const EXEC_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// The longest `id`, in bytes of JSON: it is copied to every event of its command.
const ID_LIMIT: usize = 1024;

/// A command's own name, echoed on its events: any JSON string or number, as the text it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(Box<str>);

impl Id {
    /// The id that this JSON text was; `None` for an empty one.
    pub fn of_json(text: &str) -> Option<Id> {
        (!text.is_empty()).then(|| Id(text.into()))
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// One valid command.
#[derive(Debug)]
pub struct Command {
    /// Echoed on every event of this command.
    pub id: Option<Id>,
    /// What is asked for.
    pub request: Request,
}

/// What a command asks for.
#[derive(Debug)]
pub enum Request {
    /// Run one turn of the agent.
    Query(Box<Query>),
    /// Bring the agent up with its conversation.
    Resume(Resume),
    /// Abort the running turn.
    Interrupt,
    /// End the bridge and the agent.
    Shutdown,
    /// Run a shell command beside the agent, in the same sandbox.
    Exec(Exec),
    /// Change this connection.
    Set(Set),
    /// Tell of every event behind the one of this number, and of all that come.
    Replay(u64),
    /// An answer to the agent's own control request, for the agent.
    Answer(Answer),
}

/// A field of a `query` that changes how the agent works (DECISIONS 17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `model`: which model answers.
    Model = 15,
    /// `thinking`: how much the agent may think.
    Thinking,
    /// `permissionMode`: what it may do without asking.
    PermissionMode,
    /// `maxTurns`: how often it may call the model.
    MaxTurns,
    /// `maxBudgetUsd`: what that may cost.
    MaxBudgetUsd,
    /// `effort`: how hard it tries.
    Effort,
    /// `outputFormat`: the schema of its answer.
    OutputFormat,
    /// `allowedTools`: tools it need not ask for.
    AllowedTools,
    /// `disallowedTools`: tools it does not have.
    DisallowedTools,
    /// `betas`: features of the API to switch on.
    Betas,
    /// `initialAgent`: which of its agents answers.
    InitialAgent,
    /// `subagents`: agents it may call.
    Subagents,
}

/// A `query`: the line as it came, and where its parts stand in it. One copy, however long the prompt.
#[derive(Debug)]
pub struct Query {
    line: String,
    session: String,
    partials: bool,
    fields: [Option<Range<usize>>; NAMES.len()],
    unknown: Vec<String>,
    /// The server's own name of the message, of the second dialect.
    uuid: Option<String>,
}

impl Query {
    /// The whole command as it came.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The prompt: any JSON, as the text it is (BP-20).
    pub fn prompt(&self) -> &str {
        self.at(PROMPT).unwrap_or("null")
    }

    /// The server's name for the conversation.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Whether `stream_event` lines are wanted.
    pub fn partials(&self) -> bool {
        self.partials
    }

    /// The JSON text of an optional field; `null` counts as absent.
    pub fn field(&self, field: Field) -> Option<&str> {
        self.at(field as usize).filter(|text| *text != "null")
    }

    /// Names of fields that nothing here knows, shortened.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// The server's own name of this message, which the agent is told too; only of the second dialect.
    pub fn uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }

    fn at(&self, index: usize) -> Option<&str> {
        self.fields[index].clone().map(|range| &self.line[range])
    }
}

/// A `resume`.
#[derive(Debug)]
pub struct Resume {
    /// The whole command as it came.
    pub line: String,
    /// The server's name for the conversation.
    pub session: String,
}

/// An `exec`.
#[derive(Debug, PartialEq, Eq)]
pub struct Exec {
    /// What `/bin/sh -c` is to run.
    pub command: String,
    /// After this its whole process tree is killed.
    pub timeout: Duration,
}

/// A `set`: what it leaves out stays as it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Set {
    /// Whether `log` events are wanted.
    pub log: Option<bool>,
    /// The eligibility filter of the second dialect.
    pub filter: Option<bool>,
    /// The outbound-only mode of the second dialect.
    pub outbound_only: Option<bool>,
}

/// A `control_response` or `control_cancel_request` of the right shape.
#[derive(Debug)]
pub struct Answer {
    /// The whole line as it came.
    pub line: String,
    /// The agent's request that is answered.
    pub request_id: String,
    /// What it says; `None` when it takes the question from the agent without an answer.
    pub verdict: Option<Verdict>,
}

/// Why a line is no command; it is answered with one `error` (BP-15).
#[derive(Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The id of the line, when that much could be read.
    pub id: Option<Id>,
    /// What is wrong with it.
    pub reason: String,
}

impl BadLine {
    /// The `error` that answers this line.
    pub fn event(&self) -> Vec<u8> {
        Event::Error { text: &self.reason }.encode(self.id.as_ref())
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

/// Every top-level field that has a meaning; the names after `prompt` stand in the order of [`Field`].
const NAMES: [&str; 27] = [
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
];

// [`Field`] counts on from there.
const _: () = assert!(PROMPT + 1 == Field::Model as usize);

type Line<'a> = Scan<'a, { NAMES.len() }>;

impl Command {
    /// Reads one line; `None` for a blank one (BP-17).
    ///
    /// # Errors
    /// [`BadLine`], to be answered; the connection goes on.
    pub fn parse(line: Cow<'_, [u8]>) -> Result<Option<Command>, BadLine> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let nameless = |reason: String| BadLine { id: None, reason };
        let text = match line {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).ok(),
            Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).ok(),
        };
        let text = text.ok_or_else(|| nameless("the line is not valid utf-8".into()))?;
        if json::deeper_than(&text, DEPTH_LIMIT) {
            return Err(nameless(format!("the line is nested deeper than {DEPTH_LIMIT}")));
        }
        let scan =
            json::scan(&text, &NAMES).map_err(|e| nameless(format!("the line is not a JSON object: {e}")))?;
        let id = read_id(scan.fields[ID]).map_err(nameless)?;
        match read(&scan) {
            Ok(Kind::Query { session, partials }) => {
                let start = text.as_ptr().addr();
                let fields = scan.fields.map(|field| {
                    field.map(|part| {
                        let at = part.as_ptr().addr() - start;
                        at..at + part.len()
                    })
                });
                let unknown = scan.unknown;
                let query = Query { line: text.into_owned(), session, partials, fields, unknown, uuid: None };
                Ok(Some(Command { id, request: Request::Query(Box::new(query)) }))
            }
            Ok(Kind::Resume { session }) => {
                let line = text.into_owned();
                Ok(Some(Command { id, request: Request::Resume(Resume { line, session }) }))
            }
            Ok(Kind::Answer { request_id, verdict }) => {
                let line = text.into_owned();
                Ok(Some(Command { id, request: Request::Answer(Answer { line, request_id, verdict }) }))
            }
            Ok(Kind::Other(request)) => Ok(Some(Command { id, request })),
            Err(reason) => Err(BadLine { id, reason }),
        }
    }
}

/// What a line says, before the line itself is moved into the command.
enum Kind {
    Query { session: String, partials: bool },
    Resume { session: String },
    Answer { request_id: String, verdict: Option<Verdict> },
    Other(Request),
}

fn read(line: &Line<'_>) -> Result<Kind, String> {
    if let Some(key) = line.forbidden {
        return Err(format!("the key {key} is not allowed"));
    }
    if let Some(at) = line.repeated {
        return Err(format!("the field {} stands there twice", NAMES[at]));
    }
    let fields = &line.fields;
    match (fields[CMD], fields[EV], fields[TYPE]) {
        (Some(_), Some(_), _) => Err("a line has cmd or ev, not both".into()),
        (Some(cmd), None, _) => read_command(cmd, line),
        (None, Some(_), _) => Err("a command is expected here, not an event".into()),
        (None, None, Some(kind)) => read_typed(kind, line),
        (None, None, None) => Err("the field cmd is missing".into()),
    }
}

fn read_command(cmd: &str, line: &Line<'_>) -> Result<Kind, String> {
    let cmd = json::string(cmd).ok_or("the field cmd is not a string")?;
    match cmd.as_str() {
        "query" => {
            if line.fields[PROMPT].is_none() {
                return Err("query: the field prompt is missing".into());
            }
            let partials = boolean(line, PARTIALS)?.unwrap_or(false);
            Ok(Kind::Query { session: text(line, SESSION, "query")?, partials })
        }
        "resume" => Ok(Kind::Resume { session: text(line, SESSION, "resume")? }),
        "interrupt" => Ok(Kind::Other(Request::Interrupt)),
        "shutdown" => Ok(Kind::Other(Request::Shutdown)),
        "exec" => {
            let command = text(line, COMMAND, "exec")?;
            if command.contains('\0') {
                return Err("exec: the command has a NUL character".into());
            }
            Ok(Kind::Other(Request::Exec(Exec { command, timeout: timeout(line)? })))
        }
        "set" => {
            let (log, filter, outbound_only) =
                (boolean(line, LOG)?, boolean(line, FILTER)?, boolean(line, OUTBOUND)?);
            Ok(Kind::Other(Request::Set(Set { log, filter, outbound_only })))
        }
        "replay" => {
            let after = line.fields[AFTER].ok_or("replay: the field after is missing")?;
            let after = serde_json::from_str(after).map_err(|_| "replay: the field after is not a number")?;
            Ok(Kind::Other(Request::Replay(after)))
        }
        other => Err(format!("unknown command {:?}", json::shorten(other))),
    }
}

/// A line with a `type` and no `cmd`: answers to the agent are taken; the rest is the second dialect.
fn read_typed(kind: &str, line: &Line<'_>) -> Result<Kind, String> {
    let kind = json::string(kind).ok_or("the field type is not a string")?;
    match kind.as_str() {
        "control_response" => {
            let response = line.fields[RESPONSE].ok_or("control_response: the field response is missing")?;
            match read_response(response, false) {
                Reading::Whole(answer) => {
                    Ok(Kind::Answer { request_id: answer.request_id, verdict: Some(answer.verdict) })
                }
                Reading::Malformed { why, .. } | Reading::Nameless(why) => {
                    Err(format!("control_response: {why}"))
                }
            }
        }
        "control_cancel_request" => {
            let request_id = text(line, REQUEST_ID, "control_cancel_request")?;
            Ok(Kind::Answer { request_id, verdict: None })
        }
        "user" | "control_request" => Err(format!(
            "{kind}: this line belongs to the second dialect, and this connection speaks the first"
        )),
        other => Err(format!("unknown type {:?}", json::shorten(other))),
    }
}

fn read_id(id: Option<&str>) -> Result<Option<Id>, String> {
    let Some(text) = id else { return Ok(None) };
    if !text.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        return Err("the field id is neither a string nor a number".into());
    }
    if text.len() > ID_LIMIT {
        return Err(format!("the field id is longer than {ID_LIMIT} bytes"));
    }
    Ok(Some(Id(text.into())))
}

fn text(line: &Line<'_>, at: usize, whose: &str) -> Result<String, String> {
    let name = NAMES[at];
    let json = line.fields[at].ok_or_else(|| format!("{whose}: the field {name} is missing"))?;
    json::string(json).ok_or_else(|| format!("{whose}: the field {name} is not a string"))
}

fn boolean(line: &Line<'_>, at: usize) -> Result<Option<bool>, String> {
    match line.fields[at] {
        None | Some("null") => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(format!("the field {} is neither true nor false", NAMES[at])),
    }
}

fn timeout(line: &Line<'_>) -> Result<Duration, String> {
    let ms = match line.fields[TIMEOUT] {
        None | Some("null") => return Ok(EXEC_TIMEOUT),
        Some(json) => serde_json::from_str::<f64>(json).ok(),
    };
    match ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok()) {
        Some(time) if !time.is_zero() => Ok(time.min(EXEC_TIMEOUT_MAX)),
        _ => Err("exec: the field timeout is not a positive number of milliseconds".into()),
    }
}

mod user;

#[cfg(test)]
mod tests;
