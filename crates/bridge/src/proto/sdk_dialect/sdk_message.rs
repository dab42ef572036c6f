//! One line of a server of the SDK dialect, classified in this order: response, control request, message (RB-04,
//! RB-05). Other lines are ignored (RB-06, RB-12, RB-13).

use super::content::clean_content;
use crate::proto::{DEPTH_LIMIT, json};
use std::borrow::Cow;

/// A classified line.
#[derive(Debug, PartialEq, Eq)]
pub enum SdkMessage<'a> {
    /// The `response` of a `control_response`: a response to a question of the agent.
    Response(&'a str),
    /// A `control_cancel_request`: the server withdraws from the question with this id.
    Cancel(String),
    /// A `control_request`, which needs an immediate response.
    ControlRequest(SdkControlRequest<'a>),
    /// A `user` message.
    User(UserMessage<'a>),
    /// A line with another `type`, which it contains.
    Other(String),
}

/// A `control_request` of the server.
#[derive(Debug, PartialEq, Eq)]
pub struct SdkControlRequest<'a> {
    /// The JSON text of the request id, echoed unchanged (RB-26).
    pub request_id: &'a str,
    /// The `subtype` of the request.
    pub subtype: String,
    /// The JSON of `request`.
    pub body: &'a str,
}

/// A message for the agent.
#[derive(Debug, PartialEq, Eq)]
pub struct UserMessage<'a> {
    /// The uuid, by which echoes and repetitions are recognised.
    pub uuid: Option<String>,
    /// The content; `None` if it is empty.
    pub content: Option<Cow<'a, str>>,
}

/// Parses one line.
///
/// # Errors
/// The reason why the bridge ignores the line, for the log.
pub fn parse_sdk_message(line: &[u8]) -> Result<SdkMessage<'_>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "the line is not valid utf-8")?;
    if json::is_deeper_than(text, DEPTH_LIMIT) {
        return Err(format!("the line is nested deeper than {DEPTH_LIMIT}"));
    }
    // Both spellings of the id are accepted; `request_id` takes precedence (RB-16).
    let names = ["type", "request_id", "requestId", "request", "response", "message", "uuid"];
    let scan = json::scan(text, &names).map_err(|e| format!("the line is not a JSON object: {e}"))?;
    let [kind, snake, camel, request, response, message, uuid] = scan.fields;
    let kind = kind.and_then(json::parse_string).ok_or("the line has no type")?;
    let id = snake.or(camel);
    Ok(match (kind.as_str(), response, request) {
        ("control_response", Some(response), _) => SdkMessage::Response(response),
        ("control_cancel_request", _, _) => match id.and_then(json::parse_string) {
            Some(id) => SdkMessage::Cancel(id),
            None => SdkMessage::Other(kind),
        },
        ("control_request", _, Some(body)) => {
            let request_id = id.ok_or("control_request: the request_id is missing")?;
            let subtype = json::scan(body, &["subtype"]).ok().and_then(|scan| scan.fields[0]);
            let subtype = subtype.and_then(json::parse_string).ok_or("control_request: no subtype")?;
            SdkMessage::ControlRequest(SdkControlRequest { request_id, subtype, body })
        }
        ("user", _, _) => {
            let content = message.and_then(|message| json::scan(message, &["content"]).ok()?.fields[0]);
            let uuid = uuid.and_then(json::parse_string);
            SdkMessage::User(UserMessage { uuid, content: content.and_then(clean_content) })
        }
        _ => SdkMessage::Other(kind),
    })
}

/// Whether this line, as the first of its connection, selects the SDK dialect (DECISIONS 18). Responses belong to both
/// dialects and select neither.
pub fn selects_sdk_dialect(line: &[u8]) -> bool {
    // The usual first line; avoids scanning a long line twice.
    if line.starts_with(b"{\"cmd\"") {
        return false;
    }
    let Ok(text) = std::str::from_utf8(line) else { return false };
    let Ok(scan) = json::scan(text, &["cmd", "ev"]) else { return false };
    // A line with a forbidden key is rejected as a command, with an error (BP-16).
    scan.fields == [None; 2]
        && scan.forbidden.is_none()
        && matches!(parse_sdk_message(line), Ok(SdkMessage::ControlRequest(_) | SdkMessage::User(_)))
}
