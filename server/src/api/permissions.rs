//! `/api/sessions/:id/permissions`: questions of the agent whether it may use a tool or connect to a host.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, SessionId, SessionPath};
use super::objects::Confirmation;
use super::sessions::{find_active_session, find_sandbox, find_session};
use crate::saggar::{PermissionObject, answer_permission, list_permissions};
use crate::store::Status;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use saggar_sys::error::{Code, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// An answer. The fields besides `behavior` reach the agent unchanged.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnswerPermissionRequest)]
pub(super) struct AnswerBody {
    behavior: Behavior,
    #[serde(flatten)]
    fields: serde_json::Map<String, Value>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PermissionList {
    permissions: Vec<PermissionObject>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Behavior {
    Allow,
    Deny,
}

/// The fields of an answer that the agent receives.
const ANSWER_FIELDS: [&str; 4] = ["updatedInput", "updatedPermissions", "message", "interrupt"];

impl AnswerBody {
    fn behavior(&self) -> &'static str {
        match self.behavior {
            Behavior::Allow => "allow",
            Behavior::Deny => "deny",
        }
    }

    fn to_response(&self) -> Value {
        let mut response = json!({ "behavior": self.behavior() });
        for name in ANSWER_FIELDS {
            if let Some(value) = self.fields.get(name) {
                response[name] = value.clone();
            }
        }
        if matches!(self.behavior, Behavior::Deny) && response.get("message").is_none() {
            response["message"] = "The user denied the request".into();
        }
        response
    }
}

/// Lists the open permission requests of a session.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/permissions",
    operation_id = "listPermissions",
    tag = "Permissions",
    params(SessionId),
    responses(
        (status = 200, description = "The requests", body = PermissionList),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Json<PermissionList>, ApiError> {
    let session = find_session(&app, &caller, id).await?;
    if session.status != Status::Active {
        return Ok(Json(PermissionList { permissions: Vec::new() }));
    }
    let running = find_sandbox(&app, &session).await?;
    let open = match list_permissions(&running.control).await {
        Ok(open) => open,
        // Its requests have ended with it.
        Err(_) if running.has_exited().await => Vec::new(),
        Err(error) => return Err(failed(&error)),
    };
    open.iter().for_each(|request| running.permissions().announce(&request.id));
    Ok(Json(PermissionList { permissions: open.iter().map(PermissionObject::from).collect() }))
}

/// Answers a permission request.
///
/// The first answer counts.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/permissions/{permission}",
    operation_id = "answerPermission",
    tag = "Permissions",
    params(
        ("id" = Uuid, Path, description = "The id of the session"),
        ("permission" = String, Path, description = "The id of the request"),
    ),
    request_body = AnswerBody,
    responses(
        (status = 200, description = "The request is answered", body = Confirmation),
        (status = 400, description = "The request is invalid, or the session is not active"),
        (status = 404, description = "No such session, or no such request"),
        (status = 409, description = "The request was answered already, or it has expired"),
    ),
)]
pub(super) async fn answer(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionPath { id, rest: request }: SessionPath,
    JsonBody(body): JsonBody<AnswerBody>,
) -> Result<Json<Confirmation>, ApiError> {
    let session = find_active_session(&app, &caller, id).await?;
    let running = find_sandbox(&app, &session).await?;
    let known = running.permissions();
    if !known.is_known(&request) {
        // It may be open without any client that was told about it.
        let open = list_permissions(&running.control).await.map_err(|error| failed(&error))?;
        open.iter().for_each(|request| known.announce(&request.id));
        if !known.is_known(&request) {
            return Err(ApiError::not_found("Permission request not found"));
        }
    }
    // Before the agent has it: the stream of the turn reports who answered.
    if !known.set_answer(&request, body.behavior()) {
        return Err(closed());
    }
    let answered = answer_permission(&running.control, &request, &body.to_response()).await;
    answered.map_err(|error| {
        known.remove_answer(&request);
        if error.code() == Code::State { closed() } else { failed(&error) }
    })?;
    Ok(Json(Confirmation::new()))
}

fn closed() -> ApiError {
    let text = "The permission request was answered already, or it has expired";
    ApiError::with_status(StatusCode::CONFLICT, text)
}

fn failed(error: &Error) -> ApiError {
    ApiError::internal(format!("Cannot access permission requests: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_of_an_answer_reach_the_agent() {
        let response = |body: Value| serde_json::from_value::<AnswerBody>(body).unwrap().to_response();
        let allow = json!({ "behavior": "allow", "updatedInput": { "a": 1 }, "other": 1 });
        assert_eq!(response(allow), json!({ "behavior": "allow", "updatedInput": { "a": 1 } }));
        let deny = response(json!({ "behavior": "deny", "interrupt": true }));
        assert_eq!(deny["interrupt"], true);
        assert!(deny["message"].is_string());
        assert!(serde_json::from_value::<AnswerBody>(json!({ "behavior": "ask" })).is_err());
    }
}
