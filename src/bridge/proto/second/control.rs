//! The lines that the bridge itself says in the second dialect. Each carries the session (RB-18); the order of
//! the keys is the seed's.

use crate::bridge::proto::json::quote;
use crate::bridge::proto::uuid::uuid_v4;

/// What an outbound-only connection hears instead of success (RB-25).
pub const OUTBOUND_ONLY: &str =
    "this session is outbound-only: the bridge takes no changes from this connection";

/// What RB-22 says of a mode that nobody could apply.
pub const NO_MODES: &str = "set_permission_mode is not supported in this context \
                            (onSetPermissionMode callback not registered)";

/// The answer to a `control_request` that was done. `request_id` is its JSON text.
pub fn success(session: &str, request_id: &str) -> Vec<u8> {
    reply(session, request_id, "success", "")
}

/// The answer to one that was not.
pub fn error(session: &str, request_id: &str, why: &str) -> Vec<u8> {
    reply(session, request_id, "error", &format!(",\"error\":{}", quote(why)))
}

/// The answer to `initialize` (RB-17): the least that keeps a server content.
pub fn initialized(session: &str, request_id: &str, pid: u32) -> Vec<u8> {
    let response = format!(
        ",\"response\":{{\"commands\":[],\"output_style\":\"normal\",\
         \"available_output_styles\":[\"normal\"],\"models\":[],\"account\":{{}},\"pid\":{pid}}}"
    );
    reply(session, request_id, "success", &response)
}

/// The answer to a subtype that nobody here knows (RB-24).
pub fn unknown(session: &str, request_id: &str, subtype: &str) -> Vec<u8> {
    let why = format!("REPL bridge does not handle control_request subtype: {subtype}");
    error(session, request_id, &why)
}

fn reply(session: &str, request_id: &str, subtype: &str, rest: &str) -> Vec<u8> {
    let session = quote(session);
    line(format!(
        "{{\"type\":\"control_response\",\"response\":{{\"subtype\":\"{subtype}\",\
         \"request_id\":{request_id}{rest}}},\"session_id\":{session}}}"
    ))
}

/// The notice that a question is no longer open (RB-32).
pub fn cancel(session: &str, id: &str) -> Vec<u8> {
    let (id, session) = (quote(id), quote(session));
    line(format!("{{\"type\":\"control_cancel_request\",\"request_id\":{id},\"session_id\":{session}}}"))
}

/// What went wrong below the conversation, as the one kind of line that crosses the filter and is nobody's
/// turn; with its uuid.
pub fn notice(session: &str, text: &str) -> (String, Vec<u8>) {
    let uuid = uuid_v4();
    let (text, session) = (quote(text), quote(session));
    let bytes = line(format!(
        "{{\"type\":\"system\",\"subtype\":\"local_command\",\"level\":\"error\",\"content\":{text},\
         \"session_id\":{session},\"uuid\":\"{uuid}\"}}"
    ));
    (uuid, bytes)
}

pub(super) fn line(mut json: String) -> Vec<u8> {
    json.push('\n');
    json.into_bytes()
}
