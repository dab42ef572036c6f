//! JSON-RPC 2.0 (jsonrpc.org/specification) without batches: one object per line.

use crate::proto::json::scan;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Longest id that is accepted and returned, in bytes.
const MAX_ID_SIZE: usize = 1024;

/// Why a call failed. Codes and names never change; messages may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcErrorKind {
    /// The line is not JSON.
    Parse,
    /// The line is not a valid request.
    Request,
    /// The method does not exist.
    Method,
    /// The parameters are not valid for the method.
    Params,
    /// An internal error of saggar.
    Internal,
    /// The client has not sent `hello` first.
    Greeting,
    /// saggar does not support the protocol version of the client.
    Version,
    /// The state of the sandbox does not allow the call.
    State,
    /// The host, or this kind of sandbox, does not support the call.
    Unsupported,
    /// Too many calls of this kind are in progress.
    Busy,
}

impl RpcErrorKind {
    /// The value of `error.code`.
    pub fn code(self) -> i32 {
        match self {
            RpcErrorKind::Parse => -32700,
            RpcErrorKind::Request => -32600,
            RpcErrorKind::Method => -32601,
            RpcErrorKind::Params => -32602,
            RpcErrorKind::Internal => -32603,
            RpcErrorKind::Greeting => 1,
            RpcErrorKind::Version => 2,
            RpcErrorKind::State => 3,
            RpcErrorKind::Unsupported => 4,
            RpcErrorKind::Busy => 5,
        }
    }

    /// The value of `error.data.name`.
    pub fn name(self) -> &'static str {
        match self {
            RpcErrorKind::Parse => "parse",
            RpcErrorKind::Request => "request",
            RpcErrorKind::Method => "method",
            RpcErrorKind::Params => "params",
            RpcErrorKind::Internal => "internal",
            RpcErrorKind::Greeting => "greeting",
            RpcErrorKind::Version => "version",
            RpcErrorKind::State => "state",
            RpcErrorKind::Unsupported => "unsupported",
            RpcErrorKind::Busy => "busy",
        }
    }
}

/// The error of a call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    /// Determines `error.code` and `error.data.name`.
    pub kind: RpcErrorKind,
    /// Text for people; not stable.
    pub message: String,
}

impl RpcError {
    /// An error with a message.
    pub fn new(kind: RpcErrorKind, message: impl Into<String>) -> Self {
        RpcError { kind, message: message.into() }
    }
}

/// The id of a request: a JSON number, string or null, byte for byte as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcId(Box<str>);

impl RpcId {
    pub(super) fn parse(text: &str) -> Result<Self, RpcError> {
        let begins = text.as_bytes().first().copied().unwrap_or_default();
        let is_scalar = text == "null" || begins == b'"' || begins == b'-' || begins.is_ascii_digit();
        if is_scalar && text.len() <= MAX_ID_SIZE {
            return Ok(RpcId(text.into()));
        }
        let message = format!("id is not a number, a string or null of at most {MAX_ID_SIZE} bytes");
        Err(RpcError::new(RpcErrorKind::Request, message))
    }
}

/// One request.
#[derive(Debug, PartialEq, Eq)]
pub struct RpcRequest {
    /// Id of the request; a request without one is a notification and gets no response.
    pub id: Option<RpcId>,
    /// Name of the method.
    pub method: String,
    /// The parameters as JSON, not parsed yet.
    pub params: Option<String>,
}

/// Parses a line. The error contains the id of the request if it could be read.
///
/// # Errors
/// [`RpcErrorKind::Parse`], [`RpcErrorKind::Request`].
pub(crate) fn parse_request(line: &[u8]) -> Result<RpcRequest, (Option<RpcId>, RpcError)> {
    let parse_error = |why: String| (None, RpcError::new(RpcErrorKind::Parse, why));
    let text = std::str::from_utf8(line).map_err(|_| parse_error("the line is not UTF-8".to_owned()))?;
    let found = scan(text, &["jsonrpc", "id", "method", "params"]).map_err(|error| {
        let is_json = serde_json::from_str::<&RawValue>(text).is_ok();
        match is_json {
            true => (
                None,
                RpcError::new(RpcErrorKind::Request, "a call is one JSON object; batches are not taken"),
            ),
            false => parse_error(format!("the line is not JSON: {error}")),
        }
    })?;
    let [version, id, method, params] = found.fields;
    let id = id.map(RpcId::parse).transpose().map_err(|failure| (None, failure))?;
    let bad = |why: &str| Err((id.clone(), RpcError::new(RpcErrorKind::Request, why)));
    if found.repeated.is_some() {
        return bad("a field is given twice");
    }
    if version != Some("\"2.0\"") {
        return bad("jsonrpc is not \"2.0\"");
    }
    let Some(method) = method.and_then(crate::proto::json::parse_string) else {
        return bad("method is not a string");
    };
    Ok(RpcRequest { id, method, params: params.map(str::to_owned) })
}

/// Encodes the response to a request as a line.
pub(crate) fn encode_response(id: &RpcId, result: Result<Value, RpcError>) -> Vec<u8> {
    match result {
        Ok(value) => encode_line(&id.0, "result", &value),
        Err(failure) => encode_error_response(Some(id), &failure),
    }
}

