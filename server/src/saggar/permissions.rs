//! Permission requests of an agent, on the control socket (saggar-control(7)).

use super::SessionSocket;
use super::control::{CONTROL_TIMEOUT, call_control};
use crate::clock;
use saggar_sys::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// The tool of a request about a connection to a host (saggar-bridge(7), Network requests).
const HOST_TOOL: &str = "SandboxNetworkAccess";

/// An open request.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionRequest {
    /// The id that the bridge gave it.
    pub id: String,
    /// The id that the agent gave it.
    pub agent_id: String,
    /// The name of the tool.
    pub tool: String,
    /// The input of the tool.
    pub input: Value,
    /// Rules that the agent suggests to add, or null.
    #[serde(default)]
    pub suggestions: Value,
    /// When the agent asked, in milliseconds since the Unix epoch.
    pub asked: i64,
    /// When it is denied without an answer.
    pub deadline: Option<i64>,
}

/// A request as an object of the API.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = PermissionRequest)]
#[serde(rename_all = "camelCase")]
pub struct PermissionObject {
    id: String,
    tool: String,
    /// The input of the tool.
    input: Value,
    /// Rules that the agent suggests to add, or null.
    suggestions: Value,
    /// `network` for a connection to a host, else `tool`.
    kind: &'static str,
    #[schema(format = DateTime)]
    created_at: String,
    /// When the request is denied without an answer.
    #[schema(required, format = DateTime)]
    expires_at: Option<String>,
}

impl From<&PermissionRequest> for PermissionObject {
    fn from(request: &PermissionRequest) -> Self {
        PermissionObject {
            id: request.id.clone(),
            tool: request.tool.clone(),
            input: request.input.clone(),
            suggestions: request.suggestions.clone(),
            kind: if request.tool == HOST_TOOL { "network" } else { "tool" },
            created_at: clock::at_millisecond(request.asked),
            expires_at: request.deadline.map(clock::at_millisecond),
        }
    }
}

/// Lists the open requests in the order of their arrival.
///
/// # Errors
/// As [`call_control`].
pub async fn list_permissions(control: &SessionSocket) -> Result<Vec<PermissionRequest>> {
    let mut result = call_control(control, "permission.list", &json!({}), CONTROL_TIMEOUT).await?;
    serde_json::from_value(result["open"].take()).map_err(|error| {
        Error::new(Code::System, format!("saggar sent an invalid permission request: {error}"))
    })
}

/// Answers a request; `response` has a `behavior` of `allow` or `deny`.
///
/// # Errors
/// [`Code::State`] if the request is not open; otherwise as [`call_control`].
pub async fn answer_permission(control: &SessionSocket, id: &str, response: &Value) -> Result<()> {
    let params = json!({ "id": id, "response": response });
    call_control(control, "permission.respond", &params, CONTROL_TIMEOUT).await.map(drop)
}
