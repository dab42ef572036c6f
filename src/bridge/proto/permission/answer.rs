//! The `response` of a `control_response` (RB-29, RB-30). Whatever is not plainly an answer is refused: a
//! forgotten field, a repeated one or an unknown word must never be taken for permission.

use crate::bridge::proto::json;

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The tool may run.
    Allow,
    /// It may not.
    Deny,
    /// The server failed; agents take that for no.
    Error,
}

/// A whole answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The question it answers.
    pub request_id: String,
    /// What it says.
    pub verdict: Verdict,
    /// The JSON of its inner `response`, or of its `error`, byte for byte.
    pub body: &'a str,
}

/// What became of reading it.
#[derive(Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// It is whole.
    Whole(Response<'a>),
    /// It names a question, and does not answer it.
    Malformed {
        /// The question.
        request_id: String,
        /// What is wrong.
        why: &'static str,
    },
    /// It does not even name one.
    Nameless(&'static str),
}

/// Reads the value of `response`. With `camel` the id may be spelled `requestId`; `request_id` stands over it
/// (RB-16).
pub fn read_response(response: &str, camel: bool) -> Reading<'_> {
    let names = ["request_id", "subtype", "response", "error", "requestId"];
    let Ok(outer) = json::scan(response, &names) else {
        return Reading::Nameless("the response is not an object");
    };
    if outer.forbidden.is_some() || outer.repeated.is_some_and(|at| camel || at < 3) {
        return Reading::Nameless("the response has a repeated or forbidden field");
    }
    let [snake, subtype, inner, error, other] = outer.fields;
    let id = snake.or(other.filter(|_| camel));
    let Some(request_id) = id.and_then(json::string) else {
        return Reading::Nameless("request_id is not a string");
    };
    match body(subtype, inner, error) {
        Ok((verdict, body)) => Reading::Whole(Response { request_id, verdict, body }),
        Err(why) => Reading::Malformed { request_id, why },
    }
}

fn body<'a>(
    subtype: Option<&str>,
    inner: Option<&'a str>,
    error: Option<&'a str>,
) -> Result<(Verdict, &'a str), &'static str> {
    match subtype.and_then(json::string).as_deref() {
        Some("error") => Ok((Verdict::Error, error.unwrap_or("\"\""))),
        Some("success") => {
            let body = inner.ok_or("the response is missing")?;
            read_body(body).map(|verdict| (verdict, body))
        }
        _ => Err("subtype is neither success nor error"),
    }
}

/// What the inner `response` says: the one place where a yes is recognised.
///
/// # Errors
/// Why it says neither yes nor no.
pub fn read_body(body: &str) -> Result<Verdict, &'static str> {
    let inner = json::scan(body, &["behavior"]).map_err(|_| "the response is not an object")?;
    match inner.fields[0].and_then(json::string).as_deref() {
        Some("allow") if inner.repeated.is_none() => Ok(Verdict::Allow),
        Some("deny") if inner.repeated.is_none() => Ok(Verdict::Deny),
        _ => Err("behavior is neither allow nor deny"),
    }
}
