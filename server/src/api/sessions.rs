//! `/api/sessions`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, QueryOf, SessionId};
use super::objects::{self, object};
use super::variables::{self, Variables};
use crate::agent_folder::{self, Additions};
use crate::saggar::policy_with_variables;
use crate::store::{Agent, NewEvent, NewSession, Session, Status};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::warn;
use uuid::Uuid;

/// How long the end of a session waits until the last of what its agent said is in the database.
const LAST_WORDS: Duration = Duration::from_secs(10);

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
    Ok((StatusCode::CREATED, Json(json!({ "session": objects::Session::from(session) }))))
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
        let _folder = app.folders.read().await;
        let additions = (body.system_prompt, body.mcp_servers);
        let prepared = prepare(app.data.clone(), id, agent.path.clone(), variables, additions).await?;
        let record = app.program.create(id, &prepared.folder, prepared.policy.as_deref()).await;
        record.map_err(|failure| ApiError::internal(format!("Failed to create session: {}", failure.0)))
    };
    match sandbox.await {
        Ok(record) => {
            app.store.set_started(id, &record.sandbox).await?;
            if app.live.take_up(&session, &record).is_none() {
                return Err(ApiError::internal("Failed to create session: it ended at once"));
            }
        }
        Err(error) => {
            // Nothing is left of a session that no client knows.
            remove_files(app, id).await;
            app.store.delete_session(id).await?;
            return Err(error);
        }
    }
    let created = json!({ "action": "created", "agentName": agent.name, "model": model });
    note(app, &session, &created).await?;
    app.store.session(&caller.tenant, id).await?.ok_or_else(not_found)
}

/// What a start of a session needs on disk.
struct Prepared {
    folder: PathBuf,
    policy: Option<PathBuf>,
}

/// Writes it to `sessions/ID` of the data directory.
async fn prepare(
    data: PathBuf,
    id: Uuid,
    agent: String,
    variables: Variables,
    (prompt, mcp_servers): (Option<String>, Option<Map<String, Value>>),
) -> Result<Prepared, ApiError> {
    let write = move || {
        let directory = directory_of(&data, id);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let agent = PathBuf::from(agent);
        if !agent_folder::is_agent(&agent) {
            return Err(io::Error::other(format!("{} has no CLAUDE.md", agent.display())));
        }
        let folder = if prompt.is_none() && mcp_servers.is_none() {
            agent
        } else {
            let folder = directory.join("agent");
            let additions = Additions { prompt: prompt.as_deref(), mcp_servers: mcp_servers.as_ref() };
            agent_folder::make_for_session(&agent, &folder, &additions)?;
            folder
        };
        let mut policy = None;
        if !variables.is_empty() {
            let file = directory.join("policy.toml");
            write_private(&file, &policy_with_variables(&variables))?;
            policy = Some(file);
        }
        Ok(Prepared { folder, policy })
    };
    match spawn_blocking(write).await {
        Ok(Ok(prepared)) => Ok(prepared),
        Ok(Err(error)) => {
            let error: io::Error = error;
            Err(ApiError::own(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("The agent's folder cannot be used: {error}"),
            ))
        }
        Err(_) => Err(ApiError::internal("Failed to create session: given up")),
    }
}

/// Of a session, in the data directory.
fn directory_of(data: &Path, id: Uuid) -> PathBuf {
    data.join("sessions").join(id.to_string())
}

/// Variables can be secrets.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}

async fn remove_files(app: &App, id: Uuid) {
    let directory = directory_of(&app.data, id);
    let removed = spawn_blocking(move || fs::remove_dir_all(directory)).await;
    if let Ok(Err(error)) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!("the files of session {id} were not removed: {error}");
    }
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
    answer(find(&app, &caller, id).await?)
}

/// `DELETE /api/sessions/:id`: ends it for good. Its messages and its workspace stay.
pub(super) async fn end(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Json<Value>, ApiError> {
    find(&app, &caller, id).await?;
    let task = tokio::spawn(async move {
        let _alone = app.live.lock_changes(id).await;
        let session = find(&app, &caller, id).await?;
        if session.status != Status::Ended {
            end_sandbox(&app, id, false).await?;
            let from = [Status::Active, Status::Paused, Status::Stopped, Status::Error, Status::Starting];
            app.store.change_status(id, &from, Status::Ended).await?;
            note(&app, &session, &json!({ "action": "ended" })).await?;
        }
        find(&app, &caller, id).await
    });
    answer(task.await.unwrap_or_else(|_| Err(ApiError::internal("The session was not ended")))?)
}

/// Ends a session and removes all of it but its rows.
pub(super) async fn remove(app: &App, session: &Session) -> Result<(), ApiError> {
    let _alone = app.live.lock_changes(session.id).await;
    end_sandbox(app, session.id, true).await?;
    remove_files(app, session.id).await;
    Ok(())
}

async fn end_sandbox(app: &App, id: Uuid, remove: bool) -> Result<(), ApiError> {
    let live = app.live.get(id);
    // One that saggar does not know has no sandbox to end.
    if app.program.show(id).await.is_ok() {
        let ended = app.program.end(id, remove).await;
        ended.map_err(|failure| ApiError::internal(format!("Failed to end session: {}", failure.0)))?;
    }
    if let Some(live) = live
        && timeout(LAST_WORDS, live.wait_until_over()).await.is_err()
    {
        warn!("session {id} has ended, and the last of what its agent said is not in the database yet");
    }
    Ok(())
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

async fn note(app: &App, session: &Session, data: &Value) -> Result<(), ApiError> {
    let event = NewEvent { kind: "lifecycle", data: data.to_string() };
    Ok(app.store.insert_event(&session.tenant_id, session.id, &event).await?)
}

fn answer(session: Session) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({ "session": objects::Session::from(session) })))
}

fn not_found() -> ApiError {
    ApiError::not_found("Session not found")
}