/// Encodes an error response as a line; its id is null if the id of the request could not be read.
pub(crate) fn encode_error_response(id: Option<&RpcId>, failure: &RpcError) -> Vec<u8> {
    let RpcError { kind, message } = failure;
    let error = json!({ "code": kind.code(), "message": message, "data": { "name": kind.name() } });
    encode_line(id.map_or("null", |id| &id.0), "error", &error)
}

/// Encodes a notification as a line.
pub(crate) fn encode_notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    line.iter_mut().for_each(|line| line.push(b'\n'));
    // Serialization to memory cannot fail; the signature of serde_json allows for an error.
    line.unwrap_or_default()
}

/// The id is JSON text as it was received, and is written back unchanged.
fn encode_line(id: &str, field: &str, value: &Value) -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{field}\":{value}}}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind(line: &str) -> (Option<String>, RpcErrorKind) {
        let (id, failure) = parse_request(line.as_bytes()).unwrap_err();
        (id.map(|id| id.0.into()), failure.kind)
    }

    #[test]
    fn a_call_is_read_and_its_id_comes_back_as_it_was() {
        let call =
            parse_request(br#"{"id": 1e3 ,"jsonrpc":"2.0","params":{"a":[1]},"method":"state"}"#).unwrap();
        assert_eq!((call.method.as_str(), call.params.as_deref()), ("state", Some(r#"{"a":[1]}"#)));
        let id = call.id.unwrap();
        assert_eq!(encode_response(&id, Ok(json!({}))), b"{\"jsonrpc\":\"2.0\",\"id\":1e3,\"result\":{}}\n");
        let failure = RpcError::new(RpcErrorKind::State, "it is \"paused\"");
        let said = String::from_utf8(encode_response(&id, Err(failure))).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(
            said["error"],
            json!({ "code": 3, "message": "it is \"paused\"", "data": { "name": "state" } })
        );
        assert_eq!(parse_request(br#"{"jsonrpc":"2.0","method":"x"}"#).unwrap().id, None);
    }

    #[test]
    fn what_is_no_call_says_so() {
        for line in ["", "{", "{} x", "nul", "\u{0}"] {
            assert_eq!(kind(line), (None, RpcErrorKind::Parse), "{line}");
        }
        for line in ["[]", "3", "null", "\"x\"", "{}", r#"{"jsonrpc":"1.0","method":"x"}"#] {
            assert_eq!(kind(line), (None, RpcErrorKind::Request), "{line}");
        }
        let with_id = |rest: &str| kind(&format!(r#"{{"jsonrpc":"2.0","id":"a",{rest}}}"#));
        assert_eq!(with_id(r#""method":3"#), (Some("\"a\"".into()), RpcErrorKind::Request));
        assert_eq!(with_id(r#""method":"x","method":"y""#), (Some("\"a\"".into()), RpcErrorKind::Request));
        for id in ["{}", "[1]", "true", &format!("\"{}\"", "x".repeat(MAX_ID_SIZE))] {
            assert_eq!(
                kind(&format!(r#"{{"jsonrpc":"2.0","method":"x","id":{id}}}"#)),
                (None, RpcErrorKind::Request)
            );
        }
        assert_eq!(parse_request(b"\xff").unwrap_err().1.kind, RpcErrorKind::Parse);
    }

    #[test]
    fn numbers_and_names_are_all_different() {
        let all = [
            RpcErrorKind::Parse,
            RpcErrorKind::Request,
            RpcErrorKind::Method,
            RpcErrorKind::Params,
            RpcErrorKind::Internal,
            RpcErrorKind::Greeting,
            RpcErrorKind::Version,
            RpcErrorKind::State,
            RpcErrorKind::Unsupported,
            RpcErrorKind::Busy,
        ];
        let codes: std::collections::BTreeSet<_> = all.iter().map(|kind| kind.code()).collect();
        let names: std::collections::BTreeSet<_> = all.iter().map(|kind| kind.name()).collect();
        assert_eq!((codes.len(), names.len()), (all.len(), all.len()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_line_is_a_call_or_a_failure_and_every_answer_is_one_line(line in ".{0,80}", id in "0|[1-9][0-9]{0,4}|\"[^\\\\\"\u{0}-\u{1f}]{0,9}\"") {
            let _ = parse_request(line.as_bytes());
            let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{}}}"#, serde_json::to_string(&line).unwrap());
            let call = parse_request(call.as_bytes()).unwrap();
            prop_assert_eq!(&call.method, &line);
            for said in [encode_response(&call.id.clone().unwrap(), Ok(json!(line))), encode_error_response(call.id.as_ref(), &RpcError::new(RpcErrorKind::State, "x\ny"))] {
                prop_assert_eq!(said.iter().filter(|byte| **byte == b'\n').count(), 1);
                let said: Value = serde_json::from_slice(&said).unwrap();
                prop_assert_eq!(said["id"].to_string(), serde_json::from_str::<Value>(&id).unwrap().to_string());
            }
        }
    }
}
