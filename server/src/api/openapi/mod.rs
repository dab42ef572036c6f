//! The OpenAPI document of the API. It is generated from the routes: each handler has its operation in an attribute, and
//! the router is built from these handlers.

mod common_responses;
pub(super) mod handlers;
mod page;

use super::operations;
use super::pod_sessions::left_out;
use crate::api::error::ErrorBody;
use crate::body_limits::BodyLimits;
use std::mem;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, License, OpenApi, OpenApiBuilder};
use utoipa::{PartialSchema, ToSchema};

/// The name of the security scheme of routes that require an API key.
const API_KEY: &str = "apiKey";
/// The name of the security scheme of internal routes.
const INTERNAL_SECRET: &str = "internalSecret";

/// The groups of operations, in the order of the document.
const TAGS: [(&str, &str); 14] = [
    ("Server", "The state of the server"),
    ("Agents", "Programs with a prompt that sessions run"),
    ("Agent files", "Files in the folder of an agent"),
    ("Agent versions", "System prompts of an agent, of which one is active"),
    ("Sessions", "Agents that run in sandboxes"),
    ("Messages", "The conversation with an agent"),
    ("Permissions", "Questions of an agent whether it may do something"),
    ("Files", "The workspace of a session"),
    ("Attachments", "Files that clients add to sessions"),
    ("Queue", "Messages that the server sends when a worker is free"),
    ("Usage", "Tokens, messages and costs"),
    ("Credentials", "Secrets for the sandboxes of an agent"),
    ("API keys", "Keys of clients"),
    ("Documentation", "This document"),
];

/// Returns the document.
pub fn document() -> OpenApi {
    // The limits of bodies are not part of it.
    let mut document = operations(BodyLimits::default(), 0).into_openapi();
    complete(&mut document);
    document
}

/// Returns the document as JSON text with line breaks; each version of the server has exactly one.
///
/// # Errors
/// Fails if the document cannot be converted to JSON, which no input can cause.
pub fn document_text() -> serde_json::Result<String> {
    Ok(document().to_pretty_json()? + "\n")
}

/// The document without operations.
pub(super) fn base() -> OpenApi {
    let bearer = |text: &str| {
        let mut http = Http::new(HttpAuthScheme::Bearer);
        http.description = Some(text.to_owned());
        SecurityScheme::Http(http)
    };
    let components = ComponentsBuilder::new()
        .schema(ErrorBody::name(), ErrorBody::schema())
        .security_scheme(API_KEY, bearer("An API key. Its scope is `read`, `agent` or `admin`."))
        .security_scheme(INTERNAL_SECRET, bearer("The secret of the internal routes."));
    let info = InfoBuilder::new()
        .title("saggar-server")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(env!("CARGO_PKG_DESCRIPTION")))
        .license(Some(License::builder().name("Apache-2.0").identifier(Some("Apache-2.0")).build()));
    let tag = |(name, text)| TagBuilder::new().name(name).description(Some(text)).build();
    OpenApiBuilder::new()
        .info(info.build())
        .components(Some(components.build()))
        .security(Some([SecurityRequirement::new(API_KEY, [""; 0])]))
        .tags(Some(TAGS.map(tag)))
        .build()
}

/// Adds what is common to all operations, and names the paths as OpenAPI does.
fn complete(document: &mut OpenApi) {
    for (path, mut item) in mem::take(&mut document.paths.paths) {
        let operations = [&mut item.get, &mut item.post, &mut item.patch, &mut item.delete];
        let in_pods = left_out(&path).is_none();
        operations.into_iter().flatten().for_each(|operation| common_responses::add(operation, in_pods));
        // The router marks a parameter that can contain slashes; OpenAPI has no such mark.
        document.paths.paths.insert(path.replace("{*", "{"), item);
    }
}
