//! Rewrites a request for the upstream, and a response for the client. Pure.
//!
//! hyper parses the message and serialises it again, so that both sides agree on where it ends (RFC 9112, section
//! 6.3). No byte of a head from the sandbox is forwarded as it is. This module removes the hop-by-hop fields, sets the
//! host to the upstream, and replaces any credential by the configured key. With another key, a program could send
//! data from the sandbox to a foreign account.

use super::key::ApiKey;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use saggar_policy::ApiUpstream;
use saggar_policy::api::is_plain_path;

/// Methods that are forwarded. CONNECT opens other connections, and TRACE would return the key to the client.
const ALLOWED_METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Hop-by-hop fields, besides those that Connection names (RFC 9110, section 7.6.1).
const HOP_HEADERS: [HeaderName; 5] =
    [CONNECTION, TE, TRAILER, UPGRADE, HeaderName::from_static("keep-alive")];

/// Fields with credentials.
const CREDENTIAL_HEADERS: [&str; 2] = ["x-api-key", "authorization"];

/// Names of this machine inside the sandbox, which a client may use as host.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The reason why a request is not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RejectedRequest {
    /// The status of the response to the client.
    pub(super) status: StatusCode,
    /// The text of the response to the client.
    pub(super) why: &'static str,
}

const fn reject(status: StatusCode, why: &'static str) -> RejectedRequest {
    RejectedRequest { status, why }
}

/// Rewrites a request for the upstream.
///
/// # Errors
/// [`RejectedRequest`]
pub(super) fn to_upstream<B>(
    request: Request<B>,
    upstream: &ApiUpstream,
    key: &ApiKey,
) -> Result<Request<B>, RejectedRequest> {
    let (mut head, body) = request.into_parts();
    if !ALLOWED_METHODS.contains(&head.method) {
        return Err(reject(StatusCode::METHOD_NOT_ALLOWED, "this method does not go to the model API"));
    }
    if head.headers.contains_key(UPGRADE) {
        return Err(reject(
            StatusCode::NOT_IMPLEMENTED,
            "the model API is HTTP/1.1, and nothing is upgraded",
        ));
    }
    if head.headers.get_all(HOST).iter().count() > 1 {
        return Err(reject(StatusCode::BAD_REQUEST, "there is more than one Host"));
    }
    head.uri = upstream_uri(&head.uri, &head.method, upstream)?;
    head.version = Version::HTTP_11;
    head.extensions.clear();
    let headers = &mut head.headers;
    remove_hop_headers(headers);
    // hyper handles expectations itself and sets the length of the body again.
    for name in [EXPECT, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    for name in CREDENTIAL_HEADERS {
        headers.remove(name);
    }
    remove_matching(headers, |name| name.as_str().starts_with("proxy-"));
    let host = HeaderValue::from_str(&upstream.authority())
        .map_err(|_| reject(StatusCode::BAD_GATEWAY, "the upstream has no name that can be sent"))?;
    headers.insert(HOST, host);
    headers.insert(key.name.clone(), key.value.clone());
    Ok(Request::from_parts(head, body))
}

/// Rewrites a response for the client.
///
/// # Errors
/// [`RejectedRequest`] for a response that switches protocols.
pub(super) fn from_upstream<B>(response: Response<B>) -> Result<Response<B>, RejectedRequest> {
    let (mut head, body) = response.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(reject(StatusCode::BAD_GATEWAY, "the upstream changes the protocol without a request"));
    }
    let headers = &mut head.headers;
    remove_hop_headers(headers);
    // Transfer-Encoding takes precedence over Content-Length.
    if headers.remove(TRANSFER_ENCODING).is_some() {
        headers.remove(CONTENT_LENGTH);
    }
    head.extensions.clear();
    Ok(Response::from_parts(head, body))
}

/// The URI of the request, below the upstream's path.
fn upstream_uri(uri: &Uri, method: &Method, upstream: &ApiUpstream) -> Result<Uri, RejectedRequest> {
    if let Some(authority) = uri.authority() {
        let is_ours = LOCAL_HOSTS.contains(&authority.host()) || authority.as_str() == upstream.authority();
        let is_plain = !authority.as_str().contains('@');
        if !is_ours || !is_plain {
            return Err(reject(
                StatusCode::MISDIRECTED_REQUEST,
                "this leads to the model API and nowhere else",
            ));
        }
    }
    let bad = reject(StatusCode::BAD_REQUEST, "the path is not one of the model API");
    let path = uri.path();
    let is_whole_server = path == "*" && method == Method::OPTIONS && upstream.path_prefix.is_empty();
    if !(is_plain_path(path) || is_whole_server) {
        return Err(bad);
    }
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    format!("{}{path}{query}", upstream.path_prefix).parse().map_err(|_| bad)
}

