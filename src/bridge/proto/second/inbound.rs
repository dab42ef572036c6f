//! One line of a server of the second dialect, looked at in the order of seed 003: an answer first, then a
//! control request, then a message (RB-04, RB-05). What is none of these is ignored (RB-06, RB-12, RB-13).

use super::content::clean;
use crate::bridge::proto::{DEPTH_LIMIT, json};
use std::borrow::Cow;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub enum Inbound<'a> {
    /// The `response` of a `control_response`: an answer to a question of the agent.
    Answer(&'a str),
    /// A `control_cancel_request`: the server does not want this question any more.
    Cancel(String),
    /// A `control_request`, to be answered at once.
    Request(Request<'a>),
    /// A `user` message.
    User(User<'a>),
    /// Something else that has a `type`.
    Other(String),
}

/// A `control_request` of the server.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The JSON text of its id, to be echoed as it stands (RB-26).
    pub request_id: &'a str,
    /// What is asked for.
    pub subtype: String,
    /// The `request` itself.
    pub body: &'a str,
}

/// A message for the agent.
#[derive(Debug, PartialEq, Eq)]
pub struct User<'a> {
    /// By which echoes and repetitions are known.
    pub uuid: Option<String>,
    /// What it says; `None` when that is nothing.
    pub content: Option<Cow<'a, str>>,
}

/// Reads one line.
///
/// # Errors
/// Why the line says nothing to the bridge: for the log.
pub fn read(line: &[u8]) -> Result<Inbound<'_>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "the line is not valid utf-8")?;
    if json::deeper_than(text, DEPTH_LIMIT) {
        return Err(format!("the line is nested deeper than {DEPTH_LIMIT}"));
    }
    // Either spelling of an id, and the right one when there are both (RB-16).
    let names = ["type", "request_id", "requestId", "request", "response", "message", "uuid"];
    let scan = json::scan(text, &names).map_err(|e| format!("the line is not a JSON object: {e}"))?;
    let [kind, snake, camel, request, response, message, uuid] = scan.fields;
    let kind = kind.and_then(json::string).ok_or("the line has no type")?;
    let id = snake.or(camel);
    Ok(match (kind.as_str(), response, request) {
        ("control_response", Some(response), _) => Inbound::Answer(response),
        ("control_cancel_request", _, _) => match id.and_then(json::string) {
            Some(id) => Inbound::Cancel(id),
            None => Inbound::Other(kind),
        },
        ("control_request", _, Some(body)) => {
            let request_id = id.ok_or("control_request: the request_id is missing")?;
            let subtype = json::scan(body, &["subtype"]).ok().and_then(|scan| scan.fields[0]);
            let subtype = subtype.and_then(json::string).ok_or("control_request: no subtype")?;
            Inbound::Request(Request { request_id, subtype, body })
        }
        ("user", _, _) => {
            let content = message.and_then(|message| json::scan(message, &["content"]).ok()?.fields[0]);
            let uuid = uuid.and_then(json::string);
            Inbound::User(User { uuid, content: content.and_then(clean) })
        }
        _ => Inbound::Other(kind),
    })
}

/// Whether this line, as the first of its connection, makes the connection one of the second dialect
/// (DECISIONS 18). Answers belong to both dialects and decide nothing.
pub fn fixes(line: &[u8]) -> bool {
    // What most first lines look like, without a second look at a long one.
    if line.starts_with(b"{\"cmd\"") {
        return false;
    }
    let Ok(text) = std::str::from_utf8(line) else { return false };
    let Ok(scan) = json::scan(text, &["cmd", "ev"]) else { return false };
    // A key that no command may have is refused aloud, not read as something else (BP-16).
    scan.fields == [None; 2]
        && scan.forbidden.is_none()
        && matches!(read(line), Ok(Inbound::Request(_) | Inbound::User(_)))
}
