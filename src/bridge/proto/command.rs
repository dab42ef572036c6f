//! Commands: what a server may say on the first dialect, checked once (seed 000; BP-14 to BP-17, BP-20).

use super::json::{self, Scan};
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
    Query(Query),
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
    /// An answer to the agent's own control request, for the agent.
    Answer(Answer),
}

/// A field of a `query` that changes how the agent works (DECISIONS 17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Field {
    Model = PROMPT as isize + 1,
    Thinking,
    PermissionMode,
    MaxTurns,
    MaxBudgetUsd,
    Effort,
    OutputFormat,
    AllowedTools,
    DisallowedTools,
    Betas,
    InitialAgent,
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
const PROMPT: usize = 13;

/// Every top-level field that has a meaning; the names after `prompt` stand in the order of [`Field`].
const NAMES: [&str; 26] = [
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
                let query = Query { line: text.into_owned(), session, partials, fields, unknown };
                Ok(Some(Command { id, request: Request::Query(query) }))
            }
            Ok(Kind::Resume { session }) => {
                let line = text.into_owned();
                Ok(Some(Command { id, request: Request::Resume(Resume { line, session }) }))
            }
            Ok(Kind::Answer { request_id }) => {
                let line = text.into_owned();
                Ok(Some(Command { id, request: Request::Answer(Answer { line, request_id }) }))
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
    Answer { request_id: String },
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
        other => Err(format!("unknown command {:?}", json::shorten(other))),
    }
}

/// A line with a `type` and no `cmd`: answers to the agent are taken; the rest is the second dialect.
fn read_typed(kind: &str, line: &Line<'_>) -> Result<Kind, String> {
    let kind = json::string(kind).ok_or("the field type is not a string")?;
    match kind.as_str() {
        "control_response" => {
            let response = line.fields[RESPONSE].ok_or("control_response: the field response is missing")?;
            Ok(Kind::Answer { request_id: read_response(response)? })
        }
        "control_cancel_request" => {
            Ok(Kind::Answer { request_id: text(line, REQUEST_ID, "control_cancel_request")? })
        }
        "user" | "control_request" => Err(format!(
            "{kind}: this line belongs to the second dialect, which this connection does not speak"
        )),
        other => Err(format!("unknown type {:?}", json::shorten(other))),
    }
}

