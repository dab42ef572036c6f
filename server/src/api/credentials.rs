//! `/api/credentials`. A secret enters the server here. It leaves it with the requests of a sandbox, outside of which it
//! remains ([`held_keys`]), or as environment variables of the sandbox.
//!
//! [`held_keys`]: super::held_keys

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::JsonBody;
use super::held_keys::policy_with_held_key;
use super::objects::Confirmation;
use super::variables::Variables;
use crate::session_policy::SessionPolicy;
use crate::store::{NewCredential, StoredCredential};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use tokio::task::spawn_blocking;
use tracing::error;
use utoipa::ToSchema;
use uuid::Uuid;

/// Maximum length of a secret, in bytes: it must fit in an environment variable.
const MAX_SECRET: usize = 64 << 10;
/// Maximum number of characters of a label.
const MAX_LABEL: usize = 255;

/// The service of a credential, which decides how sessions use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum CredentialService {
    Anthropic,
    Openai,
    /// A JSON object with the keys of an AWS account.
    Bedrock,
    Custom,
}

impl CredentialService {
    fn name(self) -> &'static str {
        match self {
            CredentialService::Anthropic => "anthropic",
            CredentialService::Openai => "openai",
            CredentialService::Bedrock => "bedrock",
            CredentialService::Custom => "custom",
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[schema(as = StoreCredentialRequest)]
pub(super) struct CreateCredentialBody {
    #[serde(rename = "type")]
    service: CredentialService,
    /// The secret.
    #[schema(min_length = 1, max_length = 65536)]
    key: String,
    #[schema(max_length = 255)]
    label: Option<String>,
}

/// A credential in a response.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Credential {
    id: String,
    #[serde(rename = "type")]
    #[schema(value_type = CredentialService)]
    service: String,
    label: String,
    active: bool,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(required, format = DateTime)]
    last_used_at: Option<String>,
}

