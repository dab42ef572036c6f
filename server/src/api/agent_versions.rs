//! `/api/agents/:name/versions`.

use super::App;
use super::agent_change::change_agent;
use super::agents::find_agent;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{AgentItem, AgentName, JsonBody};
use super::objects::Confirmation;
use crate::store::{PromptVersion, VersionContent, VersionKey};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use std::sync::Arc;
use utoipa::ToSchema;

/// Maximum number of characters of a name.
const MAX_NAME: usize = 255;

/// Body of `POST` and `PATCH`. Of a version that is updated, absent fields are retained, and null clears a field.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AgentVersionRequest)]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionBody {
    /// By default `v` and the number of the version.
    #[schema(max_length = 255)]
    name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    system_prompt: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    release_notes: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Vec<String>>)]
    knowledge_files: Option<Option<Vec<String>>>,
    /// Only for a new version.
    clone_from: Option<VersionReference>,
}

/// The number or the id of a version.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum VersionReference {
    Number(i64),
    Text(String),
}

/// Deserializes a field that is present, possibly as null.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(field).map(Some)
}

impl VersionBody {
    /// Returns the content of the version: that of `base`, replaced by the fields of the body.
    fn content(self, base: VersionContent) -> Result<VersionContent, ApiError> {
        let name = self.name.filter(|name| !name.is_empty());
        if name.as_ref().is_some_and(|name| name.chars().count() > MAX_NAME) {
            return Err(ApiError::Body(format!("body/name must have at most {MAX_NAME} characters")));
        }
        let files = self.knowledge_files.map(|files| files.map(|files| json!(files).to_string()));
        Ok(VersionContent {
            name: name.or(base.name),
            system_prompt: self.system_prompt.unwrap_or(base.system_prompt),
            release_notes: self.release_notes.unwrap_or(base.release_notes),
            knowledge_files: files.unwrap_or(base.knowledge_files),
        })
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AgentVersion {
    id: String,
    tenant_id: String,
    agent_name: String,
    /// Unique for each agent, from 1.
    version_number: i64,
    name: String,
    #[schema(required)]
    system_prompt: Option<String>,
    #[schema(required)]
    release_notes: Option<String>,
    is_active: bool,
    #[schema(required)]
    knowledge_files: Option<Vec<String>>,
    #[schema(required)]
    created_by: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

impl From<PromptVersion> for AgentVersion {
    fn from(version: PromptVersion) -> Self {
        AgentVersion {
            knowledge_files: version.knowledge_files.and_then(|files| serde_json::from_str(&files).ok()),
            id: version.id,
            tenant_id: version.tenant_id,
            agent_name: version.agent_name,
            version_number: version.version_number,
            name: version.name,
            system_prompt: version.system_prompt,
            release_notes: version.release_notes,
            is_active: version.is_active != 0,
            created_by: version.created_by,
            created_at: version.created_at,
            updated_at: version.updated_at,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentVersionResponse {
    version: AgentVersion,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentVersionList {
    versions: Vec<AgentVersion>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ActivatedVersion {
    activated: bool,
    version_number: i64,
}

fn version_response(version: PromptVersion) -> Json<AgentVersionResponse> {
    Json(AgentVersionResponse { version: version.into() })
}

/// Lists the versions of an agent, the newest first.
#[utoipa::path(
    get,
    path = "/api/agents/{name}/versions",
    operation_id = "listAgentVersions",
    tag = "Agent versions",
    params(AgentName),
    responses(
        (status = 200, description = "The versions", body = AgentVersionList),
        (status = 404, description = "No such agent"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
) -> Result<Json<AgentVersionList>, ApiError> {
    find_agent(&app, &caller, &name).await?;
    let versions = app.store.versions(&caller.tenant, &name).await?;
    let versions = versions.into_iter().map(AgentVersion::from).collect();
    Ok(Json(AgentVersionList { versions }))
}

/// Creates a version of an agent.
#[utoipa::path(
    post,
    path = "/api/agents/{name}/versions",
    operation_id = "createAgentVersion",
    tag = "Agent versions",
    params(AgentName),
    request_body = VersionBody,
    responses(
        (status = 201, description = "The version is created", body = AgentVersionResponse),
        (status = 404, description = "No such agent"),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
    JsonBody(body): JsonBody<VersionBody>,
) -> Result<(StatusCode, Json<AgentVersionResponse>), ApiError> {
    let version = change_agent(app, caller, name, |app, caller, name| async move {
        find_agent(&app, &caller, &name).await?;
        let source = match &body.clone_from {
            None => None,
            Some(reference) => {
                let text = match reference {
                    VersionReference::Number(number) => number.to_string(),
                    VersionReference::Text(text) => text.clone(),
                };
                let source = app.store.version(&caller.tenant, &name, version_key(&text)).await?;
                Some(
                    source
                        .ok_or_else(|| ApiError::bad_request(format!("Source version {text} not found")))?,
                )
            }
        };
        let base = source.map_or_else(VersionContent::default, |source| VersionContent {
            system_prompt: source.system_prompt,
            knowledge_files: source.knowledge_files,
            ..VersionContent::default()
        });
        Ok(app.store.insert_version(&caller.tenant, &name, &body.content(base)?).await?)
    });
    Ok((StatusCode::CREATED, version_response(version.await?)))
}

/// Returns a version of an agent.
#[utoipa::path(
    get,
    path = "/api/agents/{name}/versions/{version}",
    operation_id = "getAgentVersion",
    tag = "Agent versions",
    params(
        ("name" = String, Path, description = "The name of the agent"),
        ("version" = String, Path, description = "The number or the id of the version"),
    ),
    responses(
        (status = 200, description = "The version", body = AgentVersionResponse),
        (status = 404, description = "No such agent, or no such version"),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    item: AgentItem,
) -> Result<Json<AgentVersionResponse>, ApiError> {
    Ok(version_response(find_version(&app, &caller, &item).await?))
}

/// Updates a version of an agent.
#[utoipa::path(
    patch,
    path = "/api/agents/{name}/versions/{version}",
    operation_id = "updateAgentVersion",
    tag = "Agent versions",
    params(
        ("name" = String, Path, description = "The name of the agent"),
        ("version" = String, Path, description = "The number or the id of the version"),
    ),
    request_body = VersionBody,
    responses(
        (status = 200, description = "The updated version", body = AgentVersionResponse),
        (status = 404, description = "No such agent, or no such version"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    caller: Caller,
    item: AgentItem,
    JsonBody(body): JsonBody<VersionBody>,
) -> Result<Json<AgentVersionResponse>, ApiError> {
    let updated = change_agent(app, caller, item.agent.clone(), |app, caller, _| async move {
        let version = find_version(&app, &caller, &item).await?;
        let base = VersionContent {
            name: Some(version.name),
            system_prompt: version.system_prompt,
            release_notes: version.release_notes,
            knowledge_files: version.knowledge_files,
        };
        app.store.update_version(&version.id, &body.content(base)?).await?.ok_or_else(not_found)
    });
    Ok(version_response(updated.await?))
}

/// Deletes a version of an agent.
///
/// Without an active version, new sessions use the prompt of the folder.
#[utoipa::path(
    delete,
    path = "/api/agents/{name}/versions/{version}",
    operation_id = "deleteAgentVersion",
    tag = "Agent versions",
    params(
        ("name" = String, Path, description = "The name of the agent"),
        ("version" = String, Path, description = "The number or the id of the version"),
    ),
    responses(
        (status = 200, description = "The version is deleted", body = Confirmation),
        (status = 404, description = "No such agent, or no such version"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    item: AgentItem,
) -> Result<Json<Confirmation>, ApiError> {
    let deleted = change_agent(app, caller, item.agent.clone(), |app, caller, _| async move {
        let version = find_version(&app, &caller, &item).await?;
        Ok(app.store.delete_version(&version.id).await?)
    });
    deleted.await?;
    Ok(Json(Confirmation::new()))
}

/// Makes a version the active one of its agent.
///
/// Its system prompt replaces that of the folder in new sessions.
#[utoipa::path(
    post,
    path = "/api/agents/{name}/versions/{version}/activate",
    operation_id = "activateAgentVersion",
    tag = "Agent versions",
    params(
        ("name" = String, Path, description = "The name of the agent"),
        ("version" = String, Path, description = "The number or the id of the version"),
    ),
    responses(
        (status = 200, description = "The version is active", body = ActivatedVersion),
        (status = 404, description = "No such agent, or no such version"),
    ),
)]
pub(super) async fn activate(
    State(app): State<Arc<App>>,
    caller: Caller,
    item: AgentItem,
) -> Result<Json<ActivatedVersion>, ApiError> {
    let activated = change_agent(app, caller, item.agent.clone(), |app, caller, _| async move {
        let version = find_version(&app, &caller, &item).await?;
        app.store.activate_version(&version).await?;
        Ok(ActivatedVersion { activated: true, version_number: version.version_number })
    });
    activated.await.map(Json)
}

async fn find_version(app: &App, caller: &Caller, item: &AgentItem) -> Result<PromptVersion, ApiError> {
    find_agent(app, caller, &item.agent).await?;
    let version = app.store.version(&caller.tenant, &item.agent, version_key(&item.item)).await?;
    version.ok_or_else(not_found)
}

/// A version is named by its number or its id.
fn version_key(text: &str) -> VersionKey<'_> {
    match text.parse() {
        Ok(number) if number > 0 => VersionKey::Number(number),
        _ => VersionKey::Id(text),
    }
}

fn not_found() -> ApiError {
    ApiError::not_found("Version not found")
}
