//! `/api/sessions`.

use super::App;
use super::agent_lock::{UsedAgent, use_agent};
use super::agent_variables;
use super::auth::Caller;
use super::credentials::policy_with_credential;
use super::error::ApiError;
use super::eviction::acquire_slot;
use super::extract::{JsonBody, QueryParams, SessionId, bounded};
use super::lifecycle;
use super::objects::{self, SessionList, SessionResponse, parse_object};
use super::pod_sessions::{check_policy, check_start_options, not_in_pods};
use super::session_files::{self, SessionFiles, SessionRequest};
use super::snapshots::find_snapshot;
use super::variables::{self, Variables};
use super::warm_pool::WarmSandbox;
use crate::capacity::SandboxSlot;
use crate::permission_mode::{PERMISSION_MODE, PermissionMode};
use crate::running::{RunningSession, SessionUse};
use crate::saggar::{SessionOrigin, SessionRecord};
use crate::session_policy::SessionPolicy;
use crate::store::{Agent, NewEvent, NewSession, Session, SessionFilter, Status};
use crate::stream::configured_servers;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use utoipa::ToSchema;
use uuid::Uuid;

/// Maximum number of sessions in one list.
const MAX_LISTED: i64 = 1000;
/// Maximum length of the name of a model, in characters.
const MAX_MODEL_CHARS: usize = 100;
/// The options of queries that a client can change later.
const CONFIG_OPTIONS: [&str; 5] = ["allowedTools", "disallowedTools", "betas", "subagents", "initialAgent"];

#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = CreateSessionRequest)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateBody {
    /// The name of the agent.
    agent: String,
    credential_id: Option<String>,
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    extra_env: Option<Variables>,
    #[schema(max_length = 100)]
    model: Option<String>,
    mcp_servers: Option<Map<String, Value>>,
    system_prompt: Option<String>,
    from_snapshot: Option<String>,
    #[serde(flatten)]
    query_options: QueryOptions,
}

impl CreateBody {
    /// The body that starts this agent without options.
    pub(super) fn of_agent(agent: &str) -> Self {
        CreateBody { agent: agent.to_owned(), ..CreateBody::default() }
    }

    fn permission_mode(&self, default: PermissionMode) -> PermissionMode {
        self.query_options.permission_mode.unwrap_or(default)
    }

    /// Whether nothing in the sandbox differs from that of another session of the agent. `default` is the permission mode of a
    /// session without one.
    fn uses_agent_as_deployed(&self, default: PermissionMode) -> bool {
        self.extra_env.as_ref().is_none_or(Variables::is_empty)
            && self.credential_id.is_none()
            && self.mcp_servers.is_none()
            && self.system_prompt.is_none()
            && self.from_snapshot.is_none()
            && self.permission_mode(default).allows_all_tools() == default.allows_all_tools()
    }
}

/// Options of each query of a session. The server stores them and passes them to the agent unchanged.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct QueryOptions {
    /// Default: the mode in the settings of the server.
    permission_mode: Option<PermissionMode>,
    allowed_tools: Option<Value>,
    disallowed_tools: Option<Value>,
    betas: Option<Value>,
    subagents: Option<Value>,
    initial_agent: Option<Value>,
}

impl QueryOptions {
    /// The names of the given options that an agent takes at its start.
    fn start_options(&self) -> impl Iterator<Item = &'static str> {
        let options =
            [&self.allowed_tools, &self.disallowed_tools, &self.betas, &self.subagents, &self.initial_agent];
        CONFIG_OPTIONS.into_iter().zip(options).filter(|(_, value)| value.is_some()).map(|(name, _)| name)
    }

    /// `mode` is the permission mode of the session.
    fn to_config(&self, mode: PermissionMode) -> Map<String, Value> {
        let mode = Some(mode).filter(|mode| *mode != PermissionMode::default());
        let options = [
            (PERMISSION_MODE, mode.map(|mode| mode.name().into())),
            ("allowedTools", self.allowed_tools.clone()),
            ("disallowedTools", self.disallowed_tools.clone()),
            ("betas", self.betas.clone()),
            ("subagents", self.subagents.clone()),
            ("initialAgent", self.initial_agent.clone()),
        ];
        options.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only sessions of this agent.
    agent: Option<String>,
    /// Only sessions with this status.
    status: Option<String>,
    /// Maximum number of sessions.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<i64>,
    /// Number of sessions to leave out.
    #[param(minimum = 0, default = 0)]
    offset: Option<i64>,
}