/// Checks the `response` of a `control_response` (RB-29) and gives the id of the request it answers. Anything
/// that is not plainly an answer is refused here: it must never be taken for permission.
fn read_response(response: &str) -> Result<String, String> {
    let bad = |why: &str| format!("control_response: {why}");
    let outer = json::scan(response, &["subtype", "request_id", "response"])
        .map_err(|_| bad("the response is not an object"))?;
    if outer.repeated.is_some() || outer.forbidden.is_some() {
        return Err(bad("the response has a repeated or forbidden field"));
    }
    let [subtype, request_id, inner] = outer.fields;
    let request_id = request_id.and_then(json::string).ok_or_else(|| bad("request_id is not a string"))?;
    match subtype.and_then(json::string).as_deref() {
        Some("error") => Ok(request_id),
        Some("success") => {
            let inner = inner.ok_or_else(|| bad("the response is missing"))?;
            let inner = json::scan(inner, &["behavior"]).map_err(|_| bad("the response is not an object"))?;
            match inner.fields[0].and_then(json::string).as_deref() {
                Some("allow" | "deny") if inner.repeated.is_none() => Ok(request_id),
                _ => Err(bad("behavior is neither allow nor deny")),
            }
        }
        _ => Err(bad("subtype is neither success nor error")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(line: &str) -> Result<Option<Command>, BadLine> {
        Command::parse(Cow::Borrowed(line.as_bytes()))
    }

    fn refusal(line: &str) -> String {
        parse(line).expect_err(line).reason
    }

    #[test]
    fn bp_07_a_query_has_a_prompt_and_a_session() {
        let line = r#"{"cmd":"query","prompt":["hello"],"sessionId":"s","includePartialMessages":true,"id":7,"x":1}"#;
        let command = parse(line).unwrap().unwrap();
        assert_eq!(command.id.unwrap().as_json(), "7");
        let Request::Query(query) = command.request else { panic!("{line}") };
        assert_eq!((query.prompt(), query.session(), query.partials()), (r#"["hello"]"#, "s", true));
        assert_eq!((query.line(), query.unknown()), (line, &["x".to_owned()][..]));
    }

    #[test]
    fn bp_20_any_json_is_a_prompt_and_options_are_found_by_name() {
        for prompt in [r#""a\u0000""#, "[]", "{\"a\":[]}", "null", "1e400", "true"] {
            let line = format!(
                r#"{{"model":"m","subagents":{{}},"effort":null,"prompt": {prompt} ,"cmd":"query","sessionId":""}}"#
            );
            let Request::Query(query) = parse(&line).unwrap().unwrap().request else { panic!("{line}") };
            assert_eq!(query.prompt(), prompt);
            assert_eq!(query.field(Field::Model), Some("\"m\""));
            assert_eq!(query.field(Field::Subagents), Some("{}"));
            assert_eq!(query.field(Field::Effort), None);
        }
    }

    #[test]
    fn bp_14_bp_15_each_kind_of_bad_line_says_what_is_wrong() {
        for (line, reason) in [
            (r#"{"cmd":"fly"}"#, "unknown command \"fly\""),
            (r#"{"cmd":7}"#, "cmd is not a string"),
            (r#"{"cmd":"query","sessionId":"s"}"#, "prompt is missing"),
            (r#"{"cmd":"query","prompt":"p"}"#, "sessionId is missing"),
            (r#"{"cmd":"query","prompt":"p","sessionId":3}"#, "sessionId is not a string"),
            (
                r#"{"cmd":"query","prompt":"p","sessionId":"s","includePartialMessages":1}"#,
                "neither true nor false",
            ),
            (r#"{"cmd":"query","cmd":"shutdown"}"#, "twice"),
            (r#"{"cmd":"interrupt","ev":"ready"}"#, "not both"),
            (r#"{"ev":"ready"}"#, "not an event"),
            (r#"{"cmd":"exec","command":"x","timeout":-1}"#, "positive number"),
            (r#"{"cmd":"exec","command":"x","timeout":"1"}"#, "positive number"),
            (r#"{"cmd":"exec","command":"x\u0000"}"#, "NUL"),
            (r#"{"cmd":"interrupt","id":null}"#, "id is neither"),
            (r#"{"type":"user"}"#, "second dialect"),
            (r#"{"type":"fly"}"#, "unknown type"),
            ("{}", "cmd is missing"),
            ("[]", "not a JSON object"),
            ("3", "not a JSON object"),
            ("{\"cmd\":\"a\0\"}", "not a JSON object"),
        ] {
            let found = refusal(line);
            assert!(found.contains(reason), "{line}: {found}");
        }
        let bad = Command::parse(Cow::Borrowed(b"{\"cmd\":\"\xff\"}")).unwrap_err();
        assert!(bad.reason.contains("utf-8"));
        let deep = format!("{{\"cmd\":{}", "[".repeat(100_000));
        assert!(refusal(&deep).contains("deeper"));
    }

    #[test]
    fn bp_15_a_bad_line_with_an_id_is_answered_with_it() {
        let bad = parse(r#"{"cmd":"fly","id":"a"}"#).unwrap_err();
        assert_eq!(
            bad.event(),
            b"{\"ev\":\"error\",\"error\":\"unknown command \\\"fly\\\"\",\"id\":\"a\"}\n"
        );
    }

    #[test]
    fn bp_16_forbidden_keys_are_refused_however_written() {
        for key in ["__proto__", "constructor", "prototype", r"\u005f_proto__"] {
            let line = format!(r#"{{"cmd":"interrupt","{key}":1}}"#);
            assert!(refusal(&line).contains("not allowed"), "{line}");
        }
        assert!(parse(r#"{"cmd":"query","sessionId":"s","prompt":{"__proto__":1}}"#).is_ok());
    }

    #[test]
    fn bp_17_blank_lines_are_nothing_and_white_space_around_a_command_is_accepted() {
        for blank in ["", " ", "\r", "\t \r"] {
            assert!(parse(blank).unwrap().is_none());
        }
        assert!(parse(" {\"cmd\":\"interrupt\"} \r").unwrap().is_some());
    }

    #[test]
    fn bp_22_the_exec_timeout_has_a_default_and_a_ceiling() {
        let exec = |rest: &str| match parse(&format!(r#"{{"cmd":"exec","command":"x"{rest}}}"#)) {
            Ok(Some(Command { request: Request::Exec(exec), .. })) => exec.timeout,
            other => panic!("{other:?}"),
        };
        assert_eq!(exec(""), Duration::from_secs(30));
        assert_eq!(exec(r#","timeout":1.5"#), Duration::from_micros(1500));
        assert_eq!(exec(r#","timeout":1e18"#), EXEC_TIMEOUT_MAX);
    }

    #[test]
    fn rb_29_only_a_plain_allow_deny_or_error_is_an_answer() {
        let line = |response: &str| format!(r#"{{"response":{response},"type":"control_response"}}"#);
        for good in [
            r#"{"subtype":"success","request_id":"r","response":{"behavior":"allow","updatedInput":{}}}"#,
            r#"{"response":{"behavior":"deny","message":"no"},"request_id":"r","subtype":"success"}"#,
            r#"{"subtype":"error","request_id":"r","error":"x"}"#,
        ] {
            let Request::Answer(answer) = parse(&line(good)).unwrap().unwrap().request else {
                panic!("{good}")
            };
            assert_eq!((answer.request_id.as_str(), answer.line), ("r", line(good)));
        }
        for bad in [
            "null",
            "[]",
            r#"{"subtype":"success","request_id":"r"}"#,
            r#"{"subtype":"success","request_id":"r","response":null}"#,
            r#"{"subtype":"success","request_id":"r","response":{"behavior":"maybe"}}"#,
            r#"{"subtype":"success","request_id":"r","response":{"behavior":"deny","behavior":"allow"}}"#,
            r#"{"subtype":"success","request_id":1,"response":{"behavior":"allow"}}"#,
            r#"{"subtype":"fly","request_id":"r","response":{"behavior":"allow"}}"#,
        ] {
            assert!(refusal(&line(bad)).starts_with("control_response: "), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_bytes_are_a_command_a_blank_or_one_error(line in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Command::parse(Cow::Owned(line));
        }
    }
}
