//! Error responses that operations have in common, because the checks before the routes send them.

use crate::api::error::ErrorBody;
use utoipa::ToSchema;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{Content, Ref, RefOr, Response};

/// Of every operation: the check of the Host header, and the rate limit.
const ALL: [(&str, &str); 2] =
    [("400", "The request is invalid"), ("429", "The client has sent too many requests")];
/// Of operations that require a key or use the database.
const WITH_DATABASE: [(&str, &str); 2] = [
    ("500", "saggar or the database failed"),
    ("503", "The server is not ready; the request can be repeated"),
];
const WITH_KEY: [(&str, &str); 2] =
    [("401", "The key is missing or unknown"), ("403", "The scope of the key does not permit the request")];
const WITH_SECRET: [(&str, &str); 1] = [("401", "The secret is missing or wrong")];
const WITH_BODY: [(&str, &str); 2] =
    [("408", "The body did not arrive in time"), ("413", "The body is too large")];

const NOT_IN_PODS: (&str, &str) = ("501", "The sessions of this server run in pods");

/// Adds the common responses that the operation does not have, and the schema of errors. `in_pods` is whether sessions in
/// pods have the operation.
pub(super) fn add(operation: &mut Operation, in_pods: bool) {
    let is_documentation = operation.tags.iter().flatten().any(|tag| tag == "Documentation");
    let is_internal =
        operation.security.as_ref().is_some_and(|schemes| *schemes != [SecurityRequirement::default()]);
    let mut common = ALL.to_vec();
    if !is_documentation {
        common.extend(WITH_DATABASE);
    }
    match &operation.security {
        None => common.extend(WITH_KEY),
        Some(_) if is_internal => common.extend(WITH_SECRET),
        Some(_) => {}
    }
    if !in_pods {
        common.push(NOT_IN_PODS);
    }
    if operation.request_body.is_some() {
        common.extend(WITH_BODY);
    }
    let responses = &mut operation.responses.responses;
    for (status, description) in common {
        responses.entry(status.to_owned()).or_insert_with(|| Response::new(description).into());
    }
    for (status, response) in responses {
        if let RefOr::T(response) = response
            && status.starts_with(['4', '5'])
        {
            let schema = Ref::from_schema_name(ErrorBody::name());
            response.content.insert("application/json".into(), Content::new(Some(schema)).into());
        }
    }
}