impl From<StoredCredential> for Credential {
    fn from(stored: StoredCredential) -> Self {
        Credential {
            id: stored.id,
            service: stored.kind,
            label: stored.label,
            active: stored.active != 0,
            created_at: stored.created_at,
            last_used_at: stored.last_used_at,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CredentialResponse {
    credential: Credential,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CredentialList {
    credentials: Vec<Credential>,
}

/// The context in which a secret was encrypted: it cannot be used as that of another tenant or service.
fn owner(tenant: &str, id: &str, service: &str) -> String {
    format!("{tenant}/{id}/{service}")
}

/// Stores a credential, encrypted.
#[utoipa::path(
    post,
    path = "/api/credentials",
    operation_id = "storeCredential",
    tag = "Credentials",
    request_body = CreateCredentialBody,
    responses((status = 201, description = "The credential is stored", body = CredentialResponse)),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<CreateCredentialBody>,
) -> Result<(StatusCode, Json<CredentialResponse>), ApiError> {
    if body.key.is_empty() || body.key.len() > MAX_SECRET || body.key.contains('\0') {
        let text = format!("body/key must have 1 to {MAX_SECRET} bytes, and no NUL");
        return Err(ApiError::Body(text));
    }
    let label = body.label.unwrap_or_default();
    if label.chars().count() > MAX_LABEL || label.contains('\0') {
        let text = format!("body/label must have at most {MAX_LABEL} characters, and no NUL");
        return Err(ApiError::Body(text));
    }
    let (id, service) = (Uuid::new_v4().to_string(), body.service.name());
    let (cipher, owner) = (app.credential_cipher.clone(), owner(&caller.tenant, &id, service));
    let sealed = spawn_blocking(move || cipher.seal(&owner, &body.key)).await;
    let sealed = sealed.unwrap_or_else(|_| Err(crate::error::Error::new("cannot encrypt a credential")))?;
    let new =
        NewCredential { id: &id, tenant: &caller.tenant, kind: service, sealed: &sealed, label: &label };
    let stored = app.store.insert_credential(&new).await?;
    Ok((StatusCode::CREATED, Json(CredentialResponse { credential: stored.into() })))
}

/// Lists the credentials, without their secrets.
#[utoipa::path(
    get,
    path = "/api/credentials",
    operation_id = "listCredentials",
    tag = "Credentials",
    responses((status = 200, description = "The credentials", body = CredentialList)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<CredentialList>, ApiError> {
    let credentials = app.store.credentials(&caller.tenant).await?;
    let credentials = credentials.into_iter().map(Credential::from).collect();
    Ok(Json(CredentialList { credentials }))
}

/// Deletes a credential.
///
/// Sandboxes that have started with the credential retain its variables.
#[utoipa::path(
    delete,
    path = "/api/credentials/{id}",
    operation_id = "deleteCredential",
    tag = "Credentials",
    params(("id" = String, Path, description = "The id of the credential")),
    responses(
        (status = 200, description = "The credential is deleted", body = Confirmation),
        (status = 404, description = "No such credential"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Confirmation>, ApiError> {
    match app.store.delete_credential(&caller.tenant, &id).await? {
        true => Ok(Json(Confirmation::new())),
        false => Err(ApiError::not_found("Credential not found")),
    }
}

/// Returns the policy of a session with the variables of its agent, a credential, and its own variables, each of which
/// replaces the former. Stores that the credential was used.
///
/// # Errors
/// 400 if the tenant has no such credential, or if its content does not fit its type.
pub(super) async fn policy_with_credential(
    app: &App,
    caller: &Caller,
    id: &str,
    of_agent: Variables,
    own: Variables,
) -> Result<SessionPolicy, ApiError> {
    let stored = app.store.credential(&caller.tenant, id).await?;
    let stored = stored.ok_or_else(|| ApiError::bad_request("Invalid or inaccessible credential"))?;
    let (cipher, owner) = (app.credential_cipher.clone(), owner(&stored.tenant_id, id, &stored.kind));
    let sealed = stored.sealed();
    let opened = spawn_blocking(move || cipher.open(&owner, &sealed)).await;
    let Ok(Ok(secret)) = opened else {
        error!("cannot decrypt credential {id}: ASH_CREDENTIAL_KEY or DATA/credential-key has changed");
        return Err(ApiError::internal(format!(
            "Cannot decrypt credential {id}: the key of the server has changed; delete the credential and \
             store it again"
        )));
    };
    let held = policy_with_held_key(&stored.kind, &secret, &of_agent, &own, &app.model_apis);
    let policy = match held {
        Some(policy) => policy,
        None => {
            let mut variables = of_agent;
            variables.extend(match stored.kind.as_str() {
                "anthropic" => single("ANTHROPIC_API_KEY", secret),
                "openai" => single("OPENAI_API_KEY", secret),
                "bedrock" => bedrock_variables(&secret)?,
                _ => single("ASH_CUSTOM_API_KEY", secret),
            });
            variables.extend(own);
            SessionPolicy::of_variables(variables)
        }
    };
    app.store.set_credential_used(&caller.tenant, id).await?;
    Ok(policy)
}

fn single(name: &str, value: String) -> Variables {
    Variables::from([(name.to_owned(), value)])
}

/// Reads `{accessKeyId, secretAccessKey, region, sessionToken?}`. The errors contain nothing of it.
fn bedrock_variables(secret: &str) -> Result<Variables, ApiError> {
    let fields: Map<String, Value> = serde_json::from_str(secret).map_err(|_| {
        ApiError::bad_request(
            "Bedrock credential must be a JSON object with accessKeyId, secretAccessKey, and region",
        )
    })?;
    let field = |name: &str| {
        let value = fields.get(name).and_then(Value::as_str);
        value.filter(|value| !value.is_empty() && !value.contains('\0')).map(str::to_owned)
    };
    let mut variables = single("CLAUDE_CODE_USE_BEDROCK", "1".into());
    for (variable, name) in [
        ("AWS_ACCESS_KEY_ID", "accessKeyId"),
        ("AWS_SECRET_ACCESS_KEY", "secretAccessKey"),
        ("AWS_REGION", "region"),
    ] {
        let value = field(name).ok_or_else(|| {
            ApiError::bad_request("Bedrock credential requires accessKeyId, secretAccessKey, and region")
        })?;
        variables.insert(variable.to_owned(), value);
    }
    variables.extend(field("sessionToken").map(|token| ("AWS_SESSION_TOKEN".to_owned(), token)));
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bedrock_object_becomes_variables() {
        let variables = bedrock_variables(
            r#"{"accessKeyId":"a","secretAccessKey":"s","region":"r","sessionToken":"t","x":1}"#,
        );
        let expected = [
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_REGION", "r"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("AWS_SESSION_TOKEN", "t"),
            ("CLAUDE_CODE_USE_BEDROCK", "1"),
        ];
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        assert_eq!(variables.unwrap(), expected.map(own).into_iter().collect());
        for invalid in [
            "",
            "x",
            "[]",
            r#"{"accessKeyId":"a"}"#,
            r#"{"accessKeyId":"","secretAccessKey":"s","region":"r"}"#,
        ] {
            assert!(bedrock_variables(invalid).is_err(), "{invalid}");
        }
    }
}