/// Starts an agent in a sandbox.
#[utoipa::path(
    post,
    path = "/api/sessions",
    operation_id = "createSession",
    tag = "Sessions",
    request_body = CreateBody,
    responses(
        (status = 201, description = "The session is active", body = SessionResponse),
        (status = 404, description = "No such agent"),
        (status = 422, description = "The folder of the agent is missing or invalid"),
        (status = 501, description = "A session in a pod does not have this"),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<CreateBody>,
) -> Result<(StatusCode, Json<SessionResponse>), ApiError> {
    variables::check(body.extra_env.as_ref().unwrap_or(&Variables::new()))?;
    let body = CreateBody { model: body.model.map(checked_model).transpose()?, ..body };
    let tasks = app.tasks.clone();
    let started = tasks.run(async move {
        match start_in_warm_sandbox(&app, &caller, &body).await? {
            Some(session) => Ok(session),
            None => start_session(&app, &caller, body, Uuid::new_v4()).await,
        }
    });
    let session = started
        .await
        .unwrap_or_else(|| Err(ApiError::internal("Failed to create session: internal error")))?;
    Ok((StatusCode::CREATED, session_response(session)))
}

/// Checks the name of a model.
fn checked_model(model: String) -> Result<String, ApiError> {
    match model.chars().count() {
        ..=MAX_MODEL_CHARS => Ok(model),
        _ => Err(ApiError::Body(format!("body/model must have at most {MAX_MODEL_CHARS} characters"))),
    }
}

/// Starts a session in a sandbox that is warm. Returns `None` if there is none, or if the session needs one of its own.
async fn start_in_warm_sandbox(
    app: &App,
    caller: &Caller,
    body: &CreateBody,
) -> Result<Option<Session>, ApiError> {
    if !body.uses_agent_as_deployed(app.permission_mode) {
        return Ok(None);
    }
    let key = (caller.tenant.clone(), body.agent.clone());
    let used = agent_to_start(app, caller, &body.agent).await?;
    let Some(warm) = app.warm_pool.take(&key).await else { return Ok(None) };
    let started = attach_warm_sandbox(app, &used.agent, body, warm).await;
    // Not earlier: the start of the next sandbox would delay this one.
    app.warm_pool.refill();
    started.map(Some)
}

/// Makes a warm sandbox that of a new session.
async fn attach_warm_sandbox(
    app: &App,
    agent: &Agent,
    body: &CreateBody,
    warm: WarmSandbox,
) -> Result<Session, ApiError> {
    let _session_lock = app.running.lock_session(warm.id).await;
    let options = NewOptions::new(agent, body, body.permission_mode(app.permission_mode));
    let (new, created) = (options.session(agent, warm.id), options.creation_event(agent));
    let session = match app.store.insert_warm_session_as(&new, &warm.record.sandbox, &created).await {
        Ok(session) => session,
        Err(error) => {
            app.warm_pool.discard(warm);
            return Err(error.into());
        }
    };
    // From here on, the sandbox is that of the session.
    if let Err(error) = attach_sandbox(app, &session, &warm.record, warm.slot, "create") {
        return Err(lifecycle::discard_failed(app, &session, error).await);
    }
    Ok(session)
}

