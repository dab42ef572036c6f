//! JSON-RPC 2.0 (jsonrpc.org/specification) without batches: one object a line.

use crate::bridge::proto::json::scan;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The largest id that is echoed, in bytes.
const ID_LIMIT: usize = 1024;

/// What went wrong with a call. Number and name never change; messages may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The line is no JSON.
    Parse,
    /// It is no call.
    Request,
    /// There is no such method.
    Method,
    /// The parameters are not those of the method.
    Params,
    /// saggar itself failed.
    Internal,
    /// `hello` was not said.
    Greeting,
    /// The version that was asked for is not spoken.
    Version,
    /// The sandbox is not in a state for this.
    State,
    /// The host cannot do it, or not for this sandbox.
    Unsupported,
    /// There are too many of these.
    Busy,
}

impl Kind {
    /// The number, as it stands in `error.code`.
    pub fn code(self) -> i32 {
        match self {
            Kind::Parse => -32700,
            Kind::Request => -32600,
            Kind::Method => -32601,
            Kind::Params => -32602,
            Kind::Internal => -32603,
            Kind::Greeting => 1,
            Kind::Version => 2,
            Kind::State => 3,
            Kind::Unsupported => 4,
            Kind::Busy => 5,
        }
    }

    /// The name, as it stands in `error.data.name`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Parse => "parse",
            Kind::Request => "request",
            Kind::Method => "method",
            Kind::Params => "params",
            Kind::Internal => "internal",
            Kind::Greeting => "greeting",
            Kind::Version => "version",
            Kind::State => "state",
            Kind::Unsupported => "unsupported",
            Kind::Busy => "busy",
        }
    }
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure it is.
    pub kind: Kind,
    /// For people.
    pub message: String,
}

impl Failure {
    /// A failure with a message.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Failure { kind, message: message.into() }
    }
}

/// The id of a call: a JSON number, string or null, as the text it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallId(Box<str>);

impl CallId {
    fn parse(text: &str) -> Result<Self, Failure> {
        let begins = text.as_bytes().first().copied().unwrap_or_default();
        let is_scalar = text == "null" || begins == b'"' || begins == b'-' || begins.is_ascii_digit();
        if is_scalar && text.len() <= ID_LIMIT {
            return Ok(CallId(text.into()));
        }
        let message = format!("id is not a number, a string or null of at most {ID_LIMIT} bytes");
        Err(Failure::new(Kind::Request, message))
    }
}

/// One call.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// Without one nobody waits for an answer.
    pub id: Option<CallId>,
    /// What is called.
    pub method: String,
    /// Its parameters, unread.
    pub params: Option<String>,
}

/// Reads a line. The error has the id, where there is one to answer to.
///
/// # Errors
/// [`Kind::Parse`], [`Kind::Request`].
pub fn parse(line: &[u8]) -> Result<Call, (Option<CallId>, Failure)> {
    let parse = |why: String| (None, Failure::new(Kind::Parse, why));
    let text = std::str::from_utf8(line).map_err(|_| parse("the line is not UTF-8".to_owned()))?;
    let found = scan(text, &["jsonrpc", "id", "method", "params"]).map_err(|error| {
        let is_json = serde_json::from_str::<&RawValue>(text).is_ok();
        match is_json {
            true => (None, Failure::new(Kind::Request, "a call is one JSON object; batches are not taken")),
            false => parse(format!("the line is not JSON: {error}")),
        }
    })?;
    let [version, id, method, params] = found.fields;
    let id = id.map(CallId::parse).transpose().map_err(|failure| (None, failure))?;
    let bad = |why: &str| Err((id.clone(), Failure::new(Kind::Request, why)));
    if found.repeated.is_some() {
        return bad("a field stands there twice");
    }
    if version != Some("\"2.0\"") {
        return bad("jsonrpc is not \"2.0\"");
    }
    let Some(method) = method.and_then(crate::bridge::proto::json::string) else {
        return bad("method is not a string");
    };
    Ok(Call { id, method, params: params.map(str::to_owned) })
}

/// The answer to a call, as a line.
pub fn answer(id: &CallId, result: Result<Value, Failure>) -> Vec<u8> {
    match result {
        Ok(value) => line(&id.0, "result", &value),
        Err(failure) => failed(Some(id), &failure),
    }
}

