//! The lines that the bridge itself sends in the SDK dialect. Each carries the session id (RB-18). The order of the
//! keys is fixed.

use crate::proto::json::quote;
use crate::proto::uuid::uuid_v4;

/// The error that an outbound-only connection receives instead of success (RB-25).
pub(crate) const OUTBOUND_ONLY: &str =
    "this session is outbound-only: the bridge takes no changes from this connection";

/// The error for a permission mode that cannot be applied (RB-22).
pub(crate) const MODES_UNSUPPORTED: &str = "set_permission_mode is not supported in this context \
                            (onSetPermissionMode callback not registered)";

/// The response to a `control_request` that succeeded. `request_id` is its JSON text.
pub(crate) fn success_response(session: &str, request_id: &str) -> Vec<u8> {
    control_response(session, request_id, "success", "")
}

/// The response to a `control_request` that failed.
pub fn error_response(session: &str, request_id: &str, why: &str) -> Vec<u8> {
    control_response(session, request_id, "error", &format!(",\"error\":{}", quote(why)))
}

/// The response to `initialize` (RB-17): the minimum that servers accept.
pub(crate) fn initialize_response(session: &str, request_id: &str, pid: u32) -> Vec<u8> {
    let response = format!(
        ",\"response\":{{\"commands\":[],\"output_style\":\"normal\",\
         \"available_output_styles\":[\"normal\"],\"models\":[],\"account\":{{}},\"pid\":{pid}}}"
    );
    control_response(session, request_id, "success", &response)
}

/// The response to an unknown subtype (RB-24).
pub(crate) fn unknown_subtype_response(session: &str, request_id: &str, subtype: &str) -> Vec<u8> {
    let why = format!("REPL bridge does not handle control_request subtype: {subtype}");
    error_response(session, request_id, &why)
}

fn control_response(session: &str, request_id: &str, subtype: &str, rest: &str) -> Vec<u8> {
    let session = quote(session);
    with_newline(format!(
        "{{\"type\":\"control_response\",\"response\":{{\"subtype\":\"{subtype}\",\
         \"request_id\":{request_id}{rest}}},\"session_id\":{session}}}"
    ))
}

/// The notice that a question is no longer open (RB-32).
pub fn cancel_request(session: &str, id: &str) -> Vec<u8> {
    let (id, session) = (quote(id), quote(session));
    with_newline(format!(
        "{{\"type\":\"control_cancel_request\",\"request_id\":{id},\"session_id\":{session}}}"
    ))
}

/// Encodes an error outside the conversation, and its uuid. It is the only type of line that passes the filter and
/// belongs to no turn.
pub(crate) fn encode_notice(session: &str, text: &str) -> (String, Vec<u8>) {
    let uuid = uuid_v4();
    let (text, session) = (quote(text), quote(session));
    let bytes = with_newline(format!(
        "{{\"type\":\"system\",\"subtype\":\"local_command\",\"level\":\"error\",\"content\":{text},\
         \"session_id\":{session},\"uuid\":\"{uuid}\"}}"
    ));
    (uuid, bytes)
}

pub(super) fn with_newline(mut json: String) -> Vec<u8> {
    json.push('\n');
    json.into_bytes()
}
