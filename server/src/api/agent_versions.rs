//! `/api/agents/:name/versions`.

use super::App;
use super::agents::find_agent;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{AgentItem, AgentName, JsonBody};
use crate::store::{PromptVersion, VersionContent, VersionKey};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum number of characters of a name.
const MAX_NAME: usize = 255;

/// Body of `POST` and `PATCH`. Of a version that is updated, absent fields are retained, and null clears a field.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionBody {
    name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    system_prompt: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    release_notes: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    knowledge_files: Option<Option<Vec<String>>>,
    /// Only for a new version.
    clone_from: Option<VersionReference>,
}

/// A version in a body.
#[derive(Debug, Deserialize)]
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

fn version_object(version: &PromptVersion) -> Value {
    let files: Option<Value> =
        version.knowledge_files.as_deref().and_then(|files| serde_json::from_str(files).ok());
    json!({
        "id": version.id,
        "tenantId": version.tenant_id,
        "agentName": version.agent_name,
        "versionNumber": version.version_number,
        "name": version.name,
        "systemPrompt": version.system_prompt,
        "releaseNotes": version.release_notes,
        "isActive": version.is_active != 0,
        "knowledgeFiles": files,
        "createdBy": version.created_by,
        "createdAt": version.created_at,
        "updatedAt": version.updated_at,
    })
}

fn version_response(version: &PromptVersion) -> Json<Value> {
    Json(json!({ "version": version_object(version) }))
}

/// `GET /api/agents/:name/versions`.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
) -> Result<Json<Value>, ApiError> {
    find_agent(&app, &caller, &name).await?;
    let versions = app.store.versions(&caller.tenant, &name).await?;
    let versions: Vec<Value> = versions.iter().map(version_object).collect();
    Ok(Json(json!({ "versions": versions })))
}

/// `POST /api/agents/:name/versions`.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
    JsonBody(body): JsonBody<VersionBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let _agent_lock = app.lock_agent_to_change(&caller.tenant, &name).await;
    find_agent(&app, &caller, &name).await?;
    let source = match &body.clone_from {
        None => None,
        Some(reference) => {
            let text = match reference {
                VersionReference::Number(number) => number.to_string(),
                VersionReference::Text(text) => text.clone(),
            };
            let source = app.store.version(&caller.tenant, &name, version_key(&text)).await?;
            Some(source.ok_or_else(|| ApiError::bad_request(format!("Source version {text} not found")))?)
        }
    };
    let base = source.map_or_else(VersionContent::default, |source| VersionContent {
        system_prompt: source.system_prompt,
        knowledge_files: source.knowledge_files,
        ..VersionContent::default()
    });
    let version = app.store.insert_version(&caller.tenant, &name, &body.content(base)?).await?;
    Ok((StatusCode::CREATED, version_response(&version)))
}

/// `GET /api/agents/:name/versions/:version`.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    item: AgentItem,
) -> Result<Json<Value>, ApiError> {
    Ok(version_response(&find_version(&app, &caller, &item).await?))
}

/// `PATCH /api/agents/:name/versions/:version`.
pub(super) async fn update(
    State(app): State<Arc<App>>,
    caller: Caller,
    item: AgentItem,
    JsonBody(body): JsonBody<VersionBody>,
) -> Result<Json<Value>, ApiError> {
    let _agent_lock = app.lock_agent_to_change(&caller.tenant, &item.agent).await;
    let version = find_version(&app, &caller, &item).await?;
    let base = VersionContent {
        name: Some(version.name),
        system_prompt: version.system_prompt,
        release_notes: version.release_notes,
        knowledge_files: version.knowledge_files,
    };
    let updated = app.store.update_version(&version.id, &body.content(base)?).await?;
    Ok(version_response(&updated.ok_or_else(not_found)?))
}

/// `DELETE /api/agents/:name/versions/:version`. Without an active version, new sessions use the prompt of the folder.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    item: AgentItem,
) -> Result<Json<Value>, ApiError> {
    let _agent_lock = app.lock_agent_to_change(&caller.tenant, &item.agent).await;
    let version = find_version(&app, &caller, &item).await?;
    app.store.delete_version(&version.id).await?;
    Ok(Json(json!({ "ok": true })))
}

/// `POST /api/agents/:name/versions/:version/activate`.
pub(super) async fn activate(
    State(app): State<Arc<App>>,
    caller: Caller,
    item: AgentItem,
) -> Result<Json<Value>, ApiError> {
    let _agent_lock = app.lock_agent_to_change(&caller.tenant, &item.agent).await;
    let version = find_version(&app, &caller, &item).await?;
    app.store.activate_version(&version).await?;
    Ok(Json(json!({ "activated": true, "versionNumber": version.version_number })))
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
