//! JSON objects of responses. Field names are those of Ash.

use super::agent_variables;
use crate::store;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, Object, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// An agent. The values of its environment variables are replaced by `***`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Agent {
    id: String,
    name: String,
    tenant_id: String,
    version: i64,
    path: String,
    env: Map<String, Value>,
    config: Map<String, Value>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

impl From<store::Agent> for Agent {
    fn from(agent: store::Agent) -> Self {
        let names = agent_variables::names(&agent.env).into_iter().map(|name| (name, Value::from("***")));
        Agent {
            env: names.collect(),
            config: parse_object(&agent.config),
            id: agent.id,
            name: agent.name,
            tenant_id: agent.tenant_id,
            version: agent.version,
            path: agent.path,
            created_at: agent.created_at,
            updated_at: agent.updated_at,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Session {
    id: String,
    tenant_id: String,
    agent_name: String,
    sandbox_id: String,
    status: store::Status,
    #[schema(required)]
    runner_id: Option<String>,
    #[schema(required)]
    parent_session_id: Option<String>,
    #[schema(required)]
    model: Option<String>,
    config: Map<String, Value>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    last_active_at: String,
}

impl From<store::Session> for Session {
    fn from(session: store::Session) -> Self {
        Session {
            id: session.id.to_string(),
            config: parse_object(&session.config),
            tenant_id: session.tenant_id,
            agent_name: session.agent_name,
            sandbox_id: session.sandbox_id,
            status: session.status,
            runner_id: None,
            parent_session_id: session.parent_session_id,
            model: session.model,
            created_at: session.created_at,
            last_active_at: session.last_active_at,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    id: String,
    session_id: String,
    tenant_id: String,
    /// `user` or `assistant`.
    role: String,
    /// JSON text: the message of the agent as it came, or of a user `{"type":"user","content":…}`.
    content: String,
    sequence: i64,
    #[schema(format = DateTime)]
    created_at: String,
}

impl From<store::MessageRow> for Message {
    fn from(row: store::MessageRow) -> Self {
        let store::MessageRow { id, session_id, tenant_id, role, content, sequence, created_at } = row;
        Message { id, session_id, tenant_id, role, content, sequence, created_at }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionEvent {
    id: String,
    session_id: String,
    tenant_id: String,
    #[serde(rename = "type")]
    kind: String,
    /// JSON text.
    #[schema(required)]
    data: Option<String>,
    sequence: i64,
    #[schema(format = DateTime)]
    created_at: String,
}

impl From<store::EventRow> for SessionEvent {
    fn from(row: store::EventRow) -> Self {
        let store::EventRow { id, session_id, tenant_id, kind, data, sequence, created_at } = row;
        SessionEvent { id, session_id, tenant_id, kind, data, sequence, created_at }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionResponse {
    pub(super) session: Session,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionList {
    pub(super) sessions: Vec<Session>,
    /// The number of sessions without `limit` and `offset`.
    pub(super) total: i64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MessageList {
    pub(super) messages: Vec<Message>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionEventList {
    pub(super) events: Vec<SessionEvent>,
}

/// A file in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileEntry {
    pub(super) path: String,
    /// In bytes.
    pub(super) size: u64,
    #[schema(format = DateTime)]
    pub(super) modified_at: String,
}

/// The response to a request without other results.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Confirmation {
    /// Always true.
    ok: bool,
}

impl Confirmation {
    pub(super) fn new() -> Self {
        Confirmation { ok: true }
    }
}

/// The schema of bytes.
pub(super) enum BinaryFile {}

impl PartialSchema for BinaryFile {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        Object::builder().schema_type(Type::String).format(Some(format)).into()
    }
}

impl ToSchema for BinaryFile {}

/// Parses a JSON object that the server has stored. Invalid text yields an empty object.
pub(super) fn parse_object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap_or_default()
}