/// Starts a session with this id, which no other session has.
pub(super) async fn start_session(
    app: &App,
    caller: &Caller,
    body: CreateBody,
    id: Uuid,
) -> Result<Session, ApiError> {
    if app.store.agent(&caller.tenant, &body.agent).await?.is_none() {
        return Err(no_agent(&body.agent));
    }
    check_start_options(app, body.query_options.start_options())?;
    let slot = acquire_slot(app, &caller.tenant, "create").await?;
    // Held to the end: meanwhile the agent is neither deployed again nor deleted.
    let used = agent_to_start(app, caller, &body.agent).await?;
    let agent = &used.agent;
    let mut of_agent = agent_variables::open(app, agent)?;
    let own = body.extra_env.clone().unwrap_or_default();
    let mode = body.permission_mode(app.permission_mode);
    let policy = match &body.credential_id {
        Some(id) => policy_with_credential(app, caller, id, of_agent, own).await?,
        None => {
            of_agent.extend(own);
            SessionPolicy::of_variables(of_agent)
        }
    };
    let policy = policy.with_permission_mode(mode);
    check_policy(app, &policy)?;
    if body.from_snapshot.is_some() && app.sandboxes.are_pods() {
        return Err(not_in_pods("snapshots"));
    }
    if body.from_snapshot.is_some() && (body.system_prompt.is_some() || body.mcp_servers.is_some()) {
        let text = "body/fromSnapshot cannot be combined with systemPrompt or mcpServers: the snapshot has these files";
        return Err(ApiError::Body(text.into()));
    }
    let snapshot = match &body.from_snapshot {
        Some(snapshot) => Some(find_snapshot(app, caller, snapshot).await?),
        None => None,
    };
    let prompt = match &body.system_prompt {
        Some(prompt) => Some(prompt.clone()),
        None => app.store.active_prompt(&caller.tenant, &agent.name).await?,
    };
    let _session_lock = app.running.lock_session(id).await;
    let options = NewOptions::new(agent, &body, mode);
    let session = app.store.insert_session(&options.session(agent, id)).await?;
    let mcp_status = body.mcp_servers.as_ref().and_then(configured_servers);
    let request =
        SessionRequest { agent: agent.path.clone().into(), policy, prompt, mcp_servers: body.mcp_servers };
    let started = async {
        let files = session_files::create(app, id, request).await?;
        start_sandbox(app, &session, &files, snapshot.as_deref(), slot, "create").await
    };
    if let Err(error) = started.await {
        // The client never learned the id.
        return Err(lifecycle::discard_failed(app, &session, error).await);
    }
    for event in [Some(options.creation_event(agent)), mcp_status].iter().flatten() {
        app.store.insert_event(&session.tenant_id, id, event).await?;
    }
    find_session(app, caller, id).await
}

/// What a request and its agent determine of a new session.
struct NewOptions {
    model: Option<String>,
    config: String,
}

impl NewOptions {
    fn new(agent: &Agent, body: &CreateBody, mode: PermissionMode) -> Self {
        let of_agent = || Some(parse_object(&agent.config).get("model")?.as_str()?.to_owned());
        NewOptions {
            model: body.model.clone().or_else(of_agent),
            config: Value::Object(body.query_options.to_config(mode)).to_string(),
        }
    }

    fn session<'a>(&'a self, agent: &'a Agent, id: Uuid) -> NewSession<'a> {
        NewSession {
            id,
            tenant: &agent.tenant_id,
            agent: &agent.name,
            model: self.model.as_deref(),
            config: &self.config,
            parent: None,
        }
    }

    /// The event of the creation.
    fn creation_event(&self, agent: &Agent) -> NewEvent {
        let data = json!({ "action": "created", "agentName": agent.name, "model": self.model });
        NewEvent::new("lifecycle", &data)
    }
}

/// Returns the agent that a new session starts.
pub(super) async fn agent_to_start(app: &App, caller: &Caller, name: &str) -> Result<UsedAgent, ApiError> {
    use_agent(app, &caller.tenant, name).await?.ok_or_else(|| no_agent(name))
}

fn no_agent(name: &str) -> ApiError {
    ApiError::not_found(format!("Agent \"{name}\" not found"))
}