/// The answer to a call that failed, as a line; without an id that could be read it is null.
pub fn failed(id: Option<&CallId>, failure: &Failure) -> Vec<u8> {
    let Failure { kind, message } = failure;
    let error = json!({ "code": kind.code(), "message": message, "data": { "name": kind.name() } });
    line(id.map_or("null", |id| &id.0), "error", &error)
}

/// A notification, as a line.
pub fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    line.iter_mut().for_each(|line| line.push(b'\n'));
    // Writing a value to memory cannot fail; serde_json's signature says it may.
    line.unwrap_or_default()
}

/// The id is a text that came in as JSON, and goes out as it came.
fn line(id: &str, field: &str, value: &Value) -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{field}\":{value}}}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind(line: &str) -> (Option<String>, Kind) {
        let (id, failure) = parse(line.as_bytes()).unwrap_err();
        (id.map(|id| id.0.into()), failure.kind)
    }

    #[test]
    fn a_call_is_read_and_its_id_comes_back_as_it_was() {
        let call = parse(br#"{"id": 1e3 ,"jsonrpc":"2.0","params":{"a":[1]},"method":"state"}"#).unwrap();
        assert_eq!((call.method.as_str(), call.params.as_deref()), ("state", Some(r#"{"a":[1]}"#)));
        let id = call.id.unwrap();
        assert_eq!(answer(&id, Ok(json!({}))), b"{\"jsonrpc\":\"2.0\",\"id\":1e3,\"result\":{}}\n");
        let failure = Failure::new(Kind::State, "it is \"paused\"");
        let said = String::from_utf8(answer(&id, Err(failure))).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(
            said["error"],
            json!({ "code": 3, "message": "it is \"paused\"", "data": { "name": "state" } })
        );
        assert_eq!(parse(br#"{"jsonrpc":"2.0","method":"x"}"#).unwrap().id, None);
    }

    #[test]
    fn what_is_no_call_says_so() {
        for line in ["", "{", "{} x", "nul", "\u{0}"] {
            assert_eq!(kind(line), (None, Kind::Parse), "{line}");
        }
        for line in ["[]", "3", "null", "\"x\"", "{}", r#"{"jsonrpc":"1.0","method":"x"}"#] {
            assert_eq!(kind(line), (None, Kind::Request), "{line}");
        }
        let with_id = |rest: &str| kind(&format!(r#"{{"jsonrpc":"2.0","id":"a",{rest}}}"#));
        assert_eq!(with_id(r#""method":3"#), (Some("\"a\"".into()), Kind::Request));
        assert_eq!(with_id(r#""method":"x","method":"y""#), (Some("\"a\"".into()), Kind::Request));
        for id in ["{}", "[1]", "true", &format!("\"{}\"", "x".repeat(ID_LIMIT))] {
            assert_eq!(
                kind(&format!(r#"{{"jsonrpc":"2.0","method":"x","id":{id}}}"#)),
                (None, Kind::Request)
            );
        }
        assert_eq!(parse(b"\xff").unwrap_err().1.kind, Kind::Parse);
    }

    #[test]
    fn numbers_and_names_are_all_different() {
        let all = [
            Kind::Parse,
            Kind::Request,
            Kind::Method,
            Kind::Params,
            Kind::Internal,
            Kind::Greeting,
            Kind::Version,
            Kind::State,
            Kind::Unsupported,
            Kind::Busy,
        ];
        let codes: std::collections::BTreeSet<_> = all.iter().map(|kind| kind.code()).collect();
        let names: std::collections::BTreeSet<_> = all.iter().map(|kind| kind.name()).collect();
        assert_eq!((codes.len(), names.len()), (all.len(), all.len()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_line_is_a_call_or_a_failure_and_every_answer_is_one_line(line in ".{0,80}", id in "0|[1-9][0-9]{0,4}|\"[^\\\\\"\u{0}-\u{1f}]{0,9}\"") {
            let _ = parse(line.as_bytes());
            let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{}}}"#, serde_json::to_string(&line).unwrap());
            let call = parse(call.as_bytes()).unwrap();
            prop_assert_eq!(&call.method, &line);
            for said in [answer(&call.id.clone().unwrap(), Ok(json!(line))), failed(call.id.as_ref(), &Failure::new(Kind::State, "x\ny"))] {
                prop_assert_eq!(said.iter().filter(|byte| **byte == b'\n').count(), 1);
                let said: Value = serde_json::from_slice(&said).unwrap();
                prop_assert_eq!(said["id"].to_string(), serde_json::from_str::<Value>(&id).unwrap().to_string());
            }
        }
    }
}
