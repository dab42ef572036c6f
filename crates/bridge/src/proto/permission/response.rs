//! The `response` of a `control_response` (RB-29, RB-30). An ambiguous response is rejected: a missing field, a
//! repeated field or an unknown word must never count as permission.

use crate::proto::json;

/// The verdict of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionVerdict {
    /// The tool may run.
    Allow,
    /// The tool may not run.
    Deny,
    /// The server failed; agents treat it as a denial.
    Error,
}

/// A well-formed response.
#[derive(Debug, PartialEq, Eq)]
pub struct PermissionResponse<'a> {
    /// The id of the question that it answers.
    pub request_id: String,
    /// The verdict.
    pub verdict: PermissionVerdict,
    /// The JSON of the inner `response`, or of the `error`, byte for byte.
    pub body: &'a str,
}

/// Result of parsing a response.
#[derive(Debug, PartialEq, Eq)]
pub enum ParsedResponse<'a> {
    /// The response is well-formed.
    Complete(PermissionResponse<'a>),
    /// The response names a question and does not answer it.
    Malformed {
        /// The id of the question.
        request_id: String,
        /// The reason.
        why: &'static str,
    },
    /// The response names no question; the reason.
    NoRequestId(&'static str),
}

/// Parses the value of `response`. With `camel` the id may be spelled `requestId`; `request_id` takes precedence
/// (RB-16).
pub fn parse_response(response: &str, camel: bool) -> ParsedResponse<'_> {
    let names = ["request_id", "subtype", "response", "error", "requestId"];
    let Ok(outer) = json::scan(response, &names) else {
        return ParsedResponse::NoRequestId("the response is not an object");
    };
    if outer.forbidden.is_some() || outer.repeated.is_some_and(|at| camel || at < 3) {
        return ParsedResponse::NoRequestId("the response has a repeated or forbidden field");
    }
    let [snake, subtype, inner, error, other] = outer.fields;
    let id = snake.or(other.filter(|_| camel));
    let Some(request_id) = id.and_then(json::parse_string) else {
        return ParsedResponse::NoRequestId("request_id is not a string");
    };
    match parse_body(subtype, inner, error) {
        Ok((verdict, body)) => ParsedResponse::Complete(PermissionResponse { request_id, verdict, body }),
        Err(why) => ParsedResponse::Malformed { request_id, why },
    }
}

fn parse_body<'a>(
    subtype: Option<&str>,
    inner: Option<&'a str>,
    error: Option<&'a str>,
) -> Result<(PermissionVerdict, &'a str), &'static str> {
    match subtype.and_then(json::parse_string).as_deref() {
        Some("error") => Ok((PermissionVerdict::Error, error.unwrap_or("\"\""))),
        Some("success") => {
            let body = inner.ok_or("the response is missing")?;
            parse_verdict(body).map(|verdict| (verdict, body))
        }
        _ => Err("subtype is neither success nor error"),
    }
}

/// The verdict of the inner `response`. This is the only place that recognises an allowance.
///
/// # Errors
/// The reason why it is neither an allowance nor a denial.
pub fn parse_verdict(body: &str) -> Result<PermissionVerdict, &'static str> {
    let inner = json::scan(body, &["behavior"]).map_err(|_| "the response is not an object")?;
    match inner.fields[0].and_then(json::parse_string).as_deref() {
        Some("allow") if inner.repeated.is_none() => Ok(PermissionVerdict::Allow),
        Some("deny") if inner.repeated.is_none() => Ok(PermissionVerdict::Deny),
        _ => Err("behavior is neither allow nor deny"),
    }
}