/// Creates the sandbox of a new session and attaches to it. `verb` is what its client requested, for errors.
pub(super) async fn start_sandbox(
    app: &App,
    session: &Session,
    files: &SessionFiles,
    snapshot: Option<&Path>,
    slot: SandboxSlot,
    verb: &str,
) -> Result<(), ApiError> {
    let origin = snapshot.map(|snapshot| SessionOrigin { snapshot, events: None });
    let record = app.sandboxes.create(session.id, &files.folder, files.policy.as_deref(), origin).await;
    let record = record.map_err(|error| ApiError::internal(format!("Failed to {verb} session: {error}")))?;
    app.store.set_running(session.id, &record.sandbox, Status::Active).await?;
    attach_sandbox(app, session, &record, slot, verb)
}

/// Attaches to the sandbox of a session that is active.
fn attach_sandbox(
    app: &App,
    session: &Session,
    record: &SessionRecord,
    slot: SandboxSlot,
    verb: &str,
) -> Result<(), ApiError> {
    app.running.changes().add_session(&session.tenant_id, session.id);
    match app.running.attach(session, record, slot) {
        Some(_) => Ok(()),
        None => Err(ApiError::internal(format!("Failed to {verb} session: the sandbox exited immediately"))),
    }
}

/// Lists the sessions, the newest first.
#[utoipa::path(
    get,
    path = "/api/sessions",
    operation_id = "listSessions",
    tag = "Sessions",
    params(ListQuery),
    responses((status = 200, description = "The sessions", body = SessionList)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Json<SessionList>, ApiError> {
    let filter = SessionFilter {
        agent: query.agent.as_deref(),
        status: query.status.as_deref(),
        limit: bounded("limit", query.limit, MAX_LISTED, 1..=MAX_LISTED)?,
        offset: bounded("offset", query.offset, 0, 0..=i64::MAX)?,
    };
    let (sessions, total) = app.store.sessions(&caller.tenant, &filter).await?;
    let sessions: Vec<_> = sessions.into_iter().map(objects::Session::from).collect();
    Ok(Json(SessionList { sessions, total }))
}

/// Returns a session.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}",
    operation_id = "getSession",
    tag = "Sessions",
    params(SessionId),
    responses(
        (status = 200, description = "The session", body = SessionResponse),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Json<SessionResponse>, ApiError> {
    Ok(session_response(find_session(&app, &caller, id).await?))
}

/// Changes options of the queries of a session.
///
/// The options are `model`, `allowedTools`, `disallowedTools`, `betas`, `subagents` and `initialAgent`. Null removes
/// one.
#[utoipa::path(
    patch,
    path = "/api/sessions/{id}/config",
    operation_id = "updateSessionConfig",
    tag = "Sessions",
    params(SessionId),
    request_body = Map<String, Value>,
    responses(
        (status = 200, description = "The updated session", body = SessionResponse),
        (status = 404, description = "No such session"),
        (status = 501, description = "A session in a pod does not have this"),
    ),
)]
pub(super) async fn update_config(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<Map<String, Value>>,
) -> Result<Json<SessionResponse>, ApiError> {
    find_session(&app, &caller, id).await?;
    check_start_options(
        &app,
        CONFIG_OPTIONS.into_iter().filter(|name| body.get(*name).is_some_and(|value| !value.is_null())),
    )?;
    let tasks = app.tasks.clone();
    let updated = tasks.run(async move {
        // Concurrent changes of different options are all kept.
        let _session_lock = app.running.lock_session(id).await;
        let session = find_session(&app, &caller, id).await?;
        let (mut model, mut config) = (session.model.clone(), parse_object(&session.config));
        for (name, value) in body {
            match (name.as_str(), value) {
                ("model", Value::String(name)) => model = Some(checked_model(name)?),
                ("model", Value::Null) => model = None,
                ("model", _) => return Err(ApiError::Body("body/model must be a string".into())),
                (name, Value::Null) if CONFIG_OPTIONS.contains(&name) => drop(config.remove(name)),
                (name, value) if CONFIG_OPTIONS.contains(&name) => {
                    config.insert(name.to_owned(), value);
                }
                _ => {}
            }
        }
        let config = Value::Object(config).to_string();
        app.store.update_session_config(id, model.as_deref(), &config).await?;
        find_session(&app, &caller, id).await
    });
    let session = updated.await.unwrap_or_else(|| Err(ApiError::internal("Cannot update the session")))?;
    Ok(session_response(session))
}