/// Removes the fields that concern one connection only.
fn remove_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // hyper sets the length of the message, even if Connection names its field.
        .filter(|name| *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING)
        .collect();
    for name in named.iter().chain(&HOP_HEADERS) {
        headers.remove(name);
    }
    headers.remove("proxy-connection");
}

fn remove_matching(headers: &mut HeaderMap, which: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| which(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(request: Request<()>, to: &str) -> Result<String, RejectedRequest> {
        let key =
            ApiKey { name: HeaderName::from_static("x-api-key"), value: HeaderValue::from_static("ours") };
        let request = to_upstream(request, &to.parse().unwrap(), &key)?;
        let mut lines: Vec<String> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        Ok(format!("{} {}\n{}", request.method(), request.uri(), lines.join("\n")))
    }

    fn get(uri: &str) -> hyper::http::request::Builder {
        Request::builder().uri(uri)
    }

    #[test]
    fn who_asks_and_whom_is_said_anew_and_the_rest_as_it_was() {
        let request = get("/v1/messages?beta=true")
            .method("POST")
            .header("host", "localhost")
            .header("X-Api-Key", "forged")
            .header("x-api-key", "twice")
            .header("authorization", "Bearer forged")
            .header("proxy-authorization", "Basic forged")
            .header("proxy-x", "forged")
            .header("content-length", "5")
            .header("expect", "100-continue")
            .header("connection", "close, x-mine, X-Api-Key, host")
            .header("x-mine", "1")
            .header("keep-alive", "timeout=5")
            .header("te", "trailers")
            .header("trailer", "x-api-key")
            .header("anthropic-beta", "a")
            .header("anthropic-beta", "b");
        assert_eq!(
            sent(request.body(()).unwrap(), "https://api.example:8443").unwrap(),
            "POST /v1/messages?beta=true\nanthropic-beta: a\nanthropic-beta: b\nhost: api.example:8443\nx-api-key: ours"
        );
    }

    #[test]
    fn a_request_stays_below_the_path_of_its_upstream() {
        let sent = |uri: &str| sent(get(uri).body(()).unwrap(), "http://proxy.example/a");
        for uri in ["/v1", "http://localhost:274/v1", "http://127.0.0.1/v1", "http://proxy.example/v1"] {
            assert!(sent(uri).unwrap().starts_with("GET /a/v1\n"), "{uri}");
        }
        for uri in ["http://other.example/v1", "http://proxy.example:8080/v1", "http://a@localhost/v1"] {
            assert_eq!(sent(uri).unwrap_err().status, StatusCode::MISDIRECTED_REQUEST, "{uri}");
        }
        for uri in ["/../b", "/v1/%2e%2E/b", "/v1/.%2e", "/v1%2f..%2fb", "/v1/..%5cb", "*"] {
            assert_eq!(sent(uri).unwrap_err().status, StatusCode::BAD_REQUEST, "{uri}");
        }
    }

    #[test]
    fn what_is_no_request_to_an_api_is_refused() {
        let status = |request: hyper::http::request::Builder| {
            sent(request.body(()).unwrap(), "http://api.example").unwrap_err().status.as_u16()
        };
        for method in ["CONNECT", "TRACE", "TRACK", "PRI", "PROPFIND"] {
            assert_eq!(status(get("/").method(method)), 405, "{method}");
        }
        assert_eq!(status(get("/").header("connection", "upgrade").header("upgrade", "websocket")), 501);
        assert_eq!(status(get("/").header("host", "a").header("host", "b")), 400);
    }

    #[test]
    fn an_answer_leaves_its_hop_and_keeps_the_rest() {
        let answer = |response: hyper::http::response::Builder| from_upstream(response.body(()).unwrap());
        let response = Response::builder()
            .status(302)
            .header("location", "https://elsewhere.example/")
            .header("connection", "keep-alive, x-hop")
            .header("x-hop", "1")
            .header("transfer-encoding", "chunked")
            .header("content-length", "5")
            .header("request-id", "r");
        let response = answer(response).unwrap();
        let names: Vec<_> = response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!((response.status().as_u16(), names), (302, vec!["location", "request-id"]));
        let response = answer(Response::builder().header("content-length", "5")).unwrap();
        assert!(response.headers().contains_key("content-length"), "an answer to HEAD has no other");
        assert!(answer(Response::builder().status(101)).is_err());
    }
}
