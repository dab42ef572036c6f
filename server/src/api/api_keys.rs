//! `/api/api-keys`, and `/api/internal/api-keys` for keys of other tenants.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, is_agent_name};
use super::objects::Confirmation;
use crate::api_key::{DEFAULT_TENANT, KeyScope, generate_key, hash_key};
use crate::store::{DeletedKey, StoredKey};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// The id of the configured key in lists.
const CONFIGURED_KEY_ID: &str = "env";
/// Stands in for a key in lists: the database contains only hashes.
const MASK: &str = "••••••••";
/// Maximum number of characters of a label.
const MAX_LABEL: usize = 255;

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = CreateApiKeyRequest)]
pub(super) struct CreateKeyBody {
    #[schema(max_length = 255)]
    label: Option<String>,
    #[serde(default)]
    scope: KeyScope,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = CreateTenantApiKeyRequest)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateTenantKeyBody {
    /// Letters, digits, `_` and `-`.
    #[schema(min_length = 1, max_length = 255, pattern = "^[A-Za-z0-9_-]+$")]
    tenant_id: String,
    #[schema(max_length = 255)]
    label: Option<String>,
}

/// A key in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ApiKey {
    /// `env` for the key in the settings of the server, else a UUID.
    id: String,
    label: String,
    /// A mask: the server stores only a hash of the key.
    key_prefix: &'static str,
    scope: KeyScope,
    /// Empty for the key in the settings of the server.
    created_at: String,
}

impl From<StoredKey> for ApiKey {
    fn from(key: StoredKey) -> Self {
        let StoredKey { id, label, scope, created_at, .. } = key;
        ApiKey { id, label, key_prefix: MASK, scope, created_at }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ApiKeyList {
    keys: Vec<ApiKey>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct NewApiKey {
    #[serde(flatten)]
    #[schema(inline)]
    stored: ApiKey,
    /// The key itself.
    key: String,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TenantApiKey {
    id: String,
    key: String,
    tenant_id: String,
}

/// Lists the API keys of the tenant.
#[utoipa::path(
    get,
    path = "/api/api-keys",
    operation_id = "listApiKeys",
    tag = "API keys",
    responses((status = 200, description = "The keys, without their values", body = ApiKeyList)),
)]
pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<ApiKeyList>, ApiError> {
    let mut keys = Vec::new();
    if app.configured_key.is_some() && caller.tenant == DEFAULT_TENANT {
        keys.push(ApiKey {
            id: CONFIGURED_KEY_ID.into(),
            label: "configured key".into(),
            key_prefix: MASK,
            scope: KeyScope::Admin,
            created_at: String::new(),
        });
    }
    keys.extend(app.store.api_keys(&caller.tenant).await?.into_iter().map(ApiKey::from));
    Ok(Json(ApiKeyList { keys }))
}

/// Creates an API key of the same tenant.
///
/// Only this response contains it.
#[utoipa::path(
    post,
    path = "/api/api-keys",
    operation_id = "createApiKey",
    tag = "API keys",
    request_body = CreateKeyBody,
    responses((status = 201, description = "The key is created", body = NewApiKey)),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<CreateKeyBody>,
) -> Result<(StatusCode, Json<NewApiKey>), ApiError> {
    let label = checked_label(body.label, "unnamed key".into())?;
    let (key, stored) = create_key(&app, &caller.tenant, &label, body.scope).await?;
    Ok((StatusCode::CREATED, Json(NewApiKey { stored: stored.into(), key })))
}

/// Deletes an API key.
///
/// From then on, requests with this key are rejected.
#[utoipa::path(
    delete,
    path = "/api/api-keys/{id}",
    operation_id = "deleteApiKey",
    tag = "API keys",
    params(("id" = String, Path, description = "The id of the key")),
    responses(
        (status = 200, description = "The key is deleted", body = Confirmation),
        (status = 404, description = "No such key"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Confirmation>, ApiError> {
    let refused = |text: &str| Err(ApiError::WithoutCode(StatusCode::BAD_REQUEST, text.into()));
    if id == CONFIGURED_KEY_ID && app.configured_key.is_some() && caller.tenant == DEFAULT_TENANT {
        return refused(
            "The configured key is not in the database: remove it from the settings and restart the server",
        );
    }
    // The operator needs a key of the default tenant. Without a configured key, the last one remains.
    let may_delete_last = app.configured_key.is_some() || caller.tenant != DEFAULT_TENANT;
    match app.store.delete_api_key(&caller.tenant, &id, may_delete_last).await? {
        DeletedKey::Deleted => Ok(Json(Confirmation::new())),
        DeletedKey::NotFound => Err(ApiError::WithoutCode(StatusCode::NOT_FOUND, "API key not found".into())),
        DeletedKey::LastAdmin => refused(
            "This is the last API key with the scope admin: create another one before you delete it, or \
             configure one with ASH_API_KEY",
        ),
    }
}

/// Creates an API key of any tenant.
///
/// A tenant exists as soon as it has a key.
#[utoipa::path(
    post,
    path = "/api/internal/api-keys",
    operation_id = "createTenantApiKey",
    tag = "API keys",
    request_body = CreateTenantKeyBody,
    responses((status = 200, description = "The key is created", body = TenantApiKey)),
    security(("internalSecret" = [])),
)]
pub(super) async fn create_for_tenant(
    State(app): State<Arc<App>>,
    JsonBody(body): JsonBody<CreateTenantKeyBody>,
) -> Result<Json<TenantApiKey>, ApiError> {
    // It is the name of a directory.
    if !is_agent_name(&body.tenant_id) {
        return Err(ApiError::Body("body/tenantId must have 1 to 255 letters, digits, _ or -".into()));
    }
    let label = checked_label(body.label, format!("platform-{}", body.tenant_id))?;
    let (key, stored) = create_key(&app, &body.tenant_id, &label, KeyScope::Admin).await?;
    Ok(Json(TenantApiKey { id: stored.id, key, tenant_id: body.tenant_id }))
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