/// Returns the session of this id if the tenant of the request owns it.
pub(super) async fn find_session(app: &App, caller: &Caller, id: Uuid) -> Result<Session, ApiError> {
    app.store.session(&caller.tenant, id).await?.ok_or_else(not_found)
}

/// Returns the session of this id if its files are on this machine.
pub(super) async fn find_session_here(app: &App, caller: &Caller, id: Uuid) -> Result<Session, ApiError> {
    let session = find_session(app, caller, id).await?;
    if session.copy.is_none() || app.running.get(id).is_some() {
        return Ok(session);
    }
    match app.running.find_session(&session).await {
        Ok(Some(_)) => Ok(session),
        Ok(None) => Err(ApiError::not_found(match session.status {
            Status::Ended => "No workspace available for this session: it has ended on another machine",
            _ => {
                "No workspace available for this session: it is in the snapshot store; resume the session first"
            }
        })),
        Err(error) => Err(ApiError::internal(format!("Cannot find the session: {error}"))),
    }
}

/// Returns the session of this id if it is active.
pub(super) async fn find_active_session(app: &App, caller: &Caller, id: Uuid) -> Result<Session, ApiError> {
    let session = find_session(app, caller, id).await?;
    match session.status {
        Status::Active => Ok(session),
        status => Err(not_active(status)),
    }
}

/// Returns the running sandbox of an active session. Without one, the status of the session becomes `error`.
pub(super) async fn find_sandbox(app: &App, session: &Session) -> Result<Arc<RunningSession>, ApiError> {
    if let Some(running) = app.running.get(session.id) {
        return Ok(running);
    }
    // Held until the status is stored: that of a resume must not be overwritten.
    let _session_lock = app.running.lock_session(session.id).await;
    let attached = app.running.attach_if_served(session).await;
    match attached.map_err(|error| ApiError::internal(format!("Cannot find the sandbox: {error}")))? {
        Some(running) => Ok(running),
        None if app.store.change_status(session.id, &[Status::Active], Status::Error).await? => {
            Err(ApiError::internal("Sandbox not found"))
        }
        // Its status was changed while this request waited.
        None => match app.store.session(&session.tenant_id, session.id).await? {
            Some(session) => Err(not_active(session.status)),
            None => Err(not_found()),
        },
    }
}

/// An active session, and its sandbox, which the server does not end meanwhile.
pub(super) struct UsedSandbox {
    pub(super) session: Session,
    pub(super) running: Arc<RunningSession>,
    pub(super) usage: SessionUse,
}

/// Returns the sandbox of an active session, for work that the sandbox does not know about yet.
pub(super) async fn use_sandbox(app: &App, caller: &Caller, id: Uuid) -> Result<UsedSandbox, ApiError> {
    loop {
        let session = find_active_session(app, caller, id).await?;
        let running = find_sandbox(app, &session).await?;
        let usage = running.begin_use().await;
        if app.running.contains(&running) {
            return Ok(UsedSandbox { session, running, usage });
        }
        // It was ended while this use waited. The status of the session says so, or will soon.
    }
}

fn not_active(status: Status) -> ApiError {
    ApiError::bad_request(format!("Session is {status}"))
}

/// Appends a `lifecycle` event to a session.
pub(super) async fn record_lifecycle_event(
    app: &App,
    session: &Session,
    data: &Value,
) -> Result<(), ApiError> {
    let event = NewEvent::new("lifecycle", data);
    Ok(app.store.insert_event(&session.tenant_id, session.id, &event).await?)
}

/// The response that contains one session.
pub(super) fn session_response(session: Session) -> Json<SessionResponse> {
    Json(SessionResponse { session: session.into() })
}

fn not_found() -> ApiError {
    ApiError::not_found("Session not found")
}
