//! `/api/sessions`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, QueryOf, SessionId};
use super::objects::{self, object};
use super::session_files::{self, Wanted};
use super::variables::{self, Variables};
use crate::store::{Agent, NewEvent, NewSession, Session, Status};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The body of a new session.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateBody {
    agent: String,
    #[serde(default)]
    extra_env: Variables,
    model: Option<String>,
    mcp_servers: Option<Map<String, Value>>,
    system_prompt: Option<String>,
    #[serde(flatten)]
    of_queries: QueryOptions,
}

/// What each query of a session has; it goes to the agent as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueryOptions {
    permission_mode: Option<Value>,
    allowed_tools: Option<Value>,
    disallowed_tools: Option<Value>,
    betas: Option<Value>,
    subagents: Option<Value>,
    initial_agent: Option<Value>,
}

impl QueryOptions {
    fn into_config(self) -> Map<String, Value> {
        let options = [
            ("permissionMode", self.permission_mode),
            ("allowedTools", self.allowed_tools),
            ("disallowedTools", self.disallowed_tools),
            ("betas", self.betas),
            ("subagents", self.subagents),
            ("initialAgent", self.initial_agent),
        ];
        options.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// The query of a list.
#[derive(Debug, Deserialize)]
pub(super) struct ListQuery {
    agent: Option<String>,
}

/// `POST /api/sessions`: starts an agent in a sandbox.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<CreateBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    variables::check(&body.extra_env)?;
    if body.model.as_ref().is_some_and(|model| model.chars().count() > 100) {
        return Err(ApiError::Body("body/model must have at most 100 characters".into()));
    }
    let agent = app.store.agent(&caller.tenant, &body.agent).await?;
    let agent = agent.ok_or_else(|| ApiError::not_found(format!("Agent \"{}\" not found", body.agent)))?;
    // A client that goes away does not stop it in the middle.
    let task = tokio::spawn(async move { start(&app, &caller, &agent, body).await });
    let session =
        task.await.unwrap_or_else(|_| Err(ApiError::internal("Failed to create session: given up")))?;
    Ok((StatusCode::CREATED, answer(session)))
}

async fn start(app: &App, caller: &Caller, agent: &Agent, body: CreateBody) -> Result<Session, ApiError> {
    let config = object(&agent.config);
    let model = body.model.as_deref().or_else(|| config.get("model")?.as_str());
    let id = Uuid::new_v4();
    let new = NewSession {
        id,
        tenant: &caller.tenant,
        agent: &agent.name,
        model,
        config: &Value::Object(body.of_queries.into_config()).to_string(),
    };
    let _alone = app.live.lock_changes(id).await;
    let session = app.store.insert_session(&new).await?;
    let sandbox = async {
        let mut variables: Variables = serde_json::from_str(&agent.env).unwrap_or_default();
        variables.extend(body.extra_env);
        let wanted = Wanted {
            agent: agent.path.clone().into(),
            variables,
            prompt: body.system_prompt,
            mcp_servers: body.mcp_servers,
        };
        let _folder = app.folders.read().await;
        let files = session_files::write(app, id, wanted).await?;
        let record = app.program.create(id, &files.folder, files.policy.as_deref()).await;
        record.map_err(|failure| ApiError::internal(format!("Failed to create session: {}", failure.0)))
    };
    match sandbox.await {
        Ok(record) => {
            app.store.set_running(id, &record.sandbox, Status::Active).await?;
            if app.live.take_up(&session, &record).is_none() {
                return Err(ApiError::internal("Failed to create session: it ended at once"));
            }
        }
        Err(error) => {
            // Nothing is left of a session that no client knows.
            session_files::remove(app, id).await;
            app.store.delete_session(id).await?;
            return Err(error);
        }
    }
    let created = json!({ "action": "created", "agentName": agent.name, "model": model });
    note(app, &session, &created).await?;
    app.store.session(&caller.tenant, id).await?.ok_or_else(not_found)
}

/// `GET /api/sessions`.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Value>, ApiError> {
    let sessions = app.store.sessions(&caller.tenant, query.agent.as_deref()).await?;
    let sessions: Vec<_> = sessions.into_iter().map(objects::Session::from).collect();
    Ok(Json(json!({ "sessions": sessions })))
}

/// `GET /api/sessions/:id`.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Json<Value>, ApiError> {
    Ok(answer(find(&app, &caller, id).await?))
}

/// The session of a request.
pub(super) async fn find(app: &App, caller: &Caller, id: Uuid) -> Result<Session, ApiError> {
    app.store.session(&caller.tenant, id).await?.ok_or_else(not_found)
}

/// That of a request which needs a running agent.
pub(super) async fn find_active(app: &App, caller: &Caller, id: Uuid) -> Result<Session, ApiError> {
    let session = find(app, caller, id).await?;
    match session.status {
        Status::Active => Ok(session),
        status => Err(ApiError::bad_request(format!("Session is {status}"))),
    }
}

/// Adds an event of the life of a session.
pub(super) async fn note(app: &App, session: &Session, data: &Value) -> Result<(), ApiError> {
    let event = NewEvent { kind: "lifecycle", data: data.to_string() };
    Ok(app.store.insert_event(&session.tenant_id, session.id, &event).await?)
}

/// A session as the answer to a request.
pub(super) fn answer(session: Session) -> Json<Value> {
    Json(json!({ "session": objects::Session::from(session) }))
}

fn not_found() -> ApiError {
    ApiError::not_found("Session not found")
}
