//! A client of the Kubernetes API, for the objects of one namespace.

use super::settings::KubernetesSettings;
use crate::error::{Context, Error, Result};
use crate::http_client::HyperClient;
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::Request;
use object_store::client::HttpRequestBody;
use serde_json::Value;
use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::timeout;

/// Maximum time of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response, in bytes: a list of pods.
const MAX_RESPONSE: usize = 64 << 20;

/// The resources that the server uses.
#[derive(Debug, Clone, Copy)]
pub(super) enum Resource {
    Pods,
    Secrets,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Resource::Pods => "pods",
            Resource::Secrets => "secrets",
        }
    }
}

/// The API server, and the namespace.
#[derive(Debug)]
pub(super) struct ApiServer {
    client: HyperClient,
    /// `…/api/v1/namespaces/NAMESPACE`.
    url: String,
    token_file: Option<PathBuf>,
}

impl ApiServer {
    /// # Errors
    /// Fails if the certificates cannot be used.
    pub(super) fn new(settings: &KubernetesSettings) -> Result<Self> {
        let client = match &settings.certificate_authority {
            Some(file) => HyperClient::trusting(file)?,
            None => HyperClient::new()?,
        };
        Ok(ApiServer {
            client,
            url: format!("{}/api/v1/namespaces/{}", settings.api, settings.namespace),
            token_file: settings.token_file.clone(),
        })
    }

    /// Creates an object, and returns it as it is stored.
    ///
    /// # Errors
    /// Fails if the API refuses the object, or does not answer.
    pub(super) async fn create(&self, resource: Resource, object: &Value) -> Result<Value> {
        let what = || format!("cannot create {}", name_of(resource, object));
        let (status, answer) =
            self.request(Method::POST, resource.name(), Some(object)).await.context(what)?;
        check(status, answer).context(what)
    }

    /// Returns an object; `None` if there is none with this name.
    ///
    /// # Errors
    /// Fails if the API refuses the request, or does not answer.
    pub(super) async fn get(&self, resource: Resource, name: &str) -> Result<Option<Value>> {
        self.request_object(Method::GET, resource, name, None)
            .await
            .context(|| format!("cannot read {}/{name}", resource.name()))
    }

    /// Lists the objects with this label.
    ///
    /// # Errors
    /// Fails if the API refuses the request, or does not answer.
    pub(super) async fn list(&self, resource: Resource, label: (&str, &str)) -> Result<Vec<Value>> {
        let what = || format!("cannot list {}", resource.name());
        // Label names have a slash, which is allowed in a query (RFC 3986, section 3.4).
        let path = format!("{}?labelSelector={}%3D{}", resource.name(), label.0, label.1);
        let (status, answer) = self.request(Method::GET, &path, None).await.context(what)?;
        match check(status, answer).context(what)?["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Err(Error::new("the answer has no items")).context(what),
        }
    }

    /// Begins to delete an object, whose processes get `grace_seconds` after SIGTERM, and returns it; `None` if there is none
    /// with this name.
    ///
    /// # Errors
    /// Fails if the API refuses the request, or does not answer.
    pub(super) async fn delete(
        &self,
        resource: Resource,
        name: &str,
        grace_seconds: u64,
    ) -> Result<Option<Value>> {
        let options = serde_json::json!({ "gracePeriodSeconds": grace_seconds });
        let deleted = self.request_object(Method::DELETE, resource, name, Some(&options)).await;
        deleted.context(|| format!("cannot delete {}/{name}", resource.name()))
    }

    async fn request_object(
        &self,
        method: Method,
        resource: Resource,
        name: &str,
        body: Option<&Value>,
    ) -> Result<Option<Value>> {
        match self.request(method, &format!("{}/{name}", resource.name()), body).await? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, answer) => check(status, answer).map(Some),
        }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Vec<u8>)> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}/{path}", self.url))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json");
        if let Some(file) = &self.token_file {
            request = request.header(AUTHORIZATION, bearer(file)?);
        }
        let request = request.body(HttpRequestBody::from(text)).context(|| "invalid request")?;
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| {
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                Error::new(format!("the Kubernetes API does not answer: {error}{cause}"))
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_RESPONSE).collect().await;
            let body = body.map_err(|error| Error::new(format!("cannot read the answer: {error}")))?;
            Ok((head.status, body.to_bytes().to_vec()))
        };
        match timeout(REQUEST_TIMEOUT, exchange).await {
            Ok(answer) => answer,
            Err(_) => {
                Err(Error::new(format!("the Kubernetes API did not answer within {REQUEST_TIMEOUT:?}")))
            }
        }
    }
}

/// `pods/NAME` for an object that is to be created.
fn name_of(resource: Resource, object: &Value) -> String {
    format!("{}/{}", resource.name(), object["metadata"]["name"].as_str().unwrap_or_default())
}

fn bearer(file: &Path) -> Result<HeaderValue> {
    let context = || format!("cannot use the token in {}", file.display());
    let token = fs::read_to_string(file).context(context)?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).context(context)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The object of an answer, or the error that the API has given.
fn check(status: StatusCode, answer: Vec<u8>) -> Result<Value> {
    let object = serde_json::from_slice(&answer);
    if status.is_success() {
        return object.context(|| "the Kubernetes API sent no JSON");
    }
    let object = object.unwrap_or(Value::Null);
    match object["message"].as_str() {
        Some(message) => Err(Error::new(message)),
        None => Err(Error::new(format!("the Kubernetes API answered {status}"))),
    }
}
