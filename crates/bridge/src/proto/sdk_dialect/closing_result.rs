//! The final `result`, by which a server knows that it can archive the session (RB-36, RB-37).

use super::control::with_newline;
use crate::proto::json::quote;
use crate::proto::uuid::uuid_v4;

/// The usage object with all counts zero.
const EMPTY_USAGE: &str = "{\"input_tokens\":0,\"cache_creation_input_tokens\":0,\
                     \"cache_read_input_tokens\":0,\"output_tokens\":0,\
                     \"server_tool_use\":{\"web_search_requests\":0,\"web_fetch_requests\":0}}";

/// The line, with a uuid of its own.
pub fn closing_result(session: &str) -> Vec<u8> {
    let (session, uuid) = (quote(session), uuid_v4());
    with_newline(format!(
        "{{\"type\":\"result\",\"subtype\":\"success\",\"duration_ms\":0,\"duration_api_ms\":0,\
         \"is_error\":false,\"num_turns\":0,\"result\":\"\",\"stop_reason\":null,\"total_cost_usd\":0,\
         \"usage\":{EMPTY_USAGE},\"modelUsage\":{{}},\"permission_denials\":[],\"session_id\":{session},\
         \"uuid\":\"{uuid}\"}}"
    ))
}
