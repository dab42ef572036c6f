//! `/api/api-keys`, and `/api/internal/api-keys` for keys of other tenants.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, is_agent_name};
use crate::api_key::{DEFAULT_TENANT, KeyScope, generate_key, hash_key};
use crate::store::{DeletedKey, StoredKey};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The id of the configured key in lists.
const CONFIGURED_KEY_ID: &str = "env";
/// Stands in for a key in lists: the database contains only hashes.
const MASK: &str = "••••••••";
/// Maximum number of characters of a label.
const MAX_LABEL: usize = 255;

#[derive(Debug, Deserialize)]
pub(super) struct CreateKeyBody {
    label: Option<String>,
    #[serde(default)]
    scope: KeyScope,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateTenantKeyBody {
    tenant_id: String,
    label: Option<String>,
}

/// `GET /api/api-keys`.
pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<Value>, ApiError> {
    let mut keys = Vec::new();
    if app.configured_key.is_some() && caller.tenant == DEFAULT_TENANT {
        keys.push(json!({
            "id": CONFIGURED_KEY_ID,
            "label": "configured key",
            "keyPrefix": MASK,
            "scope": KeyScope::Admin,
            "createdAt": "",
        }));
    }
    keys.extend(app.store.api_keys(&caller.tenant).await?.iter().map(key_object));
    Ok(Json(json!({ "keys": keys })))
}

fn key_object(key: &StoredKey) -> Value {
    json!({
        "id": key.id,
        "label": key.label,
        "keyPrefix": MASK,
        "scope": key.scope,
        "createdAt": key.created_at,
    })
}

/// `POST /api/api-keys`: creates a key of the same tenant. Only this response contains it.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<CreateKeyBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let label = checked_label(body.label, "unnamed key".into())?;
    let (key, stored) = create_key(&app, &caller.tenant, &label, body.scope).await?;
    let mut object = key_object(&stored);
    object["key"] = key.into();
    Ok((StatusCode::CREATED, Json(object)))
}

/// `DELETE /api/api-keys/:id`. From then on, requests with this key are rejected.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let refused = |text: &str| Err(ApiError::WithoutCode(StatusCode::BAD_REQUEST, text.into()));
    if id == CONFIGURED_KEY_ID && app.configured_key.is_some() && caller.tenant == DEFAULT_TENANT {
        return refused(
            "The configured key is not in the database: remove it from the settings and restart the server",
        );
    }
    // The operator needs a key of the default tenant. Without a configured key, the last one remains.
    let may_delete_last = app.configured_key.is_some() || caller.tenant != DEFAULT_TENANT;
    match app.store.delete_api_key(&caller.tenant, &id, may_delete_last).await? {
        DeletedKey::Deleted => Ok(Json(json!({ "ok": true }))),
        DeletedKey::NotFound => Err(ApiError::WithoutCode(StatusCode::NOT_FOUND, "API key not found".into())),
        DeletedKey::LastAdmin => refused(
            "This is the last API key with the scope admin: create another one before you delete it, or \
             configure one with ASH_API_KEY",
        ),
    }
}

/// `POST /api/internal/api-keys`: creates a key of any tenant. A tenant exists as soon as it has a key. The request has
/// passed the check of the internal secret.
pub(super) async fn create_for_tenant(
    State(app): State<Arc<App>>,
    JsonBody(body): JsonBody<CreateTenantKeyBody>,
) -> Result<Json<Value>, ApiError> {
    // It is the name of a directory.
    if !is_agent_name(&body.tenant_id) {
        return Err(ApiError::Body("body/tenantId must have 1 to 255 letters, digits, _ or -".into()));
    }
    let label = checked_label(body.label, format!("platform-{}", body.tenant_id))?;
    let (key, stored) = create_key(&app, &body.tenant_id, &label, KeyScope::Admin).await?;
    Ok(Json(json!({ "id": stored.id, "key": key, "tenantId": body.tenant_id })))
}

async fn create_key(
    app: &App,
    tenant: &str,
    label: &str,
    scope: KeyScope,
) -> Result<(String, StoredKey), ApiError> {
    let key = generate_key()?;
    let stored = app.store.create_api_key(tenant, &hash_key(&key), label, scope).await?;
    Ok((key, stored))
}

fn checked_label(label: Option<String>, default: String) -> Result<String, ApiError> {
    let label = label.filter(|label| !label.is_empty()).unwrap_or(default);
    if label.chars().count() > MAX_LABEL || label.contains('\0') {
        let text = format!("body/label must have at most {MAX_LABEL} characters, and no NUL");
        return Err(ApiError::Body(text));
    }
    Ok(label)
}
