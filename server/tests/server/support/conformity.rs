//! Checks of responses against the OpenAPI document `server/openapi.json`.

use super::Frame;
use super::schema::Schemas;
use serde_json::{Value, json};
use std::sync::LazyLock;
use ureq::http::HeaderMap;

/// The committed document. Another test compares it with that of the server.
pub static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../openapi.json")).unwrap());

/// Statuses of requests that no operation describes: they fail before a route is chosen, or there is none.
const WITHOUT_OPERATION: [u16; 7] = [400, 401, 403, 404, 408, 429, 501];

/// Checks a response: its status and its media type are in the document, and JSON has the fields of its schema and no
/// others.
///
/// # Panics
/// Names the request and the first difference.
#[track_caller]
pub fn check_response(method: &str, target: &str, status: u16, headers: &HeaderMap, body: &[u8]) {
    if let Err(text) = find_difference(method, target, status, headers, body) {
        panic!("{method} {target}, status {status}: {text}\n{}", String::from_utf8_lossy(body));
    }
}

fn find_difference(
    method: &str,
    target: &str,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(), String> {
    if method == "OPTIONS" {
        // The browser's question whether a page may send a request (CORS).
        return Ok(());
    }
    let path = target.split('?').next().unwrap_or_default();
    if path == "/dashboard" || path.starts_with("/dashboard/") {
        // The web page: static files, which are no operations.
        return Ok(());
    }
    let content = match find_operation(method, path) {
        Some(operation) => {
            let responses = &operation["responses"];
            let response = responses.get(status.to_string()).ok_or("the document lacks the status")?;
            response["content"].clone()
        }
        None if WITHOUT_OPERATION.contains(&status) => {
            json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } })
        }
        None => return Err("the document lacks the operation".into()),
    };
    if method == "HEAD" {
        return Ok(());
    }
    let media_type = headers.get("content-type").ok_or("no content type")?.to_str().unwrap();
    let media_type = media_type.split(';').next().unwrap_or_default();
    // A file can have any media type, also that of the JSON objects.
    if headers.contains_key("content-disposition") {
        let is_declared = content.get("*/*").or_else(|| content.get(media_type)).is_some();
        return is_declared.then_some(()).ok_or_else(|| format!("the document lacks files of {media_type}"));
    }
    let declared = content.get(media_type).ok_or_else(|| format!("the document lacks {media_type}"))?;
    if media_type != "application/json" {
        return Ok(());
    }
    let value = serde_json::from_slice(body).map_err(|error| format!("invalid JSON: {error}"))?;
    Schemas::of(&DOCUMENT).check(&declared["schema"], &value, "body")
}

/// Finds the operation of a request. Of several paths that match, that with the fewest parameters is the route.
fn find_operation(method: &str, path: &str) -> Option<&'static Value> {
    let method = if method == "HEAD" { "get".to_owned() } else { method.to_lowercase() };
    let paths = DOCUMENT["paths"].as_object().unwrap().iter();
    let matching = paths.filter(|(template, _)| is_match(template, path));
    let (_, item) = matching.min_by_key(|(template, _)| template.matches('{').count())?;
    item.get(&method)
}

/// Whether a path is one of a template. The parameter `path` can contain slashes.
fn is_match(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some("{path}"), Some(rest)) => return !rest.is_empty() || path.next().is_some(),
            (Some(part), Some(name)) if part == name || part.starts_with('{') && !name.is_empty() => {}
            _ => return false,
        }
    }
}

/// Checks a server-sent event. A name that is not in the document is that of a block of the agent.
///
/// # Panics
/// Names the event and the first difference.
#[track_caller]
pub fn check_frame(frame: &Frame) {
    let schema = &DOCUMENT["components"]["schemas"]["StreamEvent"];
    let mut events = schema["oneOf"].as_array().unwrap().iter();
    let Some(event) = events.find(|event| event["properties"]["event"]["enum"][0] == frame.event) else {
        return;
    };
    let data = &event["properties"]["data"];
    if frame.event == "message" {
        // The bytes of the agent, which may be more than a JSON value can hold.
        assert!(data["type"].is_null() && data["$ref"].is_null(), "{data}");
        return;
    }
    let checked = Schemas::of(&DOCUMENT).check(data, &frame.json(), "data");
    assert!(checked.is_ok(), "event {}: {}\n{}", frame.event, checked.unwrap_err(), frame.data);
}
